"""What recording its host events costs a window: how much of each edge of its graph is PyTorch's profiler.

The profiler notes an operator before its start and after its end: half of the cost falls in each, in the time of what is around it
(Kineto's callbacks in torch/csrc/profiler take the start last and the end first). Part of what a call costs is inside of it. So an
edge between two nodes of a thread has a share of the cost of each event of the thread, in the graph or not, that starts or ends in
between. Costs are for each kind of event
(`sql/rules/profiler/profiler_costs.csv`), in proportion to how slow the host is, which its cheapest operators show.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import duckdb
import numpy as np

from pipelines.base import database
from pipelines.base.datafiles import threshold
from pipelines.critical_path.causes.edge_causes import KINDS, Events, Flags, Names
from pipelines.critical_path.graph.dependency_graph import Ints
from pipelines.critical_path.graph.edge_types import edge_codes
from pipelines.critical_path.graph.stack_order import Ints as Numbers
from pipelines.models.python_tables import column_arrays
from pipelines.models.sqltext import quoted

RECORDED = ("operator", "call", "frame", "annotation")
"""Kinds of host events whose recording costs time, by their number in `_event_costs`."""
_BATCH = 1 << 17  # events
MOST_EDGES = threshold("retimed_edges")
"""Of a window whose cost is computed, and whose fixes are judged."""
_REMOVED = threshold("profiler_removed")
_START_NS = threshold("profiler_start_ns")
_TIMES, _PAIRS = threshold("cheap_operator_times"), threshold("cheap_operator_pairs")
_OWN, _GAP, _DELAY = edge_codes(("OPERATOR_KERNEL", "HOST_GAP", "KERNEL_LAUNCH_DELAY"))
_OPERATOR = KINDS.index("operator")
_WINDOWS = """
    SELECT w.window_no, w.trace_id, w.path_start_ns, w.path_end_ns, coalesce(s.n_steps, 0), s.start_ns - w.path_start_ns,
        (SELECT max(delay_ns) FROM _event_costs AS c WHERE c.trace_id = w.trace_id), r.trace_id IS NOT NULL,
        r.without_profiler, r.untraced_ns
    FROM critical_path_windows AS w
    LEFT JOIN profiler_requests AS r ON r.trace_id = w.trace_id AND r.window_id = w.window_id
    LEFT JOIN _window_steps AS s ON s.window_no = w.window_no
    WHERE w.window_no BETWEEN {first} AND {last}
"""
_EVENTS = """
    SELECT
        CAST(t.thread_id AS INTEGER) AS thread, e.start_ns, e.start_ns + e.duration_ns AS end_ns, CAST(c.kind_no AS INTEGER) AS kind,
        c.cost_ns AS cost, c.cost_ns * c.inside AS inside
    FROM events AS e
    JOIN _event_costs AS c ON c.trace_id = e.trace_id AND c.cat = e.cat
    JOIN threads AS t ON t.trace_id = e.trace_id AND t.pid = e.pid AND t.tid = e.tid
    WHERE e.trace_id = {trace_id} AND e.start_ns <= {until} AND e.start_ns + e.duration_ns >= {since}
"""


@dataclass(frozen=True)
class HostEdges:
    """A window's edges as the costs need them (m,): `weight` on the path in ns, type (`code`), places of the events at
    their ends (`src_event`, `dst_event`), and whether these ends are the end of the event.
    """

    weight: Ints
    code: Ints
    src_event: Ints
    dst_event: Ints
    at_src_end: Flags
    at_dst_end: Flags

    @classmethod
    def of(cls, src: Numbers, dst: Numbers, weight: Numbers, code: Numbers, events: Events) -> HostEdges:
        """Takes the nodes at the ends of the edges (m,), twice the event and 1 more for its end."""
        src_event, dst_event = (np.searchsorted(events.event_id, node >> 1) for node in (src, dst))
        in_ns, codes = weight.astype(np.int64), code.astype(np.int64)
        return cls(in_ns, codes, src_event, dst_event, src & 1 == 1, dst & 1 == 1)


@dataclass(frozen=True)
class Request:
    """A row of `profiler_requests`, if there is one for a window (`is_given`)."""

    is_given: bool = False
    without_profiler: bool | None = None
    untraced: int | None = None

    def shows(self, spent: int, length: int) -> bool:
        """Whether the causes without the profiler are those that are shown, where it is `spent` ns of a window's `length`."""
        return spent > _REMOVED * length if self.without_profiler is None else self.without_profiler

    def retimes(self, *, without: bool, spent: int, length: int) -> bool:
        """Whether the causes with the profiler, or `without` it, are to be retimed: those that are shown, or both."""
        return not self.is_given or self.shows(spent, length) == without


@dataclass(frozen=True)
class RecordingCost:
    """What recording costs a window. `edges`: of the events on each edge (m,), ns, which may be more than its weight; `start_edges`:
    places of the edges that are the profiler's start, which takes `start_ns`. `events`, `nominal`: how many host events of each kind of RECORDED start in the
    window, and what these cost in all, ns. `speed`: how many times slower the host is than the one the costs are of. `n_steps`:
    profiler steps in the window.
    """

    edges: Ints
    start_edges: Ints
    start_ns: int
    events: Ints
    nominal: Ints
    speed: float
    n_steps: int
    request: Request

    def weights_without(self, weight: Ints, scale: float = 1.0) -> Ints:
        """Returns the weights of edges (m,) without the profiler's start and `scale` times the cost of events, ns; none becomes negative."""
        left = weight - np.minimum(np.rint(self.edges * scale).astype(np.int64), np.maximum(weight, 0))
        left[self.start_edges] = 0
        return left


def recording_costs(
    con: duckdb.DuckDBPyConnection, windows: dict[int, tuple[HostEdges, Events]], names: Names
) -> dict[int, RecordingCost]:
    """Returns the costs of windows, by their number; none for windows of traces of other writers or without host events. Reads `_event_costs`, `events`, `threads`, `critical_path_windows`, `_window_steps` and
    `profiler_requests`.
    """
    known: dict[str, list[_Window]] = {}
    if not windows:
        return {}
    asked = con.execute(_WINDOWS.format(first=min(windows), last=max(windows))).fetchall()
    for number, trace_id, begin, end, n_steps, first_step, delay, *request in asked:
        if number in windows and delay is not None:
            edges, events = windows[number]
            window = _Window(number, begin, end, edges, events)
            window.speed = host_speed(edges, events, names, delay)
            window.n_steps, window.first_step, window.request = n_steps, first_step, Request(*request)
            known.setdefault(trace_id, []).append(window)
    for trace_id, of_trace in known.items():
        begins, ends = (np.array([getattr(window, side) for window in of_trace]) for side in ("begin", "end"))
        query = _EVENTS.format(trace_id=quoted(trace_id), since=begins.min(), until=ends.max())
        for batch in _batches(con, query):
            marks = _Marks(*batch)
            # A trace may have thousands of windows: only those that the batch reaches into.
            for place in np.flatnonzero((begins <= marks.last) & (ends >= marks.first)).tolist():
                of_trace[place].add(marks)
    return {window.number: window.cost() for of_trace in known.values() for window in of_trace}


def _batches(con: duckdb.DuckDBPyConnection, query: str) -> Iterator[list[np.ndarray]]:
    """Yields the columns of a query, some rows at a time: all events of a long trace are too many."""
    reader = database.arrow_result(con, query).to_arrow_reader(_BATCH)
    for batch in reader:
        if batch.num_rows:
            yield column_arrays(batch)


class _Marks:
    """When recording host events takes time, in order of thread and time: before each start, after each end and, for some, inside.

    What is before a start at t is the number 2t, what is after a start or an end 2t + 1: an edge from t0 to t1 has the starts in
    (t0, t1], and what follows a start or an end in [t0, t1), which are the numbers in (2 t0, 2 t1].
    """

    def __init__(self, thread: Ints, start: Ints, end: Ints, kind: Ints, cost: np.ndarray, inside: np.ndarray) -> None:
        self.first, self.last = int(start.min()), int(end.max())
        self._count_starts(start, kind, cost)
        has, half = np.flatnonzero(inside), (cost - inside) / 2
        time = np.concatenate((2 * start, 2 * end + 1, 2 * start[has] + 1))
        both = np.concatenate((thread, thread, thread[has]))
        spent = np.concatenate((half, half, inside[has]))
        order = np.lexsort((time, both))
        self.time = time[order]
        self.before = np.append(0.0, np.cumsum(spent[order]))
        threads, first = np.unique(both[order], return_index=True)
        bounds = np.append(first, len(order)).tolist()
        self.of_thread = dict(zip(threads.tolist(), pairwise(bounds), strict=True))

    def _count_starts(self, start: Ints, kind: Ints, cost: np.ndarray) -> None:
        order = np.argsort(start, kind="stable")
        is_kind = kind[order, None] == np.arange(len(RECORDED))
        none = np.zeros((1, len(RECORDED)))
        self.start = start[order]
        self.n_before = np.concatenate((none, np.cumsum(is_kind, axis=0)))
        self.cost_before = np.concatenate((none, np.cumsum(is_kind * cost[order, None], axis=0)))

    def starting(self, since: int, until: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns how many events of each kind start in a time, both ends included, and what these cost, ns."""
        first, past = self.start.searchsorted(since), self.start.searchsorted(until, side="right")
        return self.n_before[past] - self.n_before[first], self.cost_before[past] - self.cost_before[first]

    def between(self, thread: int, since: Ints, until: Ints) -> np.ndarray:
        """Returns the cost of the marks on a thread whose numbers are in (since, until], ns."""
        first, past = self.of_thread[thread]
        low, high = (first + np.searchsorted(self.time[first:past], at, side="right") for at in (since, until))
        return self.before[high] - self.before[low]


class _Window:
    """A window whose costs are summed up from batches of events."""

    speed: float
    n_steps: int
    first_step: int | None
    request: Request

    def __init__(self, number: int, begin: int, end: int, edges: HostEdges, events: Events) -> None:
        self.number, self.begin, self.end, self.edges = number, begin, end, edges
        thread = events.thread[edges.src_event]
        same = thread == events.thread[edges.dst_event]
        # The time from a launch to its work has in it what is inside of the call.
        own = np.flatnonzero((thread >= 0) & (same | (edges.code == _DELAY) & ~edges.at_src_end) & (edges.weight > 0))
        self.own = own[np.argsort(thread[own], kind="stable")]
        src, dst = edges.src_event[self.own], edges.dst_event[self.own]
        until = begin + events.at[dst] + events.duration[dst] * edges.at_dst_end[self.own]
        self.since = 2 * (begin + events.at[src] + events.duration[src] * edges.at_src_end[self.own])
        self.until = np.where(same[self.own], 2 * until, self.since + 1)
        threads, first = np.unique(thread[self.own], return_index=True)
        bounds = np.append(first, len(self.own)).tolist()
        self.slices = [
            (thread, slice(*bound)) for thread, bound in zip(threads.tolist(), pairwise(bounds), strict=True)
        ]
        self.sums = np.zeros(len(self.own))
        self.counts, self.nominal = np.zeros(len(RECORDED), dtype=np.int64), np.zeros(len(RECORDED))

    def add(self, marks: _Marks) -> None:
        for thread, part in self.slices:
            if thread in marks.of_thread:
                self.sums[part] += marks.between(thread, self.since[part], self.until[part])
        n, cost = marks.starting(self.begin, self.end)
        self.counts += n.astype(np.int64)
        self.nominal += cost

    def cost(self) -> RecordingCost:
        edges = np.zeros(len(self.edges.weight), dtype=np.int64)
        edges[self.own] = np.rint(self.sums * self.speed)
        start_edges = self.own[:0]
        if self.first_step is not None and 0 < self.first_step <= _START_NS:
            before = (self.edges.code[self.own] == _GAP) & (self.until <= 2 * (self.begin + self.first_step))
            start_edges = self.own[before]
        nominal = np.rint(self.nominal * self.speed).astype(np.int64)
        start_ns = int(self.edges.weight[start_edges].sum())
        return RecordingCost(edges, start_edges, start_ns, self.counts, nominal, self.speed, self.n_steps, self.request)


def host_speed(edges: HostEdges, events: Events, names: Names, delay: float) -> float:
    """Returns how many times longer than `delay` ns the cheapest operators of a window take from their start to that of an operator in
    them: the least median of a pair of names. 1 where the window has no such pair often enough, or none that is cheap.
    """
    kind = np.append(names.kind, -1)
    nested = np.flatnonzero((edges.code == _OWN) & ~edges.at_src_end & ~edges.at_dst_end)
    around, inside = events.name[edges.src_event[nested]], events.name[edges.dst_event[nested]]
    both = (kind[around] == _OPERATOR) & (kind[inside] == _OPERATOR)
    pair = around[both].astype(np.int64) * (len(names.kind) + 1) + inside[both]
    passed = edges.weight[nested][both]
    order = np.lexsort((passed, pair))
    _, first, count = np.unique(pair[order], return_index=True, return_counts=True)
    often = count >= _PAIRS
    if not often.any():
        return 1.0
    # The middle one, the lower of two.
    shortest = float(passed[order][(first + (count - 1) // 2)[often]].min())
    return shortest / delay if 0 < shortest <= _TIMES * delay else 1.0
