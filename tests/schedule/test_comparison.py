"""Comparisons of engines: periods measured alternately, and the verdicts."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipelines.schedule.measurement.comparison import periods_in_turn, verdict
from pipelines.schedule.measurement.measure import measure
from pipelines.schedule.measurement.recording import Launch, recorded_timeline
from pipelines.schedule.measurement.settings import Measured, Settings
from pipelines.schedule.measurement.task_times import Limit, limit_of, work_durations
from pipelines.schedule.plan.plan_file import load_plan, plan_names
from pipelines.schedule.run import main
from pipelines.schedule.search.predict import predict
from pipelines.schedule.workloads import WORKLOADS

MS = 1_000_000
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")


def limit(ideal_ms: float, bound_by: str = "default", work_ms: float = 9, host_ms: float = 0) -> Limit:
    return Limit(ideal_ms * MS, bound_by, round(work_ms * MS), round(host_ms * MS))


def text(serial_ms: list[float], period_ms: list[float], limit: Limit) -> str:
    return verdict([round(s * MS) for s in serial_ms], [round(p * MS) for p in period_ms], limit).text


@pytest.mark.parametrize(
    "serial, period, of_plan, expected",
    [
        ([12.8] * 3, [10.0] * 3, limit(10), "1.28 times as fast as serial, which is the limit (stream default)"),
        ([12.8] * 3, [10.0] * 3, limit(9.53), "1.28 times as fast as serial, which is the limit (stream default)"),
        ([12.8] * 3, [10.0] * 3, limit(9.5), "1.28 times as fast as serial; the limit is 1.35 (stream default)"),
        (
            [28.4] * 3,
            [27.9] * 3,
            limit(27.9, "cycle EmbLookup -> Forward -> Backward"),
            "1.02 times as fast as serial, which is the limit (cycle EmbLookup -> Forward -> Backward)",
        ),
        (
            [10, 10, 10],
            [9.9, 10.1, 9.8],
            limit(5),
            "no difference measured (0.99 to 1.02 times as fast as serial); the limit is 2.00 (stream default)",
        ),
        (
            [10, 10, 10],
            [10, 9.9, 9.8],
            limit(5),
            "no difference measured (1.00 to 1.02 times as fast as serial); the limit is 2.00 (stream default)",
        ),
        ([6, 6], [10, 10], limit(5), "slower than serial (0.60 times as fast); the limit is 1.20 (stream default)"),
    ],
)
def test_a_verdict_names_the_speedup_and_what_limits_it(
    serial: Any, period: Any, of_plan: Limit, expected: str
) -> None:
    assert text(serial, period, of_plan) == expected


def test_a_slow_host_is_named_where_it_takes_longer_than_the_device() -> None:
    expected = (
        "slower than serial (0.60 times as fast): the host needs 13 ms per iteration to submit, and the device works "
        "0.3 ms of 13.2 ms; use larger batches or no pipeline"
    )
    assert text([7.92] * 3, [13.2] * 3, limit(0.2, work_ms=0.3, host_ms=13)) == expected
    assert "the host needs" in text([13] * 3, [13.2] * 3, limit(12, host_ms=12.1))
    assert text([13] * 3, [13.2] * 3, limit(12, host_ms=12)).endswith("; the limit is 1.08 (stream default)")
    assert text([13] * 3, [12.6] * 3, limit(12, host_ms=12.5)).endswith(", which is the limit (stream default)")


def test_tasks_that_slow_one_another_down_set_no_limit_to_the_speedup() -> None:
    """On two cores, one stream's concurrent tasks can take longer than all tasks in sequence."""
    expected = (
        "slower than serial (0.41 times as fast): the tasks slow one another down; stream default alone takes 1.8 ms, "
        "a serial iteration 0.74 ms"
    )
    assert text([0.74] * 3, [1.81] * 3, limit(1.8)) == expected
    assert "slow one another down" in text([10] * 3, [10.6] * 3, limit(10.51))
    assert text([10] * 3, [10.6] * 3, limit(10.5)).endswith(", which is the limit (stream default)")


def test_the_spread_is_of_the_rounds_not_of_the_engines() -> None:
    """A machine that becomes slower from round to round slows down both engines."""
    result = verdict([10 * MS, 20 * MS, 40 * MS], [5 * MS, 10 * MS, 20 * MS], limit(1))
    assert (result.low, result.speedup, result.high) == (2.0, 2.0, 2.0)


SIMULATED = Settings(load_plan("mlp"), "sw", "simulated", iterations=40)


def test_a_simulated_comparison_has_the_periods_of_the_plan() -> None:
    periods = periods_in_turn(SIMULATED, ["serial", "sw"], 3)
    assert periods["serial"] == [periods["serial"][0]] * 3 and periods["sw"] == [periods["sw"][0]] * 3
    assert periods["serial"][0] > periods["sw"][0] > 0
    delayed = periods_in_turn(replace(SIMULATED, jitter_us=500, jitter_task="Forward"), ["serial", "sw"], 3)
    assert len(set(delayed["serial"])) == 3, "each round draws other delays"


@needs_torch
def test_engines_take_turns_and_each_round_begins_with_another(monkeypatch: pytest.MonkeyPatch) -> None:
    from pipelines.schedule import DataFlowPipeline, SWPipeline

    order: list[str] = []

    def noting(name: str, method: Any) -> Any:
        def run(self: Any, batches: Any) -> float:
            order.append(name)
            batches = list(batches)
            method(self, batches)
            return float(len(batches))  # fake seconds that do not depend on the machine

        return run

    monkeypatch.setattr(SWPipeline, "run_serial", noting("serial", SWPipeline.run_serial))
    monkeypatch.setattr(SWPipeline, "run", noting("sw", SWPipeline.run))
    monkeypatch.setattr(DataFlowPipeline, "run", noting("dataflow", DataFlowPipeline.run))
    run = replace(SIMULATED, device="cpu", size="tiny", iterations=2, warmup=1)
    periods = periods_in_turn(run, ["serial", "sw", "dataflow"], 2)
    assert list(periods.values()) == [[1_000_000_000] * 2] * 3
    assert order == [
        *("serial", "sw", "dataflow"),  # warm-up
        *("serial", "serial", "sw", "sw", "dataflow", "dataflow"),
        *("sw", "sw", "dataflow", "dataflow", "serial", "serial"),
    ]


def test_the_command_writes_a_run_per_engine_with_rounds_and_verdicts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--plan", "mlp", "--device", "simulated", "--compare", "--rounds", "2", "--iterations", "20"]
    assert main([*command, "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out.splitlines()
    folders = {path.name.split("-")[2]: path for path in tmp_path.iterdir()}
    assert set(folders) == {"serial", "sw", "dataflow"}
    rounds = {name: pq.read_table(path / "schedule_rounds.parquet").to_pylist() for name, path in folders.items()}
    assert {name: [row["round"] for row in rows] for name, rows in rounds.items()} == {name: [0, 1] for name in folders}
    assert len({row["comparison_id"] for rows in rounds.values() for row in rows}) == 1
    verdicts = {name: pq.read_table(path / "schedule_verdicts.parquet").to_pylist() for name, path in folders.items()}
    assert verdicts["serial"] == []
    (row,) = verdicts["sw"]
    assert row["serial_run_id"] == folders["serial"].name and row["run_id"] == folders["sw"].name
    assert row["speedup"] == pytest.approx(rounds["serial"][0]["period_ns"] / rounds["sw"][0]["period_ns"])
    assert printed[0].startswith("mlp, serial on simulated: ")
    assert printed[2].startswith("mlp, sw on simulated: ") and printed[2].endswith(row["verdict"])


def test_the_limit_is_of_the_tasks_median_times_and_of_the_shortest_of_a_collective() -> None:
    plan = load_plan("fused_sparse_dist")
    run = Settings(plan, "sw", "simulated", iterations=20, jitter_us=5_000, jitter_task="InputDistStart")
    measured = measure(run, "r", None)
    durations = work_durations(run, measured)
    spans = [span.duration_ns for span in measured.timeline.of("InputDistStart")]
    assert durations["InputDistStart"] == min(spans) < median(spans)
    limit = limit_of(run, measured)
    assert (limit.bound_by, limit.work_ns, limit.host_ns) == ("default", sum(durations.values()), 0)
    on_stream = [task.name for task in plan.tasks if task.stream == "default"]
    assert limit.ideal_ns == sum(durations[name] for name in on_stream)


@pytest.mark.parametrize("free, host_ms", [(1, 1.8), (40, 1.8), (0, 9)])
def test_a_submission_that_waits_for_room_in_the_launch_queue_is_no_work_of_the_host(free: int, host_ms: float) -> None:
    """If the queue is full, a launch blocks until the GPU has started an earlier launch."""
    plan = load_plan("mlp")
    run = Settings(plan, "sw", "cuda:0", iterations=40)
    names, period = plan.checked.names, 12 * MS
    launches = []
    for i in range(40):
        each = round(2.4 * MS if i < free else period) // len(names)
        for k, name in enumerate(names):
            begun, on_gpu = i * period + k * each, (i + 1) * period + k * MS
            launches.append(Launch(name, i, "default", begun, begun + each, begun, begun + each, on_gpu, on_gpu + MS))
    timeline = recorded_timeline(launches, plan.checked, "SWPipeline", [], plan.checked.depth)
    limit = limit_of(run, Measured(timeline, launches, 0, datetime(2026, 1, 1), None, None))
    assert limit.host_ns == host_ms * MS


@needs_torch
def test_noise_larger_than_what_is_measured_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from pipelines.schedule import SWPipeline

    seconds = iter([1.0, 1.0, 0.5])  # warm-up, the short run, the long run
    monkeypatch.setattr(SWPipeline, "run_serial", lambda self, batches: next(seconds))
    run = replace(SIMULATED, device="cpu", size="tiny", iterations=2, warmup=1)
    with pytest.raises(RuntimeError, match="serial: 10 iterations took no longer than 8; use more --iterations"):
        periods_in_turn(run, ["serial"], 1)


def test_a_few_iterations_are_enough(tmp_path: Path) -> None:
    command = ["--plan", "mlp", "--device", "simulated", "--compare", "--iterations", "5"]
    assert main([*command, "--out", str(tmp_path)]) == 0
    assert len(list(tmp_path.iterdir())) == 3


def test_an_engine_named_twice_runs_once(tmp_path: Path) -> None:
    command = ["--plan", "mlp", "--device", "simulated", "--compare", "serial", "sw", "sw", "--iterations", "5"]
    assert main([*command, "--out", str(tmp_path)]) == 0
    assert sorted(path.name.split("-")[2] for path in tmp_path.iterdir()) == ["serial", "sw"]


@pytest.mark.parametrize("rounds, device, is_refused", [(2, "cpu", True), (2, "simulated", False)])
def test_fewer_than_three_rounds_show_no_spread(
    rounds: int, device: str, is_refused: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--plan", "mlp", "--device", device, "--compare", "--rounds", str(rounds), "--out", str(tmp_path)]
    if is_refused:
        with pytest.raises(SystemExit):
            main(command)
        assert "fewer than 3 do not show" in capsys.readouterr().err
    else:
        assert main(command) == 0


def test_serial_is_part_of_every_comparison(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--plan", "mlp", "--device", "simulated", "--compare", "sw", "--out", str(tmp_path)])
    assert "serial is needed" in capsys.readouterr().err


def rows_of_the_page() -> dict[str, list[str]]:
    """Return the page's rows of speed-ups, as the cells after the workload's cell."""
    page = (Path(__file__).parents[2] / "docs" / "software-pipelines.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| `")]
    return {cells[0]: cells[1:] for cells in rows if len(cells) == 5}


def test_the_page_has_the_simulated_speedups() -> None:
    rows = rows_of_the_page()
    for name in plan_names():
        run = replace(SIMULATED, plan=load_plan(name))
        periods = periods_in_turn(run, ["serial", "sw", "dataflow"], 1)
        _, bound_by, speedup, _ = rows[f"`{name}`"]
        assert speedup == f"{periods['serial'][0] / min(periods['sw'][0], periods['dataflow'][0]):.2f}", name
        is_cycle = limit_of(run, measure(run, "r", None)).bound_by.startswith("cycle ")
        assert bound_by.startswith("cycle of ") == is_cycle, name


@pytest.mark.parametrize(("copy_ms", "speedup"), [(5, "1.50"), (10, "2.00")])
def test_the_speedup_of_copies_half_as_long_as_the_training_and_as_long(copy_ms: int, speedup: str) -> None:
    """The page lists both speed-ups."""
    durations = {**WORKLOADS["copy_heavy_mlp"].nominal_ns, "CopyBatch": copy_ms * MS}
    assert sum(durations.values()) - durations["CopyBatch"] == 10 * MS
    plan = load_plan("copy_heavy_mlp").checked
    serial, pipelined = (predict(plan, durations, engine=engine).period_ns for engine in ("serial", "SWPipeline"))
    assert f"{serial / pipelined:.2f}" == speedup
    what, _, simulated, _ = rows_of_the_page()["`copy_heavy_mlp`"]
    assert simulated == "1.50" and "half as long as training on it (2.00 if it takes as long)" in what


def test_the_page_has_the_simulated_speedups_with_jitter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = [row for row in rows_of_the_page() if "jitter" in row]
    name, _, options = row.replace("`", "").partition(" with ")
    command = ["--plan", name, "--device", "simulated", "--compare", *options.split(), "--out", str(tmp_path)]
    assert main(command) == 0
    clock, flow = re.findall(r"([\d.]+) times as fast", capsys.readouterr().out)
    assert rows_of_the_page()[row][2] == f"{clock} (clock), {flow} (data flow)"
