"""One bar per trace, split into the causes of its time, as SVG that does not need the page's style sheet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipelines.base import svg, units
from pipelines.faces.report.cause_bars import colour_of
from pipelines.faces.why import Why

_WIDTH, _NAMES, _TOP, _LANE, _RIGHT, _BOX = 1200, 260, 34, 26, 100, 12
_NAMED = 1  # minimum percent of a bar of a cause in the legend


def cause_lanes(title: str, answers: Sequence[tuple[str, Why]]) -> str | None:
    """Return SVG with a bar per (name, answer), all equally long, and a legend, or None if no answer has a cause."""
    rows = [(name, answer) for name, answer in answers if answer.causes]
    if not rows:
        return None
    titles = {
        cause.kind["cause"]: cause.kind["title"]
        for _, answer in rows
        for cause in answer.causes
        if cause.share >= _NAMED
    }
    bottom = _TOP + len(rows) * _LANE
    legend, height = _legend(titles, bottom + 8)
    lanes = (part for number, row in enumerate(rows) for part in _lane(number, *row))
    return svg.picture(_WIDTH, height, (svg.text(8, 18, title, "title"), *lanes, *legend), "", "lanes")


def _lane(number: int, name: str, answer: Why) -> Iterator[str]:
    y, x, pixels = _TOP + number * _LANE, float(_NAMES), (_WIDTH - _NAMES - _RIGHT) / 100
    yield svg.text(_NAMES - 8, y + 15, svg.fitting(name, _NAMES - 16), at="end")
    for cause in answer.causes:
        width = cause.share * pixels
        says = f"{name}: {cause.title}, {units.time(cause.duration)} ({cause.share:.1f} %)"
        yield svg.rect(x, y + 3, width, _LANE - 6, fill=colour_of(cause.kind["cause"]), says=says)
        x += width
    yield svg.text(_WIDTH - _RIGHT + 6, y + 15, units.time(answer.length))


def _legend(titles: dict[str, str], top: float) -> tuple[list[str], float]:
    """Return the elements of the legend, in as many lines as it needs, and the picture's height."""
    x, y, parts = float(_NAMES), top, []
    for cause, title in titles.items():
        width = _BOX + 6 + svg.length(title) + 16
        if x + width > _WIDTH and x > _NAMES:
            x, y = float(_NAMES), y + 20
        parts += [svg.rect(x, y, _BOX, _BOX, fill=colour_of(cause)), svg.text(x + _BOX + 6, y + 10, title)]
        x += width
    return parts, y + 28
