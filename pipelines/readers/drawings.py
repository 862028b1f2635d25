"""Files drawn by tracelake: pictures of traces that are already in a lake, identified by the metadata key `tracelake`.

Timelines, overlays and redrawn paths have tracks, arrows and times that no profiler measured, so ingestion rejects
them. A slice contains unchanged events of its trace, so it is ingested with a warning. It is not a capture of a job.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipelines.readers.kineto import ReadTrace

DRAWN = "tracelake"
SLICE = "slice"
_DESCRIPTIONS = {
    "timeline": "a timeline, which `tracelake timeline` drew",
    "overlay": "an overlay, which `tracelake overlay` drew",
    "what-if": "a redrawn path, which `tracelake what-if` drew",
}


def _mark(metadata: dict[str, Any]) -> tuple[str, list[str]]:
    """Return the kind of drawing and the ids of its traces, or ("", []) for a profiler's file."""
    mark = metadata.get(DRAWN)
    drawing = mark.get("drawing") if isinstance(mark, dict) else None
    if not isinstance(mark, dict) or not isinstance(drawing, str):
        return "", []
    ids = mark.get("of")
    return drawing, [str(trace) for trace in ids] if isinstance(ids, list) else []


def refused(metadata: dict[str, Any]) -> str | None:
    """Return why a file with this metadata cannot be ingested, or None if it can.

    Timelines, overlays and redrawn paths cannot be ingested.
    """
    drawing, trace_ids = _mark(metadata)
    if drawing not in _DESCRIPTIONS:
        return None
    return f"it is {_DESCRIPTIONS[drawing]} of {_some(trace_ids)}, and no profiler's trace: ingest the trace itself"


def is_slice(metadata: dict[str, Any]) -> bool:
    """Return whether a file with this metadata is a slice."""
    return _mark(metadata)[0] == SLICE


def named(trace: ReadTrace) -> ReadTrace:
    """Return the trace, with a finding that names its source if it is a slice."""
    if not is_slice(trace.metadata):
        return trace
    from pipelines.readers.kineto import Finding  # not at the top, because kineto imports this module (origin.py)

    detail = f"a slice of {_some(_mark(trace.metadata)[1])}: it has only what was asked for, and is no capture of a job"
    return replace(trace, findings=(*trace.findings, Finding("slice", "warning", 1, detail)))


def _some(trace_ids: list[str]) -> str:
    if len(trace_ids) <= 1:
        return f"trace {trace_ids[0]}" if trace_ids else "a trace"
    return f"{len(trace_ids)} traces ({', '.join(trace_ids[:3])}{', …' if len(trace_ids) > 3 else ''})"
