"""The commands of `why --json` on recorded programs of every kind: each returns the number printed next to it.

The change between the first and the second recorded run is among the fixes.
"""

from __future__ import annotations

import json
import shlex
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from pipelines.critical_path.causes.of_window import without_profiler_of
from pipelines.critical_path.whatif.scenario import Scenario
from pipelines.critical_path.whatif.window import WINDOW_TABLES
from pipelines.faces.cli.app import app
from pipelines.fleet.path import load_capture
from pipelines.fleet.path.capture_walks import JoinableRank
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from tests.critical_path.pairs.recorded import FOLDERS, read
from tests.harness import call, connect, kernel, op, x

from .commands import TRACE, Asked, Saving, asked_all, savings

OTHER_RANKS = ("rank1.json.gz", "rank2.json.gz")
RECORDED = [trace for trace in sorted(FOLDERS[0].glob("*.A*.json.gz")) if not trace.name.endswith(OTHER_RANKS)]
"""The first run of each program, which the second run improves. Of several ranks, only the first and the last."""
ANOTHER_RECORDER = sorted(FOLDERS[1].glob("*.A.json.gz"))
AT_ONCE = 16
"""Number of traces for which the models run together."""
SYNCHRONIZED = FOLDERS[0] / "synchronize_each_layer.A.json.gz"
EARLIER_WORK = FOLDERS[0] / "pipeline_of_ranks.A.rank3.json.gz"
"""A trace that also has GPU work launched before the trace began."""
ROUNDING = 0.0011
"""Tolerance in us: one ns, plus the rounding of a float."""


def wrong(subject: Asked) -> list[tuple[Saving, float]]:
    """Return the savings whose command returns another number, with that number.

    The savings are those as recorded and those without the profiler.
    """
    answers = [subject.why(without_profiler=False), subject.why()]
    numbers = {pair: None for answer in answers for pair in savings(answer.as_json(TRACE))}
    assert numbers
    pairs = [(pair, subject.saves_us(pair.command)) for pair in numbers]
    return [(pair, saves_us) for pair, saves_us in pairs if abs(saves_us - pair.saves_us) > ROUNDING]


FIXED = {
    pair.before[0]: pair
    for folder in FOLDERS
    if folder.is_dir()
    for pair in read(folder).pairs
    if len(pair.before) == 1 and pair.fix
}
"""First runs, and the fix that the second run applies."""
NOT_AMONG_THEM = {
    "item_each_step": "the host is behind the GPU when it asks",
    "generation": "the host is behind the GPU when it asks",
    "elementwise_fused": "the GPU binds, and what fusing saves there is not in a trace of unfused kernels",
}
"""Recorded programs whose change is not among the fixes of their first run, with the reason."""


def check(traces: list[Path]) -> dict[Path, Asked]:
    """Check that each command returns its number, and that the second run's change is a fix.

    Return the subjects by trace.
    """
    subjects = dict(zip(traces, asked_all(traces), strict=True))
    assert {trace.name: answers for trace, subject in subjects.items() if (answers := wrong(subject))} == {}
    fixed = {FIXED[trace]: subject.why().fixes for trace, subject in subjects.items() if trace in FIXED}
    is_among = {pair.name: pair.fix in {row["fix"] for row in fixes} for pair, fixes in fixed.items()}
    assert is_among == {pair.name: pair.name not in NOT_AMONG_THEM for pair in fixed}
    return subjects


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, len(RECORDED), AT_ONCE))
def test_commands_and_fixes_of_recorded_runs(first: int) -> None:
    check(RECORDED[first : first + AT_ONCE])


NO_CAUSE = {"item_each_micro": "while the host waits the GPU computes; that it should not wait is a fix"}
"""Recorded programs whose planted cause is not among the first two, with the reason."""


@pytest.mark.slow
def test_commands_fixes_and_causes_of_runs_of_another_recorder() -> None:
    """For each program outside NO_CAUSE, one of the first two causes is the planted cause that truth.json names."""
    subjects = {trace.name.removesuffix(".A.json.gz"): subject for trace, subject in check(ANOTHER_RECORDER).items()}
    programs = json.loads((FOLDERS[1] / "truth.json").read_text(encoding="utf-8"))["programs"]
    titles = {name: [cause.title for cause in subject.why().causes[:2]] for name, subject in subjects.items()}
    assert titles.keys() == programs.keys()
    others = {
        name: of_program
        for name, of_program in titles.items()
        if not any(title.startswith(programs[name]["cause"]) for title in of_program)
    }
    assert others.keys() == NO_CAUSE.keys(), others


@pytest.mark.slow  # in some recorded runs, this is the default
def test_commands_of_a_window_whose_time_without_the_profiler_is_known() -> None:
    """The savings of the printed commands refer to the known time without the profiler.

    A step takes 1.65 ms with the profiler and 0.9 ms without it, and the steps cover nearly all of the window.
    """
    trace = str(SYNCHRONIZED)
    why = json.loads(CliRunner().invoke(app, ["why", trace, "--untraced", "0.9ms", "--json"]).stdout)
    assert why["window"]["without_profiler_us"] == pytest.approx(8 * 900, rel=0.002)
    cause, fix = why["causes"][0], why["fixes"][0]
    for command, saves_us in ((cause["cause_command"], cause["cause_saves_us"]), (fix["command"], fix["saves_us"])):
        answer = json.loads(CliRunner().invoke(app, [*shlex.split(command)[1:], "--json"]).stdout)
        assert answer["before"]["length_us"] == pytest.approx(why["window"]["without_profiler_us"])
        assert answer["before"]["length_us"] - answer["after"]["length_us"] == pytest.approx(saves_us)


@pytest.mark.slow  # 6 s
def test_the_command_line_gives_the_same_numbers() -> None:
    """The printed commands return the printed savings on the command line.

    The cause's name is not the name of an event, and its command is parsed as the shell parses it.
    """
    why = json.loads(CliRunner().invoke(app, ["why", str(EARLIER_WORK), "--json"]).stdout)
    row = next(row for row in why["causes"] if row["cause"] == "earlier_work")
    answer = json.loads(CliRunner().invoke(app, [*shlex.split(row["command"])[1:], "--json"]).stdout)
    saves_us = answer["before"]["length_us"] - answer["after"]["length_us"]
    assert saves_us == pytest.approx(row["saves_us"], abs=ROUNDING) and saves_us > 0


OPTIMIZED = [
    *(x("user_annotation", "Optimizer.step#Adam.step", 0, 100), op("aten::mm", 10, 50)),
    *(call("cudaLaunchKernel", 20, 10, 1), kernel("gemm", 40, 30, 1)),
]


def test_a_window_that_a_lake_stores_has_causes_and_a_cost_of_the_profiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Causes and the profiler's cost can be computed from tables that a lake stores.

    These tables are views, which no model replaces. The test covers one trace and the ranks of a capture.
    """
    con, trace_id = connect({"traceEvents": OPTIMIZED, "schemaVersion": 1})
    catalog = load_catalog()
    lake: Any = SimpleNamespace(catalog=lambda: catalog)
    with con:
        run_models(con, catalog, WINDOW_TABLES)
        con.execute("CREATE SCHEMA stored")
        for name in WINDOW_TABLES:
            con.execute(f"ALTER TABLE {name} RENAME TO file_{name}; CREATE VIEW stored.{name} AS FROM main.file_{name}")
        monkeypatch.setattr(load_capture, "_stored", lambda *_: nullcontext(con))
        ranks = [JoinableRank(0, trace_id, 0, 1)]
        (rank,) = load_capture._windows(con, ranks, lake, [Scenario((("cause:optimizer", 0.0),))])
        assert rank.window.causes is not None and rank.window.causes.selected("optimizer")
        without = without_profiler_of(con, catalog, rank.window)
    assert 0 < without.graph.weight.sum() < rank.window.graph.weight.sum()
