"""The causes of all windows, from their edges and the longest path: table `_cause_rows`, in numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass

import duckdb
import numpy as np

from pipelines.critical_path.causes.cause_edges import CauseEdges
from pipelines.critical_path.causes.cause_names import CauseRule, cause_rules
from pipelines.critical_path.causes.edge_causes import KINDS, Edges, Events, Flags, Names, edge_causes
from pipelines.critical_path.causes.fixes import Fix, fixes
from pipelines.critical_path.causes.of_window import naming, numbered_window, thread_names
from pipelines.critical_path.causes.savings import Rows, path_rows, retime
from pipelines.critical_path.causes.window_rows import events_of, names_of, rows_by_window
from pipelines.critical_path.graph.dependency_graph import ArrayGraph
from pipelines.critical_path.graph.stack_order import Ints
from pipelines.critical_path.graph.window_edges import window_groups
from pipelines.models.python_tables import create_table, python_model

_EARLIER, _INFERRED = 1 << 8, 1 << 9
_EDGES = (
    "src_node_id", "dst_node_id", "path_weight_ns",
    f"edge_code + {_EARLIER} * CAST(waits_for_earlier_work AS INTEGER) + {_INFERRED} * CAST(is_inferred AS INTEGER) AS marks",
    "coalesce(attributed_event_id, -1) AS attributed",
)  # fmt: skip
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
    "threads",
    "critical_path_windows",
    "trace_devices",
    "device_peaks",
)


@python_model(
    "_cause_rows",
    layer="critical_path",
    doc="One row: a cause of a window's length, in numbers.",
    columns=(
        ("window_no", "BIGINT", "The window."),
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
    checks=("unique(window_no, cause_no, named_after, number)",),
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
    "_fix_rows",
    layer="critical_path",
    doc="One row: a change that would make a window shorter.",
    columns=(
        ("window_no", "BIGINT", "The window."),
        ("place", "BIGINT", "Its place among those of the window, from 0: the largest saving first."),
        ("fix", "VARCHAR", "The kind, in fix_kinds."),
        ("name", "VARCHAR", "What it is done to."),
        ("options", "VARCHAR", "Options of what-if that retime it."),
        ("saves_ns", "BIGINT", "What the window is shorter with it, ns."),
    ),
    reads=_READS,
    checks=("unique(window_no, fix, name)",),
)
def window_causes(con: duckdb.DuckDBPyConnection) -> None:
    """Create `_cause_rows`, `_fix_rows` and `_window_work` for the windows that the path covers, `_cause_pieces` for whole traces."""
    create_table(con, "_cause_rows")
    create_table(con, "_cause_pieces")
    create_table(con, "_window_work")
    create_table(con, "_fix_rows")
    covered = {number for (number,) in con.execute("SELECT DISTINCT window_no FROM _cause_events").fetchall()}
    if not covered:
        return
    whole = {
        number for (number,) in con.execute("SELECT window_no FROM _asked_windows WHERE annotation = ''").fetchall()
    }
    names, rules = names_of(con), cause_rules(con)
    name_of, factors = naming(names, thread_names(con)), _float32_factors(con)
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
        judged: list[tuple[int, int, str, str, str, int]] = []
        for number, columns in chosen:
            if number in paths:
                these = events_of(events.pop(number))
                busy = Busy.of(these, these.is_work)
                computing = Busy.of(these, these.is_work & (names.kind[these.name] == KINDS.index("kernel")))
                work.append((number, busy.total, computing.total))
                path = paths.pop(number)["edge_id"]
                rows, pieces, of_window = _found(
                    columns, these, (busy, computing), path, names, rules, name_of, factors.get(number)
                )
                judged += [(number, place, *astuple(fix)) for place, fix in enumerate(of_window)]
                causes.append(_columns(number, these, rows))
                if number in whole:
                    _insert_pieces(con, number, these, pieces)
        _insert(con, work, causes)
        if judged:
            con.executemany("INSERT INTO _fix_rows VALUES (?, ?, ?, ?, ?, ?)", judged)


def _float32_factors(con: duckdb.DuckDBPyConnection) -> dict[int, float]:
    """Returns by window how long a float32 product takes with TF32, over what it takes without, by its device's peak rates."""
    rows = con.execute(
        "SELECT w.window_no, max(p.tflops / f.tflops) FROM critical_path_windows AS w "
        "JOIN trace_devices AS d ON d.trace_id = w.trace_id "
        "JOIN device_peaks AS p ON p.device_key = d.device_key AND p.dtype = 'fp32' AND p.peak_kind = 'datasheet' "
        "JOIN device_peaks AS f ON f.device_key = d.device_key AND f.dtype = 'tf32' AND f.peak_kind = 'datasheet' "
        "GROUP BY w.window_no"
    ).fetchall()
    return {number: round(factor, 4) for number, factor in rows}


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


def _found(
    columns: list[np.ndarray],
    events: Events,
    works: tuple[Busy, Busy],
    path: Ints,
    names: Names,
    rules: list[CauseRule],
    name_of: Callable[[int, int], str],
    float32_factor: float | None,
) -> tuple[Rows, Pieces, list[Fix]]:
    edge_id, src, dst, weight, marks, attributed = columns
    columns.clear()  # of a long window there is no room for them beside the graph
    path = np.searchsorted(edge_id, path)
    del edge_id
    code, earlier, inferred = (marks & (_EARLIER - 1)).astype(np.int8), marks & _EARLIER > 0, marks & _INFERRED > 0
    del marks
    edges = Edges(src, dst, weight, code, attributed, earlier)
    found = edge_causes(edges, events, names, rules)
    end = events.at_node(dst[path])
    idle, exposed = (weight[path] - (work.before(end) - work.before(end - weight[path])) for work in works)
    rows, shares = path_rows(weight, path, found, idle, exposed, inferred)
    timed = weight[path] > 0
    of = path[timed]
    pieces = Pieces.of(end[timed] - weight[of], weight[of], shares.row[of], found.instance[of], inferred[of])
    del inferred
    graph = ArrayGraph.from_edges(src, dst, weight)
    retime(graph, rows, shares)
    return (
        rows,
        pieces,
        fixes(numbered_window(edges, events, names, graph, CauseEdges(found, name_of)), rows, float32_factor),
    )


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


def _columns(number: int, events: Events, found: Rows) -> dict[str, Ints]:
    return {
        "window": np.full(len(found.cause), number),
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
        'INSERT INTO _cause_rows SELECT "window", place, cause, "after", number, duration, idle, exposed, times, event, inferred, '
        "CASE WHEN saves >= 0 THEN saves END, CASE WHEN halved >= 0 THEN halved END, CASE WHEN all_saves >= 0 THEN all_saves END FROM rows"
    )
    del rows


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
