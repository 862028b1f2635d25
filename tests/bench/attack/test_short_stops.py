"""Ctrl-C at random moments of commands, short; `make attack` stops 200 of them and limits the time that they take to stop."""

from __future__ import annotations

import random
import signal
from math import inf
from pathlib import Path

import pytest

from bench.attack.stops import attack, prepared, stop_once
from bench.attack.tally import Tally
from tests.effort import SEED


@pytest.mark.slow  # tests/base/test_stopping.py stops programs at every moment
def test_materialize_stops_while_it_computes(tmp_path: Path) -> None:
    world, tally = prepared(tmp_path), Tally("stops")
    stop_once(world, "materialize", signal.SIGINT, random.Random(SEED).uniform(0.5, 1.5), tally, inf)
    assert (tally.tried, tally.survived) == (1, 1), tally.notes


@pytest.mark.slow  # of make attack
def test_commands_stop_at_random_moments() -> None:
    tally = attack(8, SEED, inf)
    assert (tally.survived, tally.passed) == (8, True), tally.notes
