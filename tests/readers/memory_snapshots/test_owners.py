"""Allocations of a snapshot joined with the trace of the same rank, compared with a search through all calls."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pytest

from pipelines.models.catalog import load_catalog
from pipelines.models.questions import load_questions
from pipelines.models.run import run_models
from pipelines.readers.memory_snapshots.lake import INPUT
from tests.effort import examples, first_of
from tests.harness import connect, x
from tests.readers.inputs.read_tables import loaded
from tests.readers.memory_snapshots.make import INNER, START_US, USER, Allocator, snapshot, stack, write

VIEWS = ("snapshot_trace_matches", "snapshot_steps", "snapshot_owners", "snapshot_peak_owners")
START_NS = START_US * 1000


class Call(NamedTuple):
    kind: str  # op or module
    name: str
    tid: int
    begin: int
    end: int  # ns after START_NS


def _event(call: Call) -> dict[str, Any]:
    cat, name = ("cpu_op", call.name) if call.kind == "op" else ("python_function", f"nn.Module: {call.name}")
    return x(cat, name, call.begin / 1000, (call.end - call.begin) / 1000, call.tid)


def _memory(address: int, size: int, at: int, tid: int, device_type: int = 1) -> dict[str, Any]:
    args = {"Device Type": device_type, "Device Id": 0, "Addr": address, "Bytes": size}
    return {
        "ph": "i",
        "cat": "cpu_instant_event",
        "name": "[memory]",
        "pid": 100,
        "tid": tid,
        "ts": at / 1000,
        "args": args,
    }


def _joined(
    folder: Path, allocator: Allocator, events: list[dict[str, Any]], base_ns: int = START_NS
) -> duckdb.DuckDBPyConnection:
    """Return the views over this snapshot and this trace of the same rank."""
    path = write(folder / "rank0_snapshot.pickle", snapshot(allocator))
    con, _ = connect({"baseTimeNanoseconds": base_ns, "distributedInfo": {"rank": 0}, "traceEvents": events})
    con.execute("UPDATE traces SET job = 'j'")
    run_models(con, load_catalog(), ["threads", "memory_blocks", "profiler_steps"])
    of_snapshot = loaded(INPUT, [path])
    for table in load_catalog().ingested("memory_snapshot"):
        rows = of_snapshot.execute(f"FROM {table}").to_arrow_table()  # noqa: F841
        con.execute(f"CREATE TABLE {table} AS FROM rows")
    for view in VIEWS:
        con.execute(f"CREATE VIEW {view} AS {load_catalog().models[view].sql}")
    return con


def _allocation(at_us: int, *frames: tuple[str, int, str], size: int = 1000) -> tuple[Allocator, int]:
    """Return an allocation at `at_us` after START_US, between other allocations at 0 and 1000 us."""
    allocator = Allocator(now_us=START_US - 6)
    allocator.alloc(10, [])
    allocator.now_us = START_US + at_us - 3
    address = allocator.alloc(size, stack(*frames))
    allocator.now_us = START_US + 1000
    allocator.alloc(20, [])
    return allocator, address


WINDOW = [x("user_annotation", "ProfilerStep#7", 0.5, 990, 1)]
COLUMNS = "step, op, module, source, confidence, clock_gap_ns"


def _owner(con: duckdb.DuckDBPyConnection, size: int = 1000) -> tuple[Any, ...]:
    (owner,) = con.execute(f"SELECT {COLUMNS} FROM snapshot_owners WHERE size_bytes = {size}").fetchall()
    return owner


def test_an_allocation_belongs_to_the_operator_and_module_that_are_open(tmp_path: Path) -> None:
    allocator, _ = _allocation(100, INNER, USER)
    calls = [Call("module", "Net_0", 1, 50_000, 200_000), Call("module", "Linear_3", 1, 60_000, 150_000),
             Call("op", "aten::linear", 1, 70_000, 140_000), Call("op", "aten::empty", 1, 99_000, 103_000)]  # fmt: skip
    con = _joined(tmp_path, allocator, [*WINDOW, *map(_event, calls)])
    assert _owner(con) == (7, "aten::empty", "Linear_3", "clock", 0.7, None)
    frames = con.execute("SELECT module_frame, user_frame FROM snapshot_owners WHERE size_bytes = 1000").fetchall()
    assert frames == [(f"{INNER[0]}:7 forward", f"{USER[0]}:10 forward")]
    # The first allocation is before the trace, and the last one after its step.
    assert _owner(con, 10) == _owner(con, 20) == (None,) * 6
    (peak,) = con.execute("SELECT peak_allocated_bytes FROM snapshot_peaks").fetchall()
    rows = con.execute(
        "SELECT op, module, size_bytes, n_allocations, first_step FROM snapshot_peak_owners ORDER BY 3"
    ).fetchall()
    assert rows == [(None, None, 30, 2, None), ("aten::empty", "Linear_3", 1000, 1, 7)] and peak == (1030,)
    asked = con.execute(load_questions()["snapshot-operators"].sql).fetchall()
    assert [row[4:8] for row in asked] == [("aten::empty", "Linear_3", f"{INNER[0]}:7 forward", "clock"), (None,) * 4]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "calls", "owner"),
    first_of([
        ("two threads are in operators", [("op", "a", 1, 90, 110), ("op", "b", 2, 90, 110)], (None, None)),
        ("an operator ends in that us", [("op", "a", 1, 90, 100.5)], (None, None)),
        ("an operator begins in it elsewhere", [("op", "a", 1, 90, 110), ("op", "b", 2, 100.5, 110)], (None, None)),
        ("it ends just before", [("op", "a", 1, 90, 100)], (None, None)),
        ("it begins just after", [("op", "a", 1, 90, 110), ("op", "b", 2, 101, 110)], ("a", None)),
        ("a module of another thread", [("op", "a", 1, 90, 110), ("module", "M_0", 2, 90, 110)], ("a", None)),
        ("only a module", [("module", "M_0", 2, 90, 110)], (None, "M_0")),
        ("modules of two threads", [("module", "M_0", 2, 90, 110), ("module", "M_1", 1, 90, 110)], (None, None)),
        ("one more for a moment", [("module", "M_0", 2, 90, 110), ("module", "M_1", 1, 100.2, 100.6)], (None, None)),
        ("none", [("op", "a", 1, 10, 20)], (None, None)),
    ], 4),
)  # fmt: skip
def test_what_the_clock_does_not_tell_is_null(tmp_path: Path, name: str, calls: list, owner: tuple) -> None:
    allocator, _ = _allocation(100)
    made = [Call(kind, op, tid, round(begin * 1000), round(end * 1000)) for kind, op, tid, begin, end in calls]
    row = _owner(_joined(tmp_path, allocator, [*WINDOW, *map(_event, made)]))
    evidence = ("clock", 0.7) if any(owner) else (None, None)
    assert row == (7, *owner, *evidence, None), name


@pytest.mark.slow  # a quicker test below uses a trace that records allocations
def test_a_memory_event_of_the_trace_tells_thread_and_time(tmp_path: Path) -> None:
    allocator, address = _allocation(100)
    calls = [
        Call("op", "a", 1, 90_000, 110_000),
        Call("op", "b", 2, 90_000, 110_000),
        Call("op", "c", 2, 100_100, 100_300),
    ]
    events = [*WINDOW, *map(_event, calls)]
    seen = _memory(address, 1024, 100_250, 2)
    assert _owner(_joined(tmp_path, allocator, [*events, seen])) == (7, "c", None, "memory_event", 1.0, 250)
    # Not the same allocation: another address, too small, of the host, or too far away. Two matching events are
    # ambiguous.
    others = [_memory(address + 512, 1024, 100_250, 2), _memory(address, 512, 100_250, 2),
              _memory(address, 1024, 100_250, 2, device_type=0), _memory(address, 1024, 300_000, 2)]  # fmt: skip
    for other in others:
        assert _owner(_joined(tmp_path, allocator, [*events, other])) == (7, None, None, None, None, None)
    twice = [seen, _memory(address, 1024, 130_000, 2)]
    assert _owner(_joined(tmp_path, allocator, [*events, *twice])) == (7, None, None, None, None, None)


# Source of an allocation's owner by the distance of events in ns: at the threshold, and 1 ns beyond.
BOUNDARIES = {
    "snapshot_block_ns": {100_000: "memory_event", 100_001: None},
    "snapshot_gap_ns": {2000: "clock", 2001: None},
}


@pytest.mark.slow  # 3 s
@pytest.mark.parametrize("name", BOUNDARIES)
def test_events_at_both_sides_of_a_distance(tmp_path: Path, name: str) -> None:
    """A single matching event of an allocation determines its owner.

    With two events, the clock decides if another event shows that the clocks agree.
    """
    for distance, source in BOUNDARIES[name].items():
        allocator, address = _allocation(100)
        allocator.now_us = START_US + 497
        other = allocator.alloc(3000, [])
        events = [*WINDOW, _event(Call("op", "a", 1, 90_000, 600_000)), x("cpu_op", "last", 1200, 100, 1)]
        alone = {"snapshot_block_ns": address, "snapshot_gap_ns": other}[name]
        at_ns, size = {address: (100_000, 1024), other: (500_000, 3072)}[alone]
        events.append(_memory(alone, size, at_ns + distance, 1))
        if alone == other:
            events += [_memory(address, 1024, 100_000 + at, 1) for at in (0, 300)]
        assert _owner(_joined(tmp_path, allocator, events))[3] == source, distance


def test_clocks_that_do_not_meet_leave_operators_null(tmp_path: Path) -> None:
    allocator, _ = _allocation(100, USER)
    calls = [Call("op", "a", 1, 90_000, 110_000)]
    con = _joined(tmp_path, allocator, [*WINDOW, *map(_event, calls)], base_ns=START_NS - 10**12)
    assert _owner(con) == (None,) * 6
    assert con.execute("SELECT module_frame FROM snapshot_owners WHERE size_bytes = 1000").fetchall() == [
        (f"{USER[0]}:10 forward",)
    ]


def test_a_trace_that_shows_allocations_must_show_this_one(tmp_path: Path) -> None:
    """If the trace does not record this allocation, its owner is unknown.

    Either its thread is not recorded, or the clocks are too far apart to match it.
    """
    allocator, address = _allocation(100)
    other = _memory(address + 512, 1024, 700_000, 1)
    events = [*WINDOW, _event(Call("op", "a", 1, 50_000, 150_000))]
    assert _owner(_joined(tmp_path, allocator, [*events, other])) == (7, None, None, None, None, None)


@pytest.mark.slow  # a test above covers an allocation that the trace does not record
def test_which_of_the_allocations_that_a_trace_shows_this_one_is(tmp_path: Path) -> None:
    allocator, address = _allocation(100)
    events = [*WINDOW, *map(_event, [Call("op", "a", 1, 50_000, 150_000)])]
    assert _owner(_joined(tmp_path, allocator, [*events, _memory(address, 512, 700_000, 1, device_type=0)])) == (
        *(7, "a", None, "clock"),
        *(0.7, None),
    )
    # Of two events the clock decides, unless a matched allocation shows that the clock is off.
    twice = [_memory(address, 1024, 99_000, 1), _memory(address, 1024, 101_000, 1)]
    assert _owner(_joined(tmp_path, allocator, [*events, *twice])) == (7, "a", None, "clock", 0.7, None)
    first = allocator.history[1]["addr"]
    assert allocator.history[1]["action"] == "alloc" and allocator.history[1]["size"] == 10
    before = x("cpu_op", "edge", -90, 0.001, 9)
    for gap, expected in ((1_000, ("a", None, "clock", 0.7)), (3_000, (None,) * 4)):
        known = _memory(first, 512, gap, 1)
        con = _joined(tmp_path, allocator, [before, *events, *twice, known])
        assert _owner(con) == (7, *expected, None), gap
        assert _owner(con, 10)[5] == gap


@pytest.mark.slow  # tests above and test_lake.py cover steps
def test_between_two_steps_of_one_number_there_is_none(tmp_path: Path) -> None:
    """An allocation between two steps has no step, even if both steps have the same number.

    Each profiler of a program counts its steps from 0.
    """

    def steps_of(allocator: Allocator, events: list[dict[str, Any]]) -> list[int | None]:
        con = _joined(tmp_path, allocator, events)
        return [step for (step,) in con.execute("SELECT step FROM snapshot_owners ORDER BY allocation_id").fetchall()]

    allocator = Allocator()
    for _ in range(2):
        allocator.annotate("ProfilerStep#0", "START")
        allocator.alloc(10, [])
        allocator.annotate("ProfilerStep#0", "END")
        allocator.alloc(20, [])
    allocator.annotate("ProfilerStep#0", "START")  # the snapshot is taken within this step
    allocator.alloc(30, [])
    assert steps_of(allocator, WINDOW) == [0, None, 0, None, None]

    allocator, _ = _allocation(100)
    con = _joined(tmp_path, allocator, [x("user_annotation", "ProfilerStep#7", 80, 20, 1)])
    con.execute("INSERT INTO traces SELECT * REPLACE ('second' AS trace_id) FROM traces")
    later = "'second' AS trace_id, start_ns + 820000 AS start_ns, end_ns + 820000 AS end_ns"
    con.execute(f"INSERT INTO profiler_steps SELECT * REPLACE ({later}) FROM profiler_steps")
    assert _owner(con)[0] is None


@pytest.mark.slow  # tests above cover open calls, and a test below a search
def test_a_call_that_has_ended_owns_nothing(tmp_path: Path) -> None:
    """Calls of one thread may overlap because times are rounded: the outer call ends before the inner one."""
    allocator, _ = _allocation(100)
    calls = [Call("op", "a", 1, 10_000, 80_000), Call("op", "b", 1, 50_000, 150_000)]
    assert _owner(_joined(tmp_path, allocator, [*WINDOW, *map(_event, calls)])) == (7, None, None, None, None, None)


@pytest.mark.slow  # tests above cover other allocations
def test_the_last_allocation_of_the_history_is_in_the_trace(tmp_path: Path) -> None:
    allocator, _ = _allocation(100)
    con = _joined(tmp_path, allocator, [*WINDOW, _event(Call("op", "a", 1, 900_000, 1_100_000))])
    assert _owner(con, 20) == (None, "a", None, "clock", 0.7, None)


# --- Compared with a search through everything


def _nested(rng: random.Random, tid: int, begin: int, end: int, depth: int = 0) -> list[Call]:
    calls, at = [], begin
    while at < end - 400 and len(calls) < 60:
        first = at + rng.randint(1, 4000)
        last = min(end - 1, first + rng.choice((300, 2_000, 20_000, 90_000)))
        if last > first:
            kind = rng.choice(("op", "op", "module"))
            calls.append(Call(kind, f"{kind}_{tid}_{first}", tid, first, last))
            if depth < 4:
                calls += _nested(rng, tid, first, last, depth + 1)
        at = max(last, first)
    return calls


def _innermost(calls: list[Call], kind: str, tid: int, at: int) -> Call | None:
    around = [call for call in calls if (call.kind, call.tid) == (kind, tid) and call.begin <= at < call.end]
    return max(around, key=lambda call: (call.begin, -call.end), default=None)


def _searched(calls: list[Call], first: int, last: int, tids: set[int]) -> tuple[str | None, str | None]:
    """Return operator and module of an allocation between two times in ns on one of these threads.

    Both are None if uncertain.
    """
    open_calls: dict[tuple[str, int], Call] = {}
    doubtful: set[tuple[str, int]] = set()
    for kind in ("op", "module"):
        for tid in tids:
            if any(
                (c.kind, c.tid) == (kind, tid) and (first < c.begin <= last or first < c.end <= last) for c in calls
            ):
                doubtful.add((kind, tid))
            elif call := _innermost(calls, kind, tid, first):
                open_calls[kind, tid] = call
    for kind in ("op", "module"):
        whose = {tid for k, tid in doubtful | open_calls.keys() if k == kind}
        if len(whose) > 1:
            return None, None
        if whose:
            (tid,) = whose
            if (kind, tid) in doubtful:
                return None, None
            op, module = open_calls.get(("op", tid)), open_calls.get(("module", tid))
            return op.name if op else None, module.name if module else None
    return None, None


@pytest.mark.parametrize("seed", first_of(range(examples(12)), 1))
def test_owners_are_those_of_a_search(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    calls = [call for tid in (1, 2, 3)[: rng.randint(1, 3)] for call in _nested(rng, tid, 0, 900_000)]
    tids = {call.tid for call in calls}
    allocator = Allocator(now_us=START_US)
    times: dict[int, tuple[int, int]] = {}  # by size: time in us after START_US, and address
    for number in range(150):
        allocator.now_us += rng.choice((0, 1, 5, 40)) - 3
        size = 513 + number
        times[size] = (allocator.now_us + 3 - START_US, allocator.alloc(size, []))
        allocator.now_us = START_US + times[size][0]  # a new segment is also an event
        allocator.history[-1]["time_us"] = allocator.now_us
        if rng.random() < 0.7:
            allocator.free(times[size][1])
    # Half of the traces record no allocations; in some of the others, the clocks are 20 us apart.
    n_seen, apart = rng.choice(((0, 0), (0, 0), (0.7, 0), (0.7, 20_000)))
    seen = [
        (address, 1024, 1000 * us + apart + rng.randint(-500, 1500), rng.choice(sorted(tids)))
        for us, address in times.values() if rng.random() < n_seen
    ]  # fmt: skip
    events = [*map(_event, calls), *(_memory(*event) for event in seen)]
    edge = [x("cpu_op", "edge", -5, 0.001, 9), x("cpu_op", "edge", 20_000, 0.001, 9)]  # covers the whole history
    con = _joined(tmp_path, allocator, [*edge, *events])
    rows = con.execute("SELECT size_bytes, op, module, source FROM snapshot_owners ORDER BY size_bytes").fetchall()
    assert len(rows) == 150

    def same(event: tuple, us: int, address: int) -> bool:
        return event[0] == address and abs(event[2] - 1000 * us) <= 100_000

    n_known = 0
    for size, op, module, source in rows:
        us, address = times[size]
        near = [event for event in seen if same(event, us, address)]
        rivals = [s for s, (other, where) in times.items() if near and same(near[0], other, where)]
        if len(near) == 1 and rivals == [size]:
            expected = _searched(calls, near[0][2], near[0][2], {near[0][3]})
            expected_source = "memory_event"
        elif seen and (apart or not near):
            expected, expected_source = (None, None), None
        else:
            expected, expected_source = _searched(calls, 1000 * us, 1000 * us + 999, tids), "clock"
        assert (op, module, source) == (*expected, expected_source if any(expected) else None), size
        n_known += any(expected)
    assert n_known > 0 or seed >= 10  # for some histories, no owner is certain
    sums = con.execute("SELECT sum(size_bytes), round(sum(size_percent), 6) FROM snapshot_peak_owners").fetchall()
    assert sums == [(con.execute("SELECT peak_allocated_bytes FROM snapshot_peaks").fetchall()[0][0], 100.0)]
