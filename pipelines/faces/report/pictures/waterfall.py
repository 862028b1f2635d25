"""Waterfall chart from the sum of control to the sum of test: one bar per change, starting where the previous bar ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pipelines.base import svg
from pipelines.base.kernel_names import short_names

_WIDTH, _NAMES, _TOP, _BAR, _RIGHT = 1200, 330, 46, 24, 130
_LONG = 48  # characters of a name
MORE, LESS, TOTAL = "#d9534f", "#2cb98e", "#6c9ee8"  # as --straggler, --compute and --cpu of the page
_STYLE = ".waterfall .join{stroke:#999;stroke-dasharray:2 2}.waterfall .zero{stroke:#999}"


class Step(NamedTuple):
    """A change: its name, its amount (all amounts add up to test less control), the label next to its bar, and its tooltip."""

    name: str
    change: float
    shown: str
    says: str


def waterfall(
    title: str, control: tuple[float, str], test: tuple[float, str], steps: Sequence[Step], what: str = "GPU time"
) -> str | None:
    """Return SVG with a bar for control, a bar per change and a bar for test, or None if neither sum is positive.

    `control`, `test`: the sums and their labels. `what`: what is summed. Raise ValueError if the changes do not add up to the difference.
    """
    if control[0] <= 0 and test[0] <= 0:
        return None
    if abs(control[0] + sum(step.change for step in steps) - test[0]) > 1e-6 * max(control[0], test[0]):
        raise ValueError("the changes do not add up to the difference of the sums")
    ends, level = [control[0]], control[0]
    for step in steps:
        level += step.change
        ends.append(level)
    pixels = (_WIDTH - _NAMES - _RIGHT) / max(*ends, test[0])
    bottom = _TOP + (len(steps) + 2) * _BAR
    names = short_names([step.name for step in steps], _LONG)
    parts = (
        svg.text(8, 16, title, "title"),
        svg.text(8, 34, f"from the {what} of control to that of test; red: more, green: less"),
        *_bar(0, "control", 0, control[0], TOTAL, control[1], f"control: {control[1]}", pixels),
        *(
            part
            for number, (step, name) in enumerate(zip(steps, names, strict=True))
            for part in _change(number + 1, step, name, ends[number], ends[number + 1], pixels)
        ),
        *_bar(len(steps) + 1, "test", 0, test[0], TOTAL, test[1], f"test: {test[1]}", pixels),
        svg.line(_NAMES, _TOP, _NAMES, bottom, "zero"),
    )
    return svg.picture(_WIDTH, bottom + 14, parts, _STYLE, "layers waterfall")


def _change(lane: int, step: Step, name: str, before: float, after: float, pixels: float) -> Iterator[str]:
    x, top = _NAMES + before * pixels, _TOP + lane * _BAR
    yield svg.line(x, top - _BAR + 3, x, top + _BAR - 3, "join")
    colour = MORE if step.change > 0 else LESS
    yield from _bar(lane, name, min(before, after), max(before, after), colour, step.shown, step.says, pixels)


def _bar(
    lane: int, name: str, start: float, end: float, colour: str, value_text: str, tooltip: str, pixels: float
) -> Iterator[str]:
    y = _TOP + lane * _BAR
    yield svg.text(_NAMES - 8, y + 16, name, at="end")
    yield svg.rect(_NAMES + start * pixels, y + 3, max((end - start) * pixels, 1), _BAR - 6, fill=colour, says=tooltip)
    yield svg.text(_NAMES + end * pixels + 6, y + 16, value_text)
