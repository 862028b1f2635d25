"""Matches between calls in rings and in traces, on synthetic data whose pairs are known."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipelines.lake import Lake
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize.per_trace import materialize
from tests.effort import first_of
from tests.harness import x

BASE_NS = 1_700_000_000_000_000_000
# PyTorch's name of an operation in the ring and in the trace.
NAMES = (
    ("nccl:all_reduce", "allreduce"),
    ("nccl:_all_gather_base", "_allgather_base"),
    ("nccl:broadcast", "broadcast"),
)


def comm(ts: float, name: str, size: int, group: str = "0", seq: int | None = None, dtype: str = "Float") -> dict:
    """Return a record_param_comms event of 30 µs."""
    args: dict[str, Any] = {"Collective name": name, "Process Group Name": group, "In msg nelems": size, "dtype": dtype}
    return x("cpu_op", "record_param_comms", ts, 30, **args, **({} if seq is None else {"Seq": seq}))


def entry(number: int, created_ns: int, name: str, size: int, group: str = "0", **more: Any) -> dict:
    """Return an entry of a ring."""
    return {
        "record_id": number,
        "process_group": [group, "pg"],
        "collective_seq_id": number + 1,
        "p2p_seq_id": 0,
        "profiling_name": name,
        "state": "completed",
        "time_created_ns": created_ns,
        "input_sizes": [[size]],
        "output_sizes": [[size]],
        "input_dtypes": ["Float"],
        "output_dtypes": ["Float"],
        **more,
    }


def matches(folder: Path, events: list[dict], entries: list[dict], job: str | None = None) -> list[tuple]:
    """Return (record_id, event_id, matched_by, confidence) of rank 0."""
    source = folder / "in"
    source.mkdir()
    trace = {"baseTimeNanoseconds": BASE_NS, "distributedInfo": {"rank": 0}, "traceEvents": events}
    (source / "rank0.json").write_text(json.dumps(trace))
    groups = {"0": {"name": "0", "desc": "pg", "ranks": "[0]"}}
    (source / "dump_0").write_text(json.dumps({"version": "2.10", "pg_config": groups, "entries": entries}))
    lake = Lake(folder / "lake")
    assert {row.status for row in ingest([source], lake, job=job).rows} == {"ok"}
    materialize(lake, ["collective_calls"])
    with duckdb.connect(str(lake.root / "analyst.duckdb"), read_only=True) as con:
        columns = "record_id, event_id, matched_by, confidence"
        return con.execute(f"SELECT {columns} FROM flight_recorder_matches ORDER BY record_id").fetchall()


def calls(n: int, seed: int = 0) -> list[tuple[int, str, str, int]]:
    """Return (µs, name in the ring, name in the trace, size) of calls that are some tens to hundreds of µs apart."""
    dice, at, timeline = random.Random(seed), 100, []
    for _ in range(n):
        at += dice.randrange(40, 900)
        timeline.append((at, *dice.choice(NAMES), dice.choice((8, 64))))
    return timeline


def test_numbers_go_first_whatever_the_clocks_say(tmp_path: Path) -> None:
    made = calls(12)
    events = [comm(at, name, size, seq=i + 1) for i, (at, _, name, size) in enumerate(made)]
    entries = [entry(i, 5 + i, name, size) for i, (_, name, _, size) in enumerate(made)]
    entries.append(entry(12, 99, *NAMES[0][:1], 8))  # after the trace ended
    pairs = matches(tmp_path, events, entries)
    assert pairs == [*((i, i, "seq", 1.0) for i in range(12)), (12, None, "unmatched", None)]


@pytest.mark.parametrize("seed", first_of(range(3), 1))
def test_without_numbers_time_tells(tmp_path: Path, seed: int) -> None:
    made = calls(40, seed)
    events = [comm(at, name, size) for at, _, name, size in made]
    # Each call is recorded 5 µs into its event. The ring has lost the first ten calls, and the trace ended before the
    # last.
    entries = [entry(i, BASE_NS + (at + 5) * 1000, name, size) for i, (at, name, _, size) in enumerate(made) if i >= 10]
    entries.append(entry(40, BASE_NS + (made[-1][0] + 5000) * 1000, "nccl:all_reduce", 8))
    pairs = matches(tmp_path, events, entries, job="both")
    assert pairs == [*((i, i, "time", 0.8) for i in range(10, 40)), (40, None, "unmatched", None)]


def test_with_other_clocks_the_order_from_the_end_tells_as_far_as_all_is_equal(tmp_path: Path) -> None:
    made = calls(10)
    events = [comm(at, name, size) for at, _, name, size in made]
    events.append(comm(9_999, "wait", 0))  # not a collective
    entries = [entry(i, 77 + i, name, size) for i, (_, name, _, size) in enumerate(made)]
    entries[3]["input_dtypes"] = ["Half"]
    pairs = matches(tmp_path, events, entries)
    assert pairs == [
        *((i, None, "unmatched", None) for i in range(4)),
        *((i, i, "order", 0.5) for i in range(4, 10)),
    ]


def test_groups_are_kept_apart_and_transfers_have_numbers_of_their_own(tmp_path: Path) -> None:
    events = [
        comm(10, "allreduce", 8, "1", seq=1),
        comm(50, "allreduce", 8, "0", seq=1),
        comm(90, "send", 4, "0", seq=1),
    ]
    sent = {"is_p2p": True, "p2p_seq_id": 1, "collective_seq_id": 7}
    entries = [
        {**entry(0, 1, "nccl:all_reduce", 8), "collective_seq_id": 1},
        {**entry(1, 2, "nccl:send 0->1", 4), **sent},
    ]
    assert matches(tmp_path, events, entries) == [(0, 1, "seq", 1.0), (1, 2, "seq", 1.0)]


def test_a_rank_without_a_trace_is_unmatched_once(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    groups = {"0": {"name": "0", "desc": "pg", "ranks": "[0, 1]"}}
    dump = {"version": "2.10", "pg_config": groups, "entries": [entry(0, 1, "nccl:all_reduce", 8)]}
    (tmp_path / "in" / "dump_1").write_text(json.dumps(dump))
    (tmp_path / "in" / "rank0.json").write_text(json.dumps({"traceEvents": [comm(1, "allreduce", 8, seq=1)]}))
    lake = Lake(tmp_path / "lake")
    ingest([tmp_path / "in"], lake)
    materialize(lake, ["collective_calls"])
    with duckdb.connect(str(lake.root / "analyst.duckdb"), read_only=True) as con:
        rows = con.execute("SELECT rank, trace_id, matched_by FROM flight_recorder_matches").fetchall()
    assert rows == [(1, None, "unmatched")]
