"""Lengths of steps of programs that were recorded twice on an H100, compared with the programs' own measurements."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pipelines.critical_path.graph.windows import WindowRequest, request_windows
from pipelines.faces.cli.app import app
from pipelines.fleet.trends.compared_windows import choose
from pipelines.fleet.trends.comparison_verdict import judge, lengths
from pipelines.lake import Lake
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize.run_order import materialize_all
from tests.effort import LARGE
from tests.fleet.compare_json import traces_in
from tests.fleet.compare_world import World
from tests.harness import connect_all

POINTS = 4
"""Tolerance of a change, in percentage points of the control's step."""
NAMES = (
    *("big_products", "checkpointing", "empty_cache", "garbage", "host_preprocessing", "item_each_micro"),
    *("launch_bound", "pageable_copies", "recompiles", "side_stream_binds", "slow_loader", "slow_optimizer"),
)


@pytest.fixture(scope="module")
def pairs(shared: Path) -> Path:
    folder = shared / "traces" / "h100_pairs"
    if not folder.is_dir():
        pytest.skip(f"recorded pairs are not there: {folder}")
    return folder


def truth_of(pairs: Path, name: str) -> tuple[float, float]:
    """Return the nanoseconds that a step takes with the profiler, unchanged and changed."""
    of = json.loads((pairs / "truth.json").read_text())["programs"][name]
    return of["A"]["traced_step_s"] * 1e9, of["B"]["traced_step_s"] * 1e9


def percent(control: float, test: float) -> float:
    return 100 * (test / control - 1)


@pytest.mark.slow  # 3 s
@pytest.mark.parametrize("name", NAMES)
def test_change_of_the_length(pairs: Path, name: str) -> None:
    """The change of the step length equals that which the programs measured themselves.

    Only the change in the slower direction, from B to A, exceeds a limit. test_compare_verdict.py tests hand-written
    pairs.
    """
    world = World([pairs / f"{name}.{variant}.json.gz" for variant in "AB"])
    a, b = world.traces
    truth = truth_of(pairs, name)
    step_lengths = lengths(choose([a], [b]).pairs)
    assert percent(*step_lengths) == pytest.approx(percent(*truth), abs=POINTS)
    for trace, of_program in zip((a, b), truth, strict=True):  # the truth includes the call that closes the recording
        mean = sum(window.duration_ns for window in trace.steps) / len(trace.steps)
        assert mean == pytest.approx(of_program, rel=0.01, abs=100_000)
    assert judge(world.compare(a, b), 5).is_fine
    assert not judge(world.compare(b, a), 5).is_fine


@pytest.mark.slow  # 16 s
def test_on_the_command_line(pairs: Path) -> None:
    sides = [str(pairs / f"big_products.{variant}.json.gz") for variant in "AB"]

    def run(*args: str, code: int = 0) -> str:
        done = CliRunner().invoke(app, ["compare", *args])
        assert done.exit_code == code, done.output
        return done.stdout

    windows = json.loads(run(*sides, "--json", "--fail-on", "5%"))["windows"]
    truth = truth_of(pairs, "big_products")
    assert percent(*(window["duration_ns"] for window in windows)) == pytest.approx(percent(*truth), abs=1)
    for window, of_program in zip(windows, truth, strict=True):
        assert window["duration_ns"] == pytest.approx(of_program, rel=0.01)
        # the host has launched everything while the first step runs
        assert window["host_ns"] < 0.06 * window["duration_ns"]
    assert "instead of 5.59 ms (+95.1 %" in run(*sides[::-1], "--fail-on", "5%", code=3)


@pytest.mark.slow  # 8 s
def test_trends_and_questions(pairs: Path, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    jobs = {variant: ingest([pairs / f"big_products.{variant}.json.gz"], lake, job=variant).rows[0] for variant in "AB"}
    tables = ["capture_metrics", "captures", "step_times", "traces"]
    materialize_all(lake, tables)
    steps: dict[str, float] = {}
    with lake.connect(tables) as con:
        for job in jobs:
            query = (
                "SELECT m.value, (SELECT avg(duration_ns) FROM step_times JOIN traces USING (trace_id) WHERE job = c.job) "
                "FROM capture_metrics AS m JOIN captures AS c USING (capture_id) "
                f"WHERE m.metric = 'step' AND m.rank IS NULL AND m.step IS NULL AND c.job = '{job}'"
            )
            ((steps[job], mean),) = con.execute(query).fetchall()
            assert mean == pytest.approx(steps[job])
    assert percent(steps["A"], steps["B"]) == pytest.approx(percent(*truth_of(pairs, "big_products")), abs=1)


def windows_of_steps(path: Path) -> list[tuple[Any, ...]]:
    """Return for a trace the lengths of its steps and of the path through all steps.

    They are the sum of the steps' lengths, the path's length, the first step's start after the path's start, and
    whether the step numbers are consecutive.
    """
    con, (trace_id,) = connect_all([path])
    with con:
        ((n_steps,),) = con.execute(
            "SELECT count(DISTINCT name) FROM events WHERE name LIKE 'ProfilerStep#%' AND cat IN ('user_annotation', 'cpu_op')"
        ).fetchall()
        if not n_steps:
            return []
        request_windows(con, [WindowRequest(trace_id, "steps", annotation="ProfilerStep", last=n_steps - 1)])
        run_models(con, load_catalog(), ["step_lengths", "critical_path_windows", "profiler_steps"])
        return con.execute(
            "SELECT sum(s.duration_ns), max(w.path_end_ns) - min(w.path_start_ns), min(s.start_ns) - min(w.path_start_ns), "
            "min(s.goes_on) FROM (SELECT *, step = lag(step, 1, step - 1) OVER (ORDER BY start_ns) + 1 AS goes_on FROM "
            "step_lengths) AS s, critical_path_windows AS w"
        ).fetchall()


@pytest.mark.slow
def test_steps_of_all_traces_add_up_to_the_path(shared: Path, pairs: Path) -> None:
    """The lengths of steps add up to the path's window, minus the delay by work from before the first step."""
    paths = [path for path in (*pairs.glob("*.A.json.gz"), *traces_in(shared)) if path.stat().st_size < LARGE]
    lengths_by_path = {path: rows[0] for path in paths if (rows := windows_of_steps(path))}
    assert len(lengths_by_path) > 20
    for path, (steps, window, late, goes_on) in lengths_by_path.items():
        assert goes_on and steps + late == pytest.approx(window, rel=1e-4), path
