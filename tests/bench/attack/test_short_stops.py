"""A short attack that presses Ctrl-C at random moments of commands.

`make attack` stops 2,000 commands and limits the time that they take to stop.
"""

from __future__ import annotations

import signal
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from bench.attack import stops
from bench.attack.tally import Tally
from tests.effort import SEED


@pytest.mark.slow  # of make attack
def test_commands_stop_at_random_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stops, "_SPEC", replace(stops._SPEC, steps=10))
    monkeypatch.setattr(stops, "_EVERY", 1)
    tally = stops.attack(3, SEED, inf)
    assert (tally.survived, tally.passed) == (3, True), tally.notes


def test_what_a_stopped_command_leaves_in_tmpdir_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stops, "TRACELAKE", ("sh", "-c", 'mkdir "$TMPDIR/tmp-left"'))
    world, tally = stops.World(tmp_path, tmp_path / "trace.json"), Tally("t")
    world.temporary.mkdir()
    stops.stop_once(world, "ingest", signal.SIGINT, 60, tally, inf, is_repeated=False)
    assert (tally.tried, tally.silent) == (1, 1) and "-left in TMPDIR" in tally.notes[0]
    assert not [*world.temporary.iterdir()]  # so that the next command is not blamed for the file


def test_a_stopped_command_that_cannot_be_run_again_has_lost_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = stops.World(tmp_path, tmp_path / "trace.json")
    world.temporary.mkdir()
    for is_repeated in (False, True):
        first_run = tmp_path / f"first_run_{is_repeated}"
        monkeypatch.setattr(stops, "TRACELAKE", ("sh", "-c", f"mkdir {first_run}"))  # fails the second time
        tally = Tally("t")
        stops.stop_once(world, "ingest", signal.SIGINT, 60, tally, inf, is_repeated=is_repeated)
        assert (tally.tried, tally.lost) == (1, is_repeated), tally.notes
