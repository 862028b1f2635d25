"""Building blocks of self-contained SVG pictures without script, font or server. Needs only the standard library.

Foreign text (names in traces) enters only through `text` and the tooltips of `rect`, which escape it.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from pipelines.base.foreign_text import in_xml

_STYLE = "text{font:11px sans-serif;fill:#222}.title{font-size:14px;font-weight:bold}"
_CHAR = 6.5  # approximate width of a letter in a browser, in pixels
_LEFT, _TOP, _MARGIN, _LEGEND = 70, 74, 20, 200

Rgb = tuple[int, int, int]
Colour = Callable[[float], str]


def picture(width: float, height: float, parts: Iterable[str], style: str, kind: str = "") -> str:
    """Return the picture on white background. `style`: additional CSS.

    With a `kind`, its CSS class, the picture scales with the page that contains it.
    """
    size = f'class="{kind}" viewBox="0 0 {width} {height}" width="{width}"' if kind else f'width="{width}" height="{height}"'  # fmt: skip
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}>',
        f"<style>{_STYLE}{style}</style>",
        rect(0, 0, width, height, fill="#fff"),
    )
    return "\n".join((*head, *parts, "</svg>\n"))


def _short(pixels: float) -> str:
    return f"{round(pixels, 2):g}"


def text(x: float, y: float, label: object, kind: str = "", at: str = "start") -> str:
    """Return an SVG text element of the CSS class `kind`, with its start, middle or end (`at`) at x."""
    style = f' class="{kind}"' if kind else ""
    return f'<text x="{_short(x)}" y="{_short(y)}" text-anchor="{at}"{style}>{in_xml(label)}</text>'


def rect(
    x: float, y: float, width: float, height: float, kind: str = "", fill: str = "", says: object | None = None
) -> str:
    """Return an SVG box of the CSS class `kind`. `says`: text of its tooltip."""
    style = (f' class="{kind}"' if kind else "") + (f' fill="{fill}"' if fill else "")
    box = f'<rect x="{_short(x)}" y="{_short(y)}" width="{_short(width)}" height="{_short(height)}"{style}'
    return f"{box}/>" if says is None else f"{box}><title>{in_xml(says)}</title></rect>"


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    """Return an SVG line of the CSS class `kind`."""
    return f'<line class="{kind}" x1="{_short(x1)}" y1="{_short(y1)}" x2="{_short(x2)}" y2="{_short(y2)}"/>'


def hatch(ident: str, paper: str, ink: str) -> str:
    """Return a pattern of slanted lines, used as `fill="url(#ident)"`."""
    return (
        f'<defs><pattern id="{ident}" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        f'<rect width="6" height="6" fill="{paper}"/><line x1="0" y1="0" x2="0" y2="6" stroke="{ink}" stroke-width="2"/>'
        "</pattern></defs>"
    )


def ramp(low: Rgb, high: Rgb) -> Colour:
    """Return a color scale between two colors, a function from a number (clamped to 0 to 1) to `#rrggbb`."""

    def colour(part: float) -> str:
        part = min(max(part, 0.0), 1.0)
        return "#" + "".join(f"{round(a + (b - a) * part):02x}" for a, b in zip(low, high, strict=True))

    return colour


WARM = ramp((255, 250, 240), (239, 101, 72))  # black text is readable on all of these colors


def legend(x: float, y: float, width: float, colour: Colour, low: str, high: str) -> Iterator[str]:
    """Yield the elements of a color scale, with the meaning of its ends below it."""
    steps = 50
    for i in range(steps):
        yield rect(x + i * width / steps, y, width / steps + 0.5, 12, fill=colour(i / (steps - 1)))
    yield text(x, y + 26, low)
    yield text(x + width, y + 26, high, at="middle")


def length(label: str) -> float:
    """Return the approximate width of a text in a browser, in pixels."""
    return sum(map(_width, label))


def _width(char: str) -> float:
    return _CHAR * (1.8 if unicodedata.east_asian_width(char) in "WF" else 1)


def fitting(label: str, room: float) -> str:
    """Return the part of a text that fits `room` pixels, or '' if less than two letters and an ellipsis fit."""
    ends = [*accumulate(map(_width, label))]
    if not ends or ends[-1] <= room:
        return label
    letters = bisect_right(ends, room - _CHAR)
    return label[:letters] + "…" if letters > 1 else ""


@dataclass(frozen=True)
class Cell:
    """A cell of a heat map.

    `part`: color (0 to 1). `says`: tooltip. `number`: text in the cell. `kind`: CSS class of the cell's box.
    """

    row: int
    column: int
    part: float
    says: str
    number: str
    kind: str = ""


def heat_map(
    title: str,
    label: str,
    rows: Sequence[str],
    columns: Sequence[str],
    cells: Iterable[Cell],
    ends: tuple[str, str],
    *,
    width: int,
    height: int,
    framed: Iterable[int] = (),
) -> str:
    """Return a picture of colored cells in rows and columns.

    `label` explains a cell, `ends` the ends of the color scale. `framed`: indices of rows with a frame. `width` and
    `height` of a cell are in pixels. Numbers and names that do not fit are omitted.
    """
    label_step = max(1, 30 // width)
    bottom = _TOP + len(rows) * height
    parts = [
        text(8, 20, title, "title"),
        text(8, 38, label),
        *(
            text(_LEFT + (i + 0.5) * width, _TOP - 6, name, at="middle")
            for i, name in enumerate(columns)
            if i % label_step == 0 or not name.isdigit()
        ),
        *(text(8, _TOP + (i + 0.6) * height, name) for i, name in enumerate(rows)),
        *(part for cell in cells for part in _cell(cell, width, height)),
        *(rect(_LEFT - 1, _TOP + i * height - 1, len(columns) * width, height, "bad", "none") for i in framed),
        *legend(_LEFT, bottom + _MARGIN, _LEGEND, WARM, *ends),
    ]
    return picture(
        max(_LEFT + len(columns) * width + _MARGIN, 560), bottom + 84, parts, ".bad{stroke:#000;stroke-width:2}"
    )


def _cell(cell: Cell, width: int, height: int) -> Iterator[str]:
    x, y = _LEFT + cell.column * width, _TOP + cell.row * height
    yield rect(x, y, max(width - 2, 2), height - 2, cell.kind, WARM(cell.part), cell.says)
    if width > 40:
        yield text(x + width / 2 - 1, y + height / 2 + 3, cell.number, at="middle")
