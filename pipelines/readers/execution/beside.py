"""Finds the execution trace next to a profiler trace: in its folder, with its rank in the name."""

from __future__ import annotations

import json
import re
from pathlib import Path

from pipelines.base.errors import TracelakeError
from pipelines.readers.kineto.numbers import whole
from pipelines.readers.kineto.source import Source
from pipelines.readers.origin import rank_from_name

_SUFFIXES = (".json", ".json.gz", ".gz")
_BLANK = re.compile(r"[\s,]*")
_DECODER = json.JSONDecoder(strict=False)
_OF_TIMELINES = ("schemaVersion", "traceEvents")
_OF_NODES = ("rf_id", "ctrl_deps")  # keys of the nodes of either schema
_HEAD = 65536
_SHOWN = 8


class NoExecutionTrace(TracelakeError, LookupError):
    """No execution trace lies next to the trace, or several might match; the message lists the candidates."""

    hint = "Give it: --execution-trace FILE (torch.profiler.ExecutionTraceObserver records one)"


def execution_trace_beside(trace: Path, rank: int | None) -> Path:
    """Returns the execution trace in the folder of `trace` whose name has the trace's rank:
    `execution_trace_3.json.gz`, `rank3_et.json`.

    A file without a number in its name matches any rank; if the trace's rank is unknown, the only file matches. Raises
    NoExecutionTrace. `sql/ingest/execution/execution_trace_matches.sql` has the same rule for the traces of a lake.
    """
    there = _execution_traces(trace)
    number = number_in_name(trace) if rank is None else rank
    found = [file for file in there if number is not None and number_in_name(file) == number]
    found = found or [file for file in there if number_in_name(file) is None]
    if not found and number is None and len(there) == 1:
        found = there
    if len(found) == 1:
        return found[0]
    of = "" if number is None else f" of rank {number}"
    listed = ", ".join(file.name for file in (found or there)[:_SHOWN]) or "none"
    what = f"there are {len(found)} execution traces{of}" if found else f"there is no execution trace{of}"
    raise NoExecutionTrace(f"{what} next to {trace} (execution traces there: {listed})")


def _execution_traces(trace: Path) -> list[Path]:
    if not trace.parent.is_dir():
        raise NoExecutionTrace(f"the trace's folder {trace.parent} no longer exists")
    others = (file for file in sorted(trace.parent.iterdir()) if file.name != trace.name and file.is_file())
    return [file for file in others if file.name.lower().endswith(_SUFFIXES) and looks_like_execution_trace(file)]


def looks_like_execution_trace(file: Path) -> bool:
    """Returns whether the file begins like an execution trace; only reading it shows whether it is one."""
    try:
        head = next(iter(Source(file).chunks()), b"")[:_HEAD]
    except OSError:
        return False
    return begins_execution_trace(head.decode("utf-8", "replace"))


def begins_execution_trace(head: str) -> bool:
    """Returns whether text begins an object with `schema` and `nodes` as the observer writes them, before any key of a
    profiler trace. Keys further inside do not count: a profiler trace may hold arguments of any name.
    """
    at, has_schema = _after_blanks(head, 0), False
    if head[at : at + 1] != "{":
        return False
    at = _after_blanks(head, at + 1)
    while head[at : at + 1] == '"':
        try:
            key, at = _DECODER.raw_decode(head, at)
            at = _after_blanks(head, at)
            if at == len(head):
                break
            if key in _OF_TIMELINES or head[at] != ":":
                return False
            at = _after_blanks(head, at + 1)
            if key == "nodes":
                return _begins_nodes(head[at:], has_schema)
            value, at = _DECODER.raw_decode(head, at)
        except (ValueError, RecursionError):  # the head ends within a value, or the file is cut off there
            break
        has_schema |= key == "schema" and isinstance(value, str)
        at = _after_blanks(head, at)
    return has_schema


def _begins_nodes(text: str, has_schema: bool) -> bool:
    """Other graphs, and lists of hosts, are called nodes, too: the first one has to look like the observer's."""
    at = _after_blanks(text, 1)
    if text[:1] != "[" or text[at : at + 1] not in ("{", "]", ""):
        return False
    if has_schema:
        return True
    try:
        first, _ = _DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):
        return False
    return any(key in first for key in _OF_NODES)


def _after_blanks(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return found.end() if found else at


def number_in_name(file: Path) -> int | None:
    """Returns the rank in a file's name; if it has no rank label, the last number (None for one beyond a BIGINT)."""
    rank = rank_from_name(file.name)
    numbers = re.findall(r"\d+", file.name.split(".json")[0])
    return rank if rank is not None else whole(numbers[-1]) if numbers else None
