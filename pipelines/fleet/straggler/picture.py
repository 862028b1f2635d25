"""The heat map of a job: stages by dp ranks, coloured by score from 1 to 1.5, as SVG that stands alone."""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.fleet.straggler.rows import Row, score_rows
from pipelines.fleet.straggler.whatif import WhatIf
from pipelines.foreign_text import in_xml

LOW, HIGH = 1.0, 1.5
_COOL, _WARM = (255, 250, 240), (239, 101, 72)  # both bear black text
_LEFT, _TOP, _HEIGHT, _LEGEND, _MARGIN = 70, 74, 34, 200, 20
_STYLE = "text{font:11px sans-serif;fill:#222}.title{font-size:14px;font-weight:bold}.worst{stroke:#000;stroke-width:2}"


def heat_map(found: WhatIf) -> str:
    """The scores as SVG: one row per stage, one column per dp rank, the worst ranks framed, times in the tooltips.

    ValueError: the job loses too little to have scores.
    """
    cells = score_rows(found)
    if not cells:
        raise ValueError(f"a slowdown of {found.slowdown:.4f} is too small to attribute: there are no scores")
    meta = found.job.meta
    width = 54 if meta.dp <= 20 else 22
    size = (max(_LEFT + meta.dp * width + _MARGIN, 520), _TOP + meta.pp * _HEIGHT + 84)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{size[0]}" height="{size[1]}">',
            f"<style>{_STYLE}</style>",
            '<rect width="100%" height="100%" fill="#fff"/>',
            _text(8, 20, f"{meta.name}: slowdown {found.slowdown:.4f}", "title"),
            _text(8, 38, "each cell: the smaller of its stage's and its dp rank's slowdown; framed: the worst ranks"),
            *(_text(_LEFT + (dp + 0.5) * width, _TOP - 6, f"dp {dp}" if width > 30 else dp, at="middle") for dp in range(meta.dp)),
            *(_text(8, _TOP + (stage + 0.6) * _HEIGHT, f"stage {stage}") for stage in range(meta.pp)),
            *(_cell(cell, width) for cell in sorted(cells, key=lambda cell: cell["is_worst"])),  # frames on top
            *_legend(_TOP + meta.pp * _HEIGHT + _MARGIN),
            "</svg>\n",
        ]
    )  # fmt: skip


def colour(score: float) -> str:
    """`#rrggbb` of a score; below 1 as 1, above 1.5 as 1.5."""
    part = min(max((score - LOW) / (HIGH - LOW), 0.0), 1.0)
    return "#" + "".join(f"{round(a + (b - a) * part):02x}" for a, b in zip(_COOL, _WARM, strict=True))


def _cell(cell: Row, width: int) -> str:
    x, y = _LEFT + cell["dp_rank"] * width, _TOP + cell["stage"] * _HEIGHT
    says = f"rank {cell['rank']}: stage {cell['stage']}, dp rank {cell['dp_rank']}, score {cell['score']:.4f}"
    frame = ' class="worst"' if cell["is_worst"] else ' stroke="#fff"'
    box = f'<rect x="{x}" y="{y}" width="{width - 2}" height="{_HEIGHT - 2}" fill="{colour(cell["score"])}"{frame}>'
    label = _text(x + width / 2 - 1, y + 20, f"{cell['score']:.3f}", at="middle") if width > 30 else ""
    return f"{box}<title>{in_xml(says)}</title></rect>{label}"


def _legend(y: int) -> Iterator[str]:
    steps = 50
    for i in range(steps):
        x = _LEFT + i * _LEGEND / steps
        fill = colour(LOW + (HIGH - LOW) * i / (steps - 1))
        yield f'<rect x="{x:.1f}" y="{y}" width="{_LEGEND / steps + 0.5:.1f}" height="12" fill="{fill}"/>'
    yield _text(_LEFT, y + 26, f"{LOW:g} and less")
    yield _text(_LEFT + _LEGEND, y + 26, f"{HIGH:g} and more", at="middle")


def _text(x: float, y: float, text: object, kind: str = "", at: str = "start") -> str:
    style = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{at}"{style}>{in_xml(text)}</text>'
