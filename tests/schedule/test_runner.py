"""`python -m pipelines.schedule.run`: the files that it writes, and the files that it leaves alone after an error."""

from __future__ import annotations

import gzip
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipelines.schedule.measurement.delays import delays
from pipelines.schedule.measurement.measure import TRACE_KEY
from pipelines.schedule.measurement.run_tables import TABLES, arrow_table, schema
from pipelines.schedule.plan.plan_file import FOLDER, load_plan, plan_names
from pipelines.schedule.run import main
from pipelines.schedule.workloads import WORKLOADS

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
ITERATIONS = 12
FUSED = load_plan("fused_sparse_dist")
# Packages that the lake needs, and that a GPU machine may not have.
ABSENT = ("dagster", "duckdb", "ibis", "isal", "networkx", "numba", "rich", "sqlglot", "typer")


def process(*arguments: str, absent: tuple[str, ...] = ABSENT) -> subprocess.CompletedProcess:
    """Run the runner in a separate process, in which importing any of `absent` fails."""
    code = (
        f"import sys\nsys.modules.update(dict.fromkeys({absent}))\n"
        "from pipelines.schedule.run import main\nsys.exit(main(sys.argv[1:]))"
    )
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)


def tables_in(out: Path) -> tuple[Path, dict[str, list[dict[str, Any]]]]:
    """Return the folder's only run and its tables."""
    (folder,) = out.iterdir()
    return folder, {name: pq.read_table(folder / f"{name}.parquet").to_pylist() for name in TABLES}


@pytest.fixture(scope="module")
def cpu_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[dict[str, Any]]]]:
    """Run a process with all options. It takes 10 CPU s, so its tests are slow. Tests below use simulated runs."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    out = tmp_path_factory.mktemp("runs")
    done = process(
        *("--plan", "fused_sparse_dist", "--engine", "sw", "--device", "cpu", "--size", "tiny", "--seed", "7"),
        *("--iterations", str(ITERATIONS), "--warmup", "2", "--out", str(out), "--trace", "--profile"),
        *("--jitter-us", "300"),
    )
    assert done.returncode == 0, done.stderr
    return tables_in(out)


@pytest.mark.slow(together="run on a CPU")
def test_the_folder_is_a_whole_run(cpu_run: Any) -> None:
    folder, tables = cpu_run
    names = {f"{name}.parquet" for name in TABLES} | {"trace.json.gz"}
    assert {path.name for path in folder.iterdir()} == names
    for name in TABLES:
        assert pq.read_schema(folder / f"{name}.parquet").equals(schema(name)), name
    (run,) = tables["schedule_runs"]
    assert {row["run_id"] for rows in tables.values() for row in rows} == {folder.name} == {run["run_id"]}
    kept = {key: run[key] for key in ("plan_hash", "engine", "device", "seed", "size", "iterations", "warmup")}
    assert kept == {
        "plan_hash": FUSED.plan_hash,
        "engine": "sw",
        "device": "cpu",
        "seed": 7,
        "size": "tiny",
        "iterations": ITERATIONS,
        "warmup": 2,
    }
    assert (run["jitter_ns"], run["jitter_task"], run["max_depth"], run["trace_file"]) == (300_000, "H2D", None, "trace.json.gz")  # fmt: skip
    assert run["throughput_per_s"] == pytest.approx(ITERATIONS / run["wall_ns"] * 1e9)
    assert max(row["end_ns"] for row in tables["schedule_task_timings"]) <= run["wall_ns"]


@pytest.mark.slow(together="run on a CPU")
def test_the_plan_s_rows_are_the_plan(cpu_run: Any) -> None:
    rows = cpu_run[1]["schedule_plans"]
    assert [(row["position"], row["task"], row["stage"], row["stream"]) for row in rows] == [
        (i, task.name, task.stage, task.stream) for i, task in enumerate(FUSED.tasks)
    ]
    by_task = {row["task"]: row for row in rows}
    assert by_task["EmbLookup"]["depends_on"] == "InputDistWait"
    assert by_task["EmbLookup"]["depends_on_last"] == "Backward"
    assert [task for task, row in by_task.items() if row["globally_ordered"]] == ["InputDistStart"]


@pytest.mark.slow(together="run on a CPU")
def test_timings_keep_the_plan_s_order(cpu_run: Any) -> None:
    rows = cpu_run[1]["schedule_task_timings"]
    at = {(row["task"], row["iteration"]): row for row in rows}
    assert set(at) == {(task.name, i) for task in FUSED.tasks for i in range(ITERATIONS)} and len(at) == len(rows)
    for row in rows:
        assert 0 < row["submit_ns"] <= row["start_ns"] <= row["end_ns"]
        assert row["device_start_ns"] is None and row["device_end_ns"] is None  # a CPU has no device clock
        for dep in FUSED.checked.intra[row["task"]]:
            assert at[dep, row["iteration"]]["end_ns"] <= row["start_ns"]
        for dep in FUSED.checked.inter[row["task"]] if row["iteration"] else ():
            assert at[dep, row["iteration"] - 1]["end_ns"] <= row["start_ns"]


@pytest.mark.slow(together="run on a CPU")
def test_a_stall_is_the_gap_on_the_stream(cpu_run: Any) -> None:
    stream = {task.name: task.stream for task in FUSED.tasks}
    free = dict.fromkeys(stream.values(), 0)
    for row in sorted(cpu_run[1]["schedule_task_timings"], key=lambda row: row["start_ns"]):
        gap = row["start_ns"] - free[stream[row["task"]]]
        assert row["stall_ns"] == gap >= 0
        assert (row["stall_cause"] is None) == (gap == 0)
        free[stream[row["task"]]] = row["end_ns"]


@pytest.mark.slow(together="run on a CPU")
def test_jitter_is_in_the_delayed_task(cpu_run: Any) -> None:
    drawn = delays("H2D", 300.0, ITERATIONS, seed=7)
    for row in cpu_run[1]["schedule_task_timings"]:
        if row["task"] == "H2D":
            assert row["end_ns"] - row["start_ns"] >= drawn[row["iteration"]]


@pytest.mark.slow(together="run on a CPU")
def test_exposed_times_and_predictions(cpu_run: Any) -> None:
    _, tables = cpu_run
    assert {row["task"] for row in tables["schedule_exposed_times"]} == set(FUSED.checked.names)
    assert all(row["exposed_ns"] >= 0 and row["baseline_ns"] > 0 for row in tables["schedule_exposed_times"])
    whole, *tasks = tables["schedule_predictions"]
    assert whole["task"] is None and whole["period_ns"] >= whole["ideal_ns"] > 0
    assert [row["task"] for row in tasks] == FUSED.checked.names
    assert whole["stall_ns"] == pytest.approx(sum(row["stall_ns"] for row in tasks), abs=len(tasks))
    durations = sorted(
        row["end_ns"] - row["start_ns"] for row in tables["schedule_task_timings"] if row["task"] == "Backward"
    )
    (backward,) = (row for row in tasks if row["task"] == "Backward")
    middle = (durations[ITERATIONS // 2 - 1] + durations[ITERATIONS // 2]) / 2
    assert abs(backward["duration_ns"] - middle) <= 1


@pytest.mark.slow(together="run on a CPU")
def test_the_trace_is_of_the_same_run(cpu_run: Any) -> None:
    folder, _ = cpu_run
    with gzip.open(folder / "trace.json.gz") as file:
        trace = json.load(file)
    assert trace[TRACE_KEY] == folder.name
    ranges = [event["name"] for event in trace["traceEvents"] if str(event.get("name")).startswith("SWP/")]
    assert sorted(ranges) == sorted(f"SWP/{t.name}/iter{i}" for t in FUSED.tasks for i in range(ITERATIONS))


@needs_torch
def test_on_a_gpu_events_fill_the_device_columns(tmp_path: Path) -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("torch sees no CUDA device here")
    options = ("--size", "tiny", "--iterations", "12", "--out", str(tmp_path), "--jitter-us", "200")
    done = process("--plan", "fused_sparse_dist", "--device", "cuda", *options)
    assert done.returncode == 0, done.stderr
    _, tables = tables_in(tmp_path)
    assert tables["schedule_runs"][0]["device"] == "cuda:0"
    at = {(row["task"], row["iteration"]): row for row in tables["schedule_task_timings"]}
    for (task, iteration), row in at.items():
        assert 0 <= row["device_start_ns"] <= row["device_end_ns"]
        for dep in FUSED.checked.intra[task]:  # 2 us: more than the rounding error of a 32-bit float of up to a second
            assert at[dep, iteration]["device_end_ns"] <= row["device_start_ns"] + 2000


@needs_torch
@pytest.mark.parametrize(("device", "is_said"), [("auto", True), ("cpu", False)])
def test_a_run_that_finds_no_gpu_says_so(
    device: str, is_said: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    options = ["--size", "tiny", "--iterations", "2", "--warmup", "0", "--out", str(tmp_path)]
    assert main(["--plan", "mlp", "--device", device, *options]) == 0
    printed = capsys.readouterr()
    assert "mlp, sw on cpu: 2 iterations" in printed.out
    assert ("torch sees no CUDA device: running on the CPU\n" in printed.err) == is_said


def test_a_simulation_needs_no_torch(tmp_path: Path) -> None:
    options = ("--plan", "mlp", "--device", "simulated", "--iterations", "20", "--out", str(tmp_path))
    done = process(*options, absent=(*ABSENT, "torch"))
    assert done.returncode == 0, done.stderr
    assert "20 iterations in 0.201 virtual s" in done.stdout


@pytest.mark.parametrize("engine", ["serial", "sw", "dataflow"])
def test_simulated_runs_are_the_same_every_time_and_as_predicted(engine: str, tmp_path: Path) -> None:
    timings = []
    for out in (tmp_path / "a", tmp_path / "b"):
        assert main(["--plan", "mlp", "--engine", engine, "--device", "simulated", "--out", str(out)]) == 0
        _, tables = tables_in(out)
        timings.append([{**row, "run_id": None} for row in tables["schedule_task_timings"]])
    assert timings[0] == timings[1]
    assert all(row["device_start_ns"] is None for row in timings[0])
    (run,), (whole, *tasks) = tables["schedule_runs"], tables["schedule_predictions"]
    assert (run["device"], run["device_name"], run["warmup"]) == ("simulated", None, 0)
    assert run["max_depth"] == (4 if engine == "dataflow" else None)
    nominal = WORKLOADS["mlp"].nominal_ns
    assert {row["task"]: row["duration_ns"] for row in tasks} == nominal
    # All tasks except the copy are on one stream. A serial run also has the copy there.
    busiest = sum(nominal.values()) - nominal["CopyBatch"]
    assert whole["period_ns"] == (sum(nominal.values()) if engine == "serial" else busiest)
    assert (whole["ideal_ns"], run["wall_ns"]) == (busiest, max(row["end_ns"] for row in timings[0]))
    assert (whole["cycle_ns"], whole["cycle"]) == (busiest, "Forward -> Backward -> OptimizerStep")
    assert {row["cycle"] for row in tasks} == {None}


@needs_torch
def test_exposed_times_of_a_simulation_are_the_durations(tmp_path: Path) -> None:
    assert main(["--plan", "sparse_dist", "--device", "simulated", "--profile", "--out", str(tmp_path)]) == 0
    _, tables = tables_in(tmp_path)
    exposed = {row["task"]: row["exposed_ns"] for row in tables["schedule_exposed_times"]}
    assert exposed == pytest.approx(WORKLOADS["sparse_dist"].nominal_ns)


def test_simulated_jitter_is_the_same_as_on_a_device(tmp_path: Path) -> None:
    options = ["--jitter-us", "800", "--jitter-task", "Forward", "--seed", "5", "--out", str(tmp_path)]
    assert main(["--plan", "mlp", "--device", "simulated", "--iterations", "30", *options]) == 0
    _, tables = tables_in(tmp_path)
    took = {
        r["iteration"]: r["end_ns"] - r["start_ns"] for r in tables["schedule_task_timings"] if r["task"] == "Forward"
    }
    base = WORKLOADS["mlp"].nominal_ns["Forward"]
    assert [took[i] - base for i in range(30)] == pytest.approx(delays("Forward", 800.0, 30, seed=5), abs=1)
    assert tables["schedule_runs"][0]["jitter_task"] == "Forward"


def test_an_illegal_plan_is_refused_with_its_line_and_nothing_is_written(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "bad.toml"
    path.write_text((FOLDER / "mlp.toml").read_text().replace('["Backward"]', '["Bakward"]'))
    out = tmp_path / "runs"
    assert main(["--plan", str(path), "--device", "simulated", "--out", str(out)]) == 2
    line = next(i for i, text in enumerate(path.read_text().splitlines(), 1) if "Bakward" in text)
    said = capsys.readouterr().err
    assert f"{path}:{line}: intra_iter_deps" in said and "did you mean 'Backward'?" in said
    assert not out.exists()
    assert main(["--plan", "absent", "--device", "simulated", "--out", str(out)]) == 2
    assert "unknown plan 'absent': use one of" in capsys.readouterr().err


def test_a_run_that_fails_leaves_nothing(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise RuntimeError("the device fell off the bus")

    monkeypatch.setattr("pipelines.schedule.run.measure", fails)
    assert main(["--plan", "mlp", "--device", "simulated", "--out", str(tmp_path)]) == 1
    assert "the run failed: the device fell off the bus" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--max-depth", "3", "--device", "simulated"], "--max-depth is for --engine dataflow"),
        pytest.param(["--device", "tpu"], "use cuda, cuda:N, cpu or simulated", marks=needs_torch),
        (["--device", "simulated", "--trace"], "a simulation has no trace"),
        *((["--device", "simulated", "--jitter-us", mean], "0 or more") for mean in ("-1", "nan", "inf", "1.1e9")),
        *(
            (["--device", "simulated", "--seed", seed], "--seed must be between")
            for seed in ("1000000000001", "-1000000000001")
        ),
        (["--device", "simulated", "--jitter-task", "Copy"], "use one of CopyBatch, Forward"),
        (["--iterations", "0"], "less than 1"),
    ],
)
def test_what_makes_no_sense_is_refused(options: list[str], says: str, tmp_path: Path, capsys: Any) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--plan", "mlp", "--out", str(tmp_path), *options])
    assert left.value.code == 2 and says in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", [["--jitter-us", "1e9"], ["--seed", "1000000000000"], ["--seed", "-1000000000000"]])
def test_the_largest_numbers_fit_into_the_tables(options: list[str], tmp_path: Path) -> None:
    common = ["--plan", "augmented", "--device", "simulated", "--out", str(tmp_path), "--iterations", "9"]
    assert main([*common, *options]) == 0
    (run,) = tables_in(tmp_path)[1]["schedule_runs"]
    assert options[1] in (str(run["seed"]), f"{run['jitter_ns'] / 1e12:.0f}e9")


def test_list_names_the_plans(capsys: Any) -> None:
    assert main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == plan_names()
    assert all(load_plan(name).plan_hash in line for name, line in zip(plan_names(), lines, strict=True))


def test_rows_must_fit_their_table() -> None:
    row = {"run_id": "r", "task": "t", "exposed_ns": 1, "baseline_ns": 2}
    assert arrow_table("schedule_exposed_times", [row]).to_pylist() == [row]
    with pytest.raises(ValueError, match="NULL in exposed_ns"):
        arrow_table("schedule_exposed_times", [{**row, "exposed_ns": None}])
    with pytest.raises(ValueError, match="lacks, or has too many: baseline_ns, basline_ns"):
        arrow_table(
            "schedule_exposed_times", [{**{k: v for k, v in row.items() if k != "baseline_ns"}, "basline_ns": 2}]
        )
