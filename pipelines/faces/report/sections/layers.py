"""Layers without a time axis: which rank spends how long in which, and how much of the device's peaks each uses."""

from __future__ import annotations

import duckdb

from pipelines.base.database import rows_of
from pipelines.faces.report.blocks import Section, figure, section
from pipelines.faces.report.pictures.without_time import honeycomb, radar
from pipelines.faces.report.subject import Subject, label, of_shown
from pipelines.models.sqltext import row as listed

_LAYERS, _AXES = 24, 8
_KINDS = {
    "compute (MFU, GPU busy)": "mfu_busy",
    "memory bandwidth": "bandwidth_utilization",
    "of the roofline": "roofline_utilization",
}


def layers(con: duckdb.DuckDBPyConnection, subject: Subject) -> Section | None:
    """The section; None for traces without modules that have GPU work."""
    ranks = {one["trace_id"]: one["rank"] or 0 for one in subject.traces}
    spent = rows_of(
        con,
        "SELECT trace_id, name, sum(busy_ns) / 1e6 AS ms FROM span_names WHERE kind = 'module' AND phase IN ('fwd', 'bwd') "
        f"AND trace_id IN {listed(ranks)} GROUP BY trace_id, name HAVING sum(busy_ns) > 0",
    )
    total: dict[str, float] = {}
    cells: dict[int, dict[str, float]] = {}
    for one in spent:
        total[one["name"]] = total.get(one["name"], 0.0) + one["ms"]
        cells.setdefault(ranks[one["trace_id"]], {})[one["name"]] = one["ms"]
    names = sorted(total, key=lambda name: (-total[name], name))[:_LAYERS]
    drawn = [honeycomb("GPU time of modules by rank", names, cells, "ms"), _radar(con, subject)]
    pictures = [figure(one) for one in drawn if one]
    note = f"{of_shown(subject)}Modules, forward and backward; outer ones contain inner ones. No clocks of ranks are compared."
    return section("layers", "Layers", pictures, note=note) if pictures else None


def _radar(con: duckdb.DuckDBPyConnection, subject: Subject) -> str | None:
    rows = rows_of(
        con,
        f"SELECT name, {', '.join(_KINDS.values())} FROM span_name_utilization WHERE trace_id = {subject.shown_id} "
        "AND peak_kind = 'datasheet' AND kind = 'module' AND phase = 'fwd' ORDER BY busy_ns DESC, name",
    )[:_AXES]
    shares = {said: {one["name"]: one[column] for one in rows} for said, column in _KINDS.items()}
    return radar(f"utilization of layers, {label(subject.shown)}", [one["name"] for one in rows], shares)
