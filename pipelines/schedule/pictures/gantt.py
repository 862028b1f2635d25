"""Gantt chart of a timeline as SVG: lanes are streams, boxes are tasks, hatched intervals are stalls of a stream.

The SVG is self-contained (no script, font or server). In a browser, hovering over a box or a hatched interval shows its
times and cause.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pipelines.base import svg
from pipelines.schedule.pictures.timeline import Span, Timeline

_LEFT, _TOP, _LANE, _GAP, _AXIS = 120, 52, 30, 12, 34
_TICKS = 8
# The first eight are Okabe and Ito's color-blind-safe palette, lightened. Black text is readable on all colors.
_COLOURS = (
    "#e69f00", "#56b4e9", "#2cb98e", "#f0e442", "#6c9ee8", "#e8874e", "#d69abf", "#b3b3b3",
    "#c5e384", "#a58ad6", "#d8b98a", "#8fd9d6",
)  # fmt: skip
_STYLE = (
    ".lane{fill:#f7f7f7}.grid{stroke:#ddd}.task{stroke:#444;stroke-width:.5}.stall{fill:url(#hatch);stroke:#bbb;stroke-width:.5}"
    ".cause{fill:#555;stroke:#ececec;stroke-width:3;paint-order:stroke}"
)


@dataclass(frozen=True)
class _Scale:
    """Mapping of ns to pixels. Times outside the drawn part are moved to its edge."""

    start_ns: int
    end_ns: int
    width: int

    def x(self, ns: int) -> float:
        inside = min(max(ns, self.start_ns), self.end_ns)
        return round(_LEFT + (inside - self.start_ns) * self.width / max(1, self.end_ns - self.start_ns), 2)

    def shows(self, start_ns: int, end_ns: int) -> bool:
        return end_ns >= self.start_ns and start_ns <= self.end_ns


def gantt(
    timeline: Timeline, *, title: str = "", start_ns: int = 0, end_ns: int | None = None, width: int = 1200
) -> str:
    """Return the timeline as SVG text. `start_ns`, `end_ns`: the part to draw. `width`: width of the lanes in pixels.

    Raise ValueError if the part or the lanes are empty.
    """
    end = max(timeline.end_ns, start_ns + 1) if end_ns is None else end_ns
    if end <= start_ns or width < 1:
        raise ValueError(f"nothing to draw from {start_ns} to {end} ns on {width} pixels")
    scale = _Scale(start_ns, end, width)
    bottom = _TOP + len(timeline.streams) * (_LANE + _GAP)
    parts = (
        svg.hatch("hatch", "#ececec", "#aaa"),
        svg.text(8, 20, title or timeline.engine, "title"),
        *_legend(timeline),
        *_axis(scale, bottom),
        *_lanes(timeline, scale),
    )
    return svg.picture(_LEFT + width + 20, bottom + _AXIS + 20, parts, _STYLE)


def write_gantt(timeline: Timeline, path: str | os.PathLike[str], **options: object) -> Path:
    """Write the SVG of `gantt` to a file and return the file's path. `options`: keyword arguments of `gantt`."""
    target = Path(path)
    target.write_text(gantt(timeline, **options), encoding="utf-8")  # pyright: ignore[reportArgumentType]
    return target


def _lanes(timeline: Timeline, scale: _Scale) -> Iterator[str]:
    colours = _colours(timeline)
    for number, stream in enumerate(timeline.streams):
        y = _TOP + number * (_LANE + _GAP)
        yield svg.text(8, y + 19, svg.fitting(stream, _LEFT - 16))
        yield svg.rect(_LEFT, y, scale.width, _LANE, "lane")
        for span in timeline.spans:
            if span.stream == stream:
                yield from _stalls(span, scale, y)
                if scale.shows(span.start_ns, span.end_ns):
                    yield _box(span, scale, y, colours[span.task])


def _stalls(span: Span, scale: _Scale, y: float) -> Iterator[str]:
    """Yield the SVG of the stalls before the span, each with its own cause."""
    start = span.start_ns - span.stall_ns
    for stall in span.stalls:
        if scale.shows(start, start + stall.ns):
            message = f"waits {_us(stall.ns)} us before {span.task} i{span.iteration}: {stall}"
            x0, x1 = scale.x(start), scale.x(start + stall.ns)
            yield svg.rect(x0, y + 6, max(0.5, x1 - x0), _LANE - 12, "stall", says=message)
            yield _label(stall.short, stall.kind, x0, x1, y, "cause")
        start += stall.ns


def _box(span: Span, scale: _Scale, y: float, colour: str) -> str:
    message = (
        f"{span.task} i{span.iteration} on {span.stream}: {_us(span.start_ns)} to {_us(span.end_ns)} us "
        f"({_us(span.duration_ns)} us), submitted {_us(span.submit_ns)} us"
    )
    x0, x1 = scale.x(span.start_ns), scale.x(span.end_ns)
    label = _label(f"{span.task} i{span.iteration}", f"i{span.iteration}", x0, x1, y)
    return svg.rect(x0, y, max(0.5, x1 - x0), _LANE, "task", colour, message) + label


def _label(long: str, short: str, x0: float, x1: float, y: float, kind: str = "") -> str:
    """Return the SVG of the first of the two texts that fits between x0 and x1, or an empty string."""
    fitting = next((text for text in (long, short) if svg.length(text) <= x1 - x0 - 4), "")
    return svg.text((x0 + x1) / 2, y + 19, fitting, kind, at="middle") if fitting else ""


def _legend(timeline: Timeline) -> Iterator[str]:
    x = float(_LEFT)
    for task, colour in _colours(timeline).items():
        yield svg.rect(x, 30, 11, 11, "task", colour) + svg.text(x + 15, 40, task)
        x += 30 + svg.length(task)
    yield svg.rect(x, 30, 11, 11, "stall") + svg.text(x + 15, 40, "stands still")


def _axis(scale: _Scale, bottom: float) -> Iterator[str]:
    step = tick_step(scale.end_ns - scale.start_ns)
    for ns in range(-(-scale.start_ns // step) * step, scale.end_ns + 1, step):
        x = scale.x(ns)
        yield svg.line(x, _TOP - 4, x, bottom, "grid")
        yield svg.text(x, bottom + 14, _us(ns), at="middle")
    yield svg.text(_LEFT + scale.width, bottom + 30, "time in us", at="end")


def tick_step(span_ns: int) -> int:
    """Return the smallest step, 1, 2 or 5 times a power of ten ns, with at most 8 ticks apart from the zero tick."""
    step = 1
    while True:
        for factor in (1, 2, 5):
            if span_ns <= _TICKS * step * factor:
                return step * factor
        step *= 10


def _colours(timeline: Timeline) -> dict[str, str]:
    tasks = dict.fromkeys(span.task for span in timeline.spans)
    return {task: _COLOURS[i % len(_COLOURS)] for i, task in enumerate(tasks)}


def _us(ns: int) -> str:
    """Format ns as microseconds without trailing zeros."""
    return f"{ns / 1000:.3f}".rstrip("0").rstrip(".")
