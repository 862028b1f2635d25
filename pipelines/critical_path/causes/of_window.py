"""Causes and profiler costs of windows that were loaded for scenarios, and such windows built from numbered edges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import duckdb
import numpy as np
import numpy.typing as npt

from pipelines.base.errors import WrongValue
from pipelines.critical_path.causes.cause_edges import CauseEdges
from pipelines.critical_path.causes.cause_names import cause_rules
from pipelines.critical_path.causes.edge_causes import (
    BEFORE,
    KINDS,
    STREAM,
    THREAD,
    EdgeCauses,
    Edges,
    Events,
    Flags,
    Names,
    edge_causes,
    stream_name,
)
from pipelines.critical_path.causes.recording_cost import HostEdges, recording_costs
from pipelines.critical_path.causes.window_rows import events_of, names_of, rows_by_window
from pipelines.critical_path.causes.without_profiler import without_profiler
from pipelines.critical_path.graph.bounds import CPU, HOST
from pipelines.critical_path.graph.dependency_graph import ArrayGraph
from pipelines.critical_path.graph.edge_types import EDGE_TYPES
from pipelines.critical_path.graph.stored_window import used
from pipelines.critical_path.graph.windows import WindowRequest, request_profiler_cost
from pipelines.critical_path.whatif import window as whatif
from pipelines.critical_path.whatif.timeline import Stretches
from pipelines.models.catalog import Catalog
from pipelines.models.run import run_models

_CAUSE_MODELS = ("_cause_events", "_event_names", "_cause_names")
_KINDS = [*EDGE_TYPES]
_TYPE_OF_CODE = np.zeros(max(kind.edge_code for kind in EDGE_TYPES.values()) + 1, dtype=np.int8)
_TYPE_OF_CODE[[kind.edge_code for kind in EDGE_TYPES.values()]] = np.arange(len(_KINDS))


@dataclass(frozen=True)
class Labels:
    """The labels of the ids that windows use: names, families and threads.

    All windows of one computation share them. `families` (class and name) and `is_call` use the indices of Names.
    `threads` are by thread number.
    """

    names: Names
    families: list[tuple[str, str]]
    is_call: Flags
    threads: dict[int, str]

    @classmethod
    def of(cls, con: duckdb.DuckDBPyConnection, names: Names) -> Labels:
        """Build from names and the table `threads`."""
        return cls.of_names(names, thread_names(con))

    @classmethod
    def of_names(cls, names: Names, threads: dict[int, str] | None = None) -> Labels:
        """Build from names. Without `threads`, threads are named by their numbers."""
        of_host = {"operator": CPU, "call": CPU}
        kinds = [KINDS[kind] if kind >= 0 else "" for kind in names.kind.tolist()]
        classes = [
            work_class or of_host.get(kind, HOST) for kind, work_class in zip(kinds, names.work_class, strict=True)
        ]
        families = list(zip(classes, names.text, strict=True))
        return cls(names, families, np.array([kind == "call" for kind in kinds], dtype=bool), threads or {})

    def name_of(self, window_id: str = "full") -> Callable[[int, int], str]:
        """Return a function that returns the name of a window's cause, as table `causes` spells it.

        The function's arguments are the kind of name (NAME, …) and the number.
        """

        def name(kind: int, number: int) -> str:
            if kind == THREAD:
                return f"outside operators, thread {self.threads.get(number, number)}"
            if kind == STREAM:
                return stream_name(number)
            scope = "trace" if window_id == "full" else "window"
            return f"earlier work, not in the {scope}" if kind == BEFORE else self.names.text[number]

        return name


def causes_of(con: duckdb.DuckDBPyConnection, catalog: Catalog, window: whatif.Window) -> CauseEdges | None:
    """Return the causes of `window`, which was loaded from `con`, or None if its path does not cover it."""
    run_models(con, catalog, [*_CAUSE_MODELS, "threads"], used(con))
    rows = rows_by_window(con, "_cause_events", "event_id")
    if not rows:
        return None
    (columns,) = rows.values()
    names, graph = names_of(con), window.graph
    src, dst = (graph.node_ids[side] for side in (graph.src, graph.dst))
    edges = Edges(src, dst, graph.weight, _codes(window), window.attributed, window.earlier)
    of_edges = edge_causes(edges, events_of(columns), names, cause_rules(con))
    return CauseEdges(of_edges, Labels.of(con, names).name_of(window.window_id))


def without_profiler_of(
    con: duckdb.DuckDBPyConnection, catalog: Catalog, window: whatif.Window, untraced_ns: int | None = None
) -> whatif.Window:
    """Return `window`, which was loaded from `con`, minus the cost of recording its events.

    `why` retimes it the same way. `untraced_ns` is the duration of one of its steps without the profiler, None if
    unknown. Raises WrongValue if the cost is unknown, or if no scale of the cost yields that duration.
    """
    request_profiler_cost(con, [WindowRequest(window.trace_id, window.window_id)], True, untraced_ns)
    models = [*_CAUSE_MODELS, "_event_costs", "_window_steps", "critical_path_windows", "threads"]
    run_models(con, catalog, models, used(con))
    graph = window.graph
    src, dst = (graph.node_ids[side] for side in (graph.src, graph.dst))
    windows = {}
    for number, columns in rows_by_window(
        con, "_cause_events", "event_id"
    ).items():  # at most one window, because a window without a covering path has no rows
        events = events_of(columns)
        windows[number] = HostEdges.of(src, dst, graph.weight, _codes(window), events), events
    costs = recording_costs(con, windows, names_of(con))
    if not costs:
        raise WrongValue(
            "the profiler's cost is unknown: the trace was not written by PyTorch's profiler, or it has no operators"
        )
    (cost,) = costs.values()
    weight = without_profiler(graph, cost).weight
    return replace(window, graph=replace(graph, weight=weight), duration=weight)


def _codes(window: whatif.Window) -> npt.NDArray[np.int64]:
    codes = np.array([EDGE_TYPES[kind].edge_code if kind in EDGE_TYPES else 0 for kind in window.kinds])
    return codes[window.edge_type].astype(np.int64)


def thread_names(con: duckdb.DuckDBPyConnection) -> dict[int, str]:
    """Return the threads' labels by `thread_id`."""
    return dict(con.execute("SELECT thread_id, label FROM threads").fetchall())


def numbered_window(
    edges: Edges,
    events: Events,
    graph: ArrayGraph,
    of_edges: EdgeCauses,
    labels: Labels,
    named_stretches: Callable[[str], Stretches] | None = None,
) -> whatif.Window:
    """Return a window for scenarios from numbered edges and events.

    The bounds of its edges are unknown. So are `around`, `shown` and the thread labels of its events.
    """
    code = _TYPE_OF_CODE[edges.code]
    m = len(edges.src)
    event_index = np.full(int(events.event_id.max(initial=0)) + 2, -1, dtype=np.int32)
    event_index[events.event_id] = np.arange(len(events.event_id))
    return whatif.Window(
        trace_id="",
        window_id="",
        rank=None,
        graph=graph,
        edge_id=np.arange(m),
        duration=graph.weight,
        kind=code,
        edge_type=code,
        earlier=edges.earlier,
        inferred=np.zeros(m, dtype=bool),
        bound=np.zeros(m, dtype=np.int8),
        owner=event_index[edges.attributed],
        attributed=edges.attributed,
        src_event=event_index[edges.src >> 1],
        dst_event=event_index[edges.dst >> 1],
        kinds=_KINDS,
        bounds=[""],
        events=_events(events, labels),
        states_waits=True,
        named_stretches=named_stretches,
        causes=CauseEdges(of_edges, labels.name_of()),
    )


def _events(events: Events, labels: Labels) -> whatif.Events:
    """Return the events of a window for scenarios, with their streams. Their families have the indices of Names."""
    none = np.full(len(events.event_id), -1, dtype=np.int32)
    keys = events.device.astype(np.int64) << 40 | events.stream & ((1 << 40) - 1)
    stream_keys, stream = np.unique(keys[events.is_work], return_inverse=True)
    of_event = none.copy()
    of_event[events.is_work] = stream
    return whatif.Events(
        events.event_id,
        events.at,
        events.duration,
        events.name,
        of_event,
        events.thread,
        labels.is_call[events.name],
        labels.families,
        [(key >> 40, key & ((1 << 40) - 1)) for key in stream_keys.tolist()],
        none,
        none,
        events.launch,
        none,
        [""],
    )
