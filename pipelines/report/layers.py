"""The layers of a thread: spans inside of spans over time, each box coloured by a number of its GPU work, as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipelines.foreign_text import in_xml

Row = dict[str, Any]
_WIDTH, _LEFT, _TOP, _LANE, _LEGEND, _CHAR = 1200, 8, 46, 24, 160, 6.4
_LEAST = 0.6  # of a pixel: narrower boxes are left out and counted
_COOL = (247, 247, 247)
COLOURS = {"share": (239, 138, 72), "utilization": (44, 185, 142)}
_STYLE = (
    ".layers text{font:11px sans-serif;fill:#222}.layers .head{font-size:13px;font-weight:bold}"
    ".layers rect{stroke:#999;stroke-width:.5}"
)
_HATCH = (
    '<defs><pattern id="unknown" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect width="6" height="6" fill="#fff"/><line x1="0" y1="0" x2="0" y2="6" stroke="#ddd" stroke-width="2"/>'
    "</pattern></defs>"
)


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
    """SVG with a lane a depth, from `start_ns` to `end_ns`; a box's colour is its `key` from 0 to 1, hatched where None.

    `spans` have span_id, parent_id, name, ts_ns, end_ns, says (the tooltip) and `key`; `what` explains the colour,
    `scale` is one of COLOURS. `box` is what a box is, `length` what the whole width is, `unknown` what hatched is (None:
    nothing is). ValueError: the stretch is empty or has no spans.
    """
    if end_ns <= start_ns or not spans:
        raise ValueError("no spans to draw")
    depths = _depths(spans)
    pixels = (_WIDTH - 2 * _LEFT) / (end_ns - start_ns)
    drawn = [s for s in spans if (min(s["end_ns"], end_ns) - max(s["ts_ns"], start_ns)) * pixels >= _LEAST]
    left_out = len(spans) - len(drawn)
    bottom = _TOP + (max((depths[s["span_id"]] for s in drawn), default=0) + 1) * _LANE
    more = f"; {left_out} too short to draw" if left_out else ""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="layers" viewBox="0 0 {_WIDTH} {bottom + 48}" width="{_WIDTH}">',
            f'<style>{_STYLE}</style>{_HATCH}<rect width="100%" height="100%" fill="#fff" style="stroke:none"/>',
            _text(_LEFT, 16, title, "head"),
            _text(_LEFT, 34, f"a box: {box}, inside the one above it; color: {what}{more}"),
            *(_box(s, depths[s["span_id"]], key, start_ns, end_ns, pixels, scale) for s in drawn),
            *_legend(bottom + 14, scale, unknown),
            _text(_WIDTH - _LEFT, bottom + 24, length or f"{(end_ns - start_ns) / 1e6:,.3f} ms on the host", at="end"),
            "</svg>\n",
        ]
    )


def _depths(spans: Sequence[Row]) -> dict[int, int]:
    """How many of the others each span lies in."""
    parents = {s["span_id"]: s["parent_id"] for s in spans}
    found: dict[int, int] = {}
    for ident in parents:
        chain, at = [], ident
        while at in parents and at not in found:
            chain.append(at)
            at = parents[at]
        base = found[at] + 1 if at in found else 0
        for above, one in enumerate(reversed(chain)):
            found[one] = base + above
    return found


def _box(span: Row, depth: int, key: str, start_ns: int, end_ns: int, pixels: float, scale: str) -> str:
    left = _LEFT + (max(span["ts_ns"], start_ns) - start_ns) * pixels
    width = (min(span["end_ns"], end_ns) - max(span["ts_ns"], start_ns)) * pixels
    y = _TOP + depth * _LANE
    fill = "url(#unknown)" if span[key] is None else _colour(span[key], scale)
    box = f'<rect x="{left:.2f}" y="{y}" width="{width:.2f}" height="{_LANE - 2}" fill="{fill}">'
    said = _fitting(span["name"], width - 6)
    return f"{box}<title>{in_xml(span['says'])}</title></rect>" + (_text(left + 3, y + 15, said) if said else "")


def _fitting(name: str, room: float) -> str:
    """As much of a name as fits; nothing where that would be less than three letters."""
    letters = int(room / _CHAR)
    if letters < 3:
        return ""
    return name if len(name) <= letters else name[: letters - 1] + "…"


def _colour(value: float, scale: str) -> str:
    part = min(max(value, 0.0), 1.0)
    return "#" + "".join(f"{round(a + (b - a) * part):02x}" for a, b in zip(_COOL, COLOURS[scale], strict=True))


def _legend(y: int, scale: str, unknown: str | None) -> list[str]:
    steps = 40
    boxes = [
        f'<rect x="{_LEFT + i * _LEGEND / steps:.1f}" y="{y}" width="{_LEGEND / steps + 0.5:.1f}" height="10" '
        f'fill="{_colour(i / (steps - 1), scale)}" style="stroke:none"/>'
        for i in range(steps)
    ]
    ends = [_text(_LEFT, y + 24, "0 %"), _text(_LEFT + _LEGEND, y + 24, "100 %", at="middle")]
    if unknown is None:
        return [*boxes, *ends]
    hatched = f'<rect x="{_LEFT + _LEGEND + 60}" y="{y}" width="14" height="10" fill="url(#unknown)"/>'
    return [*boxes, hatched, *ends, _text(_LEFT + _LEGEND + 80, y + 10, unknown)]


def _text(x: float, y: float, said: str, kind: str = "", at: str = "start") -> str:
    style = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{at}"{style}>{in_xml(said)}</text>'
