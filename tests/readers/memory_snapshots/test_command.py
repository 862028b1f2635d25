"""`tracelake memory`, compared with a walk over the history.

The tests check the peak, the allocations that are alive at the peak, fragmentation and failures.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from pipelines.faces.cli import console as cli
from pipelines.faces.cli.app import app
from tests.effort import first_of
from tests.readers.memory_snapshots.make import LEAK, MIB, START_US, USER, Allocator, snapshot, stack, training, write
from tests.readers.memory_snapshots.test_read import busy


def command(path: Path, *more: str) -> Result:
    return CliRunner().invoke(app, ["memory", str(path), *more])


def answer_of(tmp_path: Path, made: dict[str, Any], *more: str) -> dict[str, Any]:
    said = command(write(tmp_path / "rank3_snapshot.pickle", made), "--json", *more)
    assert said.exit_code == 0, said.output
    return json.loads(said.stdout)


def named(event: dict[str, Any]) -> tuple[str, ...]:
    return tuple(f"{frame['filename']}:{frame['line']} {frame['name']}" for frame in event.get("frames", ()))


def walked(allocator: Allocator) -> tuple[int, int | None, Counter[tuple[str, ...]]]:
    """Return the peak, its first time in us, and the bytes by stack at that time, of a complete history."""
    live: dict[int, dict[str, Any]] = {}
    peak, at, alive = 0, None, Counter[tuple[str, ...]]()
    for event in allocator.history:
        if event["action"] == "alloc":
            live[event["addr"]] = event
        elif event["action"] == "free_completed":
            del live[event["addr"]]
        if (level := sum(held["size"] for held in live.values())) > peak:
            peak, at, alive = level, event["time_us"], Counter()
            for held in live.values():
                alive[named(held)] += held["size"]
    return peak, at, alive


@pytest.mark.parametrize("seed", first_of(range(3), 1))
def test_the_peak_and_its_stacks_are_those_of_a_walk(tmp_path: Path, seed: int) -> None:
    allocator = busy(seed, 80, device=1)
    answer = answer_of(tmp_path, snapshot(allocator), "--top", "1000")
    (device,) = answer["devices"]
    peak, at, alive = walked(allocator)
    assert answer["rank"] == 3 and device["device"] == 1 and device["first_allocated_bytes"] == 0
    assert (device["peak_allocated_bytes"], device["peak_ns"]) == (peak, (at or 0) * 1000)
    by_stack = Counter({tuple(stack["frames"]): stack["size_bytes"] for stack in device["alive_at_peak"]})
    assert by_stack == alive and len(alive) == device["n_stacks_at_peak"] and device["left_out_bytes"] == 0
    assert sum(stack["size_percent"] for stack in device["alive_at_peak"]) == pytest.approx(100)
    assert device["without_stack_percent"] == pytest.approx(100 * alive[()] / peak)
    reserved = max(level for _, level in allocator.levels)
    first = next(
        event for event, (_, level) in zip(allocator.history, allocator.levels, strict=True) if level == reserved
    )
    assert (device["peak_reserved_bytes"], device["peak_reserved_ns"]) == (reserved, first["time_us"] * 1000)
    blocks = [(segment, block) for segment in allocator.segments for block in segment.blocks]
    assert device["fragmentation"]["used_bytes"] == sum(b.requested for _, b in blocks if b.state == "active_allocated")
    free = sum(b.size for _, b in blocks if b.state == "inactive")
    releasable = sum(s.size for s in allocator.segments if all(b.state == "inactive" for b in s.blocks))
    held = device["fragmentation"]
    assert (held["releasable_bytes"], held["stuck_bytes"]) == (releasable, free - releasable)
    assert held["reserved_bytes"] == allocator.reserved == device["reserved_bytes"]
    assert sum(held[name] for name in ("used_bytes", "rounding_bytes", "pending_bytes")) + free == allocator.reserved
    failures = [event for event in allocator.history if event["action"] == "oom"]
    assert device["n_ooms"] == len(failures)
    assert [failure["at_ns"] // 1000 for failure in device["out_of_memory"]] == [
        event["time_us"] for event in failures[::-1]
    ]


@pytest.mark.slow  # a test above requests all stacks
def test_few_stacks_are_asked_for(tmp_path: Path) -> None:
    allocator = training(4)
    (device,) = answer_of(tmp_path, snapshot(allocator), "--top", "1")["devices"]
    peak, _, alive = walked(allocator)
    ((frames, size),) = alive.most_common(1)
    (only,) = device["alive_at_peak"]
    assert (tuple(only["frames"]), only["size_bytes"]) == (frames, size)
    assert device["left_out_bytes"] == peak - size and device["n_stacks_at_peak"] == len(alive) == 3
    assert "and 2 more stacks with 27.00 MiB" in command(tmp_path / "rank3_snapshot.pickle", "--top", "1").stdout


def test_a_failure_says_what_was_wanted(tmp_path: Path) -> None:
    allocator = training(2)
    allocator.out_of_memory(90 * MIB, 7 * MIB)
    (before,) = answer_of(tmp_path, snapshot(allocator))["devices"][0]["out_of_memory"]
    allocator._add({"action": "oom", "device_free": 5 * MIB, "size": 30 * MIB, "stream": 0}, stack(LEAK))
    (device,) = answer_of(tmp_path, snapshot(allocator))["devices"]
    frame = f"{LEAK[0]}:{LEAK[1]} {LEAK[2]}"
    assert device["out_of_memory"] == [
        {
            **{"at_ns": allocator.now_us * 1000, "size_bytes": 30 * MIB, "device_free_bytes": 5 * MIB},
            **{"allocated_bytes": allocator.allocated, "reserved_bytes": allocator.reserved, "user_frame": frame},
        },
        before,
    ]
    assert (before["size_bytes"], before["user_frame"]) == (90 * MIB, None)
    said = command(tmp_path / "rank3_snapshot.pickle").stdout
    assert f"30.00 MiB wanted, 5.00 MiB free on the device, 36.00 MiB in use, 72.00 MiB reserved; {frame}" in said


def test_what_the_history_does_not_show_is_said(tmp_path: Path) -> None:
    late, without = training(4), Allocator(device=1)
    late.history = late.history[9:]
    without.alloc(100, stack(USER))
    without.history = []
    answer = answer_of(tmp_path, snapshot(late, without))
    first, second = answer["devices"]
    assert first["first_allocated_bytes"] > 0 and first["is_consistent"]
    assert [
        second[name] for name in ("peak_allocated_bytes", "peak_ns", "peak_reserved_bytes", "peak_reserved_ns")
    ] == [None] * 4
    assert second["alive_at_peak"][0]["size_bytes"] == 100
    assert [said.partition(", ")[0] for said in answer["caveats"]] == [
        "device 0: 43.00 MiB were in use when the history begins: an earlier peak may have been higher",
        "device 1: no history was recorded",
    ]
    said = command(tmp_path / "rank3_snapshot.pickle").stdout
    assert "not recorded" in said and all(f"note: {caveat}" in said for caveat in answer["caveats"])


@pytest.mark.slow  # tests above cover other caveats
def test_a_peak_before_the_history_and_one_that_does_not_fit(tmp_path: Path) -> None:
    allocator = Allocator()
    addresses = [allocator.alloc(MIB, stack(USER)) for _ in range(3)]
    allocator.history.clear()
    for address in addresses:
        allocator.free(address)
    allocator.alloc(5, [])
    answer = answer_of(tmp_path, snapshot(allocator))
    (device,) = answer["devices"]
    assert (device["peak_seq"], device["peak_ns"], device["peak_allocated_bytes"]) == (-1, None, 3 * MIB)
    assert (device["peak_reserved_seq"], device["peak_reserved_ns"]) == (-1, None)
    assert "when the history begins" in command(tmp_path / "rank3_snapshot.pickle").stdout
    assert "100.0 % of that memory has no stack" in answer["caveats"][-1]
    made = snapshot(training(2))
    made["segments"] = []
    answer = answer_of(tmp_path, made)
    assert (
        "the history does not fit the snapshot" in answer["caveats"][0]
        and answer["devices"][0]["fragmentation"] is None
    )
    (empty := Allocator(now_us=START_US)).history.clear()
    answer = answer_of(tmp_path, snapshot(empty))
    assert answer["devices"] == [] and "nothing was allocated" in answer["caveats"][0]
    assert "nothing was allocated" in command(tmp_path / "rank3_snapshot.pickle").stdout


def test_what_is_no_snapshot_is_an_error_with_its_name(tmp_path: Path) -> None:
    (other := tmp_path / "trace.json").write_text("{}")
    broken = tmp_path / "broken.pickle"
    broken.write_bytes(write(tmp_path / "whole.pickle", snapshot(training(2))).read_bytes()[:-20])
    for path, why in (
        (other, "not a memory snapshot; give a file"),
        (broken, "cannot be read"),
        (tmp_path / "none", "No such file"),
        (tmp_path, "Is a directory"),
    ):
        said = command(path)
        assert said.exit_code == 1 and isinstance(said.exception, SystemExit), (path, said.exception)
        assert f"error: {path}: " in said.stderr and why in said.stderr and not said.stdout


def test_the_documentation_shows_what_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allocator = training(4)
    allocator.out_of_memory(30 * MIB, 5 * MIB)
    monkeypatch.setattr(cli.out, "_width", 140)
    said = command(write(tmp_path / "rank3_snapshot.pickle", snapshot(allocator))).stdout
    shown = "\n".join(line.rstrip() for line in said.splitlines())
    page = Path(__file__).parents[3] / "docs" / "memory-snapshots.md"
    assert f"$ tracelake memory rank3_snapshot.pickle\n{shown}\n```" in page.read_text(encoding="utf-8")
