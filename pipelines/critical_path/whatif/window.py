"""A window's graph with all that a scenario may ask of an edge, as arrays: read once, then every scenario is arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import duckdb
import numpy as np

from pipelines.critical_path.graph import ArrayGraph, Ints
from pipelines.critical_path.whatif.forest import Forest
from pipelines.critical_path.windows import WindowRequest, explain_missing, request_windows
from pipelines.models.catalog import Catalog
from pipelines.models.run import run_models

OWN_TIME = "OPERATOR_KERNEL"
"""Type of the edges that are an event's own time; the others are delays between events, or order only."""
CPU = "CPU"
"""The class of CPU operators and calls, beside the classes of kernels."""

# What `_path_bounds` and the queries here read; the first call makes it, the second adds the path "all edges".
_SOURCES = ("_edges", "critical_path_windows", "_profiles", "_clip", "_kernel_class", "bound_by", "kernel_classes",
            "edge_types", "_refused_windows")  # fmt: skip
_ALL_EDGES = """
    CREATE OR REPLACE TABLE longest_path AS
    SELECT w.trace_id, w.window_id, e.edge_id AS seq, e.edge_id FROM _edges AS e JOIN critical_path_windows AS w USING (window_no)
"""
_EVENTS = """
    CREATE OR REPLACE TABLE _what_if_events AS
    SELECT
        c.event_id, c.ts_ns, c.dur_ns, e.name, c.thread_id, c.device, e.stream, c.stream_key,
        CASE WHEN c.side = 'gpu' THEN coalesce(k.class, 'OTHER') ELSE 'CPU' END AS class
    FROM _clip AS c
    JOIN critical_path_windows AS w ON w.window_no = c.window_no
    JOIN events AS e ON e.trace_id = w.trace_id AND e.event_id = c.event_id
    LEFT JOIN _kernel_class AS k ON k.profile = w.profile AND k.cat = e.cat AND k.name = e.name
    WHERE c.is_operator OR c.side = 'gpu'
"""


class NoGraph(ValueError):
    """The window has no path to change: its graph is empty or the profile refuses it."""


@dataclass(frozen=True)
class Events:
    """The events of the graph in order of event_id (k,); times in ns.

    `family` counts in `families`; `stream` counts in `streams` and is -1 on the CPU; `thread` is -1 on the GPU.
    """

    event_id: Ints
    ts: Ints
    dur: Ints
    family: Ints
    stream: Ints
    thread: Ints
    families: list[tuple[str, str]]  # (class, name)
    streams: list[tuple[int, int]]  # (device, stream as the trace numbers it)

    def name(self, event: int) -> str:
        """Name of the event at that place."""
        return self.families[int(self.family[event])][1]


@dataclass(frozen=True)
class Window:
    """The graph of one window. Arrays (m,) are in the order of the graph's edges; weights in ns.

    `graph.weight` is the weight on the path, `duration` the weight in the summary (they differ in profile hta);
    `kind` counts in `kinds` (edge types), `bound` in `bounds`; `owner` is the place in `events` of the event whose time
    the edge is, or -1; `src_event`, `dst_event` are the places of the events at its ends.
    """

    trace_id: str
    window_id: str
    rank: int | None
    graph: ArrayGraph
    edge_id: Ints
    duration: Ints
    kind: Ints
    bound: Ints
    owner: Ints
    src_event: Ints
    dst_event: Ints
    kinds: list[str]
    bounds: list[str]
    events: Events

    @cached_property
    def forest(self) -> Forest:
        """The graph, sorted. Raises GraphHasCycle."""
        return Forest(self.graph)

    @cached_property
    def kinds_present(self) -> set[int]:
        """The types that the graph has edges of, as places in `kinds`."""
        return set(np.unique(self.kind).tolist())

    @cached_property
    def own_time_of(self) -> Ints:
        """For each edge the place of the event whose own time it is, -1 for delays and order (m,)."""
        return np.where(self.kind == self.kinds.index(OWN_TIME), self.owner, -1)

    @cached_property
    def family(self) -> Ints:
        """For each edge the family of the event whose own time it is; `len(families)` for none (m,)."""
        of_event = np.append(self.events.family, len(self.events.families))
        return of_event[self.own_time_of]

    @cached_property
    def stream(self) -> Ints:
        """For each edge the stream of the event whose own time it is; `len(streams)` for none (m,)."""
        of_event = np.append(self.events.stream, -1)
        found = of_event[self.own_time_of]
        return np.where(found < 0, len(self.events.streams), found)


def load(
    con: duckdb.DuckDBPyConnection,
    catalog: Catalog,
    request: WindowRequest,
    *,
    overrides: dict[tuple[str, str], str] | None = None,
    on_model: Callable[[str], None] | None = None,
) -> Window:
    """Compute one window's edges from the tables `events`, `traces` and `findings` in `con`, which must be private.

    Raises WindowNotFound where nothing opens the window and NoGraph where it has no edges or is refused.
    """
    request_windows(con, [request], overrides)
    run_models(con, catalog, _SOURCES, on_model=on_model)
    if not con.execute("SELECT 1 FROM critical_path_windows").fetchall():
        raise explain_missing(con, request)
    if refused := con.execute("SELECT reason FROM _refused_windows").fetchall():
        raise NoGraph(f"profile {request.profile} refuses the window: {refused[0][0]}")
    # The rules of what an edge is bound by are those of the path: here they are asked of every edge.
    con.execute(_ALL_EDGES)
    run_models(con, catalog, ["_path_bounds"], have=frozenset({*_SOURCES, "longest_path"}))
    con.execute("DROP TABLE longest_path")
    con.execute(_EVENTS)
    events = _events(con)
    rank = con.execute("SELECT rank FROM traces WHERE trace_id = ?", [request.trace_id]).fetchall()
    return _window(con, request, rank[0][0] if rank else None, events)


def _events(con: duckdb.DuckDBPyConnection) -> Events:
    con.execute(
        "CREATE OR REPLACE TABLE _families AS SELECT row_number() OVER (ORDER BY class, name) - 1 AS family, class, name "
        "FROM _what_if_events GROUP BY class, name"
    )
    con.execute(
        "CREATE OR REPLACE TABLE _streams AS SELECT row_number() OVER (ORDER BY stream_key) - 1 AS number, stream_key, "
        "min(device) AS device, min(stream) AS stream FROM _what_if_events WHERE class <> 'CPU' GROUP BY stream_key"
    )
    rows = con.execute(
        "SELECT e.event_id, e.ts_ns, e.dur_ns, f.family, CASE WHEN e.class = 'CPU' THEN -1 ELSE s.number END AS number, "
        "CASE WHEN e.class = 'CPU' THEN e.thread_id ELSE -1 END AS thread "
        "FROM _what_if_events AS e JOIN _families AS f USING (class, name) "
        "LEFT JOIN _streams AS s ON s.stream_key IS NOT DISTINCT FROM e.stream_key ORDER BY e.event_id"
    ).fetchnumpy()
    families = con.execute("SELECT class, name FROM _families ORDER BY family").fetchall()
    streams = con.execute("SELECT device, stream FROM _streams ORDER BY number").fetchall()
    return Events(
        _ints(rows["event_id"]),
        _ints(rows["ts_ns"]),
        _ints(rows["dur_ns"]),
        _ints(rows["family"]),
        _ints(rows["number"]),
        _ints(rows["thread"]),
        families,
        streams,
    )


def _window(con: duckdb.DuckDBPyConnection, request: WindowRequest, rank: int | None, events: Events) -> Window:
    bounds = [label for (label,) in con.execute("SELECT DISTINCT bound_by FROM _path_bounds ORDER BY 1").fetchall()]
    kinds = con.execute("SELECT edge_code, edge_type FROM edge_types ORDER BY edge_code").fetchall()
    labels = "CASE bound_by " + " ".join(f"WHEN '{label}' THEN {i}" for i, label in enumerate(bounds)) + " END"
    codes = "CASE edge_code " + " ".join(f"WHEN {code} THEN {i}" for i, (code, _) in enumerate(kinds)) + " END"
    if not bounds:
        raise NoGraph("the window has no edges: nothing of a critical path happens in it")
    rows = con.execute(
        f"SELECT edge_id, src_node_id, dst_node_id, {codes} AS kind, {labels} AS bound, path_weight_ns, duration_ns, "
        "coalesce(attributed_event_id, -1) AS owner FROM _path_bounds ORDER BY edge_id"
    ).fetchnumpy()
    edge = {name: _ints(column) for name, column in rows.items()}
    path, duration = edge["path_weight_ns"], edge["duration_ns"]
    place = np.full(int(max(events.event_id[-1], edge["owner"].max())) + 2, -1, dtype=np.int64)
    place[events.event_id] = np.arange(len(events.event_id))
    return Window(
        request.trace_id,
        request.window_id,
        rank,
        ArrayGraph.from_edges(edge["src_node_id"], edge["dst_node_id"], path),
        edge["edge_id"],
        path if np.array_equal(path, duration) else duration,
        edge["kind"],
        edge["bound"],
        place[edge["owner"]],
        place[edge["src_node_id"] // 2],
        place[edge["dst_node_id"] // 2],
        [kind for _, kind in kinds],
        bounds,
        events,
    )


def _ints(column: Any) -> Ints:
    return np.asarray(column).astype(np.int64)
