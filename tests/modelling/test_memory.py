"""The memory timeline: real traces compared with reference output, pairing and owners compared with brute force."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from pipelines.models.catalog import load_catalog
from pipelines.models.questions import rows_of_question
from pipelines.models.run import run_models
from tests.effort import first_of, slow_if
from tests.harness import connect, connect_all, op, rows_of

REFERENCE = {"h100_qwen": "single/h100_qwen.json.gz", "df_index": "single/v100_54mb_rank1.json.gz"}
KEYS = {
    "n": "n_events",
    "delta_ok": "n_delta_ok",
    "delta_bad": "n_delta_bad",
    "alloc": "n_allocs",
    "free": "n_frees",
    "first_total": "first_allocated_bytes",
    "max_total_allocated": "peak_allocated_bytes",
    "max_total_reserved": "peak_reserved_bytes",
    "peak_relative": "peak_relative_bytes",
    "net": "net_bytes",
    "frees_without_alloc": "n_before_trace",
    "realloc_open_addr": "n_release_missing",
    "size_mismatch": "n_size_mismatch",
    "live_at_end": "n_live",
}


def memory(
    ts: float, size: int | None, address: int | None = None, device: tuple[int, int] = (1, 0), **args: Any
) -> dict:
    """Return an instant event named [memory]."""
    fields = {"Bytes": size, "Device Type": device[0], "Device Id": device[1], **args}
    if address is not None:
        fields["Addr"] = address
    return {
        "ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 100, "tid": 1, "ts": ts,
        "args": fields,
    }  # fmt: skip


@pytest.mark.parametrize("name", [pytest.param(name, marks=slow_if("v100" in REFERENCE[name])) for name in REFERENCE])
def test_peaks_are_the_reference_s(shared: Path, name: str) -> None:
    expected = json.loads((shared / "golden" / "modelling" / "memory_events.json").read_text())[name]["devices"]
    columns = f"device_type, device, {', '.join(KEYS.values())}"
    peaks = rows_of(shared / "traces" / REFERENCE[name], "memory_peaks", columns)
    ours = {f"({row[0]}, {row[1]})": dict(zip(KEYS, row[2:], strict=True)) for row in peaks}
    assert ours == {device: {key: row[key] for key in KEYS} for device, row in expected.items()}


def test_totals_that_do_not_fit_are_marked_and_counted() -> None:
    trace = [
        memory(1, 512, 1, **{"Total Allocated": 1512, "Total Reserved": 4096}),
        memory(2, 512, 2, **{"Total Allocated": 2024, "Total Reserved": 4096}),
        memory(2, 8, 3, device=(0, -1)),
        memory(3, -512, 1, **{"Total Allocated": 1500, "Total Reserved": 4096}),
    ]
    rows = rows_of(trace, "memory_timeline", "device, seq, net_bytes, allocated_bytes, delta_ok", "event_id")
    assert rows == [
        (0, 1, 512, 1512, None),
        (0, 2, 1024, 2024, True),
        (-1, 1, 8, None, None),
        (0, 3, 512, 1500, False),
    ]
    assert ("memory_delta", 1) in rows_of(trace, "quality", "check_name, n")


def test_totals_further_apart_than_64_bits_do_not_fit() -> None:
    """Totals whose difference exceeds 64 bits do not fit each other.

    The file is corrupt, and the other traces of its batch must not fail because of it.
    """
    totals = (9 * 10**18, -9 * 10**18, -9 * 10**18 + 5)
    trace = [memory(ts, 5, None, (1, 0), **{"Total Allocated": total}) for ts, total in enumerate(totals)]
    rows = rows_of(trace, "memory_timeline", "allocated_bytes, delta_ok", "event_id")
    assert rows == [(totals[0], None), (totals[1], False), (totals[2], True)]


def test_bytes_of_copies_and_bytes_of_memory_are_two_things() -> None:
    """The bytes of a copy and of an allocation are different arguments.

    Their keys `bytes` and `Bytes` differ only in case.
    """
    copy = {
        "ph": "X",
        "cat": "gpu_memcpy",
        "name": "Memcpy",
        "pid": 0,
        "tid": 7,
        "ts": 1,
        "dur": 1,
        "args": {"bytes": 64},
    }
    trace = [copy, memory(1, 512, 1)]
    con, _ = connect(trace)
    assert con.execute("SELECT bytes FROM events ORDER BY event_id").fetchall() == [(64,), (None,)]
    assert rows_of(trace, "memory_timeline", "delta_bytes") == [(512,)]


def test_a_trace_without_addresses_and_totals_has_a_sum_and_no_pairs() -> None:
    trace = [memory(1, 100), memory(2, 50), memory(3, -100)]
    columns = "peak_allocated_bytes, peak_relative_bytes, net_bytes, n_live, n_before_trace, n_delta_ok"
    assert rows_of(trace, "memory_peaks", columns) == [(None, 150, 50, None, None, 0)]


def test_blocks_say_what_is_missing() -> None:
    trace = [memory(1, -7, 1), memory(2, 5, 2), memory(3, 6, 2), memory(4, -9, 2), memory(5, 4, 3), memory(6, 3, 4), memory(7, -3, 4)]  # fmt: skip
    columns = "event_id, state, size_bytes, alloc_ns, free_ns, lifetime_ns"
    assert rows_of(trace, "memory_blocks", columns, "event_id") == [
        (0, "before_trace", 7, None, 1000, None),
        (1, "release_missing", 5, 2000, None, None),
        (2, "size_mismatch", 6, 3000, 4000, 1000),
        (4, "live", 4, 5000, None, None),
        (5, "paired", 3, 6000, 7000, 1000),
    ]


def test_owners_at_the_peak_are_those_of_its_event() -> None:
    """Owners at the peak are those after its event, not after later events of the same microsecond.

    Before 2024 torch wrote whole microseconds.
    """
    mb = 1_000_000
    after_the_peak = [memory(5, 10 * mb, 1), memory(12, 5 * mb, 2), memory(12, -10 * mb, 1), memory(12, 4 * mb, 3)]
    only_released = [memory(10, -10 * mb, 1), memory(15, -5 * mb, 2)]
    allocated_again = [memory(10, -10 * mb, 1), memory(15, 10 * mb, 3)]  # equal to the start, which is the first peak
    without_bytes = [memory(10, None, 1)]
    con, trace_ids = connect_all([after_the_peak, only_released, allocated_again, without_bytes])
    run_models(con, load_catalog(), ["memory_blocks", "memory_peaks"])
    places = {trace_id: place for place, trace_id in enumerate(trace_ids)}
    peaks = con.execute("SELECT trace_id, peak_relative_bytes, peak_seq, peak_ns FROM memory_peaks").fetchall()
    assert sorted((places[trace_id], *peak) for trace_id, *peak in peaks) == [
        (0, 15 * mb, 2, 12_000), (1, 0, 0, None), (2, 0, 0, None), (3, None, None, None),
    ]  # fmt: skip
    owners = rows_of_question(con, "memory-owners")
    alive = sorted((places[row["trace_id"]], row["n_blocks"], row["size_mb"]) for row in owners)
    assert alive == [(0, 2, 15), (1, 2, 15), (2, 1, 10)]
    seqs = rows_of(after_the_peak, "memory_blocks", "alloc_seq, free_seq", "event_id")
    assert seqs == [(1, 3), (2, None), (4, None)]
    assert rows_of(only_released, "memory_blocks", "alloc_seq, free_seq", "event_id") == [(None, 1), (None, 2)]


@pytest.mark.parametrize("seed", first_of(range(4), 1))
def test_pairs_and_owners_are_those_of_a_walk(seed: int) -> None:
    dice = random.Random(seed)
    events: list[dict] = []
    _nest(dice, events, 0, 400, 4)
    live: list[int] = []
    open_at: dict[int, tuple[int, float]] = {}
    expected = []
    for ts in range(0, 410, 3):
        at = ts + 0.5  # operators begin and end at whole microseconds
        if live and dice.random() < 0.5:
            address = live.pop(dice.randrange(len(live)))
            alloc, size_at = open_at.pop(address)
            expected.append((alloc, round((at - size_at) * 1000), _innermost(events, size_at)))
            events.append(memory(at, -64, address))
        else:
            address = dice.choice([a for a in range(9000) if a not in live])
            live.append(address)
            open_at[address] = len(events), at
            events.append(memory(at, 64, address))
    expected += [(event, None, _innermost(events, at)) for event, at in open_at.values()]
    blocks = rows_of(events, "memory_blocks", "event_id, lifetime_ns, owner", "event_id")
    assert blocks == sorted(expected, key=lambda row: row[0])
    assert sum(row[2] is not None for row in blocks) > 10


def _nest(dice: random.Random, events: list[dict], start: int, end: int, depth: int) -> None:
    at = start
    while depth and at + 2 < end:
        length = dice.randrange(1, end - at)
        events.append(op(f"op{len(events)}", at, length))
        _nest(dice, events, at, at + length, depth - 1)
        at += length + dice.randrange(0, 9)


def _innermost(events: list[dict], at: float) -> str | None:
    around = [e for e in events if e["ph"] == "X" and e["ts"] <= at < e["ts"] + e["dur"]]
    # If two have the same extent, the later one in the file is the inner one.
    best = max(around, key=lambda e: (e["ts"], -e["dur"], events.index(e)), default=None)
    return best and best["name"]


@pytest.mark.slow  # the test above compares blocks and owners with a walk
def test_all_blocks_of_a_real_trace_have_an_owner_that_is_around_them(shared: Path) -> None:
    con, _ = connect(shared / "traces" / REFERENCE["h100_qwen"])
    run_models(con, load_catalog(), ["memory_blocks"])
    (n, n_owned, n_wrong) = con.execute(
        "SELECT count(*), count(b.owner), count(*) FILTER (WHERE NOT (e.start_ns <= b.alloc_ns AND b.alloc_ns < e.end_ns)) "
        "FROM memory_blocks AS b LEFT JOIN events AS e ON e.event_id = b.owner_event_id"
    ).fetchall()[0]
    assert (n, n_wrong) == (1225, 0)
    assert n_owned > 1200
