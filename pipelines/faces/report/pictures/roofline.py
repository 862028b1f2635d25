"""Roofline chart of operators: their rate against their operations per byte, and the limits of the device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil, floor, log10
from typing import Any

from pipelines.base import svg
from pipelines.base.units import size, time

Row = dict[str, Any]
_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 1200, 380, 70, 46, 110, 40
_STYLE = (
    ".roofline .axis{stroke:#ddd;stroke-width:1}"
    ".roofline .roof{stroke:#d9534f;stroke-width:2}"
    ".roofline .op{fill-opacity:.6;stroke:#555;stroke-width:.5}"
    ".roofline .measured{fill-opacity:0;stroke:#555;stroke-width:1.5}"
)
_COLOURS = ("#2cb98e", "#56b4e9", "#e8874e", "#a58ad6", "#b3a58a", "#d69abf")


def roofline(title: str, rows: Sequence[Row]) -> str | None:
    """Return SVG with a box per row and a roof per data type, or None if no row has matrix operations, bytes and a peak.

    `rows` are rows of op_shape_utilization of one kind of peak. The roofs are derived from them: the peak rate for a type is
    operations over ideal time, the bandwidth is bytes over memory time. A box's area grows with its GPU time. If a row also has
    `bytes_measured` and `bytes_modelled` (op_bytes_measured), a hollow box marks its position with measured bytes.
    """
    points = [
        row
        for row in rows
        if row["flops_matrix"] and row["bytes"] and row["gpu_ns"] and row["ideal_ns"] and row["memory_ns"]
    ]
    if not points:
        return None
    dtypes = list(dict.fromkeys(row["dtype"] for row in points))
    roofs = {row["dtype"]: _roof(row) for row in points}
    rates = [row["tflops"] for row in points] + [rate for rate, _ in roofs.values()]
    per_byte = (
        [_intensity(row) for row in points]
        + [intensity for row in points if (intensity := _measured(row))]
        + [rate * 1000 / bandwidth for rate, bandwidth in roofs.values()]
    )
    x, y = _Scale(per_byte, _LEFT, _WIDTH - _RIGHT), _Scale(rates, _HEIGHT - _BOTTOM, _TOP)
    max_gpu_ns = max(row["gpu_ns"] for row in points)
    parts = (
        svg.text(_LEFT, 16, title, "title"),
        svg.text(
            _LEFT,
            34,
            "a box: an operator with certain shapes, larger with more GPU time; below its roof it could be faster"
            + ("; hollow: with the bytes that were measured" if any(map(_measured, points)) else ""),
        ),
        *(svg.line(x.at(10.0**n), _TOP, x.at(10.0**n), _HEIGHT - _BOTTOM, "axis") for n in x.powers),
        *(svg.text(x.at(10.0**n), _HEIGHT - _BOTTOM + 16, f"{10.0**n:g}", at="middle") for n in x.powers),
        *(svg.line(_LEFT, y.at(10.0**n), _WIDTH - _RIGHT, y.at(10.0**n), "axis") for n in y.powers),
        *(svg.text(_LEFT - 6, y.at(10.0**n) + 4, f"{10.0**n:g}", at="end") for n in y.powers),
        svg.text(_WIDTH - _RIGHT, _HEIGHT - 6, "operations per byte", at="end"),
        svg.text(4, _TOP - 6, "TFLOP/s"),
        *(part for dtype in dtypes for part in _lines(dtype, *roofs[dtype], x, y)),
        *(_box(row, _COLOURS[dtypes.index(row["dtype"]) % len(_COLOURS)], max_gpu_ns, x, y) for row in points),
    )
    return svg.picture(_WIDTH, _HEIGHT, parts, _STYLE, "layers roofline")


class _Scale:
    """A logarithmic scale of whole decades between two pixel positions."""

    def __init__(self, values: Sequence[float], first: float, last: float) -> None:
        low, high = floor(log10(min(values))), ceil(log10(max(values)))
        self.low, self.high, self.first, self.last = low, max(high, low + 1), first, last
        self.powers = range(self.low, self.high + 1)

    def at(self, value: float) -> float:
        return self.first + (self.last - self.first) * (log10(value) - self.low) / (self.high - self.low)


def _intensity(row: Row) -> float:
    return row["flops_matrix"] / row["bytes"]


def _measured(row: Row) -> float | None:
    """Return operations per measured byte, or None if the measured or the modelled bytes are missing."""
    bytes_, modelled = row.get("bytes_measured"), row.get("bytes_modelled")
    return _intensity(row) * modelled / bytes_ if bytes_ and modelled else None


def _roof(row: Row) -> tuple[float, float]:
    """Return the device's peak rate in TFLOP/s and its bandwidth in GB/s, as derived from the row."""
    return row["flops_matrix"] / row["ideal_ns"] / 1000, row["bytes"] / row["memory_ns"]


def _lines(dtype: str, rate: float, bandwidth: float, x: _Scale, y: _Scale) -> Iterator[str]:
    ridge = rate * 1000 / bandwidth
    start = max(10.0**x.low, 10.0**y.low * 1000 / bandwidth)
    if start < ridge:
        yield svg.line(x.at(start), y.at(start * bandwidth / 1000), x.at(ridge), y.at(rate), "roof")
    yield svg.line(x.at(ridge), y.at(rate), x.last, y.at(rate), "roof")
    yield svg.text(x.last + 4, y.at(rate) + 4, f"{dtype} {rate:,.0f}")


def _box(row: Row, colour: str, max_gpu_ns: int, x: _Scale, y: _Scale) -> str:
    side = 5 + 17 * (row["gpu_ns"] / max_gpu_ns) ** 0.5
    reached = (
        "" if row["roofline_utilization"] is None else f", {100 * row['roofline_utilization']:.1f} % of its roofline"
    )
    text = f"{row['op']} {row['dtype']}: {row['n_ops']:,} calls, {time(row['gpu_ns'])}, {row['tflops']:.1f} TFLOP/s{reached}"
    box = svg.rect(x.at(_intensity(row)) - side / 2, y.at(row["tflops"]) - side / 2, side, side, "op", colour, text)
    if not (measured := _measured(row)):
        return box
    measured_text = f"{text}; measured {size(row['bytes_measured'])}, the model counts {size(row['bytes_modelled'])}"
    left_x = x.at(measured) - side / 2
    return box + svg.rect(left_x, y.at(row["tflops"]) - side / 2, side, side, "measured", colour, measured_text)
