"""The heat map of a capture: ranks by profiler steps, as SVG that stands alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pipelines.foreign_text import in_xml

METRICS = {
    "caused_wait_ns": "time the others waited for the rank",
    "wait_ns": "time the rank waited for others",
    "marginal_ns": "time saved if only the rank were on time",
    "compute_ns": "compute time of the rank",
    "step_ns": "duration of the rank's step",
}
_COOL, _WARM = (255, 250, 240), (239, 101, 72)  # both bear black text
_LEFT, _TOP, _HEIGHT, _LEGEND, _MARGIN = 70, 74, 24, 200, 20
_STEPS_WITH_NUMBERS = 16
_STYLE = "text{font:11px sans-serif;fill:#222}.title{font-size:14px;font-weight:bold}.bad{stroke:#000;stroke-width:2}"


def heat_map(title: str, cells: list[dict[str, Any]], metric: str, marked: frozenset[int] = frozenset()) -> str:
    """SVG with a row a rank and a column a step, coloured from 0 to the largest value; `marked` ranks are framed.

    `cells` are rows of `step_ranks`. ValueError: an unknown metric, or no cell has it.
    """
    if metric not in METRICS:
        raise ValueError(f"no metric {metric!r}; there are: {', '.join(METRICS)}")
    known = [cell for cell in cells if cell[metric] is not None]
    if not known:
        raise ValueError(f"no step of any rank has {metric}: there are no matched collectives, or no profiler steps")
    steps = sorted({cell["step"] for cell in known}, key=lambda step: (step is None, step or 0))
    ranks = sorted({cell["rank"] for cell in known})
    top = max(cell[metric] for cell in known)
    width = 62 if len(steps) <= _STEPS_WITH_NUMBERS else max(4, 1000 // len(steps))
    size = (max(_LEFT + len(steps) * width + _MARGIN, 560), _TOP + len(ranks) * _HEIGHT + 84)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{size[0]}" height="{size[1]}">',
            f"<style>{_STYLE}</style>",
            '<rect width="100%" height="100%" fill="#fff"/>',
            _text(8, 20, title, "title"),
            _text(8, 38, f"each cell: {METRICS[metric]} in one step, ms" + ("; framed: stragglers" if marked else "")),
            *_step_names(steps, width),
            *(_text(8, _TOP + (row + 0.65) * _HEIGHT, f"rank {rank}") for row, rank in enumerate(ranks)),
            *(_cell(cell, metric, top, width, steps.index(cell["step"]), ranks.index(cell["rank"])) for cell in known),
            *(_frame(ranks.index(rank), len(steps) * width) for rank in sorted(marked & set(ranks))),
            *_legend(top, _TOP + len(ranks) * _HEIGHT + _MARGIN),
            "</svg>\n",
        ]
    )


def _step_names(steps: list[int | None], width: int) -> Iterator[str]:
    """The steps' numbers, as many as there is room for."""
    every = max(1, 30 // width)
    for column, step in enumerate(steps):
        if column % every == 0 or step is None:
            name = "no step" if step is None else f"step {step}" if width > 40 else step
            yield _text(_LEFT + (column + 0.5) * width, _TOP - 6, name, at="middle")


def _cell(cell: dict[str, Any], metric: str, top: int, width: int, column: int, row: int) -> str:
    value = cell[metric]
    x, y = _LEFT + column * width, _TOP + row * _HEIGHT
    step = "outside steps" if cell["step"] is None else f"step {cell['step']}"
    says = f"rank {cell['rank']}, {step}: " + ", ".join(
        f"{name.removesuffix('_ns')} {cell[name] / 1e6:.3f} ms" for name in METRICS if cell[name] is not None
    )
    box = f'<rect x="{x}" y="{y}" width="{max(width - 2, 2)}" height="{_HEIGHT - 2}" fill="{_colour(value, top)}">'
    number = _text(x + width / 2 - 1, y + 15, f"{value / 1e6:.2f}", at="middle") if width > 40 else ""
    return f"{box}<title>{in_xml(says)}</title></rect>{number}"


def _frame(row: int, width: int) -> str:
    y = _TOP + row * _HEIGHT - 1
    return f'<rect class="bad" x="{_LEFT - 1}" y="{y}" width="{width}" height="{_HEIGHT}" fill="none"/>'


def _colour(value: float, top: float) -> str:
    part = min(max(value / top, 0.0), 1.0) if top else 0.0
    return "#" + "".join(f"{round(a + (b - a) * part):02x}" for a, b in zip(_COOL, _WARM, strict=True))


def _legend(top: int, y: int) -> Iterator[str]:
    for i in range(50):
        x = _LEFT + i * _LEGEND / 50
        yield f'<rect x="{x:.1f}" y="{y}" width="{_LEGEND / 50 + 0.5:.1f}" height="12" fill="{_colour(i, 49)}"/>'
    yield _text(_LEFT, y + 26, "0")
    yield _text(_LEFT + _LEGEND, y + 26, f"{top / 1e6:.3g} ms", at="middle")


def _text(x: float, y: float, text: object, kind: str = "", at: str = "start") -> str:
    style = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{at}"{style}>{in_xml(text)}</text>'
