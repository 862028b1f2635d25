"""Tables of the causes of all windows, computed from their edges and the longest path."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass
from functools import cache, partial

import duckdb
import numpy as np

from pipelines.base.datafiles import threshold
from pipelines.critical_path.causes.cause_names import CauseRule, cause_rules
from pipelines.critical_path.causes.edge_causes import KINDS, EdgeCauses, Edges, Events, Flags, Names, edge_causes
from pipelines.critical_path.causes.fixes import Fix, fixes
from pipelines.critical_path.causes.of_window import Labels, numbered_window
from pipelines.critical_path.causes.recording_cost import MOST_EDGES, HostEdges, RecordingCost, recording_costs
from pipelines.critical_path.causes.savings import Rows, path_rows, retime
from pipelines.critical_path.causes.window_rows import NameFacts, events_of, name_facts, names_of, rows_by_window
from pipelines.critical_path.causes.without_profiler import WithoutProfiler, without_profiler
from pipelines.critical_path.graph.dependency_graph import ArrayGraph
from pipelines.critical_path.graph.stack_order import Ints
from pipelines.critical_path.graph.window_edges import window_groups
from pipelines.critical_path.graph.windows import USUAL_PROFILE
from pipelines.critical_path.whatif.timeline import Stretches
from pipelines.critical_path.whatif.window import host_stretches
from pipelines.models.python_tables import create_table, insert_columns, python_model

_EARLIER, _INFERRED = 1 << 8, 1 << 9
_EDGES = (
    "src_node_id", "dst_node_id", "path_weight_ns",
    f"edge_code + {_EARLIER} * CAST(waits_for_earlier_work AS INTEGER) + {_INFERRED} * CAST(is_inferred AS INTEGER) AS marks",
    "coalesce(attributed_event_id, -1) AS attributed",
)  # fmt: skip
_FIX_COLUMNS = [
    "window_no",
    "place",
    "fix",
    "name",
    "options",
    "without_profiler",
    "saves_ns",
    "same_place",
    "same_cause",
    "caveat",
]
_REPORTED = threshold("profiler_reported")
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
    "_faster_work",
    "_event_costs",
    "_window_steps",
    "threads",
    "events",
    "category_sides",
)


@python_model(
    "_cause_rows",
    layer="critical_path",
    doc="One row: a cause of a window's length, in numbers.",
    columns=(
        ("window_no", "BIGINT", "The window."),
        ("without_profiler", "BOOLEAN", "Whether the row is of the window without the cost of recording its events."),
        ("row_no", "BIGINT", "Index among the window's rows, from 0."),
        ("cause_no", "BIGINT", "The cause, in cause_kinds."),
        ("named_after", "BIGINT", "0: a name, 1: a thread, 2: a stream, 3: work from before the window."),
        ("number", "BIGINT", "The number of the name, thread or stream."),
        ("duration_ns", "BIGINT", "Time on the path, ns."),
        ("idle_ns", "BIGINT", "Part of that time in which no GPU work ran, ns."),
        ("exposed_ns", "BIGINT", "Part of that time in which no compute kernel ran, ns."),
        ("times", "BIGINT", "Number of events with such time."),
        ("event_id", "BIGINT", "The event with most of that time."),
        ("inferred_ns", "BIGINT", "Part of that time that follows a wait which no event records, ns."),
        ("saves_ns", "BIGINT", "How much shorter the window is without the row's time, ns; NULL if not computed."),
        ("halved_saves_ns", "BIGINT", "The same with half of the row's time, ns."),
        ("cause_saves_ns", "BIGINT", "The same without the time of all rows of this cause, ns."),
    ),
    reads=_READS,
    checks=("unique(window_no, without_profiler, cause_no, named_after, number)",),
)
@python_model(
    "_cause_pieces",
    layer="critical_path",
    doc="One row: an interval of the whole trace's path with one cause. The intervals are in order of time and without gaps.",
    columns=(
        ("window_no", "BIGINT", "The window."),
        ("piece_no", "BIGINT", "Position in the window, from 1."),
        ("at_ns", "BIGINT", "Start, relative to the start of the path, ns."),
        ("row_no", "BIGINT", "The cause, in _cause_rows."),
        ("event_id", "BIGINT", "The event with most of the interval."),
        ("inferred", "BOOLEAN", "Whether the interval follows a wait that no event records."),
    ),
    reads=_READS,
    checks=("unique(window_no, piece_no)",),
)
@python_model(
    "_window_work",
    layer="critical_path",
    doc="One row: a window with a covering path, and how long its GPUs work.",
    columns=(
        ("window_no", "BIGINT", "The window."),
        ("busy_ns", "BIGINT", "Time in which GPU work ran, ns."),
        ("computing_ns", "BIGINT", "Time in which compute kernels ran, ns."),
    ),
    reads=_READS,
)
@python_model(
    "_fix_rows",
    layer="critical_path",
    doc="One row: a change that would make a window shorter.",
    columns=(
        ("window_no", "BIGINT", "The window."),
        ("place", "BIGINT", "Index among the window's changes, from 0. The largest saving comes first."),
        ("fix", "VARCHAR", "The kind, in fix_kinds."),
        ("name", "VARCHAR", "Name of the object that is changed."),
        ("options", "VARCHAR", "Options of `tracelake what-if` that apply the change."),
        (
            "without_profiler",
            "BOOLEAN",
            "Whether the change is to the window without the profiler's cost, because its causes are shown that way.",
        ),
        ("saves_ns", "BIGINT", "How much shorter the window is with the change, ns."),
        ("same_place", "BIGINT", "`place` of the larger change to which this one is an alternative."),
        ("same_cause", "VARCHAR", "The host cause to which this change is an alternative."),
        (
            "caveat",
            "VARCHAR",
            "Caveat about saves_ns in this window, in addition to the caveat of its kind; NULL if it has none.",
        ),
    ),
    reads=_READS,
    checks=("unique(window_no, fix, name)",),
)
@python_model(
    "_recording_costs",
    layer="critical_path",
    doc="One row: a window with a covering path for which the cost of recording its events is known.",
    columns=(
        ("window_no", "BIGINT", "The window."),
        ("n_operators", "BIGINT", "Operators that start in the window."),
        ("n_calls", "BIGINT", "Calls to the GPU runtime."),
        ("n_frames", "BIGINT", "Python functions."),
        ("n_annotations", "BIGINT", "Annotations."),
        ("operators_ns", "BIGINT", "Cost of recording the operators, ns."),
        ("calls_ns", "BIGINT", "Cost of recording the calls, ns."),
        ("frames_ns", "BIGINT", "Cost of recording the Python functions, ns."),
        ("annotations_ns", "BIGINT", "Cost of recording the annotations, ns."),
        ("slowness", "DOUBLE", "How many times slower the host is than the host on which the costs were measured."),
        ("scale", "DOUBLE", "Factor by which the costs of events were multiplied."),
        ("without_profiler_ns", "BIGINT", "Length of the window without these costs, ns."),
    ),
    reads=_READS,
    checks=("unique(window_no)",),
)
def window_causes(con: duckdb.DuckDBPyConnection) -> None:
    """Create `_cause_rows`, `_fix_rows`, `_recording_costs` and `_window_work` for the windows with a covering path.

    Also creates `_cause_pieces`, with rows for whole traces. Raises WrongValue if `profiler_requests` contains a
    duration that a window cannot have.
    """
    create_table(con, "_cause_rows")
    create_table(con, "_cause_pieces")
    create_table(con, "_window_work")
    create_table(con, "_recording_costs")
    create_table(con, "_fix_rows")
    covered = {number for (number,) in con.execute("SELECT DISTINCT window_no FROM _cause_events").fetchall()}
    if not covered:
        return
    whole_traces = {
        number for (number,) in con.execute("SELECT window_no FROM _asked_windows WHERE annotation = ''").fetchall()
    }
    names, rules = names_of(con), cause_rules(con)
    labels, facts = Labels.of(con, names), name_facts(con, len(names.text))
    named = cache(partial(host_stretches, con))  # the windows of a trace query the same names
    begins = {
        number: (trace_id, begin)
        for number, trace_id, begin in con.execute(
            "SELECT window_no, trace_id, path_start_ns FROM critical_path_windows"
        ).fetchall()
    }
    for windows in window_groups(con, _EDGES):
        chosen = [(number, columns) for number, columns in windows if number in covered]
        if not chosen:
            continue
        within = f"window_no BETWEEN {chosen[0][0]} AND {chosen[-1][0]}"
        events, paths = (
            rows_by_window(con, f"_cause_events WHERE {within}", "event_id"),
            rows_by_window(con, f"_longest_path WHERE {within}", "seq"),
        )
        work: list[tuple[int, int, int]] = []
        causes: list[dict[str, Ints]] = []
        judged: list[tuple] = []
        spent: list[str] = []
        of_events = {number: events_of(events.pop(number)) for number, _ in chosen}
        short = [(number, columns) for number, columns in chosen if len(columns[0]) <= MOST_EDGES]
        edges = {number: (_host_edges(columns, of_events[number]), of_events[number]) for number, columns in short}
        costs = recording_costs(con, edges, names)
        del edges, short
        for number, columns in chosen:
            if number in paths:
                window_events = of_events.pop(number)
                busy = Busy.of(window_events, window_events.is_work)
                computing = Busy.of(
                    window_events, window_events.is_work & (names.kind[window_events.name] == KINDS.index("kernel"))
                )
                work.append((number, busy.total, computing.total))
                cost = costs.pop(number, None)
                path = paths.pop(number)["edge_id"]
                works, in_window = (busy, computing), partial(_named_since, named, *begins[number])
                result = _window_causes(columns, window_events, works, path, labels, rules, cost, facts, in_window)
                judged += [(number, rank, *astuple(fix)) for rank, fix in enumerate(result.fixes)]
                causes.append(_columns(number, window_events, result.rows, without=False))
                if result.rows_without is not None:
                    causes.append(_columns(number, window_events, result.rows_without, without=True))
                if cost is not None and result.without is not None:
                    spent.append(_cost_row(number, cost, result.without))
                if number in whole_traces:
                    _insert_pieces(con, number, window_events, result.pieces)
        _insert(con, work, causes, spent)
        if judged:
            insert_columns(con, "_fix_rows", dict(zip(_FIX_COLUMNS, zip(*judged, strict=True), strict=True)))


def _named_since(named: Callable[[str, str], Stretches], trace_id: str, begin: int, glob: str) -> Stretches:
    """Return the intervals of a trace's host events whose names match `glob`, in ns since the time `begin`."""
    return named(trace_id, glob).since(begin)


def _host_edges(columns: list[np.ndarray], events: Events) -> HostEdges:
    _, src, dst, weight, marks, _ = columns
    return HostEdges.of(src, dst, weight, marks & (_EARLIER - 1), events)


@dataclass(frozen=True)
class Pieces:
    """Segments of a path (p,), each with one cause, in order of time.

    `at` is the start since the path's start, ns. `row` is the row of the cause, and `instance` the index of the event
    with most of the time. `inferred` is whether the segment follows from a wait without an event.
    """

    at: Ints
    row: Ints
    instance: Ints
    inferred: Flags

    @classmethod
    def of(cls, at: Ints, weight: Ints, row: Ints, instance: Ints, inferred: Flags) -> Pieces:
        """Build from the edges of a path that take time, in order (e,)."""
        begins = np.append(True, (np.diff(row) != 0) | (np.diff(inferred.astype(np.int8)) != 0))[: len(row)]
        piece = np.cumsum(begins) - 1
        longest = np.lexsort((-weight, piece))[
            np.flatnonzero(begins)
        ]  # lexsort keeps the edges of a piece at the same positions, so the first of each piece is the longest
        return cls(at[begins], row[begins], instance[longest], inferred[begins])


@dataclass(frozen=True)
class _WindowCauses:
    """The causes of a window, their segments, and the fixes.

    `without` is the window without the profiler, None if the cost is unknown. `rows_without` are the causes of that
    window, None if the cost is too small to report or the causes are not requested.
    """

    rows: Rows
    pieces: Pieces
    without: WithoutProfiler | None
    rows_without: Rows | None
    fixes: list[Fix]


def _window_causes(
    columns: list[np.ndarray],
    events: Events,
    works: tuple[Busy, Busy],
    path: Ints,
    labels: Labels,
    rules: list[CauseRule],
    cost: RecordingCost | None,
    facts: NameFacts,
    named: Callable[[str], Stretches],
) -> _WindowCauses:
    edge_id, src, dst, weight, marks, attributed = columns
    columns.clear()  # a long window's columns and graph do not fit in memory together
    path = np.searchsorted(edge_id, path)
    del edge_id
    code, earlier, inferred = (marks & (_EARLIER - 1)).astype(np.int8), marks & _EARLIER > 0, marks & _INFERRED > 0
    del marks
    edges = Edges(src, dst, weight, code, attributed, earlier)
    causes = edge_causes(edges, events, labels.names, rules)
    judged = edges if len(src) <= MOST_EDGES else None
    del edges, attributed, earlier, code
    end = events.at_node(dst[path])
    idle, exposed = (weight[path] - (work.before(end) - work.before(end - weight[path])) for work in works)
    rows, shares = path_rows(weight, path, causes, idle, exposed, inferred)
    timed = weight[path] > 0
    on_path = path[timed]
    pieces = Pieces.of(
        end[timed] - weight[on_path], weight[on_path], shares.row[on_path], causes.instance[on_path], inferred[on_path]
    )
    graph = ArrayGraph.from_edges(src, dst, weight, USUAL_PROFILE)
    window = numbered_window(judged, events, graph, causes, labels, named) if judged else None
    del judged
    if cost is None:
        of_window = fixes(window, rows, facts) if window else []
        del causes, inferred, window
        retime(graph, rows, shares)
        return _WindowCauses(rows, pieces, None, None, of_window)
    length, without = int(rows.duration.sum()), without_profiler(graph, cost)
    spent = length - without.length
    is_reported = spent > _REPORTED * length and cost.request.retimes(without=True, spent=spent, length=length)
    is_shown = is_reported and cost.request.shows(spent, length)
    of_window = fixes(window, rows, facts) if window and not is_shown else []
    if not is_reported or cost.request.retimes(without=False, spent=spent, length=length):
        retime(graph, rows, shares)
    rows_without = _rows_without(graph, without, causes, events, labels.names, inferred) if is_reported else None
    if window and is_shown and rows_without is not None:
        of_window = fixes(window, rows_without, facts, without_profiler=True)
    return _WindowCauses(rows, pieces, without, rows_without, of_window)


def _rows_without(
    graph: ArrayGraph, without: WithoutProfiler, causes: EdgeCauses, events: Events, names: Names, inferred: Flags
) -> Rows:
    """Return the causes of the window without the profiler. Overwrites the graph's weights with those weights."""
    moved, is_known = without.moved(graph, events)
    works = (Busy.of(moved, is_known), Busy.of(moved, is_known & (names.kind[events.name] == KINDS.index("kernel"))))
    path = graph.path(without.weight)
    end, weight = without.at[graph.dst[path]], without.weight[path]
    idle, exposed = (weight - (work.before(end) - work.before(end - weight)) for work in works)
    rows, shares = path_rows(without.weight, path, causes, idle, exposed, inferred)
    graph.weight[:] = without.weight
    retime(graph, rows, shares)
    return rows


@dataclass(frozen=True)
class Busy:
    """Intervals in which at least one of some events runs: disjoint, in order, with the total time before each."""

    start: Ints
    end: Ints
    sum_before: Ints

    @classmethod
    def of(cls, events: Events, chosen: Flags) -> Busy:
        """Build from the intervals of the chosen events."""
        order = np.argsort(events.at[chosen], kind="stable")
        start = events.at[chosen][order]
        end = np.maximum.accumulate(events.end[chosen][order])
        begins = np.append(True, start[1:] > end[:-1])[: len(start)]
        start, end = start[begins], end[np.append(begins[1:], True)[: len(end)]]
        return cls(start, end, np.append(0, np.cumsum(end - start)))

    @property
    def total(self) -> int:
        """Return the total time of the intervals, ns."""
        return int(self.sum_before[-1])

    def before(self, at: Ints) -> Ints:
        """Return the total time of the intervals before each time, ns."""
        if not len(self.start):
            return np.zeros_like(at)
        last = np.searchsorted(self.start, at, side="right") - 1
        inside = np.minimum(at, self.end[last]) - self.start[last]
        return np.where(last >= 0, self.sum_before[last] + inside, 0)


def _columns(number: int, events: Events, rows: Rows, *, without: bool) -> dict[str, Ints]:
    return {
        "window": np.full(len(rows.cause), number),
        "without": np.full(len(rows.cause), without),
        "place": np.arange(len(rows.cause)),
        "cause": rows.cause,
        "after": rows.named_after,
        "number": np.where(rows.named_after == 0, rows.number + 1, rows.number),
        "duration": rows.duration,
        "idle": rows.idle,
        "exposed": rows.exposed,
        "times": rows.times,
        "event": events.event_id[rows.instance],
        "inferred": rows.inferred,
        "saves": rows.saves,
        "halved": rows.halved_saves,
        "all_saves": rows.all_saves,
    }


def _insert(
    con: duckdb.DuckDBPyConnection, work: list[tuple[int, int, int]], causes: list[dict[str, Ints]], costs: list[str]
) -> None:
    """Insert a group's rows together, because one statement per short window would dominate the time."""
    if not work:
        return
    con.execute(f"INSERT INTO _window_work VALUES {', '.join(map(str, work))}")
    if costs:
        con.execute(f"INSERT INTO _recording_costs VALUES {', '.join(costs)}")
    # DuckDB finds the arrays by the name of this variable. With an Arrow table, it would import pandas.
    rows = {name: np.concatenate([columns[name] for columns in causes]) for name in causes[0]}
    con.execute(
        'INSERT INTO _cause_rows SELECT "window", "without", place, cause, "after", number, duration, idle, exposed, times, event, inferred, '
        "CASE WHEN saves >= 0 THEN saves END, CASE WHEN halved >= 0 THEN halved END, CASE WHEN all_saves >= 0 THEN all_saves END FROM rows"
    )
    del rows


def _cost_row(number: int, cost: RecordingCost, without: WithoutProfiler) -> str:
    by_kind = (*cost.events.tolist(), *cost.nominal.tolist())
    values = (number, *by_kind, cost.speed, without.scale, without.length)
    return f"({', '.join(map(str, values))})"


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
