"""Kernels of captures in a connection → what the SQL of sql/fleet/ reads: lanes, matched kernels, clocks.

Reads `_staged_capture_ranks` and `collective_kernels`; creates `_fitted_lanes`, `_fitted_kernels`, `_fitted_clocks`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import duckdb

from pipelines.fleet.alignment import FittedClock, FittedLane, fit_capture
from pipelines.fleet.lanes import Kernels

LANE_COLUMNS = {
    "capture_id": "VARCHAR",
    "lane": "BIGINT",
    "group_name": "VARCHAR",
    "group_ranks": "VARCHAR",
    "group_description": "VARCHAR",
    "rank": "BIGINT",
    "n_kernels": "BIGINT",
    "n_matched": "BIGINT",
    "shift": "BIGINT",
    "spread_ns": "DOUBLE",
    "runner_up_ns": "DOUBLE",
    "reference_rank": "BIGINT",
    "contradiction_ns": "BIGINT",
    "refused_reason": "VARCHAR",
}
KERNEL_COLUMNS = {
    "capture_id": "VARCHAR",
    "lane": "BIGINT",
    "instance": "BIGINT",
    "rank": "BIGINT",
    "trace_id": "VARCHAR",
    "event_id": "BIGINT",
    "kept": "BOOLEAN",
    "aligned_start_ns": "BIGINT",
    "aligned_end_ns": "BIGINT",
}
CLOCK_COLUMNS = {
    "capture_id": "VARCHAR",
    "rank": "BIGINT",
    "offset_ns": "BIGINT",
    "estimate_ns": "BIGINT",
    "error_ns": "BIGINT",
    "sigma_ns": "BIGINT",
    "max_residual_ns": "BIGINT",
    "drift_ppm": "DOUBLE",
    "drift_applied": "BOOLEAN",
    "low_ns": "BIGINT",
    "high_ns": "BIGINT",
    "contradiction_ns": "BIGINT",
    "n_matched": "BIGINT",
    "method": "VARCHAR",
    "refused_reason": "VARCHAR",
}
TABLES = {"_fitted_lanes": LANE_COLUMNS, "_fitted_kernels": KERNEL_COLUMNS, "_fitted_clocks": CLOCK_COLUMNS}


@dataclass
class _Rows:
    """Columns of the tables while they grow."""

    tables: dict[str, dict[str, list[Any]]] = field(
        default_factory=lambda: {table: {name: [] for name in columns} for table, columns in TABLES.items()}
    )

    def add(self, table: str, **values: Any) -> None:
        for name, column in self.tables[table].items():
            column.append(values.get(name))


def create_fits(con: duckdb.DuckDBPyConnection) -> None:
    """Match and align every capture in `con`; captures are worked through one by one."""
    rows = _Rows()
    members = _members(con)
    kernels = _kernels(con)
    for capture_id, ranks in members.items():
        lanes, clocks = fit_capture(ranks, kernels.get(capture_id, {}))
        for lane in lanes:
            _add_lane(capture_id, lane, rows)
            _add_kernels(capture_id, lane, rows)
        for clock in clocks:
            _add_clock(capture_id, clock, rows)
    for table, columns in TABLES.items():
        _create(con, table, columns, rows.tables[table])


def empty_fits(con: duckdb.DuckDBPyConnection) -> None:
    """The tables without rows."""
    for table, columns in TABLES.items():
        con.execute(f"CREATE OR REPLACE TABLE {table} ({', '.join(f'{n} {kind}' for n, kind in columns.items())})")


def _create(con: duckdb.DuckDBPyConnection, table: str, columns: dict[str, str], values: dict[str, list[Any]]) -> None:
    import pyarrow as pa

    types = {"VARCHAR": pa.string(), "BIGINT": pa.int64(), "DOUBLE": pa.float64(), "BOOLEAN": pa.bool_()}
    arrays = [pa.array(values[name], types[kind]) for name, kind in columns.items()]
    con.register("_rows", pa.table(arrays, list(columns)))
    con.execute(f"CREATE OR REPLACE TABLE {table} AS SELECT * FROM _rows")
    con.unregister("_rows")


def _members(con: duckdb.DuckDBPyConnection) -> dict[str, list[int]]:
    query = "SELECT capture_id, rank FROM _staged_capture_ranks WHERE left_out_reason IS NULL ORDER BY capture_id, rank"
    found: dict[str, list[int]] = {}
    for capture_id, rank in con.execute(query).fetchall():
        found.setdefault(capture_id, []).append(rank)
    return found


def _kernels(con: duckdb.DuckDBPyConnection) -> dict[str, dict[int, Kernels]]:
    columns = con.execute(
        "SELECT m.capture_id, m.rank, k.trace_id, k.event_id, k.kind, k.waits_for_all, k.device, k.stream, k.ts_ns, "
        "k.end_ns, k.step, k.group_name, k.group_ranks, k.group_description, k.seq "
        "FROM _staged_capture_ranks AS m JOIN collective_kernels AS k USING (trace_id) WHERE m.left_out_reason IS NULL "
        "ORDER BY m.capture_id, m.rank, k.ts_ns, k.event_id"
    )
    found: dict[str, dict[int, Kernels]] = {}
    for capture_id, rank, *values in columns.fetchall():
        found.setdefault(capture_id, {}).setdefault(rank, Kernels(rank)).add(*values)
    return found


def _add_clock(capture_id: str, one: FittedClock, rows: _Rows) -> None:
    values: dict[str, Any] = {"capture_id": capture_id, "rank": one.rank, "refused_reason": one.refused}
    if one.contradiction_ns is not None:
        values["contradiction_ns"] = round(one.contradiction_ns)
    if one.clock is not None:
        names = ("offset_ns", "estimate_ns", "drift_ppm", "drift_applied", "low_ns", "high_ns", "n_matched")
        values |= {name: getattr(one.clock, name) for name in names} | {"method": "collective_ends"}
        values |= {name: round(getattr(one.clock, name)) for name in ("error_ns", "sigma_ns", "max_residual_ns")}
    rows.add("_fitted_clocks", **values)


def _add_lane(capture_id: str, one: FittedLane, rows: _Rows) -> None:
    group = one.lane.group or (None, None)
    for member in one.lane.members:
        rows.add(
            "_fitted_lanes",
            capture_id=capture_id,
            lane=one.lane.number,
            group_name=group[0],
            group_ranks=group[1],
            group_description=one.lane.description,
            rank=member.rank,
            n_kernels=len(member),
            n_matched=one.match.index.shape[1],
            shift=one.match.shift.get(member.rank),
            spread_ns=one.match.score.get(member.rank),
            runner_up_ns=one.match.runner_up.get(member.rank),
            reference_rank=one.match.reference,
            contradiction_ns=None if one.match.refused else round(one.fit.contradiction_ns),
            refused_reason=one.refused,
        )


def _add_kernels(capture_id: str, one: FittedLane, rows: _Rows) -> None:
    for row, (member, places) in enumerate(zip(one.lane.members, one.match.index.tolist(), strict=True)):
        for instance, place in enumerate(places):
            rows.add(
                "_fitted_kernels",
                capture_id=capture_id,
                lane=one.lane.number,
                instance=instance,
                rank=member.rank,
                trace_id=member.trace_id[place],
                event_id=member.event_id[place],
                kept=bool(one.fit.kept[instance]) and one.refused is None,
                aligned_start_ns=None if one.starts is None else int(one.starts[row, instance]),
                aligned_end_ns=None if one.ends is None else int(one.ends[row, instance]),
            )
