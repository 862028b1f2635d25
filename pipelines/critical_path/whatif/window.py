"""A window's graph as arrays, with every property of an edge that scenarios use.

A window is read once, and scenarios are arithmetic on its arrays. It is built from two tables, the edges and the events
of the graph. The tables come from the models (`load`) or from a saved path (`of_saved`, which recomputes nothing).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import numpy.typing as npt

from pipelines.base import database
from pipelines.base.errors import TracelakeError
from pipelines.base.kernel_names import glob_pattern
from pipelines.critical_path.answer.saved_path import SavedPath
from pipelines.critical_path.graph.bounds import CPU, EVENTS, HOST, flags, int_column, text_codes
from pipelines.critical_path.graph.dependency_graph import ArrayGraph
from pipelines.critical_path.graph.edge_types import EDGE_TYPES
from pipelines.critical_path.graph.stack_order import Ints
from pipelines.critical_path.graph.stored_window import use_stored
from pipelines.critical_path.graph.windows import USUAL_PROFILE, WindowRequest, explain_missing, request_windows
from pipelines.critical_path.whatif.owners import Owners
from pipelines.critical_path.whatif.timeline import Stretches, Timeline
from pipelines.models.catalog import Catalog
from pipelines.models.run import run_models
from pipelines.models.sqltext import quoted

if TYPE_CHECKING:
    import pyarrow as pa

    from pipelines.critical_path.causes.cause_edges import CauseEdges

EARLIER_WORK = "EARLIER_WORK"
"""The kind, in addition to the graph's edge types, of edges that wait for GPU work from outside the window. Scenarios
that change gaps or operators do not change such a wait.
"""

_CALLS = ("_runtime", "_driver", "xpu_sync")
"""Suffixes of the categories of calls, as in _event_names."""
_UNSTATED = {"no_sync_events", "unstated_waits"}
"""Caveats of table `critical_path_caveats` about waits of streams that the trace does not state."""
_GRAPH = ("critical_path_windows", "critical_path_edges", "critical_path_events")
WINDOW_TABLES = (*_GRAPH, "critical_path_caveats")
"""The stored tables that `load` reads instead of running models."""
_EDGES = """
    SELECT edge_id, src_node_id, dst_node_id, edge_type, weight_ns, path_weight_ns, attributed_event_id, waits_for_earlier_work,
        is_inferred, bound_by
    FROM critical_path_edges AS t WHERE {of} ORDER BY edge_id
"""


class NoGraph(TracelakeError, ValueError):
    """A window has no path to change, because its graph is empty or the profile refuses it."""


class NoTrace(TracelakeError, LookupError):
    """The trace of a loaded window can no longer be queried."""


@dataclass(frozen=True)
class Events:
    """The events of the graph in order of event_id (k,). Times are in ns.

    `family` is an index into `families`. `is_call` marks runtime and driver calls. `stream` is an index into `streams`,
    -1 on the CPU. `thread` is -1 on the GPU. `around`, `shown` and `launch` are indices of events, -1 if there is none.
    Annotations and Python functions that own host time have `around`, the enclosing annotation or function, and
    `shown`, the displayed owner. `launch` is the call that launched GPU work. `thread_label` is an index into
    `thread_labels`, the threads' names as in `threads`.
    """

    event_id: Ints
    ts: Ints
    dur: Ints
    family: Ints
    stream: Ints
    thread: Ints
    is_call: npt.NDArray[np.bool_]
    families: list[tuple[str, str]]  # (class, name)
    streams: list[tuple[int, int | None]]  # (device, stream number in the trace)
    around: Ints
    shown: Ints
    launch: Ints
    thread_label: Ints
    thread_labels: list[str]

    @cached_property
    def present(self) -> list[int]:
        """Return the families of the events. A short window has far fewer families than its trace."""
        return np.unique(self.family).tolist()

    @cached_property
    def overlap_ns(self) -> int:
        """Return the time in which several streams of a device ran GPU work concurrently, ns: the maximum over devices."""
        works = (self.stream >= 0) & (self.dur > 0)
        start = self.ts[works]
        busy = Stretches.union(self.stream[works], start, start + self.dur[works])
        device = np.array([number for number, _ in self.streams], dtype=np.int64)[busy.thread]
        longest = 0
        for number in np.unique(device):
            of_device = device == number
            at = np.append(busy.start[of_device], busy.end[of_device])
            change = np.repeat([1, -1], len(at) // 2)
            order = np.argsort(at, kind="stable")
            n_streams = np.cumsum(change[order])[:-1]
            longest = max(longest, int(np.diff(at[order])[n_streams > 1].sum()))
        return longest

    def of_families(self, fits: Callable[[str, str], bool]) -> npt.NDArray[np.bool_]:
        """Return which events are of a family whose class and name fit (k,)."""
        chosen = np.zeros(len(self.families), dtype=bool)
        chosen[self.present] = [fits(*self.families[i]) for i in self.present]
        return chosen[self.family]


@dataclass(frozen=True)
class Window:
    """The graph of one window. Arrays (m,) are in the order of the graph's edges. Weights are in ns.

    - `graph.weight` is the weight on the path, `duration` the weight in the summary. They differ in profile hta.
    - `kind` is an index into `kinds` (edge types, EARLIER_WORK), `bound` an index into `bounds`. `edge_type` is an
      index into `kinds`, too, but never EARLIER_WORK.
    - `owner` is the index in `events` of the event whose time the edge is, `attributed` the id of that event. Both are
      -1 if there is none. `src_event`, `dst_event` are the indices of the events at the edge's ends.
    - `earlier` marks edges that wait for work from outside the window, `inferred` waits that no cuda_sync row states.
      `states_waits` is whether the trace states all waits of the window's streams.
    - `owners` are the operators, modules and layers of GPU work, None unless requested.
    - `named_stretches` looks up host events of the trace by name, including events that are not in the graph because
      all of their time belongs to other events.
    - `causes` are the causes of the edges, None unless requested.
    - `profile` is the profile of the graph.
    """

    trace_id: str
    window_id: str
    rank: int | None
    graph: ArrayGraph
    edge_id: Ints
    duration: npt.NDArray[np.int64]
    kind: Ints
    edge_type: Ints
    earlier: npt.NDArray[np.bool_]
    inferred: npt.NDArray[np.bool_]
    bound: Ints
    owner: Ints
    attributed: Ints
    src_event: Ints
    dst_event: Ints
    kinds: list[str]
    bounds: list[str]
    events: Events
    states_waits: bool
    owners: Owners | None = None
    named_stretches: Callable[[str], Stretches] | None = None
    causes: CauseEdges | None = None
    profile: str = USUAL_PROFILE

    @property
    def n_inferred(self) -> int:
        """Return the number of edges that are waits without a cuda_sync row."""
        return int(self.inferred.sum())

    @cached_property
    def timeline(self) -> Timeline:
        """Return the edges and events as times."""
        start_ns, end_ns = self.events.ts, self.events.ts + self.events.dur
        src, dst = (self.graph.node_ids[side] for side in (self.graph.src, self.graph.dst))
        return Timeline(
            self.src_event,
            self.dst_event,
            np.where(src % 2 == 0, start_ns[self.src_event], end_ns[self.src_event]),
            np.where(dst % 2 == 0, start_ns[self.dst_event], end_ns[self.dst_event]),
            dst % 2 == 0,
            self.owner,
            self._is_type("is_own_time") & ~self._is_gap,
            self.edge_type == self.kinds.index("KERNEL_LAUNCH_DELAY"),
            self.edge_type == self.kinds.index("SYNC_DEPENDENCY"),
            self.earlier & (self.profile == USUAL_PROFILE),  # not in profile hta, whose answers must stay the same
            start_ns,
            end_ns,
            self.events.thread,
            self.events.stream >= 0,
            self.events.is_call,
            self.events.launch,
        )

    def _is_type(self, flag: str) -> npt.NDArray[np.bool_]:
        """Return which edges are of a type with this flag in edge_types (m,)."""
        flags = [name in EDGE_TYPES and bool(getattr(EDGE_TYPES[name], flag)) for name in self.kinds]
        return np.array(flags, dtype=bool)[self.edge_type]

    @cached_property
    def kinds_present(self) -> set[int]:
        """Return the kinds of the graph's edges, as indices into `kinds`."""
        return set(np.unique(self.kind).tolist())

    @cached_property
    def own_time_of(self) -> Ints:
        """Return the index of the event whose self time each edge is (m,), -1 for delays and pure ordering."""
        own_types = [i for i, name in enumerate(self.kinds) if name in EDGE_TYPES and EDGE_TYPES[name].is_own_time]
        return np.where(np.isin(self.kind, own_types), self.owner, -1)

    @cached_property
    def family(self) -> Ints:
        """Return the family of the event whose self time each edge is (m,), `len(families)` if there is none."""
        of_event = np.append(self.events.family, len(self.events.families))
        return of_event[self.own_time_of]

    @cached_property
    def _is_gap(self) -> npt.NDArray[np.bool_]:
        return self.edge_type == self.kinds.index("HOST_GAP") if "HOST_GAP" in self.kinds else self.kind < 0

    @cached_property
    def gap_owner(self) -> Ints:
        """Return the index of the event that owns the host time outside operators of each edge (m,).

        The value is the number of events if there is none.
        """
        return np.where(self._is_gap & (self.owner >= 0), self.owner, len(self.events.event_id))

    @cached_property
    def gap_thread(self) -> Ints:
        """Return the index of the thread of each edge (m,) that is unowned host time outside operators.

        The value is `len(thread_names)` for other edges.
        """
        threads = np.unique(self.events.thread)
        unowned = self._is_gap & (self.owner < 0)
        of_edge = np.searchsorted(threads, self.events.thread[self.dst_event])
        return np.where(unowned, of_edge, len(threads))

    @cached_property
    def thread_names(self) -> list[str]:
        """Return the name of each thread's unowned host time, in order of the threads' numbers."""
        _, first = np.unique(self.events.thread, return_index=True)
        labels = self.events.thread_labels
        return [f"outside operators, thread {labels[i]}" for i in self.events.thread_label[first].tolist()]

    def inside(self, chosen: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Return which events (k,) are chosen, or inside a chosen annotation or function."""
        around = np.append(np.where(self.events.around < 0, len(chosen), self.events.around), len(chosen))
        is_inside = np.append(chosen, False)
        while True:  # at most one iteration per nesting level
            more = is_inside | is_inside[around]
            if (more == is_inside).all():
                return is_inside[:-1]
            is_inside = more

    @cached_property
    def stream(self) -> Ints:
        """Return the stream of the event whose self time each edge is (m,), `len(streams)` if there is none."""
        of_event = np.append(self.events.stream, -1)
        stream_index = of_event[self.own_time_of]
        return np.where(stream_index < 0, len(self.events.streams), stream_index)


def load(
    con: duckdb.DuckDBPyConnection,
    catalog: Catalog,
    request: WindowRequest,
    *,
    overrides: dict[tuple[str, str], str] | None = None,
    on_model: Callable[[str], None] | None = None,
) -> Window:
    """Load one window's edges from its stored tables (`show_trace`), or compute them.

    The models compute the edges from the tables `events`, `traces` and `findings` in `con`, which must be a private
    connection. Raises WindowNotFound if no event opens the window, and NoGraph if it has no edges or is refused.
    """
    request_windows(con, [request], overrides)
    stored = use_stored(con, catalog, request, overrides)
    run_models(
        con,
        catalog,
        [*_GRAPH, "_profiles", "_refused_windows", "_stated_windows"],
        stored,
        on_model,
    )
    if not con.execute("SELECT 1 FROM critical_path_windows").fetchall():
        raise explain_missing(con, request)
    refused = con.execute("SELECT reason FROM _refused_windows").fetchall()
    condition = f"t.trace_id = {quoted(request.trace_id)} AND t.window_id = {quoted(request.window_id)}"
    edges, events = (database.arrow_result(con, q.format(of=condition)).to_arrow_table() for q in (_EDGES, EVENTS))
    rank = con.execute(f"SELECT rank FROM traces WHERE trace_id = {quoted(request.trace_id)}").fetchall()
    ((measured, states_waits),) = con.execute(
        "SELECT summary_of_measured, (SELECT count(*) > 0 FROM _stated_windows) FROM _profiles"
    ).fetchall()
    return _window(
        request.trace_id,
        request.window_id,
        rank[0][0] if rank else None,
        edges,
        events,
        profile=request.profile,
        measured=measured,
        states_waits=states_waits,
        refused=f"profile {request.profile} rejects the window: {refused[0][0]}" if refused else "",
        named_stretches=partial(_named_stretches, con, catalog, request.trace_id),
    )


def _named_stretches(con: duckdb.DuckDBPyConnection, catalog: Catalog, trace_id: str, glob: str) -> Stretches:
    """Return the intervals of a trace's host events by name. Raises NoTrace once `con` is closed."""
    try:
        run_models(con, catalog, ["threads", "category_sides"])
    except duckdb.ConnectionException:
        raise NoTrace("names are looked up in the trace, and its connection is closed: ask while it is open") from None
    return host_stretches(con, trace_id, glob)


def host_stretches(con: duckdb.DuckDBPyConnection, trace_id: str, glob: str) -> Stretches:
    """Return the intervals of a trace's host events by name, from `events`, `threads` and `category_sides`."""
    rows = con.execute(
        f"SELECT t.thread_id, e.start_ns, e.start_ns + e.duration_ns FROM events AS e "
        f"JOIN threads AS t ON t.trace_id = e.trace_id AND t.pid = e.pid AND t.tid = e.tid "
        f"LEFT JOIN category_sides AS s ON s.cat = e.cat "
        f"WHERE e.trace_id = {quoted(trace_id)} AND e.duration_ns > 0 AND e.cat IS NOT NULL AND coalesce(s.side, 'cpu') = 'cpu' "
        f"AND regexp_full_match(e.name, {quoted(glob_pattern(glob).pattern)}, 's')"
    ).fetchnumpy()
    return Stretches.union(*(np.asarray(column, dtype=np.int64) for column in rows.values()))


def of_saved(saved: SavedPath) -> Window:
    """Return the window of a saved path, without its trace. Raises NoGraph as `load` does."""
    meta = saved.meta
    refused = meta.get("refused")
    return _window(
        meta["trace"]["trace_id"],
        meta["window"]["window_id"],
        meta["trace"]["rank"],
        saved.edges,
        saved.events,
        profile=meta["profile"],
        measured=meta["switches"]["summary_weight"] == "measured",
        states_waits=not _UNSTATED & {caveat["caveat"] for caveat in meta["answer"]["caveats"]},
        refused=f"profile {meta['profile']} rejects the window: {refused}" if refused else "",
    )


def _window(
    trace_id: str,
    window_id: str,
    rank: int | None,
    edges: pa.Table,
    of_graph: pa.Table,
    *,
    profile: str,
    measured: bool,
    states_waits: bool,
    refused: str,
    named_stretches: Callable[[str], Stretches] | None = None,
) -> Window:
    if refused:
        raise NoGraph(refused)
    if not edges.num_rows:
        raise NoGraph("the window has no edges, so it has no critical path")
    events = _events(of_graph.filter(of_graph["class"].is_valid()))
    src, dst = int_column(edges, "src_node_id"), int_column(edges, "dst_node_id")
    path = int_column(edges, "path_weight_ns")
    attributed = int_column(edges, "attributed_event_id")
    owner = _place(events.event_id, attributed)
    names, code = text_codes(edges, "edge_type")
    kinds = [*EDGE_TYPES, *sorted(set(names) - set(EDGE_TYPES))]
    kind = edge_type = np.array([kinds.index(name) for name in names])[code]
    earlier = flags(edges, "waits_for_earlier_work")
    bounds, bound = text_codes(edges, "bound_by")
    if earlier.any():
        kinds, kind = [*kinds, EARLIER_WORK], np.where(earlier, len(kinds), kind)
    return Window(
        trace_id,
        window_id,
        rank,
        ArrayGraph.from_edges(src, dst, path, profile),
        int_column(edges, "edge_id"),
        int_column(edges, "weight_ns") if measured else path,
        kind,
        edge_type,
        earlier,
        flags(edges, "is_inferred"),
        bound,
        owner,
        attributed,
        _place(events.event_id, src // 2),
        _place(events.event_id, dst // 2),
        kinds,
        bounds,
        events,
        states_waits,
        named_stretches=named_stretches,
        profile=profile,
    )


def _events(table: pa.Table) -> Events:
    classes, of_class = text_codes(table, "class")
    names, of_name = text_codes(table, "name")
    pairs, family = np.unique(of_class * len(names) + of_name, return_inverse=True)
    families = [(classes[pair // len(names)], names[pair % len(names)]) for pair in pairs.tolist()]
    order = sorted(range(len(families)), key=families.__getitem__)
    turn = np.empty(len(order), dtype=np.int64)
    turn[order] = np.arange(len(order))
    on_gpu = np.array([name not in (CPU, HOST) for name in classes], dtype=bool)[of_class]
    streams, stream = _streams(table, on_gpu)
    categories, of_category = text_codes(table, "cat")
    return Events(
        int_column(table, "event_id"),
        int_column(table, "start_ns"),
        int_column(table, "duration_ns"),
        turn[family],
        stream,
        np.where(on_gpu, -1, int_column(table, "thread_id")),
        np.array([name.endswith(_CALLS) for name in categories], dtype=bool)[of_category],
        [families[i] for i in order],
        streams,
        _placed(table, "around_event_id"),
        _placed(table, "owner_event_id"),
        _placed(table, "launch_event_id"),
        *_thread_labels(table, on_gpu),
    )


def _thread_labels(table: pa.Table, on_gpu: npt.NDArray[np.bool_]) -> tuple[Ints, list[str]]:
    """Return the label of each event's thread, as an index, and the labels.

    As in table `threads`, a label includes the process if threads of several processes have the same tid.
    """
    pids, pid = text_codes(table, "pid")
    tids, tid = text_codes(table, "tid")
    threads, of_event = np.unique(tid * len(pids) + pid, return_inverse=True)
    n_processes = np.bincount(threads[np.unique(of_event[~on_gpu])] // len(pids), minlength=len(tids))
    labels = [(tids[thread // len(pids)], pids[thread % len(pids)]) for thread in threads.tolist()]
    is_shared = n_processes[threads // len(pids)] > 1
    return of_event, [
        f"{name}, process {process}" if shared else name
        for (name, process), shared in zip(labels, is_shared.tolist(), strict=True)
    ]


def _placed(table: pa.Table, name: str) -> Ints:
    """Return the indices of the events that a column names, -1 if there is none."""
    return _place(int_column(table, "event_id"), int_column(table, name))


def _streams(table: pa.Table, on_gpu: npt.NDArray[np.bool_]) -> tuple[list[tuple[int, int | None]], Ints]:
    """Return the streams as (device, number), in order of their key, and for each event its stream index.

    The index is -1 on the CPU.
    """
    last = np.iinfo(np.int64).max
    keys = int_column(table, "stream_key", last)
    stream_keys, of_work = np.unique(keys[on_gpu], return_inverse=True)
    lowest = np.full((2, len(stream_keys)), last)
    for i, name in enumerate(("device", "stream")):
        np.minimum.at(lowest[i], of_work, int_column(table, name, last)[on_gpu])
    stream = np.full(len(keys), -1)
    stream[on_gpu] = of_work
    devices, numbers = lowest.tolist()
    return [(d, None if n == last else n) for d, n in zip(devices, numbers, strict=True)], stream


def _place(ids: Ints, ids_to_find: Ints) -> Ints:
    """Return the index of each of `ids_to_find` in the ascending `ids`, -1 if it is missing."""
    index = np.minimum(np.searchsorted(ids, ids_to_find), len(ids) - 1)
    return np.where(ids[index] == ids_to_find, index, -1)
