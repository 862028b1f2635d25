"""The attacks on a lake, short; and they see what they are there to see. `make attack` is the long way."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench.attack import disk, flips, kills
from bench.attack.breaks import try_once
from bench.attack.children import End, inject, why_no_strace
from bench.attack.tally import Tally
from bench.attack.verbs import SCENES, Stage, missing, stage

SEED = 14


def only(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """The attack on these verbs alone: a stage for each takes seconds."""
    monkeypatch.setattr(kills, "SCENES", tuple(scene for scene in SCENES if scene.name in names))


@pytest.mark.slow
@pytest.mark.parametrize("module", [kills, disk])
def test_broken_at_system_calls(module, monkeypatch: pytest.MonkeyPatch) -> None:
    if why := why_no_strace():  # asked here: it takes a process, and every worker imports this file
        pytest.skip(why)
    only(monkeypatch, "ingest")
    tally = module.attack(1, SEED)
    assert (tally.tried, tally.survived) == (1, 1), tally.notes


def test_a_crash_on_a_damaged_lake_is_not_survived(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flips, "stage", lambda *_: SimpleNamespace(reset=lambda: None, lake=None))
    monkeypatch.setattr(flips, "damage", lambda *_: "bit")
    monkeypatch.setattr(flips, "_answers", lambda *_: {})
    monkeypatch.setattr(flips, "_looked", lambda *_: End(-11, ""))
    tally = flips.attack(1, SEED)
    assert (tally.tracebacks, tally.survived, tally.notes) == (1, 0, ["bit: exit -11 "])


@pytest.mark.slow
def test_the_sensor_with_poison_in_the_stream() -> None:
    pytest.importorskip("dagster", reason="the extra dagster is not installed")
    from bench.attack import sensor

    tally = sensor.attack(3, SEED)
    assert tally.tried > 0
    assert tally.survived == tally.tried, tally.notes


@pytest.mark.slow  # of make attack
def test_what_is_missing_or_other_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = stage(SCENES[0], tmp_path, ranks=1)
    counts = {table: len(rows) for table, rows in made.wanted.items()}
    assert counts == {"traces": 1, "events": 8, "findings": 0, "rejects": 1}
    assert missing(made.wanted, {**made.wanted, "events": made.wanted["events"][1:]}) == ["events"]
    ends = {
        "calm": End(1, ""),
        "done": End(0, ""),
        "said": End(1, "error: no space"),
        "loud": End(1, "Traceback (most recent call last):\nValueError: x"),
    }

    def tried(first: str, wanted: dict) -> tuple[int, int, int, int]:
        """The verb ends so the first time; the second time it does what it does."""
        made.reset()
        tally, left = Tally("t"), [ends[first]]

        def run(verb, *args, **_: object) -> End:
            return left.pop() if left else real(verb, *args)

        monkeypatch.setattr("bench.attack.breaks.run", run)
        try_once(Stage(made.scene, tmp_path, wanted, made.first), inject("fsync", "error=EIO", "1"), tally)
        return tally.survived, tally.lost, tally.silent, tally.tracebacks

    from bench.attack.breaks import run as real

    more = {**made.wanted, "traces": [*made.wanted["traces"], ("another",)]}
    assert tried("calm", made.wanted) == (0, 0, 1, 0)  # status 1 is what ingest has when all went well: nothing did
    assert tried("said", made.wanted) == (1, 0, 0, 0)
    assert tried("done", made.wanted) == (1, 0, 0, 0)
    assert tried("done", more) == (0, 1, 0, 0)
    assert tried("done", {**made.wanted, "rejects": []}) == (0, 0, 1, 0)
    assert tried("loud", made.wanted) == (0, 0, 0, 1)


def test_damage_is_done_and_named(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    for name in ("traces/day=2026-01-01/a.parquet", "analyst.duckdb"):
        path = lake / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * 9000)
    choice, kinds = random.Random(SEED), set()
    for _ in range(60):
        before = {p: p.read_bytes() for p in lake.rglob("*") if p.is_file()}
        kinds.add(flips.damage(lake, choice).split()[0])
        assert {p: p.read_bytes() for p in lake.rglob("*") if p.is_file()} != before or "zeros" in kinds
        for extra in lake.rglob("notes.parquet"):
            extra.unlink()
        for path, content in before.items():
            path.write_bytes(content or b"x" * 9000)
    assert kinds == {"bit", "cut", "zeros", "missing", "foreign"}
