"""The heat map of a capture: ranks by profiler steps, as self-contained SVG."""

from __future__ import annotations

from typing import Any

from pipelines.base import svg, units
from pipelines.base.errors import WrongValue

METRICS = {
    "caused_wait_ns": "time the others waited for the rank",
    "wait_ns": "time the rank waited for others",
    "marginal_ns": "time saved if only the rank were on time",
    "compute_ns": "compute time of the rank",
    "step_ns": "duration of the rank's step",
}
_STEPS_WITH_NUMBERS = 16


def rank_step_heat_map(
    title: str, cells: list[dict[str, Any]], metric: str, marked: frozenset[int] = frozenset()
) -> str:
    """Return SVG with one row per rank and one column per step, colored from 0 to the largest value.

    If no value is below half of the largest value, colors begin at the smallest value, because otherwise all cells
    would look alike. `cells` are rows of `rank_steps`. `marked` ranks are framed. Raise WrongValue if the metric is
    unknown or NULL in every cell.
    """
    if metric not in METRICS:
        raise WrongValue(f"unknown metric {metric!r}; choose one of {', '.join(METRICS)}")
    measured = [cell for cell in cells if cell[metric] is not None]
    if not measured:
        raise WrongValue(
            f"no step of any rank has {metric}: there are no matched collectives, or no profiler steps, or only a digest is kept"
        )
    steps = sorted({cell["step"] for cell in measured}, key=lambda step: (step is None, step or 0))
    ranks = sorted({cell["rank"] for cell in measured})
    least, top = (choose(cell[metric] for cell in measured) for choose in (min, max))
    bottom = least if 2 * least > top else 0
    width = 62 if len(steps) <= _STEPS_WITH_NUMBERS else max(4, 1000 // len(steps))
    drawn = [
        svg.Cell(
            ranks.index(cell["rank"]),
            steps.index(cell["step"]),
            (cell[metric] - bottom) / (top - bottom) if top > bottom else 0.0,
            _says(cell),
            f"{cell[metric] / 1e6:.2f}",
        )
        for cell in measured
    ]
    return svg.heat_map(
        title,
        f"each cell: {METRICS[metric]} in one step, ms" + ("; framed: stragglers" if marked else ""),
        [f"rank {rank}" for rank in ranks],
        ["no step" if step is None else f"step {step}" if width > 40 else str(step) for step in steps],
        drawn,
        (_ms(bottom) if bottom else "0", _ms(top)),
        width=width,
        height=24,
        framed=(ranks.index(rank) for rank in sorted(marked & set(ranks))),
    )


def _says(cell: dict[str, Any]) -> str:
    step = "outside steps" if cell["step"] is None else f"step {cell['step']}"
    times = (f"{name.removesuffix('_ns')} {units.time(cell[name])}" for name in METRICS if cell[name] is not None)
    return f"rank {cell['rank']}, {step}: {', '.join(times)}"


def _ms(ns: float) -> str:
    """Return a time in ms with three significant digits, or rounded to whole ms from 999.5 ms."""
    return f"{ns / 1e6:,.0f} ms" if ns >= 999.5e6 else f"{ns / 1e6:.3g} ms"
