"""Search for the execution trace of a profiler trace in the same folder, by the rank in its name."""

from __future__ import annotations

import json
import re
from pathlib import Path

from pipelines.base.errors import TracelakeError
from pipelines.readers.kineto.numbers import whole
from pipelines.readers.kineto.source import head_of
from pipelines.readers.origin import rank_from_name

_SUFFIXES = (".json", ".json.gz", ".gz")
_BLANK = re.compile(r"[\s,]*")
_DECODER = json.JSONDecoder(strict=False)
_OF_TIMELINES = ("schemaVersion", "traceEvents")
_OF_NODES = ("rf_id", "ctrl_deps")  # keys of the nodes of either schema
_HEAD = 65536
_SHOWN = 8


class NoExecutionTrace(TracelakeError, LookupError):
    """No execution trace is next to the trace, or several match. The message lists the candidates."""

    hint = "Give it: --execution-trace FILE (torch.profiler.ExecutionTraceObserver records one)"


def execution_trace_beside(trace: Path, rank: int | None) -> Path:
    """Return the execution trace in the folder of `trace` whose name has the trace's rank.

    Examples: `execution_trace_3.json.gz`, `rank3_et.json`. If no file has that rank, a file without a number in its
    name matches any rank. If the trace's rank is unknown, and the folder has a single execution trace, that file
    matches. Raise NoExecutionTrace unless exactly one file matches. `sql/ingest/execution/execution_trace_matches.sql`
    has the same rule for the traces of a lake.
    """
    candidates = _execution_traces(trace)
    number = number_in_name(trace) if rank is None else rank
    matches = [file for file in candidates if number is not None and number_in_name(file) == number]
    matches = matches or [file for file in candidates if number_in_name(file) is None]
    if not matches and number is None and len(candidates) == 1:
        matches = candidates
    if len(matches) == 1:
        return matches[0]
    rank_text = "" if number is None else f" of rank {number}"
    listed = ", ".join(file.name for file in (matches or candidates)[:_SHOWN]) or "none"
    problem = (
        f"there are {len(matches)} execution traces{rank_text}"
        if matches
        else f"there is no execution trace{rank_text}"
    )
    raise NoExecutionTrace(f"{problem} next to {trace} (execution traces there: {listed})")


def _execution_traces(trace: Path) -> list[Path]:
    if not trace.parent.is_dir():
        raise NoExecutionTrace(f"the trace's folder {trace.parent} no longer exists")
    siblings = (file for file in sorted(trace.parent.iterdir()) if file.name != trace.name and file.is_file())
    return [file for file in siblings if file.name.lower().endswith(_SUFFIXES) and looks_like_execution_trace(file)]


def looks_like_execution_trace(file: Path) -> bool:
    """Return whether the file begins like an execution trace. Only reading the whole file can confirm it."""
    return begins_execution_trace(head_of(file)[:_HEAD].decode("utf-8", "replace"))


def begins_execution_trace(head: str) -> bool:
    """Return whether `head` begins an object with `schema` and `nodes`, as the observer writes them.

    False if a key of a profiler trace precedes them. Nested keys do not count, because the arguments in a profiler
    trace may have any name.
    """
    pos, has_schema = _after_blanks(head, 0), False
    if head[pos : pos + 1] != "{":
        return False
    pos = _after_blanks(head, pos + 1)
    while head[pos : pos + 1] == '"':
        try:
            key, pos = _DECODER.raw_decode(head, pos)
            pos = _after_blanks(head, pos)
            if pos == len(head):
                break
            if key in _OF_TIMELINES or head[pos] != ":":
                return False
            pos = _after_blanks(head, pos + 1)
            if key == "nodes":
                return _begins_nodes(head[pos:], has_schema)
            value, pos = _DECODER.raw_decode(head, pos)
        except (ValueError, RecursionError):  # the head ends within a value, or the file is truncated
            break
        has_schema |= key == "schema" and isinstance(value, str)
        pos = _after_blanks(head, pos)
    return has_schema


def _begins_nodes(text: str, has_schema: bool) -> bool:
    """Return whether the first node looks like the observer's.

    Files of other graphs, and lists of hosts, also have a key `nodes`.
    """
    pos = _after_blanks(text, 1)
    if text[:1] != "[" or text[pos : pos + 1] not in ("{", "]", ""):
        return False
    if has_schema:
        return True
    try:
        first, _ = _DECODER.raw_decode(text, pos)
    except (ValueError, RecursionError):
        return False
    return any(key in first for key in _OF_NODES)


def _after_blanks(text: str, pos: int) -> int:
    match = _BLANK.match(text, pos)
    return match.end() if match else pos


def number_in_name(file: Path) -> int | None:
    """Return the rank in a file's name, else its last number, or None without a number that fits a BIGINT."""
    rank = rank_from_name(file.name)
    numbers = re.findall(r"\d+", file.name.split(".json")[0])
    return rank if rank is not None else whole(numbers[-1]) if numbers else None
