"""The Python models of captures' critical paths, from matched collectives and clocks.

A joined graph consists of the stored graphs of its ranks' traces. These graphs are read one after another, small graphs
in groups of at most GROUP_EVENTS events, so memory grows only with the joined graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from pipelines.fleet.path.drift import drifting_ranks, on_common_clock
from pipelines.fleet.path.joined import Instance, JoinedGraph, RanksDisagree, heaviest_path_ns, join_ranks
from pipelines.fleet.path.load_ranks import load_ranks
from pipelines.fleet.path.segment_causes import CapturePaths, CausesOfSegments, SegmentCause
from pipelines.fleet.path.walk import TARGETS, NoTarget, Segment, walk_back
from pipelines.models.python_tables import create_table, insert_columns, python_model
from pipelines.models.sqltext import quoted

_COLUMNS = (
    ("capture_id", "VARCHAR", "The capture."),
    ("target", "VARCHAR", "Target that the path leads to."),
    ("seq", "BIGINT", "Position on the path, from 1."),
    ("rank", "BIGINT", "Rank that the segment is on."),
    ("trace_id", "VARCHAR", "Its trace."),
    ("kind", "VARCHAR", "Kind of segment."),
    ("start_ns", "BIGINT", "Start on the lowest rank's clock, ns."),
    ("duration_ns", "BIGINT", "Duration, ns."),
    ("event_id", "BIGINT", "The event."),
    ("owner_event_id", "BIGINT", "The event that the segment's time belongs to."),
    ("shown_event_id", "BIGINT", "The event that is shown as the owner."),
    ("edge_type", "VARCHAR", "Type of its edge; NULL for transfer and head."),
    ("collective_id", "BIGINT", "The collective that the path comes through."),
    ("cause", "VARCHAR", "The cause of its time, in cause_kinds."),
    ("name_no", "BIGINT", "Name of the cause, in _event_names; NULL if `label` contains it."),
    ("label", "VARCHAR", "Name of the cause, as text."),
    (
        "late_ns",
        "BIGINT",
        "The part by which the rank arrived at the next collective later than the median of the others, ns.",
    ),
    ("guessed", "BOOLEAN", "Whether the segment follows an inferred wait."),
    ("earlier", "BOOLEAN", "Whether it is a wait for GPU work from outside the trace."),
    ("n_ranks", "BIGINT", "Ranks in the joined graph."),
    ("n_nodes", "BIGINT", "Nodes in the joined graph."),
    ("n_edges", "BIGINT", "Edges in the joined graph."),
    ("heaviest_ns", "BIGINT", "Length of the heaviest path in the joined graph, ns."),
    ("refused_reason", "VARCHAR", "Why there is no path; NULL if there is one."),
)
_READS = (
    "capture_ranks",
    "clock_offsets",
    "collective_groups",
    "collectives",
    "collective_ranks",
    "critical_path_nodes",  # in load_ranks.py
    "critical_path_edges",
    # in segment_causes.py
    *("_capture_cause_events", "_event_names", "_cause_names", "_faster_work", "cause_rules", "thresholds"),
)
_SHOWN = 5  # maximum number of ranks in a reason
GROUP_EVENTS = 200_000
"""Maximum number of events of ranks whose graphs one query reads, because a query costs more than a small graph."""


@dataclass(frozen=True)
class JoinableRank:
    """A rank whose clock offset to the others is known."""

    rank: int
    trace_id: str
    offset_ns: int
    n_events: int


@python_model(
    "_walked_segments",
    layer="fleet",
    doc="One row: a segment of the critical path through the ranks of a capture, or why there is none.",
    columns=_COLUMNS,
    reads=_READS,
)
@python_model(
    "_capture_fix_rows",
    layer="fleet",
    doc="One row: a change that would make a capture shorter.",
    columns=(
        ("capture_id", "VARCHAR", "The capture."),
        ("place", "BIGINT", "Index among the capture's changes, from 0. The largest saving comes first."),
        ("fix", "VARCHAR", "The kind, in fix_kinds."),
        ("name", "VARCHAR", "Name of the object that is changed."),
        ("options", "VARCHAR", "Options of `tracelake what-if` that apply the change."),
        ("saves_ns", "BIGINT", "How much shorter the capture is with the change, ns."),
        ("length_ns", "BIGINT", "Length of the unchanged capture, ns."),
        ("same_place", "BIGINT", "`place` of the larger change to which this one is an alternative."),
        ("same_cause", "VARCHAR", "The host cause to which this change is an alternative."),
        (
            "caveat",
            "VARCHAR",
            "Caveat about saves_ns in this capture, in addition to the caveat of its kind; NULL if it has none.",
        ),
    ),
    reads=_READS,
    checks=("unique(capture_id, fix, name)",),
)
@python_model(
    "_capture_cause_savings",
    layer="fleet",
    doc="One row: a cause of a capture's length, or a name within a cause, without which the capture was retimed.",
    columns=(
        ("capture_id", "VARCHAR", "The capture."),
        (
            "cause",
            "VARCHAR",
            "The cause, in cause_kinds; late_rank: the work of a rank while the others waited for it.",
        ),
        ("late_cause", "VARCHAR", "The cause of the late rank's work in that time; only for late_rank."),
        ("rank", "BIGINT", "The late rank; NULL for all ranks."),
        ("name", "VARCHAR", "The name; NULL for the whole cause."),
        ("options", "VARCHAR", "Options of `tracelake what-if` that remove it."),
        ("saves_ns", "BIGINT", "How much shorter the capture is without it, ns."),
    ),
    reads=_READS,
)
def walk_captures(con: duckdb.DuckDBPyConnection) -> None:
    """Create `_walked_segments`, `_capture_fix_rows` and `_capture_cause_savings` for all captures in `con`.

    `_walked_segments` has, for each target, every segment of the path or one row with the reason why there is no path.
    For captures with a path, the other tables have the fixes and the savings from removing a cause. Read
    `capture_ranks`, `clock_offsets`, `collectives`, `collective_ranks`, `traces`, and the graphs of the ranks' traces.
    """
    create_table(con, "_walked_segments")
    create_table(con, "_capture_fix_rows")
    create_table(con, "_capture_cause_savings")
    causes = CausesOfSegments(con)
    captures = con.execute(
        "SELECT DISTINCT capture_id FROM capture_ranks WHERE left_out_reason IS NULL ORDER BY 1"
    ).fetchall()
    for (capture_id,) in captures:
        for table, rows in _walk_capture(con, capture_id, causes):
            insert_columns(con, table, rows)


def _walk_capture(
    con: duckdb.DuckDBPyConnection, capture_id: str, causes: CausesOfSegments
) -> Iterator[tuple[str, dict[str, list[Any]]]]:
    instances = instances_of(con, capture_id)
    if not instances:
        reason = f"no matched collectives: {_why(con, capture_id)}"
        yield from (_refusal(capture_id, target, reason) for target in TARGETS)
        return
    ranks = ranks_of(con, capture_id)
    offsets, drifts = {rank.rank: rank.offset_ns for rank in ranks}, drifting_ranks(con, capture_id)
    graphs = [
        on_common_clock(graph, drifts[graph.rank]) if graph.rank in drifts else graph.behind(offsets[graph.rank])
        for group in _groups(ranks)
        for graph in load_ranks(con, group)
    ]
    without_graph = [str(graph.rank) for graph in graphs if not len(graph.node)]
    if without_graph:  # other ranks may have waited for it
        more = f" and {len(without_graph) - _SHOWN} more" if len(without_graph) > _SHOWN else ""
        reason = f"no dependency graph of rank {', '.join(without_graph[:_SHOWN])}{more} (tables model_failures and critical_path_caveats may say why)"
        yield from (_refusal(capture_id, target, reason) for target in TARGETS)
        return
    joined = join_ranks(graphs, instances)
    del graphs
    try:
        heaviest = heaviest_path_ns(joined)
    except RanksDisagree as disagreement:
        yield from (_refusal(capture_id, target, str(disagreement)) for target in TARGETS)
        return
    graph_columns = {"n_ranks": len(ranks), "n_nodes": len(joined), "n_edges": joined.n_edges, "heaviest_ns": heaviest}
    paths: dict[str, list[Segment]] = {}
    for target in TARGETS:
        try:
            paths[target] = walk_back(joined, target)
        except NoTarget as no_target:
            yield _refusal(capture_id, target, str(no_target))
    capture_paths = causes.of_paths(joined, paths)
    for target, segment_causes in capture_paths.causes.items():
        yield (
            "_walked_segments",
            _segments(capture_id, target, paths[target], joined, graph_columns) | _of_causes(segment_causes),
        )
    if capture_paths.savings:
        yield "_capture_cause_savings", _cause_savings(capture_id, capture_paths)
    if capture_paths.fixes:
        yield "_capture_fix_rows", _fix_rows(capture_id, capture_paths)


def ranks_of(con: duckdb.DuckDBPyConnection, capture_id: str) -> list[JoinableRank]:
    """Return the ranks whose clock offsets to each other are known."""
    rows = con.execute(
        "SELECT r.rank, r.trace_id, c.offset_ns, t.n_events FROM capture_ranks AS r "
        "JOIN clock_offsets AS c USING (capture_id, rank) JOIN traces AS t USING (trace_id) "
        f"WHERE capture_id = {quoted(capture_id)} AND r.left_out_reason IS NULL AND c.offset_ns IS NOT NULL ORDER BY r.rank"
    ).fetchall()
    return [JoinableRank(*values) for values in rows]


def instances_of(con: duckdb.DuckDBPyConnection, capture_id: str) -> list[Instance]:
    """Return the matched collectives with at least two ranks whose clocks are aligned."""
    rows = con.execute(
        "SELECT r.collective_id, r.rank, r.event_id FROM collective_ranks AS r "
        "JOIN collectives AS c USING (capture_id, collective_id) JOIN clock_offsets AS o USING (capture_id, rank) "
        f"WHERE capture_id = {quoted(capture_id)} AND c.refused_reason IS NULL AND o.offset_ns IS NOT NULL "
        "ORDER BY r.collective_id, r.rank"
    ).fetchall()
    members: dict[int, list[tuple[int, int]]] = {}
    for collective_id, rank, event_id in rows:
        members.setdefault(collective_id, []).append((rank, event_id))
    return [
        Instance(str(collective_id), tuple(kernels)) for collective_id, kernels in members.items() if len(kernels) > 1
    ]


def _why(con: duckdb.DuckDBPyConnection, capture_id: str) -> str:
    """Return the reasons why matching and clocks were refused."""
    reasons = con.execute(
        "SELECT refused_reason FROM collective_groups "
        f"WHERE capture_id = {quoted(capture_id)} AND refused_reason IS NOT NULL "
        "UNION SELECT refused_reason FROM clock_offsets "
        f"WHERE capture_id = {quoted(capture_id)} AND refused_reason IS NOT NULL ORDER BY 1"
    ).fetchall()
    return "; ".join(reason for (reason,) in reasons) or "its traces have no communication kernels"


def _groups(ranks: Sequence[JoinableRank]) -> Iterator[dict[int, str]]:
    """Split the ranks (rank → trace_id) into groups of at most GROUP_EVENTS events. A larger rank is its own group."""
    group: dict[int, str] = {}
    n_events = 0
    for rank in ranks:
        if group and n_events + rank.n_events > GROUP_EVENTS:
            yield group
            group, n_events = {}, 0
        group[rank.rank] = rank.trace_id
        n_events += rank.n_events
    yield group


def _refusal(capture_id: str, target: str, reason: str) -> tuple[str, dict[str, list[Any]]]:
    return "_walked_segments", {"capture_id": [capture_id], "target": [target], "refused_reason": [reason]}


def _segments(
    capture_id: str, target: str, path: list[Segment], joined: JoinedGraph, graph_columns: dict[str, int]
) -> dict[str, list[Any]]:
    trace_of = {graph.rank: graph.trace_id for graph in joined.ranks}
    names = (
        *("rank", "kind", "start_ns", "duration_ns", "event_id", "owner_event_id", "shown_event_id", "edge_type"),
        *("guessed", "earlier"),
    )
    columns: dict[str, list[Any]] = {name: [getattr(segment, name) for segment in path] for name in names}
    columns["trace_id"] = [trace_of[segment.rank] for segment in path]
    columns["collective_id"] = [
        None if segment.collective_id is None else int(segment.collective_id) for segment in path
    ]
    constants = {"capture_id": capture_id, "target": target, **graph_columns}
    return {
        **columns,
        "seq": list(range(1, len(path) + 1)),
        **{name: [value] * len(path) for name, value in constants.items()},
    }


def _of_causes(segment_causes: list[SegmentCause]) -> dict[str, list[Any]]:
    names = ("cause", "name_no", "label", "late_ns")
    return {name: [getattr(cause, name) for cause in segment_causes] for name in names}


def _cause_savings(capture_id: str, capture_paths: CapturePaths) -> dict[str, list[Any]]:
    names = ("cause", "late_cause", "rank", "name", "options")
    columns: dict[str, list[Any]] = {
        name: [getattr(saving, name) for saving in capture_paths.savings] for name in names
    }
    constants = {
        "capture_id": [capture_id] * len(capture_paths.savings),
        "saves_ns": [saving.saves for saving in capture_paths.savings],
    }
    return columns | constants


def _fix_rows(capture_id: str, capture_paths: CapturePaths) -> dict[str, list[Any]]:
    names = ("fix", "name", "options", "same_place", "same_cause", "caveat")
    columns: dict[str, list[Any]] = {name: [getattr(fix, name) for fix in capture_paths.fixes] for name in names}
    n = len(capture_paths.fixes)
    constants = {"capture_id": capture_id, "length_ns": capture_paths.length_ns}
    other_columns = {"place": list(range(n)), "saves_ns": [fix.saves for fix in capture_paths.fixes]}
    return {**columns, **other_columns, **{name: [value] * n for name, value in constants.items()}}
