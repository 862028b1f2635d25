"""The heat map of a job, with stages by dp ranks, colored by score from 1 to 1.5, as self-contained SVG."""

from __future__ import annotations

from pipelines.base import svg
from pipelines.base.errors import WrongValue
from pipelines.fleet.op_job.result_rows import score_rows
from pipelines.fleet.op_job.whatif import WhatIf

LOW, HIGH = 1.0, 1.5


def score_heat_map(result: WhatIf) -> str:
    """Return the scores as SVG with one row per stage and one column per dp rank. The worst ranks are framed.

    Tooltips contain the rank and its score. Raise WrongValue if the job loses too little time to have scores.
    """
    cells = score_rows(result)
    if not cells:
        raise WrongValue(f"a slowdown of {result.slowdown:.4f} is too small to attribute: there are no scores")
    meta = result.job.meta
    width = 54 if meta.dp <= 20 else 22
    drawn = [
        svg.Cell(
            cell["stage"],
            cell["dp_rank"],
            _part(cell["score"]),
            f"rank {cell['rank']}: stage {cell['stage']}, dp rank {cell['dp_rank']}, score {cell['score']:.4f}",
            f"{cell['score']:.3f}",
            "bad" if cell["is_worst"] else "",
        )
        for cell in sorted(cells, key=lambda cell: cell["is_worst"])  # frames on top
    ]
    return svg.heat_map(
        f"{meta.name}: slowdown {result.slowdown:.4f}",
        "each cell: the smaller of its stage's and its dp rank's slowdown; framed: the worst ranks",
        [f"stage {stage}" for stage in range(meta.pp)],
        [f"dp {dp}" if width > 30 else str(dp) for dp in range(meta.dp)],
        drawn,
        (f"{LOW:g} and less", f"{HIGH:g} and more"),
        width=width,
        height=34,
    )


def colour(score: float) -> str:
    """Return the `#rrggbb` color of a score, clamped to 1 … 1.5."""
    return svg.WARM(_part(score))


def _part(score: float) -> float:
    return (score - LOW) / (HIGH - LOW)
