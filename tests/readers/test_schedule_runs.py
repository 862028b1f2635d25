"""Runs of schedules in the lake: once each, whole, and what the models make of them."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest

from pipelines.faces.schedule_picture import picture_of_run
from pipelines.lake import Lake
from pipelines.lake.layout import batch_of, table_files
from pipelines.lake.publish.analyst_file import publish
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize.per_trace import materialize
from pipelines.schedule.run import main
from tests.harness import memory

TASKS = ("Copy", "Forward")


def write_run(
    folder: Path,
    run_id: str,
    engine: str,
    period_us: int,
    tasks_us: tuple[int, int] = (10, 30),
    waits_us: int | None = None,
    cycle: str = "",
) -> Path:
    """A run of 20 iterations of Copy (stream copy) and Forward (stream main) that ends one every `period_us`. `waits_us`:
    Copy is a collective, which waits so long in three of four iterations. `cycle`: further columns of the prediction."""
    folder.mkdir(parents=True)
    with memory() as con:

        def write(table: str, rows: str) -> None:
            con.execute(f"COPY ({rows}) TO '{folder / table}.parquet' (FORMAT parquet)")

        write(
            "schedule_runs",
            f"SELECT '{run_id}' AS run_id, 'h1' AS plan_hash, '{engine}' AS engine, 'cpu' AS device, 'a CPU' AS device_name, "
            "20 AS iterations, TIMESTAMP '2026-01-01' AS started_at, 0 AS jitter_ns, 'small' AS size",
        )
        write(
            "schedule_plans",
            f"SELECT 'h1' AS plan_hash, 'p' AS plan, 'mlp' AS workload, task = 'Copy' AND {waits_us is not None} AS globally_ordered, "
            "* FROM (VALUES (0, 'Copy', 0, 'copy', NULL), (1, 'Forward', 1, 'main', 'Copy')) "
            "AS t (position, task, stage, stream, depends_on)",
        )
        copy_us, forward_us = tasks_us
        write(
            "schedule_task_timings",
            f"SELECT '{run_id}' AS run_id, t.task, i AS iteration, i * {period_us} * 1000 + t.begin_us * 1000 AS start_ns, "
            f"i * {period_us} * 1000 + (t.begin_us + t.dur + CASE WHEN t.task = 'Copy' AND i % 4 > 0 THEN {waits_us or 0} ELSE 0 END) "
            "* 1000 AS end_ns, t.begin_us * 100 AS stall_ns, t.cause AS stall_cause "
            f"FROM range(20) AS r (i), (VALUES ('Copy', 0, {copy_us}, NULL), "
            f"('Forward', {copy_us}, {forward_us}, 'event: input i7')) AS t (task, begin_us, dur, cause)",
        )
        write(
            "schedule_exposed_times",
            f"SELECT '{run_id}' AS run_id, 'Copy' AS task, 8000 AS exposed_ns, 40000 AS baseline_ns",
        )
        write("schedule_predictions", f"SELECT '{run_id}' AS run_id, NULL::VARCHAR AS task, 31000 AS period_ns{cycle}")
    return folder


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    write_run(tmp_path / "runs" / "a", "a", "serial", 40)
    write_run(tmp_path / "runs" / "b", "b", "sw", 32)
    lake = Lake(tmp_path / "lake")
    report = ingest([tmp_path / "runs"], lake)
    assert [(Path(row.path).name, row.status, row.trace_id, row.n_events) for row in report.rows] == [
        ("a", "ok", "a", 40),
        ("b", "ok", "b", 40),
    ]
    return lake


def asked(lake: Lake, query: str) -> list[tuple]:
    with duckdb.connect(str(publish(lake)), read_only=True) as con:
        return con.execute(query).fetchall()


def test_runs_come_in_once(lake: Lake, tmp_path: Path) -> None:
    files = sorted(lake.root.rglob("*.parquet"))
    again = ingest([tmp_path / "runs"], lake)
    assert [row.status for row in again.rows] == ["known", "known"]
    assert sorted(lake.root.rglob("*.parquet")) == files
    assert asked(lake, "SELECT run_id, engine FROM schedule_runs ORDER BY 1") == [("a", "serial"), ("b", "sw")]
    assert asked(lake, "SELECT task, stage FROM schedule_plans ORDER BY position") == [("Copy", 0), ("Forward", 1)]
    assert asked(lake, "SELECT count(*), count(device_start_ns) FROM schedule_task_timings") == [(80, 0)]


def test_a_run_without_its_mark_is_not_shown(lake: Lake) -> None:
    for mark in table_files(lake.root, "schedule_runs"):
        lake.take_away(batch_of(mark), ["schedule_runs"])
    assert asked(lake, "SELECT count(*) FROM schedule_task_timings") == [(0,)]


def test_half_a_run_is_rejected(lake: Lake, tmp_path: Path) -> None:
    half = write_run(tmp_path / "half", "c", "sw", 30)
    (half / "schedule_task_timings.parquet").unlink()
    (row,) = ingest([half], lake).rejected
    assert "schedule_task_timings missing" in str(row.reason)
    (broken := write_run(tmp_path / "broken", "d", "sw", 30) / "schedule_plans.parquet").write_bytes(b"PAR1")
    (row,) = ingest([broken.parent], lake).rejected
    assert "DuckDB cannot read it" in str(row.reason)
    assert asked(lake, "SELECT count(*) FROM schedule_runs") == [(2,)]
    assert asked(lake, "SELECT path, reason LIKE '%missing%' FROM rejects ORDER BY 2 DESC") == [
        (str(half), True),
        (str(broken.parent), False),
    ]


def test_period_efficiency_and_speedup(lake: Lake) -> None:
    # The busiest stream works 30 us; serially an iteration takes 40, pipelined 32.
    assert asked(
        lake,
        "SELECT run_id, period_ns, ideal_ns, work_ns, efficiency, predicted_period_ns FROM schedule_periods ORDER BY 1",
    ) == [("a", 40_000, 30_000, 40_000, 0.75, 31_000), ("b", 32_000, 30_000, 40_000, 30 / 32, 31_000)]
    assert asked(lake, "SELECT run_id, serial_run_id, speedup FROM schedule_speedups") == [("b", "a", 1.25)]


def add_comparison(run: Path, run_id: str, periods_us: list[int], verdict: str | None = None) -> None:
    """Write the rounds of comparison `c` into a run, and a verdict over run `serial`."""
    with memory() as con:
        rounds = ", ".join(f"({turn}, {period_us} * 1000)" for turn, period_us in enumerate(periods_us))
        con.execute(
            f"COPY (SELECT '{run_id}' AS run_id, 'c' AS comparison_id, round, 9 AS iterations, period_ns "
            f"FROM (VALUES {rounds}) AS t (round, period_ns)) TO '{run / 'schedule_rounds.parquet'}' (FORMAT parquet)"
        )
        if verdict:
            con.execute(
                f"COPY (SELECT '{run_id}' AS run_id, 'c' AS comparison_id, 'serial' AS serial_run_id, 2e0 AS speedup, "
                f"1.5e0 AS speedup_low, 2.5e0 AS speedup_high, '{verdict}' AS verdict) "
                f"TO '{run / 'schedule_verdicts.parquet'}' (FORMAT parquet)"
            )


def test_speedups_of_a_comparison_are_its_own_and_single_runs_pair_with_single_runs(tmp_path: Path) -> None:
    """The runs of a comparison, whose recorded periods count for nothing; a single run, and a serial one for it."""
    lake = Lake(tmp_path / "lake")
    add_comparison(write_run(tmp_path / "x" / "serial", "serial", "serial", 70), "serial", [40, 44, 60])
    add_comparison(write_run(tmp_path / "x" / "fast", "fast", "sw", 50), "fast", [21, 20, 25], "twice as fast")
    write_run(tmp_path / "x" / "alone", "alone", "dataflow", 32)
    write_run(tmp_path / "x" / "old", "old", "serial", 64)
    ingest([tmp_path / "x"], lake)
    assert asked(
        lake,
        "SELECT run_id, serial_run_id, period_ns // 1000, serial_period_ns // 1000, speedup, speedup_low, speedup_high, "
        "rounds, verdict, round(efficiency, 3) FROM schedule_speedups ORDER BY run_id",
    ) == [
        ("alone", "old", 32, 64, 2.0, None, None, None, None, 0.938),
        ("fast", "serial", 21, 44, 2.0, 1.5, 2.5, 3, "twice as fast", 1.429),
    ]


def test_a_traced_run_is_not_compared_with_one_without_a_profiler(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    for run_id, engine, period_us, traced in (
        ("s", "serial", 40, False),
        ("t", "serial", 80, True),
        ("n", "sw", 32, False),
        ("p", "sw", 40, True),
    ):
        run = write_run(tmp_path / "x" / run_id, run_id, engine, period_us)
        with memory() as con:
            mark = run / "schedule_runs.parquet"
            trace = "'trace.json.gz'" if traced else "NULL"
            con.execute(
                f"COPY (SELECT *, CAST({trace} AS VARCHAR) AS trace_file FROM '{mark}') TO '{run / 'new'}' (FORMAT parquet)"
            )
            (run / "new").replace(mark)
    ingest([tmp_path / "x"], lake)
    assert asked(lake, "SELECT run_id, serial_run_id, speedup FROM schedule_speedups ORDER BY 1") == [
        ("n", "s", 1.25),
        ("p", "t", 2.0),
    ]
    assert asked(lake, "SELECT DISTINCT last_run_id, is_worse FROM schedule_run_checks") == [(None, False)]


def test_waiting_inside_a_collective_is_no_work_of_its_stream(tmp_path: Path) -> None:
    """PRB-21: three of four times Copy waits 50 us for another rank, on the stream that would look busiest for it."""
    for name, waits_us in (("computes", None), ("waits", 50)):
        write_run(tmp_path / name / "run", name, "sw", 80, waits_us=waits_us)
        lake = Lake(tmp_path / f"lake {name}")
        ingest([tmp_path / name], lake)
        found = asked(lake, "SELECT ideal_ns, work_ns, round(efficiency, 3) FROM schedule_periods")
        assert found == [(30_000, 40_000, 0.375)]


@pytest.mark.parametrize(
    ("cycle_ns", "ideal"), [(30_000, (30_000, "main", 0.75)), (36_000, (36_000, "cycle Copy -> Forward", 0.9))]
)
def test_a_cycle_longer_than_the_work_of_any_stream_is_the_ideal(tmp_path: Path, cycle_ns: int, ideal: tuple) -> None:
    write_run(tmp_path / "run", "a", "sw", 40, cycle=f", {cycle_ns} AS cycle_ns, 'Copy -> Forward' AS cycle")
    lake = Lake(tmp_path / "lake")
    ingest([tmp_path / "run"], lake)
    assert asked(lake, "SELECT ideal_ns, bound_by, round(efficiency, 3) FROM schedule_periods") == [ideal]


def test_bubbles_and_jitter(lake: Lake) -> None:
    assert asked(lake, "SELECT * EXCLUDE run_id FROM schedule_bubbles WHERE run_id = 'b'") == [
        ("main", "event: input", 20, 20_000, 1000.0)
    ]
    assert asked(
        lake,
        "SELECT task, n, p50_ns, p99_ns, iteration_p50_ns, reaches_iteration FROM schedule_jitter WHERE run_id = 'b' ORDER BY 1",
    ) == [
        ("Copy", 20, 10_000, 10_000, 32_000, None),
        ("Forward", 20, 30_000, 30_000, 32_000, None),
    ]


@pytest.mark.parametrize(("iterations", "engine"), [(50, "sw"), (13, "serial")])
def test_without_jitter_stalls_are_as_predicted(tmp_path: Path, iterations: int, engine: str) -> None:
    """They are of the middle half of the run: a stream waits longer while the pipeline fills, less while it drains."""
    options = {"plan": "augmented", "device": "simulated", "engine": engine, "iterations": str(iterations)}
    arguments = [text for name, value in options.items() for text in (f"--{name}", value)]
    assert main([*arguments, "--out", str(tmp_path / "runs")]) == 0
    lake = Lake(tmp_path / "lake")
    ingest([tmp_path / "runs"], lake)
    stalls = asked(lake, "SELECT task, predicted_stall_ns, measured_stall_ns FROM schedule_predicted_tasks")
    assert len(stalls) == 6 and all(measured == predicted for _, predicted, measured in stalls), stalls
    assert asked(lake, "SELECT DISTINCT difference_ns FROM schedule_predicted_tasks") == [(0,)]


def test_a_picture_of_a_serial_run_has_its_one_stream(lake: Lake) -> None:
    with duckdb.connect(str(publish(lake)), read_only=True) as con:
        serial, clocked = (picture_of_run(con, run) for run in ("a", "b"))
    assert ">default<" in serial and ">copy<" not in serial
    assert ">copy<" in clocked and ">main<" in clocked


def test_lost_iterations_and_worse_runs_are_seen(lake: Lake, tmp_path: Path) -> None:
    write_run(tmp_path / "later" / "c", "c", "sw", 60)  # the same plan and engine as b, slower
    ingest([tmp_path / "later"], lake)
    lost = write_run(tmp_path / "lost", "d", "dataflow", 32)
    with memory() as con:
        timings = lost / "schedule_task_timings.parquet"
        con.execute(f"COPY (SELECT * FROM '{timings}' WHERE iteration <> 7) TO '{lost / 'left'}' (FORMAT parquet)")
    (lost / "left").replace(timings)
    ingest([lost], lake)
    assert asked(lake, "SELECT run_id, n_lost, last_run_id, is_worse FROM schedule_run_checks ORDER BY 1") == [
        ("a", 0, None, False),
        ("b", 0, None, False),
        ("c", 0, "b", True),
        ("d", 2, None, False),
    ]


def cpu(thread: int, name: str, start_us: int, dur_us: int, cat: str, **args: int) -> dict:
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "pid": 1,
        "tid": thread,
        "ts": start_us,
        "dur": dur_us,
        "args": args,
    }


def gpu(cat: str, start_us: int, dur_us: int, stream: int, correlation: int) -> dict:
    work = {"device": 0, "stream": stream, "correlation": correlation}
    return {
        "ph": "X",
        "cat": cat,
        "name": cat,
        "pid": 0,
        "tid": stream,
        "ts": start_us,
        "dur": dur_us,
        "args": work,
    }


def test_a_run_beside_its_trace(lake: Lake, tmp_path: Path) -> None:
    """Two tasks of one iteration in a trace: what they launched, their share of the path, their slack."""
    events = [
        cpu(2, "SWP/Copy/iter0", 0, 10, "user_annotation"),
        cpu(2, "cudaMemcpyAsync", 2, 4, "cuda_runtime", correlation=1),
        gpu("gpu_memcpy", 5, 10, 20, 1),
        cpu(1, "aten::zeros", 0, 20, "cpu_op"),  # thread 1 waits for nobody
        cpu(1, "SWP/Forward/iter0", 20, 40, "user_annotation"),
        cpu(1, "aten::mm", 22, 28, "cpu_op"),
        cpu(1, "cudaLaunchKernel", 30, 4, "cuda_runtime", correlation=2),
        gpu("kernel", 40, 100, 7, 2),
    ]
    trace = tmp_path / "trace.json"
    trace.write_text(json.dumps({"schedule_run_id": "b", "traceEvents": events}))
    ingest([trace], lake)
    materialize(lake, ["kernels", "critical_path", "event_slack", "schedule_traced_tasks"])
    found = asked(
        lake,
        "SELECT task, n_spans, span_ns, n_kernels, kernel_ns, path_ns, kernel_path_ns, slack_ns, disagreement "
        "FROM schedule_traced_tasks ORDER BY task",
    )
    # The path: 20 us of thread 1 before the task, 2 in it before aten::mm, 8 of aten::mm until it launches, 10 until the
    # kernel begins, 100 of the kernel. What the copy does ends 15 us after the start, so it has 125 left. The rest of the
    # path belongs to no task.
    assert found == [
        ("Copy", 1, 10_000, 1, 10_000, 0, 0, 125_000, "exposed, but not on the path"),
        ("Forward", 1, 40_000, 1, 100_000, 110_000, 100_000, 0, None),
        (None, None, None, None, None, 30_000, 0, 0, None),
    ]


def test_tasks_of_a_serial_run_are_in_its_trace_too(lake: Lake, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    event = cpu(1, "SWP_serial/Copy/iter3", 0, 10, "user_annotation")
    trace.write_text(json.dumps({"schedule_run_id": "a", "traceEvents": [event]}))
    ingest([trace], lake)
    assert asked(lake, "SELECT run_id, task, iteration, duration_ns FROM schedule_spans") == [("a", "Copy", 3, 10_000)]


def launch(thread: int, start_us: int, dur_us: int, correlation: int) -> list[dict]:
    call = cpu(thread, "cudaLaunchKernel", start_us, 2, "cuda_runtime", correlation=correlation)
    return [call, gpu("kernel", start_us + 3, dur_us, 7, correlation)]


def traced(lake: Lake, folder: Path, events: list[dict]) -> dict[str | None, int | None]:
    """Task -> its GPU time, us, of a run's trace with these events."""
    folder.mkdir()
    write_run(folder / "run", "b", "sw", 30)
    trace = folder / "trace.json"
    trace.write_text(json.dumps({"schedule_run_id": "b", "traceEvents": events}))
    ingest([folder / "run", trace], lake)
    materialize(lake, ["kernels", "backward_links", "schedule_traced_tasks"])
    rows = asked(lake, "SELECT task, kernel_ns // 1000 FROM schedule_traced_tasks")
    total = asked(lake, "SELECT sum(duration_ns) // 1000 FROM kernels")[0][0]
    assert sum(kernel_us or 0 for _, kernel_us in rows) == total
    return dict(rows)


def backward(start_us: int, dur_us: int, sequence: int) -> dict:
    numbers = {"Sequence number": sequence, "Fwd thread id": 1}
    return cpu(3, "autograd::engine::evaluate_function: MmBackward0", start_us, dur_us, "cpu_op", **numbers)


FORWARD = [
    cpu(1, "SWP/Forward/iter0", 0, 40, "user_annotation"),
    cpu(1, "aten::mm", 5, 30, "cpu_op", **{"Sequence number": 7}),
    *launch(1, 10, 4, 1),
    cpu(1, "SWP/Backward/iter0", 60, 100, "user_annotation"),
]
"""Thread 1: a forward operator, and a task that calls backward() and waits. Thread 3 is autograd's."""


def test_work_of_autograds_thread_belongs_to_the_task_that_called_backward(lake: Lake, tmp_path: Path) -> None:
    """The task in the iteration of the forward operator, although another task's thread waits for longer."""
    events = [
        *FORWARD,
        cpu(2, "SWP/Decode/iter1", 45, 120, "user_annotation"),  # Python code: no operator
        backward(70, 20, 7),
        *launch(3, 75, 8, 2),
        cpu(3, "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 92, 20, "cpu_op"),
        *launch(3, 95, 16, 3),  # no forward operator: the same pass as before
        *launch(4, 120, 32, 4),  # a thread that works for no task
        *launch(3, 161, 64, 5),  # after the task
    ]
    gpu_us = traced(lake, tmp_path / "x", events)
    assert gpu_us == {"Forward": 4, "Backward": 24, "Decode": 64, None: 32}


@pytest.mark.parametrize("cat", ["cpu_op", "hip_runtime"])
@pytest.mark.parametrize("busy, owner", [(True, "Backward"), (False, "Copy")])
def test_without_a_forward_operator_the_task_whose_thread_has_waited_longest_called_backward(
    lake: Lake, tmp_path: Path, busy: bool, owner: str, cat: str
) -> None:
    events = [
        cpu(1, "SWP/Backward/iter0", 60, 100, "user_annotation"),
        cpu(1, "aten::ones_like", 61, 5, "cpu_op"),
        cpu(2, "SWP/Copy/iter1", 45, 120, "user_annotation"),
        cpu(2, "aten::copy_", 46, 40 if busy else 10, cat),
        backward(70, 20, 7),
        *launch(3, 75, 8, 2),
    ]
    gpu_us = traced(lake, tmp_path / "x", events)
    assert gpu_us == {"Backward": None, "Copy": None, None: None} | {owner: 8}
