"""Files that tracelake drew: pictures of traces that are in a lake already. What a file is stands in its mark (`tracelake`).

Timelines, overlays and redrawn paths have tracks, arrows and times that no profiler measured, so ingestion refuses them. A
slice holds events of its trace as they are: it is ingested as what it is, and is no capture of a job.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipelines.readers.kineto import ReadTrace

DRAWN = "tracelake"
SLICE = "slice"
_TOLD = {
    "timeline": "a timeline, which `tracelake timeline` drew",
    "overlay": "an overlay, which `tracelake overlay` drew",
    "what-if": "a redrawn path, which `tracelake what-if` drew",
}


def _mark(metadata: dict[str, Any]) -> tuple[str, list[str]]:
    """Returns what the file is a drawing of: its kind, and the ids of its traces; "" for a profiler's."""
    mark = metadata.get(DRAWN)
    drawing = mark.get("drawing") if isinstance(mark, dict) else None
    if not isinstance(mark, dict) or not isinstance(drawing, str):
        return "", []
    of = mark.get("of")
    return drawing, [str(trace) for trace in of] if isinstance(of, list) else []


def refused(metadata: dict[str, Any]) -> str | None:
    """Returns why a file with this metadata is not ingested; None for what is no drawing."""
    drawing, of = _mark(metadata)
    if drawing not in _TOLD:
        return None
    return f"it is {_TOLD[drawing]} of {_some(of)}, and no profiler's trace: ingest the trace itself"


def is_slice(metadata: dict[str, Any]) -> bool:
    """Whether a file with this metadata is a slice."""
    return _mark(metadata)[0] == SLICE


def named(trace: ReadTrace) -> ReadTrace:
    """Returns a trace with the finding that it is a slice, and of what, if it is one."""
    if not is_slice(trace.metadata):
        return trace
    from pipelines.readers.kineto import Finding  # which reads where traces come from, and so this module

    detail = f"a slice of {_some(_mark(trace.metadata)[1])}: it has only what was asked for, and is no capture of a job"
    return replace(trace, findings=(*trace.findings, Finding("slice", "warning", 1, detail)))


def _some(of: list[str]) -> str:
    if len(of) <= 1:
        return f"trace {of[0]}" if of else "a trace"
    return f"{len(of)} traces ({', '.join(of[:3])}{', …' if len(of) > 3 else ''})"
