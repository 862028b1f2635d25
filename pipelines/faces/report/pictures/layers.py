"""Layers of a thread as SVG: nested spans over time, each box colored by a number about its GPU work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipelines.base import svg
from pipelines.base.units import time

Row = dict[str, Any]
_WIDTH, _LEFT, _TOP, _LANE, _LEGEND = 1200, 8, 46, 24, 160
_LEAST = 0.6  # minimum width of a box in pixels; narrower boxes are dropped and counted
COLOURS = {
    "share": svg.ramp((247, 247, 247), (239, 138, 72)),
    "utilization": svg.ramp((247, 247, 247), (44, 185, 142)),
}
_STYLE = ".layers .title{font-size:13px}.span{stroke:#999;stroke-width:.5}"


def layers(
    title: str,
    spans: Sequence[Row],
    key: str,
    start_ns: int,
    end_ns: int,
    what: str,
    scale: str,
    *,
    box: str = "a span on the host",
    length: str | None = None,
    unknown: str | None = "no GPU work, or not measured",
) -> str:
    """Return SVG with one lane per depth, from `start_ns` to `end_ns`.

    The value at `key`, 0 to 1, determines a box's color. A box with None is hatched. `spans` have span_id, parent_id,
    name, start_ns, end_ns, says (the tooltip) and `key`. `what` explains the color. `scale` is a key of COLOURS. The
    legend uses the texts `box` (meaning of a box), `length` (of the full width; default: the duration) and `unknown`
    (meaning of hatching; None omits it). Raise ValueError if the interval is empty or there are no spans.
    """
    if end_ns <= start_ns or not spans:
        raise ValueError("no spans to draw")
    depths = _depths(spans)
    pixels = (_WIDTH - 2 * _LEFT) / (end_ns - start_ns)
    drawn = [s for s in spans if (min(s["end_ns"], end_ns) - max(s["start_ns"], start_ns)) * pixels >= _LEAST]
    left_out = len(spans) - len(drawn)
    bottom = _TOP + (max((depths[s["span_id"]] for s in drawn), default=0) + 1) * _LANE
    more = f"; {left_out} too short to draw" if left_out else ""
    width = length or f"{time(end_ns - start_ns)} on the host"
    parts = (
        svg.hatch("unknown", "#fff", "#ddd"),
        svg.text(_LEFT, 16, title, "title"),
        svg.text(_LEFT, 34, f"a box: {box}, inside the one above it; color: {what}{more}"),
        *(_box(s, depths[s["span_id"]], key, start_ns, end_ns, pixels, scale) for s in drawn),
        *_legend(bottom + 14, scale, unknown),
        svg.text(_WIDTH - _LEFT, bottom + 24, width, at="end"),
    )
    return svg.picture(_WIDTH, bottom + 48, parts, _STYLE, "layers")


def _depths(spans: Sequence[Row]) -> dict[int, int]:
    """Return each span's depth by span_id: the number of its ancestors."""
    parents = {s["span_id"]: s["parent_id"] for s in spans}
    depth_by_id: dict[int, int] = {}
    for ident in parents:
        chain, span_id = [], ident
        while span_id in parents and span_id not in depth_by_id:
            chain.append(span_id)
            span_id = parents[span_id]
        base = depth_by_id[span_id] + 1 if span_id in depth_by_id else 0
        for above, chain_id in enumerate(reversed(chain)):
            depth_by_id[chain_id] = base + above
    return depth_by_id


def _box(span: Row, depth: int, key: str, start_ns: int, end_ns: int, pixels: float, scale: str) -> str:
    x = _LEFT + (max(span["start_ns"], start_ns) - start_ns) * pixels
    width = (min(span["end_ns"], end_ns) - max(span["start_ns"], start_ns)) * pixels
    y = _TOP + depth * _LANE
    fill = "url(#unknown)" if span[key] is None else COLOURS[scale](span[key])
    label = svg.fitting(span["name"], width - 6)
    box = svg.rect(x, y, width, _LANE - 2, "span", fill, span["says"])
    return box + (svg.text(x + 3, y + 15, label) if label else "")


def _legend(y: int, scale: str, unknown: str | None) -> list[str]:
    parts = [*svg.legend(_LEFT, y, _LEGEND, COLOURS[scale], "0 %", "100 %")]
    if unknown is not None:
        parts.append(svg.rect(_LEFT + _LEGEND + 60, y, 14, 10, "span", "url(#unknown)"))
        parts.append(svg.text(_LEFT + _LEGEND + 80, y + 10, unknown))
    return parts
