"""Bars of windows, split by causes in fixed colours."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from markupsafe import Markup

from pipelines.base.datafiles import rule_rows
from pipelines.base.units import percent, time
from pipelines.faces.report.blocks import Part
from pipelines.faces.report.macros import bars

_COLOURS = {
    "gpu_computing": "compute",
    "communication": "communication",
    "late_rank": "straggler",
    "copies": "memory",
    "launching": "launch",
    "gpu_waiting": "gap",
    "host_operators": "cpu",
    "host_between_operators": "host",
    "data_loading": "loader",
    "synchronization": "sync",
    "optimizer": "optimizer",
    "compilation": "setup",
    "initialization": "setup",
    "start": "edge",
    "end": "edge",
    "earlier_work": "idle",
    "unknown": "idle",
}
"""CSS class by cause. Causes that often occur in the same window have different colours. Rare causes share `other`."""


def colour_of(cause: str) -> str:
    """Return the colour of a cause, as in the page's style sheet, #rrggbb."""
    return _colours()[_COLOURS.get(cause, "other")]


@cache
def _colours() -> dict[str, str]:
    css = (Path(__file__).parent / "templates" / "page.css").read_text()
    return dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", css))


def cause_bars(windows: Sequence[tuple[str, Sequence[tuple[str, float]]]]) -> Markup:
    """Return a bar per window, all to one scale. `windows`: (name, [(cause, ns), …]), causes in the order of the bar."""
    kinds = {row["cause"]: row["title"] for row in rule_rows("cause_kinds")}
    colours = {title: _COLOURS.get(cause, "other") for cause, title in kinds.items()}
    rows = []
    for name, causes in windows:
        total_ns = sum(ns for _, ns in causes) or 1
        rows.append(
            (name, [Part(kinds[cause], ns, f"{time(ns)}, {percent(100 * ns / total_ns)}") for cause, ns in causes])
        )
    return bars(rows, colours)
