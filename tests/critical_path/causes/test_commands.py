"""Each command of `why --json` gives the number beside it, on recorded programs of every kind."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipelines.faces.cli.app import app
from tests.critical_path.pairs.recorded import FOLDERS

from .commands import TRACE, Told, asked, told

RECORDED = sorted(FOLDERS[0].glob("*.json.gz"))
ANOTHER_RECORDER = sorted(FOLDERS[1].glob("*.A.json.gz"))
FAST = ("synchronize_each_layer.A.json.gz",)
"""Synchronizations, waits, and causes with and without the profiler."""
EARLIER_WORK = FOLDERS[0] / "pipeline_of_ranks.A.rank3.json.gz"
"""Has work from before the trace, too."""
DIFFER = {"prefetch_by_events.B.json.gz", "reduce_each_metric.B.rank3.json.gz"}
"""Recorded runs of which a command gives another number, by 48 and 77 us: of a copy's name, and of cudaLaunchKernel."""
ROUNDING = 0.0011
"""us: one ns, and what is lost in the digits of a float."""


def wrong(trace: Path) -> list[tuple[Told, float]]:
    """Commands that give another number than the one beside them, and theirs; as recorded and without the profiler."""
    with asked(trace) as subject:
        answers = [subject.why(without_profiler=False), subject.why()]
        numbers = {pair: None for answer in answers for pair in told(answer.as_json(TRACE))}
        assert numbers
        given = [(pair, subject.saves_us(pair.command)) for pair in numbers]
    return [(pair, saves_us) for pair, saves_us in given if abs(saves_us - pair.saves_us) > ROUNDING]


@pytest.mark.parametrize("name", FAST)
def test_each_command_gives_its_number(name: str) -> None:
    assert wrong(FOLDERS[0] / name) == []


@pytest.mark.slow
@pytest.mark.parametrize("trace", RECORDED, ids=[path.name for path in RECORDED])
def test_each_command_gives_its_number_on_all_recorded_runs(trace: Path) -> None:
    assert {path.name for path in [trace] if wrong(path)} == DIFFER & {trace.name}


@pytest.mark.slow
@pytest.mark.parametrize("trace", ANOTHER_RECORDER, ids=[path.name for path in ANOTHER_RECORDER])
def test_each_command_gives_its_number_on_runs_of_another_recorder(trace: Path) -> None:
    assert wrong(trace) == []


def test_the_command_line_gives_the_same_numbers() -> None:
    """Of a cause whose name no event has, through the shell's words."""
    why = json.loads(CliRunner().invoke(app, ["why", str(EARLIER_WORK), "--json"]).stdout)
    row = next(row for row in why["causes"] if row["cause"] == "earlier_work")
    answer = json.loads(CliRunner().invoke(app, [*shlex.split(row["command"])[1:], "--json"]).stdout)
    saves_us = answer["before"]["length_us"] - answer["after"]["length_us"]
    assert saves_us == pytest.approx(row["saves_us"], abs=ROUNDING) and saves_us > 0
