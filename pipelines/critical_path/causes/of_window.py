"""The causes of a window for scenarios: of one that `what-if` loaded, and of one that is there in numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

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
    Edges,
    Events,
    Names,
    edge_causes,
)
from pipelines.critical_path.causes.recording_cost import HostEdges, RecordingCost, recording_costs
from pipelines.critical_path.causes.window_rows import events_of, names_of, rows_by_window
from pipelines.critical_path.causes.without_profiler import without_profiler
from pipelines.critical_path.graph.bounds import CPU, HOST
from pipelines.critical_path.graph.dependency_graph import ArrayGraph
from pipelines.critical_path.graph.edge_types import EDGE_TYPES
from pipelines.critical_path.graph.stack_order import Ints
from pipelines.critical_path.whatif import window as whatif
from pipelines.models.catalog import Catalog
from pipelines.models.run import run_models

_CAUSE_MODELS = ("_cause_events", "_event_names", "_cause_names")
_KINDS = [*EDGE_TYPES]
_TYPE_OF_CODE = np.zeros(max(kind.edge_code for kind in EDGE_TYPES.values()) + 1, dtype=np.int64)
for _place, _name in enumerate(_KINDS):
    _TYPE_OF_CODE[EDGE_TYPES[_name].edge_code] = _place


def causes_of(con: duckdb.DuckDBPyConnection, catalog: Catalog, window: whatif.Window) -> CauseEdges | None:
    """Returns the causes of a window that was loaded from `con`; None if its path does not cover it."""
    run_models(con, catalog, [*_CAUSE_MODELS, "threads"])
    rows = rows_by_window(con, "_cause_events", "event_id")
    if not rows:
        return None
    (columns,) = rows.values()
    names, graph = names_of(con), window.graph
    edges = Edges(
        graph.node_ids[graph.src],
        graph.node_ids[graph.dst],
        graph.weight,
        _codes(window),
        window.attributed,
        window.earlier,
    )
    found = edge_causes(edges, events_of(columns), names, cause_rules(con))
    return CauseEdges(found, naming(names, thread_names(con), "trace" if window.window_id == "full" else "window"))


def without_profiler_of(con: duckdb.DuckDBPyConnection, catalog: Catalog, window: whatif.Window) -> whatif.Window:
    """Returns a window that was loaded from `con` without what recording its events cost, as `why` retimes it.

    Raises WrongValue where that is not known.
    """
    run_models(con, catalog, [*_CAUSE_MODELS, "_event_costs", "_window_steps", "critical_path_windows", "threads"])
    rows = rows_by_window(con, "_cause_events", "event_id")
    costs: dict[int, RecordingCost] = {}
    for number, columns in rows.items():
        events, line, graph = events_of(columns), window.timeline, window.graph
        place = _places(events)
        src, dst = (graph.node_ids[side] for side in (graph.src, graph.dst))
        ends = (place[src >> 1].astype(np.int64), place[dst >> 1].astype(np.int64))
        edges = HostEdges(graph.weight, _codes(window), *ends, src & 1 == 1, ~line.to_start)
        costs = recording_costs(con, {number: (edges, events)}, names_of(con))
    if not costs:
        raise WrongValue(
            "what the profiler cost is not known: PyTorch's did not write the trace, or it has no operators"
        )
    (cost,) = costs.values()
    weight = without_profiler(window.graph, cost).weight
    return replace(window, graph=replace(window.graph, weight=weight), duration=weight)


def _codes(window: whatif.Window) -> npt.NDArray[np.int64]:
    codes = np.array([EDGE_TYPES[kind].edge_code if kind in EDGE_TYPES else 0 for kind in window.kinds])
    return codes[window.edge_type].astype(np.int64)


def thread_names(con: duckdb.DuckDBPyConnection) -> dict[int, str]:
    """Returns the threads' names in the trace by their number."""
    return dict(con.execute("SELECT thread_id, tid FROM threads").fetchall())


def naming(names: Names, threads: dict[int, str], of: str = "trace") -> Callable[[int, int], str]:
    """Returns a function from what a cause is named after and a number to its name, as in table `causes`; `of`: what earlier work
    is not in, the trace or the window.
    """

    def name(kind: int, number: int) -> str:
        if kind == THREAD:
            return f"outside operators, thread {threads.get(number, number)}"
        if kind == STREAM:
            return f"stream {number}"
        return f"earlier work, not in the {of}" if kind == BEFORE else names.text[number]

    return name


def numbered_window(edges: Edges, events: Events, names: Names, graph: ArrayGraph, causes: CauseEdges) -> whatif.Window:
    """Returns a window as scenarios see it; what bounds its edges, and what owns them in a table, is not known."""
    code = _TYPE_OF_CODE[edges.code]
    m = len(edges.src)
    place = _places(events)
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
        owner=place[edges.attributed],
        attributed=edges.attributed,
        src_event=place[edges.src >> 1],
        dst_event=place[edges.dst >> 1],
        kinds=_KINDS,
        bounds=[""],
        events=_events(events, names),
        states_waits=True,
        causes=causes,
    )


def _places(events: Events) -> Ints:
    place = np.full(int(events.event_id.max(initial=0)) + 2, -1, dtype=np.int32)
    place[events.event_id] = np.arange(len(events.event_id))
    return place


def _events(events: Events, names: Names) -> whatif.Events:
    kinds = [KINDS[kind] if kind >= 0 else "" for kind in names.kind.tolist()]
    classes = [
        work_class or {"operator": CPU, "call": CPU}.get(kind, HOST)
        for kind, work_class in zip(kinds, names.work_class, strict=True)
    ]
    none = np.full(len(events.event_id), -1)
    keys = events.device.astype(np.int64) << 40 | events.stream & ((1 << 40) - 1)
    known, stream = np.unique(keys[events.is_work], return_inverse=True)
    of_event = none.copy()
    of_event[events.is_work] = stream
    streams: Sequence[tuple[int, int]] = [(key >> 40, key & ((1 << 40) - 1)) for key in known.tolist()]
    return whatif.Events(
        events.event_id,
        events.at,
        events.duration,
        events.name,
        of_event,
        events.thread,
        np.array([kind == "call" for kind in kinds], dtype=bool)[events.name],
        list(zip(classes, names.text, strict=True)),
        list(streams),
        none,
        none,
        np.zeros(len(events.event_id), dtype=np.int64),
        [""],
    )
