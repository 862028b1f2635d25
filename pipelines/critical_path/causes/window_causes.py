"""The causes of all windows, from their edges and the longest path: table `_cause_rows`, in numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np

from pipelines.base.datafiles import threshold
from pipelines.critical_path.causes.cause_names import CauseRule, cause_rules
from pipelines.critical_path.causes.edge_causes import KINDS, Edges, Events, Flags, Found, Names, edge_causes
from pipelines.critical_path.causes.recording_cost import MOST_EDGES, HostEdges, RecordingCost, recording_costs
from pipelines.critical_path.causes.savings import Rows, path_rows, retime
from pipelines.critical_path.causes.without_profiler import WithoutProfiler, without_profiler
from pipelines.critical_path.graph.dependency_graph import ArrayGraph
from pipelines.critical_path.graph.stack_order import Ints
from pipelines.critical_path.graph.window_edges import window_groups
from pipelines.critical_path.graph.windows import USUAL_PROFILE
from pipelines.models.python_tables import create_table, python_model

_EARLIER, _INFERRED = 1 << 8, 1 << 9
_EDGES = (
    "src_node_id", "dst_node_id", "path_weight_ns",
    f"edge_code + {_EARLIER} * CAST(waits_for_earlier_work AS INTEGER) + {_INFERRED} * CAST(is_inferred AS INTEGER) AS marks",
    "coalesce(attributed_event_id, -1) AS attributed",
)  # fmt: skip
_TOLD = threshold("profiler_told")
_READS = (
    "_edges",
    "_longest_path",
    "_refused_windows",
    "_asked_windows",
    "_cause_events",
    "_event_names",
    "_cause_names",
    "cause_rules",
    "thresholds",
    "critical_path_windows",
    "_event_costs",
    "_window_steps",
    "threads",
    "events",
)


@python_model(
    "_cause_rows",
    layer="critical_path",
    doc="One row: a cause of a window's length, in numbers.",
    columns=(
        ("window_no", "BIGINT", "The window."),
        ("without_profiler", "BOOLEAN", "Of the window without what recording its events cost."),
        ("row_no", "BIGINT", "Its place among those of the window, from 0."),
        ("cause_no", "BIGINT", "The cause, in cause_kinds."),
        ("named_after", "BIGINT", "0: a name, 1: a thread, 2: a stream, 3: work from before the window."),
        ("number", "BIGINT", "The number of the name, thread or stream."),
        ("duration_ns", "BIGINT", "Its time on the path, ns."),
        ("idle_ns", "BIGINT", "The part in which no GPU work ran, ns."),
        ("exposed_ns", "BIGINT", "The part in which no kernel ran that computes, ns."),
        ("times", "BIGINT", "Events with such time."),
        ("event_id", "BIGINT", "The one with the most of it."),
        ("inferred_ns", "BIGINT", "Time that follows a wait that no event shows, ns."),
        ("saves_ns", "BIGINT", "What the window is shorter without it, ns; NULL where it was not computed."),
        ("halved_saves_ns", "BIGINT", "With half of it."),
        ("cause_saves_ns", "BIGINT", "Without all rows of this cause."),
    ),
    reads=_READS,
    checks=("unique(window_no, without_profiler, cause_no, named_after, number)",),
)
@python_model(
    "_cause_pieces",
    layer="critical_path",
    doc="One row: a stretch of the whole trace's path with one cause, in order of time without a gap.",
    columns=(
        ("window_no", "BIGINT", "The window."),
        ("piece_no", "BIGINT", "Place, from 1."),
        ("at_ns", "BIGINT", "Its start since the path's, ns."),
        ("row_no", "BIGINT", "The cause, in _cause_rows."),
        ("event_id", "BIGINT", "The event with the most of it."),
        ("inferred", "BOOLEAN", "It follows from a wait that no event shows."),
    ),
    reads=_READS,
    checks=("unique(window_no, piece_no)",),
)
@python_model(
    "_window_work",
    layer="critical_path",
    doc="One row: a window that the path covers, and how long its GPUs work.",
    columns=(
        ("window_no", "BIGINT", "The window."),
        ("busy_ns", "BIGINT", "Time in which GPU work ran, ns."),
        ("computing_ns", "BIGINT", "Time in which kernels ran that compute, ns."),
    ),
    reads=_READS,
)
@python_model(
    "_recording_costs",
    layer="critical_path",
    doc="One row: a window that the path covers, of which it is known what recording its events cost.",
    columns=(
        ("window_no", "BIGINT", "The window."),
        ("n_operators", "BIGINT", "Operators that start in it."),
        ("n_calls", "BIGINT", "Calls of the GPU's runtime."),
        ("n_frames", "BIGINT", "Python functions."),
        ("n_annotations", "BIGINT", "Annotations."),
        ("operators_ns", "BIGINT", "What recording the operators cost, ns."),
        ("calls_ns", "BIGINT", "The calls."),
        ("frames_ns", "BIGINT", "The Python functions."),
        ("annotations_ns", "BIGINT", "The annotations."),
        ("start_ns", "BIGINT", "The profiler's start, ns."),
        ("slowness", "DOUBLE", "How many times slower the host is than the one the costs are of."),
        ("scale", "DOUBLE", "What the costs of events were multiplied by."),
        ("without_profiler_ns", "BIGINT", "How long the window takes without all that, ns."),
    ),
    reads=_READS,
    checks=("unique(window_no)",),
)
def window_causes(con: duckdb.DuckDBPyConnection) -> None:
    """Create `_cause_rows`, `_recording_costs` and `_window_work` for the windows that the path covers, `_cause_pieces` for whole
    traces. Raises WrongValue where `profiler_requests` has a time that a window cannot take.
    """
    create_table(con, "_cause_rows")
    create_table(con, "_cause_pieces")
    create_table(con, "_window_work")
    create_table(con, "_recording_costs")
    covered = {number for (number,) in con.execute("SELECT DISTINCT window_no FROM _cause_events").fetchall()}
    if not covered:
        return
    whole = {
        number for (number,) in con.execute("SELECT window_no FROM _asked_windows WHERE annotation = ''").fetchall()
    }
    names, rules = names_of(con), cause_rules(con)
    for windows in window_groups(con, _EDGES):
        chosen = [(number, columns) for number, columns in windows if number in covered]
        if not chosen:
            continue
        within = f"window_no BETWEEN {chosen[0][0]} AND {chosen[-1][0]}"
        events, paths = (
            _by_window(con, f"_cause_events WHERE {within}", "event_id"),
            _by_window(con, f"_longest_path WHERE {within}", "seq"),
        )
        work: list[tuple[int, int, int]] = []
        causes: list[dict[str, Ints]] = []
        of_events = {number: events_of(events.pop(number)) for number, _ in chosen}
        short = [(number, columns) for number, columns in chosen if len(columns[0]) <= MOST_EDGES]
        edges = {number: (_host_edges(columns, of_events[number]), of_events[number]) for number, columns in short}
        costs = recording_costs(con, edges, names)
        del edges, short
        for number, columns in chosen:
            if number in paths:
                these = of_events.pop(number)
                busy = Busy.of(these, these.is_work)
                computing = Busy.of(these, these.is_work & (names.kind[these.name] == KINDS.index("kernel")))
                work.append((number, busy.total, computing.total))
                cost = costs.pop(number, None)
                found = _found(columns, these, (busy, computing), paths.pop(number)["edge_id"], names, rules, cost)
                causes.append(_columns(number, these, found.rows, without=False))
                if found.rows_without is not None:
                    causes.append(_columns(number, these, found.rows_without, without=True))
                if cost is not None and found.without is not None:
                    _insert_cost(con, number, cost, found.without)
                if number in whole:
                    _insert_pieces(con, number, these, found.pieces)
        _insert(con, work, causes)


def _host_edges(columns: list[np.ndarray], events: Events) -> HostEdges:
    _, src, dst, weight, marks, _ = columns
    src_event, dst_event = (np.searchsorted(events.event_id, node >> 1) for node in (src, dst))
    return HostEdges(weight, marks & (_EARLIER - 1), src_event, dst_event, src & 1 == 1, dst & 1 == 1)


@dataclass(frozen=True)
class Pieces:
    """Stretches of a path with one cause, in order of time (p,): start in ns since the path's, row of the cause, the event with
    most of it, as a place among the events, and whether it follows from a wait that no event shows.
    """

    at: Ints
    row: Ints
    instance: Ints
    inferred: Flags

    @classmethod
    def of(cls, at: Ints, weight: Ints, row: Ints, instance: Ints, inferred: Flags) -> Pieces:
        """Takes the edges of a path that take time, in order (e,)."""
        begins = np.append(True, (np.diff(row) != 0) | (np.diff(inferred.astype(np.int8)) != 0))[: len(row)]
        piece = np.cumsum(begins) - 1
        longest = np.lexsort((-weight, piece))[np.flatnonzero(begins)]  # each piece has its edges in a row, as before
        return cls(at[begins], row[begins], instance[longest], inferred[begins])


@dataclass(frozen=True)
class _Found:
    """The causes of a window and their pieces; what it is without the profiler and, if that is enough to tell, its causes then."""

    rows: Rows
    pieces: Pieces
    without: WithoutProfiler | None
    rows_without: Rows | None


def _found(
    columns: list[np.ndarray],
    events: Events,
    works: tuple[Busy, Busy],
    path: Ints,
    names: Names,
    rules: list[CauseRule],
    cost: RecordingCost | None,
) -> _Found:
    edge_id, src, dst, weight, marks, attributed = columns
    columns.clear()  # of a long window there is no room for them beside the graph
    path = np.searchsorted(edge_id, path)
    del edge_id
    code, earlier, inferred = (marks & (_EARLIER - 1)).astype(np.int8), marks & _EARLIER > 0, marks & _INFERRED > 0
    del marks
    found = edge_causes(Edges(src, dst, weight, code, attributed, earlier), events, names, rules)
    del attributed, earlier, code
    end = events.at_node(dst[path])
    idle, exposed = (weight[path] - (work.before(end) - work.before(end - weight[path])) for work in works)
    rows, shares = path_rows(weight, path, found, idle, exposed, inferred)
    timed = weight[path] > 0
    of = path[timed]
    pieces = Pieces.of(end[timed] - weight[of], weight[of], shares.row[of], found.instance[of], inferred[of])
    graph = ArrayGraph.from_edges(src, dst, weight, USUAL_PROFILE)
    if cost is None:
        del found, inferred
        retime(graph, rows, shares)
        return _Found(rows, pieces, None, None)
    length, without = int(rows.duration.sum()), without_profiler(graph, cost)
    spent = length - without.length
    is_told = spent > _TOLD * length and cost.request.retimes(without=True, spent=spent, length=length)
    if not is_told or cost.request.retimes(without=False, spent=spent, length=length):
        retime(graph, rows, shares)
    told = _rows_without(graph, without, found, events, names, inferred) if is_told else None
    return _Found(rows, pieces, without, told)


def _rows_without(
    graph: ArrayGraph, without: WithoutProfiler, found: Found, events: Events, names: Names, inferred: Flags
) -> Rows:
    """Returns the causes of the window without the profiler. The graph has the weights without it afterwards."""
    moved, known = without.moved(graph, events)
    works = (Busy.of(moved, known), Busy.of(moved, known & (names.kind[events.name] == KINDS.index("kernel"))))
    path = graph.path(without.weight)
    end, weight = without.at[graph.dst[path]], without.weight[path]
    idle, exposed = (weight - (work.before(end) - work.before(end - weight)) for work in works)
    rows, shares = path_rows(without.weight, path, found, idle, exposed, inferred)
    graph.weight[:] = without.weight
    retime(graph, rows, shares)
    return rows


@dataclass(frozen=True)
class Busy:
    """The times in which some of the events run: stretches in order, and how much of them lies before each."""

    start: Ints
    end: Ints
    sum_before: Ints

    @classmethod
    def of(cls, events: Events, chosen: Flags) -> Busy:
        """The stretches of the chosen events."""
        order = np.argsort(events.at[chosen], kind="stable")
        start = events.at[chosen][order]
        end = np.maximum.accumulate(events.end[chosen][order])
        begins = np.append(True, start[1:] > end[:-1])[: len(start)]
        start, end = start[begins], end[np.append(begins[1:], True)[: len(end)]]
        return cls(start, end, np.append(0, np.cumsum(end - start)))

    @property
    def total(self) -> int:
        """All of them, ns."""
        return int(self.sum_before[-1])

    def before(self, at: Ints) -> Ints:
        """Returns how much of them lies before each time."""
        if not len(self.start):
            return np.zeros_like(at)
        last = np.searchsorted(self.start, at, side="right") - 1
        inside = np.minimum(at, self.end[last]) - self.start[last]
        return np.where(last >= 0, self.sum_before[last] + inside, 0)


def _by_window(con: duckdb.DuckDBPyConnection, rows: str, order: str) -> dict[int, dict[str, Any]]:
    """Returns the rows of each window, in order of a column."""
    found = con.execute(f"SELECT * FROM {rows}").fetchnumpy()
    window = np.asarray(found.pop("window_no"))
    by = np.lexsort((np.asarray(found[order]), window))
    numbers, first = np.unique(window[by], return_index=True)
    parts: dict[int, dict[str, Any]] = {number: {} for number in numbers.tolist()}
    for name in list(found):
        for number, part in zip(parts, np.split(lean(found.pop(name))[by], first[1:]), strict=True):
            parts[number][name] = part
    return parts


def lean(column: Any) -> np.ndarray:
    """A column without NULL (-1 instead), in 32 bits where that is enough."""
    filled = np.ma.filled(column, -1) if column.dtype != bool else np.ma.filled(column, False)
    if (
        filled.dtype.kind == "i"
        and filled.itemsize > 4
        and len(filled)
        and -(2**31) <= filled.min() <= filled.max() < 2**31
    ):
        return filled.astype(np.int32)
    return filled


def events_of(rows: dict[str, Any]) -> Events:
    """Returns the events of a window from the columns of _cause_events, in order of event_id; they are taken out of `rows`."""
    ids = rows.pop("event_id")
    place_of = np.full(int(ids.max(initial=0)) + 2, -1, dtype=np.int32)
    place_of[ids] = np.arange(len(ids))

    def place(column: Ints) -> Ints:
        return place_of[np.where(column <= ids[-1], column, -1)]

    is_work = rows.pop("is_work")
    return Events(
        ids,
        rows.pop("at_ns").astype(np.int64),
        rows.pop("duration_ns").astype(np.int64),
        np.where(is_work, -1, rows.pop("thread_id")),
        is_work,
        rows.pop("name_no") - 1,
        place(rows.pop("launch_event_id")),
        place(rows.pop("owner_event_id")),
        rows.pop("is_first"),
        rows.pop("stream").astype(np.int64),
    )


def names_of(con: duckdb.DuckDBPyConnection) -> Names:
    """Returns the names in `_event_names` with their rules."""
    rows = con.execute(
        "SELECT n.*, coalesce(r.rule_no, -1) AS rule_no FROM _event_names AS n "
        "LEFT JOIN _cause_names AS r ON r.name_no = n.name_no ORDER BY n.name_no"
    ).fetchnumpy()
    kinds = {kind: number for number, kind in enumerate(KINDS)}
    kind = np.array([kinds.get(one, -1) for one in rows["kind"].tolist()], dtype=np.int64)
    rule, n_events, duration = (np.ma.filled(rows[name], -1) for name in ("rule_no", "n_events", "duration_ns"))
    is_step, to_host, pageable = (rows[name].astype(bool) for name in ("is_step", "to_host", "is_pageable"))
    return Names(kind, rule, n_events, duration, is_step, to_host, pageable)


def _columns(number: int, events: Events, found: Rows, *, without: bool) -> dict[str, Ints]:
    return {
        "window": np.full(len(found.cause), number),
        "without": np.full(len(found.cause), without),
        "place": np.arange(len(found.cause)),
        "cause": found.cause,
        "after": found.named_after,
        "number": np.where(found.named_after == 0, found.number + 1, found.number),
        "duration": found.duration,
        "idle": found.idle,
        "exposed": found.exposed,
        "times": found.times,
        "event": events.event_id[found.instance],
        "inferred": found.inferred,
        "saves": found.saves,
        "halved": found.halved_saves,
        "all_saves": found.all_saves,
    }


def _insert(con: duckdb.DuckDBPyConnection, work: list[tuple[int, int, int]], causes: list[dict[str, Ints]]) -> None:
    """Add the windows of a group together: of many short ones, a statement for each took most of the time."""
    if not work:
        return
    con.execute(f"INSERT INTO _window_work VALUES {', '.join(map(str, work))}")
    # DuckDB reads the arrays by the name of this variable; an Arrow table would make it import pandas.
    rows = {name: np.concatenate([one[name] for one in causes]) for name in causes[0]}
    con.execute(
        'INSERT INTO _cause_rows SELECT "window", "without", place, cause, "after", number, duration, idle, exposed, times, event, inferred, '
        "CASE WHEN saves >= 0 THEN saves END, CASE WHEN halved >= 0 THEN halved END, CASE WHEN all_saves >= 0 THEN all_saves END FROM rows"
    )
    del rows


def _insert_cost(con: duckdb.DuckDBPyConnection, number: int, cost: RecordingCost, without: WithoutProfiler) -> None:
    told = [
        number,
        *cost.events.tolist(),
        *cost.nominal.tolist(),
        cost.start_ns,
        cost.speed,
        without.scale,
        without.length,
    ]
    con.execute(f"INSERT INTO _recording_costs VALUES ({', '.join(map(str, told))})")


def _insert_pieces(con: duckdb.DuckDBPyConnection, number: int, events: Events, pieces: Pieces) -> None:
    rows = {
        "place": np.arange(1, len(pieces.at) + 1),
        "at": pieces.at,
        "row": pieces.row,
        "event": events.event_id[pieces.instance],
        "inferred": pieces.inferred,
    }
    con.execute(f'INSERT INTO _cause_pieces SELECT {number}, place, "at", "row", event, inferred FROM rows')
    del rows
