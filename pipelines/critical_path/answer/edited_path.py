"""The longest path of the graph of a `SavedPath`: the rows of the path with their bounds, and the answer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np

from pipelines.base import database
from pipelines.critical_path.answer.path_as_tables import show_path
from pipelines.critical_path.answer.saved_path import SavedPath
from pipelines.critical_path.graph.bounds import int_column
from pipelines.critical_path.graph.stack_order import Ints
from pipelines.critical_path.whatif.window import Window, of_saved
from pipelines.models.sqltext import quoted

if TYPE_CHECKING:
    import pyarrow as pa

OF_PATHS = ("no_critical_path", "inferred_waits", "coverage", "earlier_work", "only_communication", "idle_gaps")
"""The caveats of table `critical_path_caveats` that depend on the path."""


def with_longest_path(saved: SavedPath) -> SavedPath:
    """Return `saved` with the longest path of its edges: `seq` of the edges, table `path`, summary and answer.

    The path is empty if the graph has no edges or has a cycle. `cycle` in the metadata describes the cycle.
    """
    on, cycle = np.arange(0), None
    window = of_saved(saved) if saved.edges.num_rows else None
    if window is not None:
        try:
            on = window.graph.path()
        except nx.NetworkXUnfeasible as error:
            cycle = str(error)
    path, summary = _shown(saved, window, on)
    answer = {
        **saved.meta["answer"],
        "success": len(on) > 0,
        "nodes": saved.nodes.num_rows,
        "edges": saved.edges.num_rows,
        "edges_by_type": _by_type(saved),
        "length_us": int(int_column(path, "path_weight_ns", 0).sum()) / 1000,
        "summary": {row["bound_by"]: row["percent"] for row in summary},
        "caveats": _caveats(saved, path),
        "reason": _reason(saved, cycle) if not len(on) else None,
    }
    meta = {**saved.meta, "answer": answer, "summary": summary, "cycle": cycle}
    return replace(saved, meta=meta, edges=_with_seq(saved.edges, on), path=path)


def _with_seq(edges: pa.Table, on: Ints) -> pa.Table:
    import pyarrow as pa

    seq = np.zeros(edges.num_rows, dtype=np.int64)
    seq[on] = np.arange(1, len(on) + 1)
    column_index = edges.schema.get_field_index("seq")
    return edges.set_column(column_index, edges.schema.field("seq"), pa.array(seq, pa.int64(), mask=seq == 0))


def _shown(saved: SavedPath, window: Window | None, on: Ints) -> tuple[pa.Table, list[dict[str, Any]]]:
    """Return the rows of `critical_path` for the edges `on`, in order, and the rows of `critical_path_summary`.

    The rows of the summary are ordered by time, longest first.
    """
    import pyarrow as pa

    if window is None or not len(on):
        return saved.path.slice(0, 0), []
    edges, span_ns = saved.edges.take(pa.array(on)), _span_ns(saved.meta["window"])
    weights = (int_column(edges, "weight_ns"), int_column(edges, "path_weight_ns"), window.duration[on])
    with database.connect() as con:
        con.register("of_graph", _events_of(saved, edges))
        con.execute(f"CREATE TABLE events AS SELECT {quoted(window.trace_id)} AS trace_id, * FROM of_graph")
        con.register("labels", _labels_of(window))
        con.execute(
            "CREATE TABLE threads AS SELECT DISTINCT trace_id, pid, tid, label FROM events JOIN labels USING (event_id)"
        )
        tables = ("critical_path", "critical_path_summary")
        labels = {"profile": saved.meta["profile"], "annotation": saved.meta["window"]["annotation"]}
        show_path(con, window, on, weights, tables, **labels, span_ns=span_ns)
        rows = f"SELECT {', '.join(saved.path.schema.names)} FROM critical_path ORDER BY seq"
        path = database.arrow_result(con, rows).to_arrow_table()
        summary = "SELECT * EXCLUDE (trace_id, window_id, profile) FROM critical_path_summary"
        return path.cast(saved.path.schema), database.rows_of(con, f"{summary} ORDER BY duration_ns DESC, bound_by")


def _span_ns(window: dict[str, Any]) -> tuple[int, int]:
    """Return the start and the end of the path of a window, ns."""
    return window["path_start_ns"], window["path_end_ns"]


def _events_of(saved: SavedPath, edges: pa.Table) -> pa.Table:
    """Return the events that model `critical_path` shows for these edges, with the columns that the model reads."""
    import pyarrow as pa

    ids = [*edges["attributed_event_id"].to_pylist(), *edges["dst_event_id"].to_pylist()]
    is_shown = np.isin(int_column(saved.events, "event_id"), [event for event in ids if event is not None])
    is_shown |= np.isin(int_column(saved.events, "event_id"), int_column(saved.events, "owner_event_id"))
    return saved.events.select(["event_id", "name", "cat", "pid", "tid", "device", "stream"]).filter(pa.array(is_shown))


def _labels_of(window: Window) -> pa.Table:
    """Return the label of each event's thread.

    A saved path needs the labels, because the model of `threads` computes them from all events of a trace.
    """
    import pyarrow as pa

    events = window.events
    labels = pa.array(events.thread_labels, pa.string()).take(pa.array(events.thread_label))
    return pa.table({"event_id": events.event_id, "label": labels})


def _caveats(saved: SavedPath, path: pa.Table) -> list[dict[str, Any]]:
    """Return the caveats that still apply.

    If the path changed, only the caveats about the trace and its window still apply.
    """
    caveats = saved.meta["answer"].get("caveats", [])
    return caveats if path.equals(saved.path) else [row for row in caveats if row["caveat"] not in OF_PATHS]


def _reason(saved: SavedPath, cycle: str | None) -> str:
    if cycle:
        return f"the edited graph has a cycle: {cycle}"
    return saved.meta["answer"].get("reason") or "the edited graph has no edge"


def _by_type(saved: SavedPath) -> dict[str, dict[str, float]]:
    totals: dict[str, list[int]] = {}
    for kind, ns in zip(saved.edges["edge_type"].to_pylist(), saved.edges["weight_ns"].to_pylist(), strict=True):
        of_kind = totals.setdefault(kind, [0, 0])
        of_kind[0] += 1
        of_kind[1] += ns
    return {kind: {"count": n, "weight_us": ns / 1000} for kind, (n, ns) in sorted(totals.items())}
