"""The heat map of a job: stages by dp ranks, coloured by score from 1 to 1.5, as SVG that stands alone."""

from __future__ import annotations

from pipelines import svg
from pipelines.fleet.straggler.rows import score_rows
from pipelines.fleet.straggler.whatif import WhatIf

LOW, HIGH = 1.0, 1.5


def score_heat_map(found: WhatIf) -> str:
    """The scores as SVG: one row per stage, one column per dp rank, the worst ranks framed, times in the tooltips.

    ValueError: the job loses too little to have scores.
    """
    cells = score_rows(found)
    if not cells:
        raise ValueError(f"a slowdown of {found.slowdown:.4f} is too small to attribute: there are no scores")
    meta = found.job.meta
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
        f"{meta.name}: slowdown {found.slowdown:.4f}",
        "each cell: the smaller of its stage's and its dp rank's slowdown; framed: the worst ranks",
        [f"stage {stage}" for stage in range(meta.pp)],
        [f"dp {dp}" if width > 30 else str(dp) for dp in range(meta.dp)],
        drawn,
        (f"{LOW:g} and less", f"{HIGH:g} and more"),
        width=width,
        height=34,
    )


def colour(score: float) -> str:
    """`#rrggbb` of a score; below 1 as 1, above 1.5 as 1.5."""
    return svg.WARM(_part(score))


def _part(score: float) -> float:
    return (score - LOW) / (HIGH - LOW)
