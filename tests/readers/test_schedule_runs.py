"""Runs of schedules in the lake: each is ingested once and complete, and models compute tables from them."""

from __future__ import annotations

import json
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import duckdb
import pytest
from typer.testing import CliRunner

from pipelines.base.errors import TracelakeError
from pipelines.faces.cli.app import app
from pipelines.faces.schedule_picture import picture_of_run
from pipelines.lake import Lake
from pipelines.lake.inbox import look, waiting
from pipelines.lake.names import batch_of, tables_of
from pipelines.lake.publish.analyst_file import publish
from pipelines.lake.table_files import table_files
from pipelines.models.catalog import load_catalog
from pipelines.models.header import RUN
from pipelines.models.run import run_models
from pipelines.readers.ingest import IngestReport, ingest
from pipelines.readers.schedule_runs import INPUT
from pipelines.runs.materialize.per_trace import materialize
from pipelines.schedule.run import main
from tests.harness import connect, memory
from tests.readers.inputs.read_tables import loaded


def write_run(
    folder: Path,
    run_id: str,
    engine: str,
    period_us: int,
    tasks_us: tuple[int, int] = (10, 30),
    waits_us: int | None = None,
    cycle: str = "",
    plan: str = "h1",
    device: str = "cpu",
    host: str = "a",
) -> Path:
    """Write a run of 20 iterations of Copy (stream copy) and Forward (stream main), one every `period_us`.

    With `waits_us`, Copy is a collective that waits this long in three of four iterations. `cycle` are further columns
    of the prediction. `plan` is the plan's hash; runs of different plans are never compared. `host` is the host's name.
    """
    folder.mkdir(parents=True)
    with memory() as con:

        def write(table: str, rows: str) -> None:
            con.execute(f"COPY ({rows}) TO '{folder / table}.parquet' (FORMAT parquet)")

        write(
            "schedule_runs",
            f"SELECT '{run_id}' AS run_id, '{plan}' AS plan_hash, '{engine}' AS engine, '{device}' AS device, "
            "'a CPU' AS device_name, 20 AS iterations, TIMESTAMP '2026-01-01' AS started_at, 0 AS jitter_ns, "
            f"'small' AS size, '{host}' AS host",
        )
        write(
            "schedule_plans",
            f"SELECT '{plan}' AS plan_hash, 'p' AS plan, 'mlp' AS workload, task = 'Copy' AND {waits_us is not None} AS globally_ordered, "
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


def asked(lake: Lake, query: str) -> list[tuple]:
    with duckdb.connect(str(publish(lake)), read_only=True) as con:
        return con.execute(query).fetchall()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the runs of all tests: `first`, `later` (of a plan that the lake then knows), and traces of some."""
    folder = tmp_path_factory.mktemp("runs")
    write_run(folder / "first" / "a", "a", "serial", 40)
    write_run(folder / "first" / "b", "b", "sw", 32)
    for write in (
        write_incomplete,
        write_compared,
        write_hosts,
        write_profiled,
        write_waiting,
        write_cycles,
        write_probed,
        simulate,
        write_traces,
    ):
        write(folder / "first")
    write_checked(folder)
    return folder


@pytest.fixture(scope="module")
def reports(folder: Path) -> tuple[Lake, list[IngestReport]]:
    """Return a lake with all runs and traces, and the reports of its two ingestions."""
    lake = Lake(folder / "lake")
    reports = [ingest([folder / name], lake) for name in ("first", "later")]
    materialize(lake, ["kernels", "critical_path", "event_slack", "backward_links", "schedule_traced_tasks"])
    return lake, reports


@pytest.fixture(scope="module")
def lake(reports: tuple[Lake, list[IngestReport]]) -> Lake:
    return reports[0]


def test_runs_come_in_once(reports: tuple[Lake, list[IngestReport]], folder: Path) -> None:
    lake, (first, _) = reports
    assert [(row.status, row.trace_id, row.n_events) for row in first.rows if Path(row.path).name in ("a", "b")] == [
        ("ok", "a", 40),
        ("ok", "b", 40),
    ]
    files = sorted(lake.root.rglob("*.parquet"))
    again = ingest([folder / "first" / "a", folder / "first" / "b"], lake)
    assert [row.status for row in again.rows] == ["known", "known"]
    assert sorted(lake.root.rglob("*.parquet")) == files
    runs = "SELECT run_id, engine FROM schedule_runs WHERE plan_hash = 'h1' ORDER BY 1"
    assert asked(lake, runs) == [("a", "serial"), ("b", "sw")]
    tasks = "SELECT task, stage FROM schedule_plans WHERE plan_hash = 'h1' ORDER BY position"
    assert asked(lake, tasks) == [("Copy", 0), ("Forward", 1)]
    timings = "SELECT count(*), count(device_start_ns) FROM schedule_task_timings WHERE run_id IN ('a', 'b')"
    assert asked(lake, timings) == [(80, 0)]


def test_a_run_without_its_mark_is_not_shown(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    ingest([write_run(tmp_path / "run", "a", "serial", 40)], lake)
    for mark in table_files(lake.root, "schedule_runs"):
        lake.take_away(batch_of(mark), ["schedule_runs"])
    assert asked(lake, "SELECT count(*) FROM schedule_task_timings") == [(0,)]


def test_a_run_that_was_copied_in_pieces_is_ingested_when_the_last_has_arrived(tmp_path: Path) -> None:
    """A run is ingested when the last of its files has arrived. `daily` also re-reads an incomplete run."""
    lake = Lake(tmp_path / "lake")
    late = write_run(tmp_path / "inbox" / "run", "a", "serial", 40) / "schedule_task_timings.parquet"
    late.rename(tmp_path / late.name)

    def asked_files(and_rejected: bool = False) -> list[Path]:
        return list(waiting(lake, look(tmp_path / "inbox").files, and_rejected))

    assert [row.status for row in ingest(asked_files(), lake).rows] == ["rejected"]
    assert asked_files() == [] and {path.parent for path in asked_files(and_rejected=True)} == {late.parent}
    (tmp_path / late.name).rename(late)
    assert asked_files() == [late]
    assert [(row.status, row.trace_id) for row in ingest(asked_files(), lake).rows] == [("ok", "a")]
    ingest(asked_files(and_rejected=True), lake)
    assert asked_files(and_rejected=True) == []


def test_a_folder_named_as_a_column_does_not_replace_it(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "engine=sw" / "run_id=7" / "jitter_ns=5", "a", "serial", 40)
    con = loaded(INPUT, folder.iterdir())
    assert con.execute("SELECT run_id, engine, jitter_ns FROM schedule_runs").fetchall() == [("a", "serial", 0)]
    assert con.execute("SELECT DISTINCT run_id FROM schedule_task_timings").fetchall() == [("a",)]


def write_incomplete(folder: Path) -> None:
    (write_run(folder / "half", "half", "sw", 30) / "schedule_task_timings.parquet").unlink()
    (write_run(folder / "broken", "broken", "sw", 30) / "schedule_plans.parquet").write_bytes(b"PAR1")


def test_half_a_run_is_rejected(reports: tuple[Lake, list[IngestReport]], folder: Path) -> None:
    lake, (first, later) = reports
    broken, half = sorted(first.rejected, key=lambda row: str(row.path))
    assert "schedule_task_timings missing" in str(half.reason) and later.rejected == []
    assert "DuckDB cannot read it" in str(broken.reason)
    assert asked(lake, "SELECT count(*) FROM schedule_runs WHERE run_id IN ('half', 'broken')") == [(0,)]
    assert asked(lake, "SELECT path, reason LIKE '%missing%' FROM rejects ORDER BY 2 DESC") == [
        (str(folder / "first" / "half"), True),
        (str(folder / "first" / "broken"), False),
    ]


def test_rows_of_another_run_are_rejected(tmp_path: Path) -> None:
    """A file with rows of another run is rejected, because they would count as rows of this run.

    For example, the file was copied into the wrong folder.
    """
    for table in ("schedule_task_timings", "schedule_predictions", "schedule_plans"):
        mixed = write_run(tmp_path / "runs" / table, "mine", "sw", 40)
        other = write_run(tmp_path / f"other {table}", "other", "serial", 90, plan="h2")
        (other / f"{table}.parquet").replace(mixed / f"{table}.parquet")
    for name, changed in (("nameless", "SELECT * REPLACE (NULL::VARCHAR AS run_id) FROM"), ("two", "FROM range(2),")):
        mark = write_run(tmp_path / "runs" / name, "mine", "sw", 40) / "schedule_runs.parquet"
        with memory() as con:
            con.execute(f"COPY ({changed} '{mark}') TO '{tmp_path / name}' (FORMAT parquet)")
        (tmp_path / name).replace(mark)
    report = ingest([tmp_path / "runs"], Lake(tmp_path / "lake"))
    assert {Path(row.path).name: str(row.reason).partition(";")[0] for row in report.rows} == {
        "schedule_task_timings": "schedule_task_timings.parquet has rows of run other in the folder of run mine",
        "schedule_predictions": "schedule_predictions.parquet has rows of run other in the folder of run mine",
        "schedule_plans": "schedule_plans.parquet has plan h2, but run mine has plan h1",
        "nameless": "the run in schedule_runs.parquet has no run_id",
        "two": "schedule_runs.parquet holds 2 runs",
    }


def test_period_efficiency_and_speedup(lake: Lake) -> None:
    # The busiest stream works 30 us. An iteration takes 40 us in series, and 32 us pipelined.
    assert asked(
        lake,
        "SELECT run_id, period_ns, ideal_ns, work_ns, efficiency, predicted_period_ns FROM schedule_periods "
        "WHERE plan_hash = 'h1' ORDER BY 1",
    ) == [("a", 40_000, 30_000, 40_000, 0.75, 31_000), ("b", 32_000, 30_000, 40_000, 30 / 32, 31_000)]
    speedups = "SELECT run_id, serial_run_id, speedup FROM schedule_speedups WHERE 'a' IN (run_id, serial_run_id)"
    assert asked(lake, speedups) == [("b", "a", 1.25)]


def add_comparison(
    run: Path, run_id: str, periods_us: list[int], verdict: str | None = None, serial: str = "serial"
) -> None:
    """Write the rounds of comparison `c` into a run, and a verdict against run `serial`."""
    with memory() as con:
        rounds = ", ".join(f"({turn}, {period_us} * 1000)" for turn, period_us in enumerate(periods_us))
        con.execute(
            f"COPY (SELECT '{run_id}' AS run_id, 'c' AS comparison_id, round, 9 AS iterations, period_ns "
            f"FROM (VALUES {rounds}) AS t (round, period_ns)) TO '{run / 'schedule_rounds.parquet'}' (FORMAT parquet)"
        )
        if verdict:
            con.execute(
                f"COPY (SELECT '{run_id}' AS run_id, 'c' AS comparison_id, '{serial}' AS serial_run_id, 2e0 AS speedup, "
                f"1.5e0 AS speedup_low, 2.5e0 AS speedup_high, '{verdict}' AS verdict) "
                f"TO '{run / 'schedule_verdicts.parquet'}' (FORMAT parquet)"
            )


def write_compared(folder: Path) -> None:
    """Write the runs of a comparison, whose recorded periods do not count.

    Also write a single run, and a serial run for it.
    """
    serial, fast = (
        write_run(folder / run, run, engine, period_us, plan="compared")
        for run, engine, period_us in (("serial", "serial", 70), ("fast", "sw", 50))
    )
    add_comparison(serial, "serial", [40, 44, 60])
    add_comparison(fast, "fast", [21, 20, 25], "twice as fast")
    partial = write_run(folder / "partial", "partial", "sw", 50, plan="compared")
    add_comparison(partial, "partial", [40], "twice as fast", serial="elsewhere")
    write_run(folder / "alone", "alone", "dataflow", 32, plan="compared")
    write_run(folder / "old", "old", "serial", 64, plan="compared")


def test_speedups_of_a_comparison_are_its_own_and_single_runs_pair_with_single_runs(lake: Lake) -> None:
    assert asked(
        lake,
        "SELECT run_id, serial_run_id, period_ns // 1000, serial_period_ns // 1000, speedup, speedup_low, speedup_high, "
        "rounds, verdict, round(efficiency, 3) FROM schedule_speedups WHERE serial_run_id IN ('old', 'serial') ORDER BY 1",
    ) == [
        ("alone", "old", 32, 64, 2.0, None, None, None, None, 0.938),
        ("fast", "serial", 21, 44, 2.0, 1.5, 2.5, 3, "twice as fast", 1.429),
    ]


def test_a_comparison_is_shown_without_its_serial_run(lake: Lake) -> None:
    """A comparison is shown even if only the folder of the compared run was ingested."""
    columns = "serial_run_id, period_ns // 1000, serial_period_ns, speedup, rounds, verdict"
    compared = asked(lake, f"SELECT {columns} FROM schedule_speedups WHERE run_id = 'partial'")
    assert compared == [("elsewhere", 40, None, 2.0, 1, "twice as fast")]
    unpaired = "SELECT count(*) FROM schedule_speedups WHERE serial_run_id IS NULL"
    assert asked(lake, unpaired) == [(0,)]


def write_hosts(folder: Path) -> None:
    """Write runs on two hosts with the same processor, and simulated runs, whose times are the same on all hosts."""
    for device in ("cpu", "simulated"):
        for run, engine, host, period_us in (("1", "serial", "a", 80), ("2", "sw", "a", 40), ("3", "sw", "b", 160)):
            name = f"{device} {run}"
            write_run(folder / name, name, engine, period_us, plan=f"hosts {device}", device=device, host=host)


def test_runs_of_another_host_are_not_on_the_same_device(lake: Lake) -> None:
    speedups = "SELECT run_id, serial_run_id, speedup FROM schedule_speedups WHERE serial_run_id LIKE '% 1' ORDER BY 1"
    assert asked(lake, speedups) == [
        ("cpu 2", "cpu 1", 2.0),
        ("simulated 2", "simulated 1", 2.0),
        ("simulated 3", "simulated 1", 0.5),
    ]
    checks = "SELECT run_id, last_run_id, is_worse FROM schedule_run_checks WHERE run_id LIKE '% 3' ORDER BY 1"
    assert asked(lake, checks) == [("cpu 3", None, False), ("simulated 3", "simulated 2", True)]


def write_profiled(folder: Path) -> None:
    for run_id, engine, period_us, traced, seed in (
        ("s", "serial", 40, False, 0),
        ("t", "serial", 80, True, 0),
        ("n", "sw", 32, False, 0),
        ("o", "sw", 32, False, 7),
        ("p", "sw", 40, True, 0),
    ):
        run = write_run(folder / run_id, run_id, engine, period_us, plan="profiled")
        with memory() as con:
            mark = run / "schedule_runs.parquet"
            trace = "'trace.json.gz'" if traced else "NULL"
            con.execute(
                f"COPY (SELECT *, CAST({trace} AS VARCHAR) AS trace_file, CAST({seed} AS BIGINT) AS seed FROM '{mark}') "
                f"TO '{run / 'new'}' (FORMAT parquet)"
            )
            (run / "new").replace(mark)


def test_a_traced_run_is_not_compared_with_one_without_a_profiler(lake: Lake) -> None:
    speedups = "SELECT run_id, serial_run_id, speedup FROM schedule_speedups WHERE run_id IN ('n', 'o', 'p') ORDER BY 1"
    assert asked(lake, speedups) == [("n", "s", 1.25), ("p", "t", None)]  # o has another seed than the serial runs
    checks = "SELECT DISTINCT last_run_id, is_worse FROM schedule_run_checks WHERE run_id IN ('s', 't', 'n', 'p')"
    assert asked(lake, checks) == [(None, False)]


def write_waiting(folder: Path) -> None:
    for name, waits_us in (("computes", None), ("waits", 50)):
        write_run(folder / name, name, "sw", 80, waits_us=waits_us, plan=name)


@pytest.mark.parametrize("run_id", ["computes", "waits"])
def test_waiting_inside_a_collective_is_no_work_of_its_stream(lake: Lake, run_id: str) -> None:
    """PRB-21: in three of four iterations, Copy waits 50 us for another rank.

    If waiting counted as work, its stream would look like the busiest.
    """
    query = f"SELECT ideal_ns, work_ns, round(efficiency, 3) FROM schedule_periods WHERE run_id = '{run_id}'"
    assert asked(lake, query) == [(30_000, 40_000, 0.375)]


def test_a_plan_that_an_older_lake_has_twice_counts_once(tmp_path: Path) -> None:
    files = [file for run in "ab" for file in write_run(tmp_path / run, run, "sw", 40).iterdir()]
    views = ("schedule_periods", "schedule_jitter", "schedule_run_checks", "schedule_bubbles")
    traced = {
        "schedule_spans": "run_id VARCHAR, trace_id VARCHAR, task VARCHAR",
        "schedule_task_events": "trace_id VARCHAR, event_id BIGINT, task VARCHAR",
        "kernels": "trace_id VARCHAR, launch_event_id BIGINT, duration_ns BIGINT",
    }
    with loaded(INPUT, files) as con:
        for table, columns in traced.items():
            con.execute(f"CREATE TABLE {table} ({columns})")
        run_models(con, load_catalog(), views, frozenset({*traced, *tables_of(RUN)}))
        assert con.execute("SELECT count(*) FROM schedule_plans").fetchall() == [(4,)]
        for query, expected in (
            ("SELECT ideal_ns, work_ns FROM schedule_periods", (30_000, 40_000)),
            ("SELECT n_lost, is_worse FROM schedule_run_checks", (0, False)),
            ("SELECT stream, n, stall_ns FROM schedule_bubbles", ("main", 20, 20_000)),
        ):
            assert con.execute(query).fetchall() == [expected] * 2
        assert picture_of_run(con, "a", 1).count("<rect") == 10  # the same as with only this run


def write_cycles(folder: Path) -> None:
    for cycle_ns in (30_000, 36_000):
        name, cycle = f"cycle {cycle_ns}", f", {cycle_ns} AS cycle_ns, 'Copy -> Forward' AS cycle"
        write_run(folder / name, name, "sw", 40, cycle=cycle, plan=name)


@pytest.mark.parametrize(
    ("cycle_ns", "ideal"), [(30_000, (30_000, "main", 0.75)), (36_000, (36_000, "cycle Copy -> Forward", 0.9))]
)
def test_a_cycle_longer_than_the_work_of_any_stream_is_the_ideal(lake: Lake, cycle_ns: int, ideal: tuple) -> None:
    query = f"SELECT ideal_ns, bound_by, round(efficiency, 3) FROM schedule_periods WHERE run_id = 'cycle {cycle_ns}'"
    assert asked(lake, query) == [ideal]


def write_probed(folder: Path) -> None:
    """A run on a GPU: Forward works for 5 of the 30 us between its events, and Copy took longer in the simulation."""
    run = write_run(folder / "probed", "probed", "sw", 40, plan="probed")
    with memory() as con:
        rows = "(NULL, NULL, 40000), ('Copy', 12000, NULL), ('Forward', 5000, NULL)"
        con.execute(
            f"COPY (SELECT 'probed' AS run_id, * FROM (VALUES {rows}) AS t (task, duration_ns, period_ns)) "
            f"TO '{run / 'schedule_predictions.parquet'}' (FORMAT parquet)"
        )


def test_a_task_counts_without_the_gaps_in_which_the_host_was_late(lake: Lake) -> None:
    query = "SELECT ideal_ns, bound_by, work_ns, efficiency FROM schedule_periods WHERE run_id = 'probed'"
    assert asked(lake, query) == [(10_000, "copy", 15_000, 0.25)]


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


SIMULATED = {"sw": 50, "serial": 13}
"""Engine -> iterations."""


def simulate(folder: Path) -> None:
    for engine, iterations in SIMULATED.items():
        options = {"plan": "augmented", "device": "simulated", "engine": engine, "iterations": str(iterations)}
        arguments = [text for name, value in options.items() for text in (f"--{name}", value)]
        assert main([*arguments, "--out", str(folder / f"simulated {engine}")]) == 0


@pytest.mark.parametrize("engine", SIMULATED)
def test_without_jitter_stalls_are_as_predicted(lake: Lake, engine: str) -> None:
    """The stalls are those of the middle half of the run.

    A stream waits longer while the pipeline fills, and less while it drains.
    """
    of_run = f"run_id IN (SELECT run_id FROM schedule_runs WHERE device = 'simulated' AND engine = '{engine}')"
    columns = "task, predicted_stall_ns, measured_stall_ns, difference_ns"
    stalls = asked(lake, f"SELECT {columns} FROM schedule_predicted_tasks WHERE {of_run}")
    assert len(stalls) == 6 and all(measured == predicted for _, predicted, measured, _ in stalls), stalls
    assert {difference for *_, difference in stalls} == {0}


def test_a_picture_of_a_serial_run_has_its_one_stream(lake: Lake) -> None:
    with duckdb.connect(str(publish(lake)), read_only=True) as con:
        serial, clocked = (picture_of_run(con, run) for run in ("a", "b"))
    assert ">default<" in serial and ">copy<" not in serial
    assert ">copy<" in clocked and ">main<" in clocked


def test_a_picture_without_tasks_is_an_error_with_a_sentence(tmp_path: Path) -> None:
    """A picture of a run shows the middle 8 of its 20 iterations, 6 to 13. If these have no tasks, it is an error."""
    write_run(tmp_path / "run", "a", "sw", 32)
    times = ", ".join(f"CAST(NULL AS BIGINT) AS {name}" for name in ("submit_ns", "device_start_ns", "device_end_ns"))
    with memory() as con:
        for table in ("schedule_runs", "schedule_plans", "schedule_task_timings"):
            con.execute(f"CREATE TABLE {table} AS SELECT *, {times} FROM '{tmp_path}/run/{table}.parquet'")
        with pytest.raises(TracelakeError, match="no run 'b' in the lake"):
            picture_of_run(con, "b")
        con.execute("DELETE FROM schedule_task_timings WHERE iteration BETWEEN 6 AND 12")
        assert "<svg" in picture_of_run(con, "a")
        con.execute("DELETE FROM schedule_task_timings WHERE iteration = 13")
        with pytest.raises(TracelakeError, match="run 'a' has no task timings of iterations 6 to 13"):
            picture_of_run(con, "a")
        assert "<svg" in picture_of_run(con, "a", 9)


@pytest.mark.parametrize("iterations", [0, -1])
def test_a_picture_has_an_iteration_at_least(iterations: int) -> None:
    done = CliRunner().invoke(app, ["gantt", "a", "--iterations", str(iterations)])
    assert done.exit_code == 2 and "--iterations" in done.stderr


def write_checked(folder: Path) -> None:
    for run_id, engine in (("checked", "sw"), ("checked serial", "serial")):
        write_run(folder / "first" / run_id, run_id, engine, 32, plan="checked")
    write_run(folder / "later" / "slower", "checked later", "sw", 60, plan="checked")
    lost = write_run(folder / "later" / "lost", "checked lost", "dataflow", 32, plan="checked")
    with memory() as con:
        timings = lost / "schedule_task_timings.parquet"
        con.execute(f"COPY (SELECT * FROM '{timings}' WHERE iteration <> 7) TO '{lost / 'left'}' (FORMAT parquet)")
    (lost / "left").replace(timings)


def test_lost_iterations_and_worse_runs_are_seen(lake: Lake) -> None:
    query = (
        "SELECT run_id, n_lost, last_run_id, is_worse FROM schedule_run_checks WHERE run_id LIKE 'checked%' ORDER BY 1"
    )
    assert asked(lake, query) == [
        ("checked", 0, None, False),
        ("checked later", 0, "checked", True),
        ("checked lost", 2, None, False),
        ("checked serial", 0, None, False),
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


BESIDE = [
    cpu(2, "SWP/Copy/iter0", 0, 10, "user_annotation"),
    cpu(2, "cudaMemcpyAsync", 2, 4, "cuda_runtime", correlation=1),
    gpu("gpu_memcpy", 5, 10, 20, 1),
    cpu(1, "aten::zeros", 0, 20, "cpu_op"),  # thread 1 waits for no thread
    cpu(1, "SWP/Forward/iter0", 20, 40, "user_annotation"),
    cpu(1, "aten::mm", 22, 28, "cpu_op"),
    cpu(1, "cudaLaunchKernel", 30, 4, "cuda_runtime", correlation=2),
    gpu("kernel", 40, 100, 7, 2),
]


@pytest.fixture(scope="module")
def traced_tasks(lake: Lake) -> dict[str, list[tuple]]:
    """Return the tasks in the trace of each run."""
    rows = asked(
        lake,
        "SELECT run_id, task, n_spans, span_ns, n_kernels, kernel_ns, path_ns, kernel_path_ns, slack_ns, disagreement "
        "FROM schedule_traced_tasks ORDER BY run_id, task",
    )
    return {run_id: [tuple(row) for _, *row in of_run] for run_id, of_run in groupby(rows, itemgetter(0))}


def test_a_run_beside_its_trace(traced_tasks: dict[str, list[tuple]]) -> None:
    """A trace contains two tasks of one iteration.

    The test checks the work that they launched, their share of the path, and their slack.
    """
    # The path is 20 us of thread 1 before the task, 2 in the task before aten::mm, 8 of aten::mm until the launch, 10
    # until the kernel begins, and 100 of the kernel. The copy's work ends 15 us after the start, so its slack is 125.
    # The other time on the path belongs to no task.
    assert traced_tasks["b"] == [
        ("Copy", 1, 10_000, 1, 10_000, 0, 0, 125_000, "exposed, but not on the path"),
        ("Forward", 1, 40_000, 1, 100_000, 110_000, 100_000, 0, None),
        (None, None, None, None, None, 30_000, 0, 0, None),
    ]


@pytest.mark.parametrize(("window_id", "of_task", "of_rest"), [("full", 0, 30), ("ProfilerStep#1", None, None)])
def test_without_a_critical_path_of_the_trace_the_time_on_it_is_unknown(
    window_id: str, of_task: int | None, of_rest: int | None
) -> None:
    """Unknown time is NULL rather than 0, because 0 would mean that the task is not on the path."""
    con, trace_id = connect({"traceEvents": BESIDE[:1], "schedule_run_id": "b"})
    inputs = {
        "kernels": "event_id BIGINT, launch_event_id BIGINT, duration_ns BIGINT",
        "backward_links": "forward_event_id BIGINT, backward_event_id BIGINT",
        "critical_path": "window_id VARCHAR, attributed_event_id BIGINT, duration_ns BIGINT",
        "event_slack": "window_id VARCHAR, event_id BIGINT, slack_ns BIGINT",
        "schedule_exposed_times": "run_id VARCHAR, task VARCHAR, exposed_ns BIGINT, baseline_ns BIGINT",
        "schedule_predictions": "run_id VARCHAR, task VARCHAR, stall_ns BIGINT",
    }
    with con:
        for table, columns in inputs.items():
            con.execute(f"CREATE TABLE {table} (trace_id VARCHAR, {columns})")
        con.execute("INSERT INTO critical_path VALUES (?, ?, NULL, 30)", [trace_id, window_id])
        run_models(con, load_catalog(), ["schedule_traced_tasks"], frozenset(inputs))
        rows = con.execute("SELECT task, path_ns, kernel_path_ns FROM schedule_traced_tasks ORDER BY task").fetchall()
    assert rows == [("Copy", of_task, of_task), (None, of_rest, of_task)]


SERIAL = [cpu(1, "SWP_serial/Copy/iter3", 0, 10, "user_annotation")]


def test_tasks_of_a_serial_run_are_in_its_trace_too(lake: Lake) -> None:
    query = "SELECT run_id, task, iteration, duration_ns FROM schedule_spans WHERE run_id = 'a'"
    assert asked(lake, query) == [("a", "Copy", 3, 10_000)]


def launch(thread: int, start_us: int, dur_us: int, correlation: int) -> list[dict]:
    call = cpu(thread, "cudaLaunchKernel", start_us, 2, "cuda_runtime", correlation=correlation)
    return [call, gpu("kernel", start_us + 3, dur_us, 7, correlation)]


def gpu_us(lake: Lake, traced_tasks: dict[str, list[tuple]], run_id: str) -> dict[str | None, int | None]:
    """Return the GPU time by task, in us, in the trace of a run."""
    kernel_ns = {task: kernel_ns for task, _, _, _, kernel_ns, *_ in traced_tasks[run_id]}
    trace = f"SELECT trace_id FROM schedule_spans WHERE run_id = '{run_id}'"
    total = asked(lake, f"SELECT sum(duration_ns) FROM kernels WHERE trace_id IN ({trace})")[0][0]
    assert sum(ns or 0 for ns in kernel_ns.values()) == total
    return {task: ns and ns // 1000 for task, ns in kernel_ns.items()}


def backward(start_us: int, dur_us: int, sequence: int) -> dict:
    numbers = {"Sequence number": sequence, "Fwd thread id": 1}
    return cpu(3, "autograd::engine::evaluate_function: MmBackward0", start_us, dur_us, "cpu_op", **numbers)


# Thread 1 has a forward operator, and a task that calls backward() and waits. Thread 3 is autograd's.
AUTOGRAD = [
    cpu(1, "SWP/Forward/iter0", 0, 40, "user_annotation"),
    cpu(1, "aten::mm", 5, 30, "cpu_op", **{"Sequence number": 7}),
    *launch(1, 10, 4, 1),
    cpu(1, "SWP/Backward/iter0", 60, 100, "user_annotation"),
    cpu(2, "SWP/Decode/iter1", 45, 120, "user_annotation"),  # Python code without an operator
    backward(70, 20, 7),
    *launch(3, 75, 8, 2),
    cpu(3, "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 92, 20, "cpu_op"),
    *launch(3, 95, 16, 3),  # no forward operator, so it belongs to the same pass
    *launch(4, 120, 32, 4),  # a thread that works for no task
    *launch(3, 161, 64, 5),  # after the task
]


def test_work_of_autograds_thread_belongs_to_the_task_that_called_backward(
    lake: Lake, traced_tasks: dict[str, list[tuple]]
) -> None:
    """Work of autograd's thread belongs to the task in the forward operator's iteration.

    This is so although the thread of another task waits longer.
    """
    assert gpu_us(lake, traced_tasks, "autograd") == {"Forward": 4, "Backward": 24, "Decode": 64, None: 32}


def without_forward(cat: str, busy: bool) -> list[dict]:
    return [
        cpu(1, "SWP/Backward/iter0", 60, 100, "user_annotation"),
        cpu(1, "aten::ones_like", 61, 5, "cpu_op"),
        cpu(2, "SWP/Copy/iter1", 45, 120, "user_annotation"),
        cpu(2, "aten::empty", 45, 1, cat),  # the thread has waited since its last operator ended
        cpu(2, "aten::copy_", 46, 40 if busy else 10, cat),
        backward(70, 20, 7),
        *launch(3, 75, 8, 2),
    ]


WITHOUT_FORWARD = {
    f"{cat} {owner}": (without_forward(cat, busy), owner)
    for cat in ("cpu_op", "hip_runtime")
    for busy, owner in ((True, "Backward"), (False, "Copy"))
}


@pytest.mark.parametrize("run_id", WITHOUT_FORWARD)
def test_without_a_forward_operator_the_task_whose_thread_has_waited_longest_called_backward(
    lake: Lake, traced_tasks: dict[str, list[tuple]], run_id: str
) -> None:
    _, owner = WITHOUT_FORWARD[run_id]
    assert gpu_us(lake, traced_tasks, run_id) == {"Backward": None, "Copy": None, None: None} | {owner: 8}


PLACES = (("Copy", 0), ("Forward", 11))
SHORT_KERNELS = [
    *(cpu(1, f"SWP/{task}/iter{i}", begin + 50 * i, 10, "user_annotation") for task, begin in PLACES for i in (0, 1)),
    *launch(1, 12, 4, 1),
    *launch(1, 17, 3, 2),
    *launch(1, 62, 6, 3),
]
"""Two iterations: Forward launches 13 us of GPU work, Copy none."""


def test_a_task_counts_with_the_gpu_work_of_its_trace_if_that_is_shorter_than_the_time_between_events(
    lake: Lake,
) -> None:
    """Run b is in a trace with longer work, run a in one without GPU work."""
    query = (
        "SELECT run_id, ideal_ns, bound_by, work_ns FROM schedule_periods WHERE run_id IN ('a', 'b', 'short kernels')"
    )
    assert asked(lake, f"{query} ORDER BY 1") == [
        ("a", 30_000, "main", 40_000),
        ("b", 30_000, "main", 40_000),
        ("short kernels", 6_500, "main", 6_500),
    ]


def write_traces(folder: Path) -> None:
    """Write the traces of runs a, b and `short kernels`, and of runs that no lake contains."""
    traces = {run_id: events for run_id, (events, _) in WITHOUT_FORWARD.items()}
    traces |= {"a": SERIAL, "b": BESIDE, "autograd": AUTOGRAD, "short kernels": SHORT_KERNELS}
    write_run(folder / "short kernels", "short kernels", "sw", 40, plan="short kernels")
    for number, (run_id, events) in enumerate(traces.items()):
        document = {"schedule_run_id": run_id, "traceEvents": events}
        (folder / f"trace {number}").mkdir()
        (folder / f"trace {number}" / "trace.json").write_text(json.dumps(document))
