"""Dumps and verdicts as rows of the lake's tables. Lists are JSON texts. Times are in ns."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from pipelines.base.paths import path_text
from pipelines.readers.flight_recorder.calls import is_over
from pipelines.readers.flight_recorder.dump import Dump, Entry, Group
from pipelines.readers.flight_recorder.fields import LARGEST
from pipelines.readers.flight_recorder.groups import place
from pipelines.readers.flight_recorder.verdicts import GroupVerdict, Verdict

Row = dict[str, Any]
_OF_ENTRY = (
    *("record_id", "seq", "p2p_seq", "op", "backend", "is_p2p", "state"),
    *("created_ns", "start_ns", "completed_ns", "frame"),
)
_OF_FINDING = ("kind", "seq", "op", "state", "created_ns", "waited_ns", "may_be_slow")


def dump_rows(dumps: Iterable[Dump], verdict: Verdict) -> list[Row]:
    """Return the rows of `flight_recorder_dumps`, without the columns that ingestion adds about the set."""
    unplaced: Counter[int] = Counter()
    for calls in verdict.unplaced:
        unplaced[calls.rank] += calls.n_calls
    return [
        {
            "rank": dump.rank,
            "path": path_text(dump.path.absolute()),
            "version": dump.version,
            "communication_library_version": dump.communication_library_version,
            "n_entries": len(dump.entries),
            "n_unplaced": unplaced[dump.rank],
            "pg_status": dump.pg_status,
            "communication_state": dump.communication_state,
            "verdict": verdict.verdict,
            "doubts": json.dumps(verdict.doubts),
        }
        for dump in dumps
    ]


def entry_rows(dumps: Iterable[Dump]) -> list[Row]:
    """Return the rows of `flight_recorder_entries`, in ring order."""
    dumps = list(dumps)
    placed = place({dump.rank: dump for dump in dumps})
    groups = {
        id(entry): placed.groups[key]
        for key, calls in placed.calls.items()
        for entries in calls.values()
        for entry in entries
    }
    return [_entry_row(dump, entry, groups.get(id(entry))) for dump in dumps for entry in dump.entries]


def _entry_row(dump: Dump, entry: Entry, group: Group | None) -> Row:
    return {
        "rank": dump.rank,
        **{name: getattr(entry, name) for name in _OF_ENTRY},
        "timeout_ns": _in_ns(entry.timeout_ms),
        "group_name": entry.pg_name,
        "group_description": entry.pg_desc,
        "group_ranks": group and json.dumps(group.ranks),
        "duration_ns": None if entry.duration_ms is None else round(entry.duration_ms * 1e6),
        "is_retired": entry.retired,
        "is_over": is_over(entry),
        "input_sizes": json.dumps(entry.input_sizes),
        "output_sizes": json.dumps(entry.output_sizes),
        "input_dtypes": json.dumps(entry.input_dtypes),
        "output_dtypes": json.dumps(entry.output_dtypes),
        "in_elements": _elements(entry.input_sizes),
        "out_elements": _elements(entry.output_sizes),
    }


def _in_ns(ms: int | None) -> int | None:
    """Return ns from ms, or None without a value.

    A value beyond a BIGINT (292 years) means no timeout, so return None for it as well.
    """
    return None if ms is None or abs(ms) > LARGEST // 1_000_000 else 1_000_000 * ms


def _elements(sizes: Sequence[Sequence[int]]) -> int | None:
    """Return the total number of elements, or None if it exceeds a BIGINT, because no tensors are that large."""
    n_elements = sum(map(math.prod, sizes))
    return n_elements if abs(n_elements) <= LARGEST else None


def verdict_rows(verdict: Verdict) -> list[Row]:
    """Return the rows of `flight_recorder_verdicts`, one per process group."""
    return [_verdict_row(group, group is verdict.root) for group in verdict.groups]


def _verdict_row(verdict: GroupVerdict, is_root: bool) -> Row:
    finding = verdict.finding
    last = max(verdict.last_seq.values(), default=-1)
    return {
        "group_name": verdict.group.name,
        "group_description": verdict.group.desc,
        "group_ranks": json.dumps(verdict.group.ranks),
        "dump_missing": json.dumps(verdict.dump_missing),
        "first_seq": verdict.first_seq,
        "last_seq": None if last < 0 else last,
        **{name: finding and getattr(finding, name) for name in _OF_FINDING},
        "timeout_ns": finding and _in_ns(finding.timeout_ms),
        "culprits": finding and json.dumps(finding.culprits),
        "waiting": finding and json.dumps(finding.waiting),
        "frames": finding and json.dumps(finding.frames),
        "last_calls": finding and json.dumps(finding.last_calls),
        "is_inferred": verdict.group.is_inferred,
        "n_unfinished": verdict.n_unfinished,
        "confidence": verdict.confidence,
        "is_root": is_root,
    }
