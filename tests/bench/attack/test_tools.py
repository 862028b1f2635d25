"""A short attack on files of other tools, and the failures that it has to detect."""

from __future__ import annotations

import random
import sys
from typing import Any

import pytest

from bench.attack import tools
from bench.attack.__main__ import main
from bench.attack.tally import Tally
from bench.attack.tools import KINDS, SHARED, attack, made, tried
from pipelines.readers import events_by_sql
from pipelines.readers.counters.rocprof import Rocprof
from pipelines.readers.xplane.planes import Space

needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="needs ../shared")


@pytest.mark.slow
def test_mutated_files_of_other_tools() -> None:
    n = 7  # each of the seven kinds once
    tally = attack(n, 14)
    assert tally.passed and tally.survived == n, "\n".join(tally.notes)


def test_a_file_is_made_from_its_seed_and_number_alone() -> None:
    assert [made(3, n) for n in range(10)] == [made(3, n) for n in range(10)] != [made(4, n) for n in range(10)]


@pytest.mark.slow  # the tests below also read and judge files of these kinds
@needs_shared
def test_what_a_reader_leaves_out_without_a_word_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The attack detects a counter row and events that a reader drops silently.

    It also detects an exception that is not an input error.
    """
    outcomes = {}
    for kind in ("rocprofv3 counters", "xplane"):
        name, whole, _ = KINDS[kind]
        assert tried(kind, name, whole())[0] == "whole"
        outcomes[kind] = (kind, name, whole())
    counter_rows = Rocprof.rows
    monkeypatch.setattr(
        Rocprof, "rows", lambda self, line, fields: [] if line == 5 else counter_rows(self, line, fields)
    )
    rows = Space.rows

    def without_some(self: Space) -> Any:
        return (row for row in rows(self) if random.random() < 0.5)

    monkeypatch.setattr(Space, "rows", without_some)
    monkeypatch.setattr(events_by_sql, "lost_work", lambda *_: ())  # it reports launches whose GPU activity is missing
    assert {kind: tried(*arguments)[0] for kind, arguments in outcomes.items()} == dict.fromkeys(outcomes, "silent")
    monkeypatch.setattr(Space, "rows", lambda _: 1 / 0)
    assert tried(*outcomes["xplane"]) == ("traceback", "ZeroDivisionError: division by zero")


@needs_shared
@pytest.mark.parametrize("number", [23, 29])
def test_files_that_were_tracebacks(number: int) -> None:
    """Two damaged files that once caused tracebacks have an outcome.

    One file has no list of processes. In the other, a stat of an event's description is a number.
    """
    assert tried(*made(7, number))[0] in ("rejected", "told", "whole")


def test_memory_and_time_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = "ncu raw"
    name, whole, _ = KINDS[kind]
    monkeypatch.setattr(tools, "SECONDS", 0.0)
    assert tried(kind, name, whole())[0] == "traceback"


@pytest.mark.parametrize(("lost", "status"), [(0, 0), (1, 1)])
def test_the_table_of_attacks_and_its_exit_status(
    lost: int, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes: list[tuple[int, int]] = []

    def attack(n: int, seed: int) -> Tally:
        sizes.append((n, seed))
        return Tally("files of a test", tried=n, survived=n - lost, lost=lost, notes=["a line is missing"] * lost)

    monkeypatch.setattr(tools, "attack", attack)
    monkeypatch.setattr(sys, "argv", ["attack", "--only", "tools", "--short", "--seed", "3"])
    assert main() == status
    assert sizes == [(50, 3)]
    printed = capsys.readouterr()
    assert "files of a test" in printed.out and printed.out.count("tools: a line is missing") == lost
    assert printed.err == "tools: 50 tried\n"
