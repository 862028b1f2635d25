"""The longest path of a graph held as tables: the rows of its path, what bounds them, and the answer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np

from pipelines.critical_path.graph import Ints
from pipelines.critical_path.labels import flags, int_column
from pipelines.critical_path.path import WindowGraph, path_edges
from pipelines.critical_path.saved import SavedPath
from pipelines.critical_path.whatif.window import Window, of_saved

if TYPE_CHECKING:
    import pyarrow as pa

_DELAY = "KERNEL_LAUNCH_DELAY"
OF_PATHS = ("no_critical_path", "inferred_waits", "coverage", "earlier_work", "only_communication", "idle_gaps")
"""The caveats of table `critical_path_caveats` that count over the path."""


def with_longest_path(saved: SavedPath) -> SavedPath:
    """Returns `saved` with the path of its edges: `seq` of the edges, table `path`, summary and answer.

    Without edges, or with a cycle (`cycle` in its meta says where), there is no path.
    """
    on, cycle = np.arange(0), None
    window = of_saved(saved) if saved.edges.num_rows else None
    if window is not None:
        try:
            chosen = path_edges(WindowGraph(saved.graph(), window.edge_id))
            order = np.argsort(window.edge_id)
            on = order[np.searchsorted(window.edge_id, chosen, sorter=order)]
        except nx.NetworkXUnfeasible as error:
            cycle = str(error)
    path = _path(saved, window, on)
    summary = _summary(saved, path)
    answer = {
        **saved.meta["answer"],
        "success": len(on) > 0,
        "nodes": saved.nodes.num_rows,
        "edges": saved.edges.num_rows,
        "edges_by_type": _by_type(saved),
        "length_us": int(int_column(path, "path_weight_ns", 0).sum()) / 1000,
        "summary": {row["bound_by"]: row["percent"] for row in summary},
        "inferred": np.flatnonzero(flags(path, "is_inferred")).tolist(),
        "caveats": _caveats(saved, path),
        "reason": _reason(saved, cycle) if not len(on) else None,
    }
    meta = {**saved.meta, "answer": answer, "summary": summary, "cycle": cycle}
    return replace(saved, meta=meta, edges=_with_seq(saved.edges, on), path=path)


def _with_seq(edges: pa.Table, on: Ints) -> pa.Table:
    import pyarrow as pa

    seq = np.zeros(edges.num_rows, dtype=np.int64)
    seq[on] = np.arange(1, len(on) + 1)
    at = edges.schema.get_field_index("seq")
    return edges.set_column(at, edges.schema.field("seq"), pa.array(seq, pa.int64(), mask=seq == 0))


def _path(saved: SavedPath, window: Window | None, on: Ints) -> pa.Table:
    """Returns the rows of `critical_path` for these edges, in order."""
    import pyarrow as pa

    if window is None:
        return saved.path.slice(0, 0)
    edges = saved.edges.take(pa.array(on)).to_pylist()
    of_event = {row["event_id"]: row for row in _shown(saved, edges)}
    rows = []
    for seq, (edge, at) in enumerate(zip(edges, on.tolist(), strict=True), start=1):
        event = _event(edge)
        of = of_event.get(event, {})
        flagged = {name: bool(edge.get(name)) for name in ("waits_for_earlier_work", "is_inferred")}
        named = (
            edge["attributed_event_id"] is not None or edge["edge_type"] == _DELAY or flagged["waits_for_earlier_work"]
        )
        rows.append(
            {
                **edge,
                **flagged,
                "seq": seq,
                "duration_ns": int(window.duration[at]),
                "event_id": event,
                "name": of.get("name") if named else None,
                "cat": of.get("cat") if named else None,
                **{name: of.get(name) for name in ("pid", "tid", "stream")},
                "bound_by": window.bounds[int(window.bound[at])],
            }
        )
    return pa.Table.from_pylist(rows, schema=saved.path.schema)


def _caveats(saved: SavedPath, path: pa.Table) -> list[dict[str, Any]]:
    """Returns the caveats that still apply: for another path, only those about the trace and its window, as the rest
    count over the path.
    """
    found = saved.meta["answer"].get("caveats", [])
    return found if path.equals(saved.path) else [row for row in found if row["caveat"] not in OF_PATHS]


def _reason(saved: SavedPath, cycle: str | None) -> str:
    if cycle:
        return f"the edited graph has a cycle: {cycle}"
    return saved.meta["answer"].get("reason") or "the edited graph has no edge"


def _event(edge: dict[str, Any]) -> int:
    """Returns the event to show for an edge, as in table `critical_path`."""
    event = edge["attributed_event_id"]
    return edge["dst_event_id"] if event is None else event


def _shown(saved: SavedPath, edges: list[dict[str, Any]]) -> list[dict[str, Any]]:
    import pyarrow as pa

    wanted = pa.array(sorted({_event(edge) for edge in edges}), pa.int64())
    events = saved.graph_events
    there = np.isin(int_column(events, "event_id"), wanted.to_numpy())
    return events.select(["event_id", "name", "cat", "pid", "tid", "stream"]).filter(pa.array(there)).to_pylist()


def _summary(saved: SavedPath, path: pa.Table) -> list[dict[str, Any]]:
    """Returns the rows of `critical_path_summary`, most time first."""
    window_ns = saved.meta["window"]["end_ns"] - saved.meta["window"]["start_ns"]
    sums: dict[str, list[int]] = {}
    for label, ns in zip(path["bound_by"].to_pylist(), path["duration_ns"].to_pylist(), strict=True):
        of_label = sums.setdefault(label, [0, 0])
        of_label[0] += 1
        of_label[1] += ns
    total = sum(ns for _, ns in sums.values())
    rows = [
        {
            "bound_by": label,
            "n_edges": n,
            "duration_ns": ns,
            "percent": 100.0 * ns / total if total else None,
            "percent_of_window": 100.0 * ns / window_ns if window_ns else None,
        }
        for label, (n, ns) in sums.items()
    ]
    return sorted(rows, key=lambda row: (-row["duration_ns"], row["bound_by"]))


def _by_type(saved: SavedPath) -> dict[str, dict[str, float]]:
    found: dict[str, list[int]] = {}
    for kind, ns in zip(saved.edges["edge_type"].to_pylist(), saved.edges["weight_ns"].to_pylist(), strict=True):
        of_kind = found.setdefault(kind, [0, 0])
        of_kind[0] += 1
        of_kind[1] += ns
    return {kind: {"count": n, "weight_us": ns / 1000} for kind, (n, ns) in sorted(found.items())}
