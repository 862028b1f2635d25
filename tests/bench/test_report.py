"""Floors of the benchmark: a value that misses its floor or was not measured is reported."""

from __future__ import annotations

import math

import pytest

from bench import report
from bench.processes import Run, Runs
from bench.report import Floor, Line


def runs(seconds: float, status: int = 0) -> Runs:
    return Runs([Run(seconds, seconds, 100.0, status, "", "")])


@pytest.mark.parametrize(
    ("floor", "value", "held"),
    [
        (Floor(10), 10.0, True),
        (Floor(10), 9.9, False),
        (Floor(2, at_least=False), 2.0, True),
        (Floor(2, at_least=False), 2.1, False),
        (Floor(10), math.nan, False),
        (Floor(2, at_least=False), math.nan, False),
    ],
)
def test_a_floor(floor: Floor, value: float, held: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "broken", [])
    assert ("✓" in floor.mark(value, "path")) == held
    assert [row.partition(":")[0] for row in report.broken] == ([] if held else ["path"])


def test_every_table_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "broken", [])
    report.against_hta("a", [Line("path", runs(5), runs(1), Floor(6)), Line("no floor", runs(5), runs(1))])
    report.against_gzip("b", [Line("file", runs(1), runs(3), Floor(2, at_least=False))])
    report.alone("c", [("help", runs(1), 0.2, Floor(0.1, at_least=False)), ("fails", runs(1, 1), math.nan, Floor(1))])
    assert [row.split(":")[0] for row in report.broken] == ["a, path, speed", "b, file", "c, help", "c, fails"]


def test_seconds_are_taken_times_what_hta_is_slower_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "broken", [])
    monkeypatch.setattr(report, "_slower", 1.0)
    cpu, rate = Floor(7, at_least=False, of_the_machine=True), Floor(6, of_the_machine=True)
    report.calibrate(runs(26.6))
    assert "✓ ≤ 14" in cpu.mark(13.9, "tables") and "✗ ≤ 14" in cpu.mark(14.1, "tables")
    assert "✓ ≥ 3" in rate.mark(3.1, "traces") and "✗ ≥ 3" in rate.mark(2.9, "traces")
    assert "✗ ≤ 2" in Floor(2, at_least=False).mark(2.1, "a ratio stays")
    report.calibrate(runs(99, status=1))
    assert "✓ ≤ 14" in cpu.mark(13.9, "after a run that failed")
