"""Windows as bars split by causes, in the colours that a page keeps for them."""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.base.datafiles import rule_rows
from pipelines.base.units import percent, time
from pipelines.faces.report.blocks import Block, Part, bars

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
"""Of the bar of causes; two that are often in one window differ. The others are rare and share one."""


def cause_bars(windows: Sequence[tuple[str, Sequence[tuple[str, float]]]]) -> Block:
    """Returns a bar for each window, all to one scale: its name, and its causes with their time, ns, largest first."""
    kinds = {row["cause"]: row["title"] for row in rule_rows("cause_kinds")}
    colours = {title: _COLOURS.get(cause, "other") for cause, title in kinds.items()}
    rows = []
    for name, causes in windows:
        whole = sum(ns for _, ns in causes) or 1
        rows.append(
            (name, [Part(kinds[cause], ns, f"{time(ns)}, {percent(100 * ns / whole)}") for cause, ns in causes])
        )
    return bars(rows, colours)
