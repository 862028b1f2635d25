"""Line chart of values over time as filled steps, as SVG without scripts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pipelines.base import svg

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 1200, 220, 90, 26, 24
_STYLE = (
    ".curve .axis{stroke:#ccc;stroke-width:1}"
    ".curve .first{fill:#56b4e9;fill-opacity:.45;stroke:#2b86b8;stroke-width:1}"
    ".curve .second{fill:none;stroke:#888;stroke-width:1;stroke-dasharray:4 3}"
)
STRETCHES = 400
"""Number of intervals of equal length in the answers to `queue-over-time` and `memory-over-time`."""
Values = Sequence[float | None]


def curve(title: str, first: Values, second: Values, show: Callable[[float], str], length: str) -> str:
    """Return SVG of `first` (filled) and `second` (dashed), each with one value per interval of equal length.

    None values are not drawn. `show` formats a value at the axis. `length`: total duration as text. Raise ValueError if `first`
    has no values.
    """
    values = [value for value in (*first, *second) if value is not None]
    if not any(value is not None for value in first):
        raise ValueError("no values to draw")
    low, high = min(0, *values), max(1, *values)
    pixels = (_HEIGHT - _TOP - _BOTTOM) / (high - low)
    heights = [
        (value, _HEIGHT - _BOTTOM - (value - low) * pixels) for value in sorted({low, 0, (low + high) / 2, high})
    ]
    parts = (
        svg.text(_LEFT, 14, title),
        *(svg.line(_LEFT, y, _WIDTH, y, "axis") for _, y in heights),
        *(svg.text(_LEFT - 6, y + 4, show(value), at="end") for value, y in heights),
        _line(second, "second", low, pixels, None),
        _line(first, "first", low, pixels, 0),
        svg.text(_LEFT, _HEIGHT - 8, "0"),
        svg.text(_WIDTH, _HEIGHT - 8, length, at="end"),
    )
    return svg.picture(_WIDTH, _HEIGHT, parts, _STYLE, "layers curve")


def carried(rows: Sequence[Mapping[str, Any]], most: str, last: str) -> list[float | None]:
    """Return the highest value in each of STRETCHES intervals, or None before the first value.

    A value lasts until the next change, so an interval starts with the last value before the interval. `rows` have one
    row per interval with a change. `most`, `last`: their columns with the highest and the last value.
    """
    values_by_interval = {row["stretch"]: (row[most], row[last]) for row in rows}
    highest: list[float | None] = []
    before = None
    for stretch in range(STRETCHES):
        inside, after = values_by_interval.get(stretch, (None, None))
        highest.append(max((value for value in (before, inside) if value is not None), default=None))
        before = before if after is None else after
    return highest


def _line(values: Values, style: str, low: float, pixels: float, ground: float | None) -> str:
    """Return an SVG polyline with one step per value, closed along the value `ground` unless it is None."""
    width = (_WIDTH - _LEFT) / len(values)
    points = [
        (_LEFT + edge * width, _HEIGHT - _BOTTOM - (value - low) * pixels)
        for index, value in enumerate(values)
        if value is not None
        for edge in (index, index + 1)
    ]
    if not points:
        return ""
    if ground is not None:
        base = _HEIGHT - _BOTTOM - (ground - low) * pixels
        points = [(points[0][0], base), *points, (points[-1][0], base)]
    return f'<polyline class="{style}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>'
