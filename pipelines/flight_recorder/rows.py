"""Dumps and verdicts as rows of the lake's tables; lists are JSON texts, times ns."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from pipelines.flight_recorder.calls import is_over
from pipelines.flight_recorder.dump import Dump, Entry, Group
from pipelines.flight_recorder.fields import LARGEST
from pipelines.flight_recorder.groups import place
from pipelines.flight_recorder.verdicts import GroupVerdict, Verdict
from pipelines.paths import path_text

Row = dict[str, Any]


def dump_rows(dumps: Iterable[Dump], verdict: Verdict) -> list[Row]:
    """Returns the rows of `flight_recorder_dumps`, without the columns that ingestion adds about the set."""
    unplaced: Counter[int] = Counter()
    for one in verdict.unplaced:
        unplaced[one.rank] += one.n_calls
    return [
        {
            "rank": dump.rank,
            "path": path_text(dump.path.absolute()),
            "version": dump.version,
            "comm_lib_version": dump.comm_lib_version,
            "n_entries": len(dump.entries),
            "n_unplaced": unplaced[dump.rank],
            "pg_status": dump.pg_status,
            "comm_state": dump.comm_state,
            "verdict": verdict.verdict,
            "doubts": _text(verdict.doubts),
        }
        for dump in dumps
    ]


def entry_rows(dumps: Iterable[Dump]) -> list[Row]:
    """Returns the rows of `flight_recorder_entries`, in ring order."""
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
        "record_id": entry.record_id,
        "group_name": entry.pg_name,
        "group_description": entry.pg_desc,
        "group_ranks": group and _text(group.ranks),
        "seq": entry.seq,
        "p2p_seq": entry.p2p_seq,
        "op": entry.op,
        "backend": entry.backend,
        "is_p2p": entry.is_p2p,
        "state": entry.state,
        "created_ns": entry.created_ns,
        "started_ns": entry.started_ns,
        "completed_ns": entry.completed_ns,
        "duration_ns": None if entry.duration_ms is None else round(entry.duration_ms * 1e6),
        "timeout_ms": entry.timeout_ms,
        "is_retired": entry.retired,
        "is_over": is_over(entry),
        "input_sizes": _text(entry.input_sizes),
        "output_sizes": _text(entry.output_sizes),
        "input_dtypes": _text(entry.input_dtypes),
        "output_dtypes": _text(entry.output_dtypes),
        "in_elements": _elements(entry.input_sizes),
        "out_elements": _elements(entry.output_sizes),
        "frame": entry.frame,
    }


def _elements(sizes: Sequence[Sequence[int]]) -> int | None:
    """None if a BIGINT does not hold them: no tensors are that large."""
    found = sum(map(math.prod, sizes))
    return found if abs(found) <= LARGEST else None


def verdict_rows(verdict: Verdict) -> list[Row]:
    """Returns the rows of `flight_recorder_verdicts`: one per process group."""
    return [_verdict_row(group, group is verdict.root) for group in verdict.groups]


def _verdict_row(found: GroupVerdict, is_root: bool) -> Row:
    finding = found.finding
    last = max(found.last_seq.values(), default=-1)
    return {
        "group_name": found.group.name,
        "group_description": found.group.desc,
        "group_ranks": _text(found.group.ranks),
        "dump_missing": _text(found.dump_missing),
        "first_seq": found.first_seq,
        "last_seq": None if last < 0 else last,
        "kind": finding and finding.kind,
        "seq": finding and finding.seq,
        "op": finding and finding.op,
        "culprits": finding and _text(finding.culprits),
        "waiting": finding and _text(finding.waiting),
        "state": finding and finding.state,
        "created_ns": finding and finding.created_ns,
        "frames": finding and json.dumps(finding.frames),
        "last_calls": finding and json.dumps(finding.last_calls),
        "waited_ns": finding and finding.waited_ns,
        "timeout_ms": finding and finding.timeout_ms,
        "may_be_slow": finding and finding.may_be_slow,
        "is_inferred": found.group.is_inferred,
        "n_unfinished": found.n_unfinished,
        "confidence": found.confidence,
        "is_root": is_root,
    }


def _text(values: Sequence[Any]) -> str:
    return json.dumps(values)
