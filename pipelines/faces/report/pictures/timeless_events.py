"""Charts of layers without a time axis: a honeycomb of ranks by layers, and a radar of their utilization."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import cos, pi, sin, sqrt

from pipelines.base import svg

_SIDE, _LEFT, _TOP = 15.0, 90, 120
_RADIUS = 170
_COLOURS = ("#2cb98e", "#d9534f", "#56b4e9")
_STYLE = ".cell{stroke:#fff;stroke-width:1}.ring{fill:none;stroke:#ddd}.area{fill-opacity:.15;stroke-width:2}"


def honeycomb(
    title: str, layers: Sequence[str], cells: Mapping[int | str, Mapping[str, float]], unit: str
) -> str | None:
    """Return SVG with a hexagon per rank (rows) and layer (columns), darker for larger values, or None if no value is positive.

    `cells`: values by rank (or the name of a trace without a rank) and layer. A layer that is missing in a rank gets no
    hexagon. `unit`: unit of the values.
    """
    max_value = max((value for row in cells.values() for value in row.values()), default=0.0)
    if max_value <= 0:
        return None
    colour = svg.ramp((247, 247, 247), (33, 102, 172))
    wide, high, parts = (
        sqrt(3) * _SIDE,
        1.5 * _SIDE,
        [svg.text(4, 16, title, "title"), svg.text(4, 34, f"{unit}, up to {max_value:,.3g}")],
    )
    for column, layer in enumerate(layers):
        x, y = _LEFT + wide * (column + 0.5), _TOP - _SIDE - 6
        label = svg.text(x, y, layer)
        parts.append(f'<g transform="rotate(-40 {x:.1f} {y:.1f})">{label}</g>')
    for row, rank in enumerate(sorted(cells, key=lambda rank: (isinstance(rank, str), rank))):
        y = _TOP + high * row
        row_label = rank if isinstance(rank, str) else f"rank {rank}"
        parts.append(svg.text(4, y + 4, row_label))
        for column, layer in enumerate(layers):
            value = cells[rank].get(layer)
            if value is not None:
                x = _LEFT + wide * (column + 0.5 + row % 2 / 2)
                tooltip = (
                    svg.text(0, 0, f"{row_label}, {layer}: {value:,.3g} {unit}")
                    .partition(">")[2]
                    .removesuffix("</text>")
                )
                parts.append(
                    f'<polygon class="cell" points="{_points(x, y, _SIDE, 6)}" fill="{colour(value / max_value)}"><title>{tooltip}</title></polygon>'
                )
    return svg.picture(_LEFT + wide * (len(layers) + 4), _TOP + high * len(cells) + _SIDE, parts, _STYLE, "layers")


def radar(title: str, layers: Sequence[str], shares: Mapping[str, Mapping[str, float | None]]) -> str | None:
    """Return SVG with an axis per layer and an area per kind of utilization.

    Return None if there are fewer than three layers, or no values. `shares`: values by kind and layer, as a fraction of the peak.
    A value above 1 is drawn at the rim. A missing value (None) is skipped and leaves the area unfilled.
    """
    known_shares = {
        kind: share_by_layer
        for kind, share_by_layer in shares.items()
        if any(value is not None for value in share_by_layer.values())
    }
    if len(layers) < 3 or not known_shares:
        return None
    x, y, n = 330.0, 250.0, len(layers)
    parts = [svg.text(4, 16, title, "title")]
    parts += [f'<polygon class="ring" points="{_points(x, y, _RADIUS * part / 4, n)}"/>' for part in (1, 2, 3, 4)]
    parts += [svg.text(x + 3, y - _RADIUS * part / 4 - 2, f"{25 * part} %") for part in (1, 2, 3, 4)]
    for index, layer in enumerate(layers):
        to = _at(x, y, _RADIUS, index, n)
        parts.append(svg.line(x, y, *to, "ring"))
        out = _at(x, y, _RADIUS + 14, index, n)
        parts.append(svg.text(*out, layer, at="start" if out[0] > x + 5 else "end" if out[0] < x - 5 else "middle"))
    for (kind, share_by_layer), colour in zip(known_shares.items(), _COLOURS, strict=False):
        reached = [
            (index, value) for index, layer in enumerate(layers) if (value := share_by_layer.get(layer)) is not None
        ]
        corners = [_at(x, y, _RADIUS * min(max(value, 0), 1), index, n) for index, value in reached]
        shape, fill = ("polygon", colour) if len(reached) == n else ("polyline", "none")
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in corners)
        parts.append(f'<{shape} class="area" points="{points}" fill="{fill}" stroke="{colour}"/>')
        legend_y = 470 + 18 * list(known_shares).index(kind)
        parts += [svg.rect(8, legend_y - 10, 12, 12, "", colour), svg.text(26, legend_y, kind)]
    return svg.picture(660, 480 + 18 * len(known_shares), parts, _STYLE, "layers")


def _at(x: float, y: float, radius: float, index: int, n: int) -> tuple[float, float]:
    turn = 2 * pi * index / n - pi / 2
    return x + radius * cos(turn), y + radius * sin(turn)


def _points(x: float, y: float, radius: float, n: int) -> str:
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in (_at(x, y, radius, index, n) for index in range(n)))
