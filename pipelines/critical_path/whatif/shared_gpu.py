"""Caveat about streams that overlap. Their work shares the GPU, so the graph cannot retime it exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipelines.base.datafiles import threshold
from pipelines.critical_path.whatif.timeline import Flags

if TYPE_CHECKING:
    from pipelines.critical_path.whatif.window import Window

_PERCENT = threshold("streams_overlap_percent")
_SHARED = (
    "the streams share the GPU, so if the work of one stream changes, the work of the others gets faster or slower, which is "
    "not counted"
)


def overlap_percent(window: Window) -> float:
    """Return the share of a window in which streams of one device overlap, percent; 0 below streams_overlap_percent."""
    line = window.timeline
    overlap_ns, length_ns = window.events.overlap_ns, int(line.dst_at.max() - line.src_at.min())
    is_enough = overlap_ns > 0 and 100 * overlap_ns >= _PERCENT * length_ns
    return 100 * overlap_ns / length_ns if is_enough else 0.0


def changes_work(window: Window, changed: Flags) -> bool:
    """Return whether any of the changed edges (m,) is self time of GPU work."""
    line = window.timeline
    return bool((changed & line.is_own & (line.owner >= 0) & line.is_work[line.owner]).any())


def overlap_text(overlap: str, where: str) -> str:
    """Return the text of the caveat. `overlap` is the time in which streams overlap, and `where` names the windows."""
    return f"GPU work of several streams overlaps for {overlap} ({where}): {_SHARED}"


def overlapping_streams(window: Window, changed: Flags) -> list[dict[str, Any]]:
    """Return the caveat that the streams of a window overlap, if some of the changed edges (m,) are GPU work."""
    percent = overlap_percent(window)
    if not percent or not changes_work(window, changed):
        return []
    overlap_us = window.events.overlap_ns / 1000
    detail = overlap_text(f"{overlap_us / 1000:.2f} ms", f"{percent:.1f} % of the window")
    return [{"caveat": "overlapping_streams", "severity": "info", "n": 1, "time_us": overlap_us, "detail": detail}]
