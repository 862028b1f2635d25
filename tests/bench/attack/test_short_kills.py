"""Short attacks on a lake, and the failures that they have to detect.

`make attack` is the long run.
"""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench.attack import concurrent_compact, disk, flips, kills, ranks
from bench.attack.breaks import try_once
from bench.attack.children import End, inject, why_no_strace
from bench.attack.tally import Tally
from bench.attack.verbs import SCENES, Stage, missing, stage

SEED = 14


def only(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Restrict the attack to these verbs, because preparing a stage for each verb takes seconds."""
    monkeypatch.setattr(kills, "SCENES", tuple(scene for scene in SCENES if scene.name in names))


@pytest.mark.slow
@pytest.mark.parametrize("module", [kills, disk])
def test_broken_at_system_calls(module, monkeypatch: pytest.MonkeyPatch) -> None:
    if why := why_no_strace():  # checked here because it starts a process, and every worker imports this file
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


@pytest.mark.parametrize(
    ("answers", "lost"), [([{"t": "1"}], 0), ([{}, {"t": "1"}], 0), ([{}, {}], 1), ([{}, {"t": "2"}], 1)]
)
@pytest.mark.parametrize("name", flips.NOTES)
def test_damage_to_the_lake_s_notes_must_be_mended(
    name: str, answers: list[dict[str, str]], lost: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attack queries every table. If an answer differs, it repairs the lake and queries again."""
    looks, commands = iter(answers), []
    current: dict[str, str] = {}

    def looked(*_: object) -> End:
        current.clear()
        current.update(next(looks))
        return End(0, "")

    monkeypatch.setattr(flips, "stage", lambda *_: SimpleNamespace(reset=lambda: None, lake=None))
    monkeypatch.setattr(flips, "damage", lambda *_: f"bit at 0 of {name}")
    monkeypatch.setattr(flips, "_answers", lambda *_: {"t": "1"})
    monkeypatch.setattr(flips, "_looked", looked)
    monkeypatch.setattr(flips, "_read", lambda *_: dict(current))
    monkeypatch.setattr(flips, "run", lambda *words: commands.append(words[2:]) or End(0, ""))
    tally = flips.attack(1, SEED)
    assert (tally.lost, tally.survived, tally.silent) == (lost, 1 - lost, 0), tally.notes
    assert commands == [("--repair",)] * (len(answers) - 1)


@pytest.mark.slow  # of make attack
def test_a_damaged_layout_and_catalog_are_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    names = list(flips.NOTES)

    def damage(lake: Path, _: random.Random) -> str:
        path = lake / names.pop()
        path.write_bytes(b"x" + path.read_bytes()[1:])
        return f"bit at 0 of {path.name}"

    monkeypatch.setattr(flips, "damage", damage)
    tally = flips.attack(len(names), SEED)
    assert (tally.tried, tally.survived) == (2, 2), tally.notes


@pytest.mark.slow  # 10 s
def test_compact_during_materialize() -> None:
    tally = concurrent_compact.attack(1, SEED)
    assert (tally.tried, tally.survived) == (1, 1), tally.notes


@pytest.mark.slow  # tests/faces/cli/test_limiting_findings.py
def test_folders_without_a_rank() -> None:
    tally = ranks.attack(1, SEED)
    assert (tally.tried, tally.survived) == (1, 1), tally.notes


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
        """Let the verb end as `first` specifies, and run the real verb on the second try."""
        made.reset()
        tally, left = Tally("t"), [ends[first]]

        def run(verb, *args, **_: object) -> End:
            return left.pop() if left else real(verb, *args)

        monkeypatch.setattr("bench.attack.breaks.run", run)
        try_once(Stage(made.scene, tmp_path, wanted, made.first), inject("fsync", "error=EIO", "1"), tally)
        return tally.survived, tally.lost, tally.silent, tally.tracebacks

    from bench.attack.breaks import run as real

    more = {**made.wanted, "traces": [*made.wanted["traces"], ("another",)]}
    assert tried("calm", made.wanted) == (0, 0, 1, 0)  # ingest exits with 1 also on success, but it did nothing here
    assert tried("said", made.wanted) == (1, 0, 0, 0)
    assert tried("done", made.wanted) == (1, 0, 0, 0)
    assert tried("done", more) == (0, 1, 0, 0)
    assert tried("done", {**made.wanted, "rejects": []}) == (0, 0, 1, 0)
    assert tried("loud", made.wanted) == (0, 0, 0, 1)


def test_damage_is_done_and_named(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    names = ("traces/day=2026-01-01/a.parquet", "analyst.duckdb", *flips.NOTES)
    for name in names:
        path = lake / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * 9000)
    choice, kinds, damaged = random.Random(SEED), set(), set()
    for _ in range(60):
        before = {p: p.read_bytes() for p in lake.rglob("*") if p.is_file()}
        kind, _, _, _, name = flips.damage(lake, choice).split()
        kinds.add(kind)
        damaged.add(name)
        assert {p: p.read_bytes() for p in lake.rglob("*") if p.is_file()} != before or "zeros" in kinds
        for extra in lake.rglob("notes.parquet"):
            extra.unlink()
        for path, content in before.items():
            path.write_bytes(content or b"x" * 9000)
    assert kinds == {"bit", "cut", "zeros", "missing", "foreign"} and damaged == {*names}
