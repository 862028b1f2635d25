"""Python models of the lanes, matched kernels and clocks of captures. They are the inputs of the SQL in sql/fleet/.

They read `_staged_capture_ranks`, `collective_kernels` and `traces`, and create `_fitted_lanes`, `_fitted_kernels`,
`_fitted_clocks` and `_fitted_contradictions`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import duckdb

from pipelines.fleet.clocks.alignment import FittedClock, FittedLane, fit_capture
from pipelines.fleet.collectives.lanes import Kernels
from pipelines.fleet.collectives.root_causes import roots_of
from pipelines.models.python_tables import create_table, insert_columns, python_model, types_of
from pipelines.readers.origin import BY_DEVICE

_READS = ("_staged_capture_ranks", "collective_kernels", "traces", "thresholds")
_LANES = (
    ("capture_id", "VARCHAR", "The capture."),
    ("lane", "BIGINT", "Number of the lane."),
    ("group_name", "VARCHAR", "Process group; NULL for a stream."),
    ("group_ranks", "VARCHAR", "Ranks of the group, as written in the trace."),
    ("group_description", "VARCHAR", "Description of the group."),
    ("rank", "BIGINT", "The rank."),
    ("n_kernels", "BIGINT", "Kernels of the rank in the lane, without those of negative duration."),
    ("n_matched", "BIGINT", "Number of collectives that all ranks of the lane have."),
    ("matched_by", "VARCHAR", "The weakest evidence that its matches are based on; NULL if refused."),
    ("shift", "BIGINT", "The rank's kernel i is the reference's kernel i + shift; NULL if not all are."),
    ("spread_ns", "DOUBLE", "Spread of the differences of ends to the reference at this shift, ns."),
    ("runner_up_ns", "DOUBLE", "Spread at the next best shift, ns; NULL if there is none."),
    ("reference_rank", "BIGINT", "Rank that shifts are relative to; NULL if sequence numbers matched."),
    ("contradiction_ns", "BIGINT", "How far the hard bounds of the clocks contradict each other, ns."),
    ("refused_reason", "VARCHAR", "Why the lane's collectives are not used; NULL if they are used."),
)
_KERNELS = (
    ("capture_id", "VARCHAR", "The capture."),
    ("lane", "BIGINT", "Number of the lane."),
    ("instance", "BIGINT", "Number of the collective in the lane, from 0."),
    ("rank", "BIGINT", "The rank."),
    ("trace_id", "VARCHAR", "The rank's trace."),
    ("event_id", "BIGINT", "The kernel."),
    ("matched_by", "VARCHAR", "The weakest evidence that the collective's match is based on."),
    ("kept", "BOOLEAN", "Whether the collective is used to align the clocks."),
    ("aligned_start_ns", "BIGINT", "Start on the lowest rank's clock, ns; NULL if the lane is refused."),
    ("aligned_end_ns", "BIGINT", "End on the lowest rank's clock, ns; NULL if the lane is refused."),
    ("root_rank", "BIGINT", "Rank that caused the waiting in the collective; NULL if clocks are not aligned."),
)
_CLOCKS = (
    ("capture_id", "VARCHAR", "The capture."),
    ("rank", "BIGINT", "The rank."),
    ("offset_ns", "BIGINT", "How far its clock is ahead of the lowest rank's clock, ns; NULL if refused."),
    ("estimate_ns", "BIGINT", "Offset estimated from the ends alone, ns."),
    ("error_ns", "BIGINT", "Error bar of the offset: 2 standard errors, ns."),
    ("sigma_ns", "BIGINT", "Noise of the rank's ends, ns."),
    ("max_residual_ns", "BIGINT", "Largest residual of the collectives that were kept, ns."),
    ("drift_ppm", "DOUBLE", "Slope of the residuals over time, parts per million."),
    ("drift_applied", "BOOLEAN", "Whether aligned times correct the drift."),
    ("low_ns", "BIGINT", "Hard lower bound of the offset, ns; NULL if it has no lower bound."),
    ("high_ns", "BIGINT", "Hard upper bound of the offset, ns; NULL if it has no upper bound."),
    ("contradiction_ns", "BIGINT", "How far the hard bounds contradict each other, ns."),
    ("n_matched", "BIGINT", "Number of collectives that the offset is based on."),
    ("method", "VARCHAR", "collective_ends; or one_file, shared_clock: the ranks share a clock; NULL if refused."),
    ("refused_reason", "VARCHAR", "Why there is no offset; NULL if there is one."),
)
_CONTRADICTIONS = (
    ("capture_id", "VARCHAR", "The capture."),
    ("lane", "BIGINT", "Number of the lane."),
    ("rank", "BIGINT", "The rank."),
    ("matched_by", "VARCHAR", "The best evidence that its matches are based on."),
    ("against", "VARCHAR", "Weaker evidence that would match them differently."),
    ("n", "BIGINT", "Number of kernels that it would match differently."),
)
_TABLES = ("_fitted_lanes", "_fitted_kernels", "_fitted_clocks", "_fitted_contradictions")
_AT_ONCE = 50_000  # maximum number of rows in memory as Python objects


@dataclass
class _Rows:
    """Rows that are not yet in the database, as columns per table."""

    tables: dict[str, dict[str, list[Any]]] = field(
        default_factory=lambda: {table: {name: [] for name in types_of(table)} for table in _TABLES}
    )

    def add(self, table: str, **values: Any) -> None:
        for name, column in self.tables[table].items():
            column.append(values.get(name))

    def flush(self, con: duckdb.DuckDBPyConnection, least: int = 1) -> None:
        """Move the rows of each table with at least `least` rows into the database."""
        for table, columns in self.tables.items():
            if len(columns["capture_id"]) >= least:
                insert_columns(con, table, columns)
                for column in columns.values():
                    column.clear()


@python_model(
    "_fitted_lanes", layer="fleet", doc="One row: a rank in a lane of a capture.", columns=_LANES, reads=_READS
)
@python_model(
    "_fitted_kernels", layer="fleet", doc="One row: a rank's kernel of a collective.", columns=_KERNELS, reads=_READS
)
@python_model(
    "_fitted_clocks", layer="fleet", doc="One row: the clock of a rank of a capture.", columns=_CLOCKS, reads=_READS
)
@python_model(
    "_fitted_contradictions",
    layer="fleet",
    doc="One row: evidence against how a rank's kernels of a lane are matched.",
    columns=_CONTRADICTIONS,
    reads=_READS,
)
def create_fits(con: duckdb.DuckDBPyConnection) -> None:
    """Match and align every capture in `con`, one after another."""
    for table in _TABLES:
        create_table(con, table)
    rows = _Rows()
    members = _members(con)
    kernels = _kernels(con)
    of_one_file, hosts = _of_one_file(con), _hosts(con)
    for capture_id, ranks in members.items():
        kernels_by_rank = kernels.pop(capture_id, {})
        lanes, clocks = fit_capture(ranks, kernels_by_rank, capture_id in of_one_file, hosts[capture_id])
        roots = roots_of(lanes)
        for lane in lanes:
            _add_lane(capture_id, lane, rows)
            for contradiction in lane.match.contradictions:
                rows.add(
                    "_fitted_contradictions", capture_id=capture_id, lane=lane.lane.number, **asdict(contradiction)
                )
            _add_kernels(capture_id, lane, roots.get(lane.lane.number), rows)
            rows.flush(con, _AT_ONCE)
        for clock in clocks:
            _add_clock(capture_id, clock, rows)
    rows.flush(con)


def _members(con: duckdb.DuckDBPyConnection) -> dict[str, list[int]]:
    query = "SELECT capture_id, rank FROM _staged_capture_ranks WHERE left_out_reason IS NULL ORDER BY capture_id, rank"
    ranks_by_capture: dict[str, list[int]] = {}
    for capture_id, rank in con.execute(query).fetchall():
        ranks_by_capture.setdefault(capture_id, []).append(rank)
    return ranks_by_capture


def _of_one_file(con: duckdb.DuckDBPyConnection) -> set[str]:
    """Return the captures whose ranks are all in one file and share a clock.

    The file's metadata states that its processes share a clock, or that its ranks are devices. The column
    traces.rank_source is NULL in traces that were ingested before the column existed, so the query reads the metadata.
    """
    query = (
        "SELECT m.capture_id FROM _staged_capture_ranks AS m JOIN traces AS t USING (trace_id) "
        "WHERE m.left_out_reason IS NULL GROUP BY m.capture_id HAVING count(DISTINCT t.path) = 1 "
        "AND bool_and(coalesce((t.metadata ->> '$.distributedInfo.one_clock') = 'true', false) "
        f"OR coalesce((t.metadata ->> '$.distributedInfo.rank_source') = '{BY_DEVICE}', false))"
    )
    return {capture_id for (capture_id,) in con.execute(query).fetchall()}


def _hosts(con: duckdb.DuckDBPyConnection) -> dict[str, dict[int, str | None]]:
    """Return the host of each rank, by capture. The host is None if the trace does not record it."""
    query = (
        "SELECT m.capture_id, m.rank, t.host FROM _staged_capture_ranks AS m JOIN traces AS t USING (trace_id) "
        "WHERE m.left_out_reason IS NULL"
    )
    hosts: dict[str, dict[int, str | None]] = {}
    for capture_id, rank, host in con.execute(query).fetchall():
        hosts.setdefault(capture_id, {})[rank] = host
    return hosts


def _kernels(con: duckdb.DuckDBPyConnection) -> dict[str, dict[int, Kernels]]:
    cursor = con.execute(
        "SELECT m.capture_id, m.rank, k.trace_id, k.event_id, k.kind, k.waits_for_all, k.device, k.stream, k.start_ns, "
        "k.end_ns, k.step, k.group_name, k.group_ranks, k.group_description, k.seq "
        "FROM _staged_capture_ranks AS m JOIN collective_kernels AS k USING (trace_id) WHERE m.left_out_reason IS NULL "
        "AND k.duration_ns >= 0 "  # else the transfer time, which is the shortest kernel, is negative
        "ORDER BY m.capture_id, m.rank, k.start_ns, k.event_id"
    )
    kernels_by_capture: dict[str, dict[int, Kernels]] = {}
    # Share equal texts, such as group names, because they occur in thousands of kernels.
    texts: dict[str, str] = {}
    while rows := cursor.fetchmany(_AT_ONCE):
        for capture_id, rank, *values in rows:
            shared: list[Any] = [
                texts.setdefault(value, value) if isinstance(value, str) else value for value in values
            ]
            kernels_by_capture.setdefault(capture_id, {}).setdefault(rank, Kernels(rank)).add(*shared)
    return kernels_by_capture


def _add_clock(capture_id: str, fitted: FittedClock, rows: _Rows) -> None:
    values: dict[str, Any] = {"capture_id": capture_id, "rank": fitted.rank, "refused_reason": fitted.refused}
    if fitted.contradiction_ns is not None:
        values["contradiction_ns"] = round(fitted.contradiction_ns)
    if fitted.clock is not None:
        names = ("offset_ns", "estimate_ns", "drift_ppm", "drift_applied", "low_ns", "high_ns", "n_matched")
        values |= {name: getattr(fitted.clock, name) for name in names} | {"method": fitted.method}
        values |= {name: round(getattr(fitted.clock, name)) for name in ("error_ns", "sigma_ns", "max_residual_ns")}
    rows.add("_fitted_clocks", **values)


def _add_lane(capture_id: str, fitted: FittedLane, rows: _Rows) -> None:
    group = fitted.lane.group or (None, None)
    for member in fitted.lane.members:
        rows.add(
            "_fitted_lanes",
            capture_id=capture_id,
            lane=fitted.lane.number,
            group_name=group[0],
            group_ranks=group[1],
            group_description=fitted.lane.description,
            rank=member.rank,
            n_kernels=len(member),
            n_matched=fitted.match.index.shape[1],
            matched_by=fitted.match.rank_evidence.get(member.rank),
            shift=fitted.match.shift.get(member.rank),
            spread_ns=fitted.match.score.get(member.rank),
            runner_up_ns=fitted.match.runner_up.get(member.rank),
            reference_rank=fitted.match.reference,
            contradiction_ns=None if fitted.match.refused else round(fitted.fit.contradiction_ns),
            refused_reason=fitted.refused,
        )


def _add_kernels(capture_id: str, fitted: FittedLane, roots: list[int] | None, rows: _Rows) -> None:
    for row, (member, positions) in enumerate(zip(fitted.lane.members, fitted.match.index.tolist(), strict=True)):
        for instance, position in enumerate(positions):
            rows.add(
                "_fitted_kernels",
                capture_id=capture_id,
                lane=fitted.lane.number,
                instance=instance,
                rank=member.rank,
                trace_id=member.trace_id[position],
                event_id=member.event_id[position],
                matched_by=fitted.match.evidence[instance],
                kept=bool(fitted.fit.kept[instance]) and fitted.refused is None,
                aligned_start_ns=None if fitted.starts is None else int(fitted.starts[row, instance]),
                aligned_end_ns=None if fitted.ends is None else int(fitted.ends[row, instance]),
                root_rank=None if roots is None else roots[instance],
            )
