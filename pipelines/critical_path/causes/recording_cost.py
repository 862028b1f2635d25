"""The cost of recording a window's host events: how much of each edge of its graph is PyTorch's profiler.

The profiler records an operator before its start and after its end (Kineto's callbacks in torch/csrc/profiler take the
start last and the end first). So half of the cost falls before the operator and half after it, in the time of the event
around it. Part of a call's cost is inside the call. So an edge between two nodes of a thread has a share of the cost of
each event of the thread that starts or ends in between, whether or not the event is in the graph. If that share exceeds
the edge, the thread's next edges have the rest, because the thread did spend that time. Costs are per kind of event
(`sql/rules/profiler/profiler_costs.csv`). They scale with how slow the host is, as its cheapest operators show.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import duckdb
import numpy as np

from pipelines.base import database
from pipelines.base.datafiles import threshold
from pipelines.critical_path.causes.edge_causes import KINDS, Events, Flags, Names
from pipelines.critical_path.graph.chains import Ints
from pipelines.critical_path.graph.edge_types import edge_codes
from pipelines.critical_path.graph.stack_order import Ints as Numbers
from pipelines.models.python_tables import column_arrays
from pipelines.models.sqltext import quoted

RECORDED = ("operator", "call", "frame", "annotation")
"""Kinds of host events whose recording costs time, by their number in `_event_costs`."""
_BATCH = 1 << 17  # events
MOST_EDGES = threshold("retimed_edges")
"""Maximum number of edges of a window whose cost is computed and whose fixes are judged."""
_REMOVED = threshold("profiler_removed")
_WHOLE_STEPS = threshold("whole_steps")
_TIMES, _PAIRS = threshold("cheap_operator_times"), threshold("cheap_operator_pairs")
_OWN, _DELAY = edge_codes(("OPERATOR_KERNEL", "KERNEL_LAUNCH_DELAY"))
_OPERATOR = KINDS.index("operator")
_WINDOWS = """
    SELECT w.window_no, w.trace_id, w.path_start_ns, w.path_end_ns, coalesce(s.n_steps, 0),
        (SELECT max(delay_ns) FROM _event_costs AS c WHERE c.trace_id = w.trace_id), r.trace_id IS NOT NULL,
        r.without_profiler, r.untraced_ns, coalesce(w.path_end_ns - w.path_start_ns - s.steps_ns, 0)
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
    """The edges (m,) of a window, with the columns that the computation of costs needs.

    `weight` is the weight on the path, ns, and `code` the type. `src_event`, `dst_event` are the indices of the events
    at their ends. `at_src_end`, `at_dst_end` are whether these ends are the end of the event.
    """

    weight: Ints
    code: Ints
    src_event: Ints
    dst_event: Ints
    at_src_end: Flags
    at_dst_end: Flags

    @classmethod
    def of(cls, src: Numbers, dst: Numbers, weight: Numbers, code: Numbers, events: Events) -> HostEdges:
        """Build from the nodes at the edges' ends (m,): twice the event id, plus 1 for the event's end."""
        src_event, dst_event = (np.searchsorted(events.event_id, node >> 1) for node in (src, dst))
        in_ns, codes = weight.astype(np.int64), code.astype(np.int64)
        return cls(in_ns, codes, src_event, dst_event, src & 1 == 1, dst & 1 == 1)


@dataclass(frozen=True)
class Request:
    """A row of `profiler_requests`. `is_requested` is False if the table has no row for the window."""

    is_requested: bool = False
    without_profiler: bool | None = None
    untraced: int | None = None

    def shows(self, spent: int, length: int) -> bool:
        """Return whether the causes without the profiler are displayed.

        `spent` is the time that the profiler takes of a window with length `length`, both in ns.
        """
        return spent > _REMOVED * length if self.without_profiler is None else self.without_profiler

    def retimes(self, *, without: bool, spent: int, length: int) -> bool:
        """Return whether the causes with the profiler (or `without` it) are retimed.

        In a requested window, only the displayed causes are retimed. In other windows, both are.
        """
        return not self.is_requested or self.shows(spent, length) == without


@dataclass(frozen=True)
class RecordingCost:
    """The cost of recording a window.

    `edges` is the cost of the events on each edge (m,), ns, which may exceed the edge's weight. `chains` are the indices
    of each thread's edges, in order of time. `events` is how many host events of each kind of RECORDED start in the
    window, `nominal` their total cost, ns. `speed` is how many times slower the host is than the host that the costs
    were measured on. `n_steps` is the number of profiler steps in the window, and `outside_ns` the time outside them if
    it is much.
    """

    edges: Ints
    chains: Sequence[Numbers]
    events: Ints
    nominal: Ints
    speed: float
    n_steps: int
    request: Request
    outside_ns: int = 0

    def weights_without(self, weight: Ints, scale: float = 1.0) -> Ints:
        """Return the weights of edges (m,) without `scale` times the cost of events, ns. No weight becomes negative.

        If the cost on an edge of a chain exceeds the edge's weight, the excess is subtracted from the chain's next
        edges.
        """
        cost, weight_left = np.rint(self.edges * scale).astype(np.int64), np.maximum(weight, 0)
        removed = np.minimum(cost, weight_left)
        for chain in self.chains:
            total = np.cumsum(cost[chain] - weight_left[chain])
            # What remains after each edge, as in a queue (Lindley's recursion). It is never negative.
            remaining = total - np.minimum(np.minimum.accumulate(total), 0)
            removed[chain] = cost[chain] + np.append(0, remaining[:-1]) - remaining
        return weight - removed


def recording_costs(
    con: duckdb.DuckDBPyConnection, windows: dict[int, tuple[HostEdges, Events]], names: Names
) -> dict[int, RecordingCost]:
    """Return the costs of windows by their number.

    A window has no entry if its trace is from another profiler or without host events. Reads `_event_costs`, `events`,
    `threads`, `critical_path_windows`, `_window_steps` and `profiler_requests`.
    """
    windows_by_trace: dict[str, list[_Window]] = {}
    if not windows:
        return {}
    rows = con.execute(_WINDOWS.format(first=min(windows), last=max(windows))).fetchall()
    for number, trace_id, begin, end, n_steps, delay, *request, outside_ns in rows:
        if number in windows and delay is not None:
            edges, events = windows[number]
            window = _Window(number, begin, end, edges, events)
            window.speed = host_speed(edges, events, names, delay)
            window.n_steps, window.request = n_steps, Request(*request)
            window.outside_ns = 0 if end - begin - outside_ns >= _WHOLE_STEPS * (end - begin) else outside_ns
            windows_by_trace.setdefault(trace_id, []).append(window)
    for trace_id, of_trace in windows_by_trace.items():
        begins, ends = (np.array([getattr(window, side) for window in of_trace]) for side in ("begin", "end"))
        query = _EVENTS.format(trace_id=quoted(trace_id), since=begins.min(), until=ends.max())
        for batch in _batches(con, query):
            marks = _Marks(*batch)
            # A trace may have thousands of windows, so only windows that overlap the batch are updated.
            for index in np.flatnonzero((begins <= marks.last) & (ends >= marks.first)).tolist():
                of_trace[index].add(marks)
    return {window.number: window.cost() for of_trace in windows_by_trace.values() for window in of_trace}


def _batches(con: duckdb.DuckDBPyConnection, query: str) -> Iterator[list[np.ndarray]]:
    """Yield the columns of a query in batches of rows, because all events of a long trace do not fit in memory."""
    reader = database.arrow_result(con, query).to_arrow_reader(_BATCH)
    for batch in reader:
        if batch.num_rows:
            yield column_arrays(batch)


class _Marks:
    """The times at which recording host events takes time, in order of thread and time.

    Recording takes time before each start, after each end and, for some events, inside. The time before a start at t
    has the number 2t, the time after a start or an end at t has 2t + 1. An edge from t0 to t1 contains the time before
    starts in (t0, t1], and the time after starts and ends in [t0, t1). These are the numbers in (2 t0, 2 t1].
    """

    def __init__(self, thread: Ints, start: Ints, end: Ints, kind: Ints, cost: np.ndarray, inside: np.ndarray) -> None:
        self.first, self.last = int(start.min()), int(end.max())
        self._count_starts(start, kind, cost)
        with_inside, half = np.flatnonzero(inside), (cost - inside) / 2
        time = np.concatenate((2 * start, 2 * end + 1, 2 * start[with_inside] + 1))
        both = np.concatenate((thread, thread, thread[with_inside]))
        spent = np.concatenate((half, half, inside[with_inside]))
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
        """Return how many events of each kind start within a time, both ends included, and their cost, ns."""
        first, past = self.start.searchsorted(since), self.start.searchsorted(until, side="right")
        return self.n_before[past] - self.n_before[first], self.cost_before[past] - self.cost_before[first]

    def between(self, thread: int, since: Ints, until: Ints) -> np.ndarray:
        """Return the cost of the marks on a thread whose numbers are in (since, until], ns."""
        first, past = self.of_thread[thread]
        low, high = (first + np.searchsorted(self.time[first:past], times, side="right") for times in (since, until))
        return self.before[high] - self.before[low]


class _Window:
    """A window whose costs are summed up from batches of events."""

    speed: float
    n_steps: int
    request: Request
    outside_ns: int

    def __init__(self, number: int, begin: int, end: int, edges: HostEdges, events: Events) -> None:
        self.number, self.begin, self.end, self.edges = number, begin, end, edges
        thread = events.thread[edges.src_event]
        same = thread == events.thread[edges.dst_event]
        # The time from a launch to its work includes the cost inside the call.
        on_host = np.flatnonzero(
            (thread >= 0) & (same | (edges.code == _DELAY) & ~edges.at_src_end) & (edges.weight > 0)
        )
        src, dst = edges.src_event[on_host], edges.dst_event[on_host]
        since = begin + events.at[src] + events.duration[src] * edges.at_src_end[on_host]
        until = begin + events.at[dst] + events.duration[dst] * edges.at_dst_end[on_host]
        order = np.lexsort((until, since, thread[on_host]))
        self.own, self.since = on_host[order], 2 * since[order]
        self.until = np.where(same[self.own], 2 * until[order], self.since + 1)
        threads, first = np.unique(thread[self.own], return_index=True)
        bounds = np.append(first, len(self.own)).tolist()
        self.slices = [
            (thread, slice(*bound)) for thread, bound in zip(threads.tolist(), pairwise(bounds), strict=True)
        ]
        self.chains = [
            edges_of_thread[same[edges_of_thread]] for edges_of_thread in (self.own[part] for _, part in self.slices)
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
        nominal = np.rint(self.nominal * self.speed).astype(np.int64)
        return RecordingCost(
            edges, self.chains, self.counts, nominal, self.speed, self.n_steps, self.request, self.outside_ns
        )


def host_speed(edges: HostEdges, events: Events, names: Names, delay: float) -> float:
    """Return how many times slower the host is than the host that the costs were measured on.

    The measure is the time from the start of an operator to the start of an operator in it, relative to `delay` ns. The
    result is the smallest median over pairs of names. It is 1 if no pair occurs often enough in the window, or if the
    smallest median is 0 or more than `_TIMES` times `delay`.
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
    # The median, or the lower of two middle values.
    shortest = float(passed[order][(first + (count - 1) // 2)[often]].min())
    return shortest / delay if 0 < shortest <= _TIMES * delay else 1.0
