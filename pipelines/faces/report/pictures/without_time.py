"""Pictures of layers without a time axis: a honeycomb of ranks by layers, and a radar of how much of the peaks they use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import cos, pi, sin, sqrt

from pipelines.base import svg

_SIDE, _LEFT, _TOP = 15.0, 90, 120
_RADIUS = 170
_COLOURS = ("#2cb98e", "#d9534f", "#56b4e9")
_STYLE = ".cell{stroke:#fff;stroke-width:1}.ring{fill:none;stroke:#ddd}.area{fill-opacity:.15;stroke-width:2}"


def honeycomb(title: str, layers: Sequence[str], cells: Mapping[int, Mapping[str, float]], unit: str) -> str | None:
    """Returns SVG with a hexagon for each rank (rows) and layer (columns), darker with more; None without a number.

    `cells`: by rank and layer. A layer that a rank does not have has no hexagon.
    """
    most = max((value for row in cells.values() for value in row.values()), default=0.0)
    if most <= 0:
        return None
    colour = svg.ramp((247, 247, 247), (33, 102, 172))
    wide, high, parts = (
        sqrt(3) * _SIDE,
        1.5 * _SIDE,
        [svg.text(4, 16, title, "title"), svg.text(4, 34, f"{unit}, up to {most:,.3g}")],
    )
    for place, layer in enumerate(layers):
        x, y = _LEFT + wide * (place + 0.5), _TOP - _SIDE - 6
        said = svg.text(x, y, layer)
        parts.append(f'<g transform="rotate(-40 {x:.1f} {y:.1f})">{said}</g>')
    for row, rank in enumerate(sorted(cells)):
        y = _TOP + high * row
        parts.append(svg.text(4, y + 4, f"rank {rank}"))
        for place, layer in enumerate(layers):
            value = cells[rank].get(layer)
            if value is not None:
                x = _LEFT + wide * (place + 0.5 + row % 2 / 2)
                says = (
                    svg.text(0, 0, f"rank {rank}, {layer}: {value:,.3g} {unit}")
                    .partition(">")[2]
                    .removesuffix("</text>")
                )
                parts.append(
                    f'<polygon class="cell" points="{_points(x, y, _SIDE, 6)}" fill="{colour(value / most)}"><title>{says}</title></polygon>'
                )
    return svg.picture(_LEFT + wide * (len(layers) + 4), _TOP + high * len(cells) + _SIDE, parts, _STYLE, "layers")


def radar(title: str, layers: Sequence[str], shares: Mapping[str, Mapping[str, float | None]]) -> str | None:
    """Returns SVG with an axis for each layer and an area for each kind of utilization; None below three layers.

    `shares`: by kind and layer, 1 for the peak; what is above is drawn at the rim. An unknown one (None) breaks the area's line.
    """
    known = {kind: of for kind, of in shares.items() if any(value is not None for value in of.values())}
    if len(layers) < 3 or not known:
        return None
    x, y, n = 330.0, 250.0, len(layers)
    parts = [svg.text(4, 16, title, "title")]
    parts += [f'<polygon class="ring" points="{_points(x, y, _RADIUS * part / 4, n)}"/>' for part in (1, 2, 3, 4)]
    parts += [svg.text(x + 3, y - _RADIUS * part / 4 - 2, f"{25 * part} %") for part in (1, 2, 3, 4)]
    for place, layer in enumerate(layers):
        to = _at(x, y, _RADIUS, place, n)
        parts.append(svg.line(x, y, *to, "ring"))
        out = _at(x, y, _RADIUS + 14, place, n)
        parts.append(svg.text(*out, layer, at="start" if out[0] > x + 5 else "end" if out[0] < x - 5 else "middle"))
    for (kind, of), colour in zip(known.items(), _COLOURS, strict=False):
        reached = [(place, value) for place, layer in enumerate(layers) if (value := of.get(layer)) is not None]
        corners = [_at(x, y, _RADIUS * min(max(value, 0), 1), place, n) for place, value in reached]
        shape, fill = ("polygon", colour) if len(reached) == n else ("polyline", "none")
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in corners)
        parts.append(f'<{shape} class="area" points="{points}" fill="{fill}" stroke="{colour}"/>')
        at = 470 + 18 * list(known).index(kind)
        parts += [svg.rect(8, at - 10, 12, 12, "", colour), svg.text(26, at, kind)]
    return svg.picture(660, 480 + 18 * len(known), parts, _STYLE, "layers")


def _at(x: float, y: float, radius: float, place: int, n: int) -> tuple[float, float]:
    turn = 2 * pi * place / n - pi / 2
    return x + radius * cos(turn), y + radius * sin(turn)


def _points(x: float, y: float, radius: float, n: int) -> str:
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in (_at(x, y, radius, place, n) for place in range(n)))
