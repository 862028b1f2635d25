"""Finds the execution trace next to a profiler trace: in its folder, with its rank in the name."""

from __future__ import annotations

import re
from pathlib import Path

from pipelines.origin import rank_from_name
from pipelines.traces.source import Source

_SUFFIXES = (".json", ".json.gz", ".gz")
_NODES = re.compile(rb'"(?:schema|nodes)"\s*:')
_TIMELINE = re.compile(rb'"(?:schemaVersion|traceEvents)"\s*:')
_HEAD = 4096
_SHOWN = 8


class NoExecutionTrace(LookupError):
    """No execution trace lies next to the trace, or several might match; the message lists the candidates."""


def execution_trace_beside(trace: Path, rank: int | None) -> Path:
    """Returns the execution trace in the folder of `trace` whose name has the trace's rank:
    `execution_trace_3.json.gz`, `rank3_et.json`.

    A file without a number in its name matches any rank; if the trace's rank is unknown, the only file matches. Raises
    NoExecutionTrace.
    """
    there = _execution_traces(trace)
    number = _number(trace) if rank is None else rank
    found = [file for file in there if number is not None and _number(file) == number]
    found = found or [file for file in there if _number(file) is None]
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
    return bool(_NODES.search(head)) and not _TIMELINE.search(head)


def _number(file: Path) -> int | None:
    """Returns the rank in a file's name; if it has no rank label, the last number."""
    rank = rank_from_name(file.name)
    numbers = re.findall(r"\d+", file.name.split(".json")[0])
    return rank if rank is not None else int(numbers[-1]) if numbers else None
