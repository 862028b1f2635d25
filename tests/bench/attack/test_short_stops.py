"""Ctrl-C at random moments of commands, short; `make attack` stops 200 of them and limits the time that they take to stop."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from bench.attack import stops
from tests.effort import SEED


@pytest.mark.slow  # of make attack
def test_commands_stop_at_random_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stops, "_SPEC", replace(stops._SPEC, steps=10))
    tally = stops.attack(3, SEED, inf)
    assert (tally.survived, tally.passed) == (3, True), tally.notes
