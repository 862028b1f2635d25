"""The conversion of an edited graph into a saved path, with the longest path of the edited graph.

The graph is a `networkx.DiGraph` over the nodes of a saved path: 2·event_id for an event's start, 2·event_id + 1 for
its end. The user may change weights, and add or remove edges and nodes. The metadata and the title of the new path
state the number of changes.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np

from pipelines.base.errors import WrongValue
from pipelines.critical_path.answer.edited_path import with_longest_path
from pipelines.critical_path.answer.saved_path import SavedPath
from pipelines.critical_path.graph.bounds import CPU, HOST, int_column
from pipelines.critical_path.graph.edge_types import EDGE_TYPES, HTA_TYPES

if TYPE_CHECKING:
    import pyarrow as pa

UNIT = "weight_unit"
"""Graph attribute with the unit of the graph's weights."""
NS_PER = {"ns": 1, "us": 1000}

_NEW_EDGES = 7 << 60  # above all edge numbers that the models assign
_NEW_NODES = 2_000_000  # limit on the numbers of new nodes, because arrays are as long as the highest number
_OWN_TYPES = {**{text: kind for kind, text in HTA_TYPES.items()}, **{kind: kind for kind in HTA_TYPES}}
_LARGEST_NS = 2**62
_ENDS = ("src_node_id", "dst_node_id")
_EDITED = ("edge_type", "path_weight_ns", "attributed_event_id")
_KEPT = ("edge_id", "weight_ns")
_FLAGS = ("waits_for_earlier_work", "is_inferred")


def give_back(saved: SavedPath, graph: nx.DiGraph, unit: str | None = None) -> SavedPath:
    """Return the saved path of an edited graph. `saved` is the path whose graph was edited.

    `unit` is the unit of the weights, ns or us (None: `graph.graph["weight_unit"]`).

    An added edge has a `weight`, and may have a `type` (HTA's text or its name). The default type is a dependency,
    which needs no weight. An added edge may also have an `event_id`, the event whose time the edge represents. The
    default is HTA's attribution. For an operator's edge, this is the event that starts or ends at the edge.

    An added node is a number that no event of the trace uses. It may have `name` and `at_ns`.

    A graph with a cycle has no path. Then `cycle` in the metadata of the result names nodes on the cycle.

    Raises ValueError naming an invalid edge or node. Also raises ValueError for the graph of a window that its profile
    refuses.
    """
    if saved.meta.get("refused"):
        raise WrongValue(f"profile {saved.meta['profile']} rejects this graph: {saved.meta['refused']}")
    unit = unit or graph.graph.get(UNIT)
    if unit not in NS_PER:
        raise WrongValue(
            f"graph.graph[{UNIT!r}] is {unit!r}: set it to ns or us, the unit of the weights. Copies of a path's graph have it"
        )
    nodes, events, in_nodes = _nodes(saved, graph)
    edges, in_edges = _edges(saved, graph, NS_PER[unit], events)
    before = saved.meta.get("edited", {})
    changes = {change: n + before.get(change, 0) for change, n in {**in_edges, **in_nodes}.items()}
    meta = {**saved.meta, "edited": changes}
    return with_longest_path(replace(saved, meta=meta, nodes=nodes, edges=edges, events=events))


def _nodes(saved: SavedPath, graph: nx.DiGraph) -> tuple[pa.Table, pa.Table, dict[str, int]]:
    """Return the tables `nodes` and `events` of the graph, and the numbers of added and removed nodes."""
    import pyarrow as pa

    old = int_column(saved.nodes, "node_id")
    known_nodes = set(old.tolist())
    n_events = saved.meta["trace"].get("n_events") or int(old.max(initial=-1)) // 2 + 1
    added = [node for node in graph if node not in known_nodes]
    for node in added:
        is_integer = isinstance(node, int | np.integer) and not isinstance(node, bool)
        if not is_integer or not 2 * n_events <= node < 2 * n_events + _NEW_NODES:
            raise WrongValue(
                f"node {node!r} is not in the graph; number new ones from {2 * n_events} on "
                f"(an event's start is even, its end the odd number behind it), at most {_NEW_NODES:,} of them"
            )
    is_kept = np.fromiter((node in graph for node in old.tolist()), dtype=bool, count=len(old))
    rows = [_new_node(int(node), graph.nodes[node]) for node in sorted(added)]
    names = {row["event_id"]: row["name"] for row in reversed(rows) if row["name"]}
    for row in rows:  # both nodes of an event have its name
        row["name"] = names.get(row["event_id"])
    nodes = pa.concat_tables(
        [saved.nodes.filter(pa.array(is_kept)), pa.Table.from_pylist(rows, schema=saved.nodes.schema)]
    )
    event_ids = np.unique(old[is_kept] // 2)
    events = saved.events
    # Keep events without nodes. An edge's time may be attributed to one, such as an annotation.
    stays = np.isin(int_column(events, "event_id"), event_ids) | events["class"].is_null().to_numpy()
    new = [{**row, "duration_ns": 0, "is_blocking": False, "class": "CPU"} for row in rows]
    once = {row["event_id"]: {name: row.get(name) for name in events.schema.names} for row in reversed(new)}
    added_events = pa.Table.from_pylist([once[event] for event in sorted(once)], schema=events.schema)
    counts = {"nodes added": len(added), "nodes removed": int((~is_kept).sum())}
    return nodes, pa.concat_tables([events.filter(pa.array(stays)), added_events]), counts


def _new_node(node: int, data: dict[str, Any]) -> dict[str, Any]:
    at_ns, name = data.get("at_ns"), data.get("name")
    if at_ns is not None and not isinstance(at_ns, int | np.integer):
        raise WrongValue(f"node {node}: at_ns is {at_ns!r}, not whole nanoseconds")
    return {
        "node_id": node,
        "event_id": node // 2,
        "is_start": node % 2 == 0,
        "at_ns": at_ns,
        "name": None if name is None else str(name),
        "cat": "added",
    }


def _edges(saved: SavedPath, graph: nx.DiGraph, ns_per_unit: int, events: pa.Table) -> tuple[pa.Table, dict[str, int]]:
    """Return table `edges` of the graph without `seq`, and the numbers of added, removed and changed edges.

    Existing edges keep their number, and so their order. The order decides between paths of equal length.
    """
    import pyarrow as pa

    table = saved.edges
    classes = dict(zip(int_column(events, "event_id").tolist(), events["class"].to_pylist(), strict=True))
    old = {name: table[name].to_pylist() for name in (*_ENDS, *_EDITED, *_KEPT, *_FLAGS)}
    index_by_ends = {pair: i for i, pair in enumerate(zip(*(old[name] for name in _ENDS), strict=True))}
    same, changed, added, total = [], [], [], 0
    for src, dst, data in _listed(graph):
        index = index_by_ends.get((src, dst))
        was = None if index is None else tuple(old[name][index] for name in _EDITED)
        now = _edge(src, dst, data, was, ns_per_unit, classes)
        total += abs(now[1])
        if index is None:
            added.append(_row(src, dst, now))
        elif now == was:
            same.append(index)
        else:
            changed.append(_row(src, dst, now) | {"edge_id": old["edge_id"][index]})
            if was and now[0] == was[0]:  # an edge keeps its flags if its type is unchanged
                changed[-1] |= {name: old[name][index] for name in _FLAGS}
            if was and now[1] == was[1]:  # an edge keeps its measured weight if its weight on the path is unchanged
                changed[-1]["weight_ns"] = old["weight_ns"][index]
    if total >= _LARGEST_NS:
        raise WrongValue("the weights are so large that times overflow 64 bits")
    next_id = max([_NEW_EDGES, *(row + 1 for row in int_column(table, "edge_id")[-1:].tolist())])
    for number, row in enumerate(added):
        row["edge_id"] = next_id + number
    rules = {(rule["edge_type"], rule["side"], rule["class"]): rule["bound_by"] for rule in saved.meta["rules"]}
    for row in (*changed, *added):
        row["bound_by"] = rules[row["edge_type"], *_whose(row, classes)]
    new = pa.Table.from_pylist([*changed, *added], schema=table.schema)
    counts = {
        "edges added": len(added),
        "edges removed": len(index_by_ends) - len(same) - len(changed),
        "edges changed": len(changed),
    }
    same_edges = table.take(pa.array(same, pa.int64()))
    return pa.concat_tables([same_edges, new]).sort_by("edge_id"), counts


def _row(src: int, dst: int, now: tuple[str, int, int | None]) -> dict[str, Any]:
    """Return a row of table `edges` without `edge_id`."""
    kind, ns, event = now
    return {
        "src_node_id": int(src),
        "dst_node_id": int(dst),
        "src_event_id": int(src) // 2,
        "src_is_start": src % 2 == 0,
        "dst_event_id": int(dst) // 2,
        "dst_is_start": dst % 2 == 0,
        "edge_type": kind,
        "weight_ns": ns,
        "path_weight_ns": ns,
        "attributed_event_id": event,
    }


def _whose(row: dict[str, Any], classes: Mapping[int, str | None]) -> tuple[str, str]:
    """Return the side and the class with which an edge's bound is looked up in table `rules`.

    Both follow from the event whose time the edge represents. `classes` contains the class of each event, by event id.
    """
    event = row["attributed_event_id"]
    if row.get("waits_for_earlier_work"):
        return "outside", "*"
    if event is None:
        return "*", "*"
    of_event = classes.get(event)
    return ("cpu", "*") if of_event in (None, CPU, HOST) else ("gpu", of_event)


def _listed(graph: nx.DiGraph) -> Iterator[tuple[Any, Any, dict[str, Any]]]:
    """Yield the edges grouped by destination, in the order in which networkx stores predecessors.

    This order decides between paths of equal length.
    """
    for dst, before in graph.pred.items():
        for src, data in before.items():
            yield src, dst, data


def _edge(
    src: int, dst: int, data: dict[str, Any], was: tuple | None, ns_per_unit: int, event_ids: Container[int]
) -> tuple[str, int, int | None]:
    """Return the type, the weight in ns and the attributed event of an edge.

    `was` are the previous values, None for an added edge.
    """
    cp_edge = data.get("object")  # HTA's CPEdge
    kind = _kind(src, dst, data.get("type"), getattr(cp_edge, "type", None), was[0] if was else None)
    ns = _weight(src, dst, data.get("weight", getattr(cp_edge, "weight", None)), kind, ns_per_unit)
    if ns < 0 and (was is None or ns != was[1]):
        raise WrongValue(f"edge ({src}, {dst}): weight {data.get('weight')!r} is negative; give 0 or more")
    event = data["event_id"] if "event_id" in data else was[2] if was else _attributed(src, dst, kind)
    if event is not None and event not in event_ids and (was is None or event != was[2]):
        raise WrongValue(f"edge ({src}, {dst}): event_id {event!r} is not an event of the graph")
    # Host time outside operators may have no owner.
    if event is None and EDGE_TYPES[kind].is_own_time and not (was and was[2] is None and was[0] == kind):
        raise WrongValue(f"edge ({src}, {dst}): {HTA_TYPES[kind]} represents the time of an event: give its event_id")
    return kind, ns, event


def _kind(src: int, dst: int, set_type: Any, object_type: Any, was: str | None) -> str:
    """Return the type of an edge, which the user may set as text (`set_type`) or in HTA's object (`object_type`).

    `was` is the previous type, None for an added edge. For an existing edge, the first of the two that differs from the
    previous type wins.
    """
    kinds = []
    for value in (set_type, object_type):
        if value is not None:
            kinds.append(_OWN_TYPES.get(str(getattr(value, "value", value)), ""))
            if not kinds[-1]:
                raise WrongValue(
                    f"edge ({src}, {dst}): unknown type {value!r}; choose one of {', '.join(HTA_TYPES.values())}"
                )
    if was is None:
        return kinds[0] if kinds else "DEPENDENCY"
    return next((kind for kind in kinds if kind != was), was)


def _weight(src: int, dst: int, value: Any, kind: str, ns_per_unit: int) -> int:
    """Return a weight in integer ns. It is 0 if the weight is missing and edges of this type have no duration."""
    if value is None and not EDGE_TYPES[kind].has_duration:
        return 0
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float | np.integer | np.floating)
        or not math.isfinite(value)
    ):
        raise WrongValue(f"edge ({src}, {dst}): weight is {value!r}, not a number")
    return round(float(value) * ns_per_unit) if isinstance(value, float | np.floating) else int(value) * ns_per_unit


def _attributed(src: int, dst: int, kind: str) -> int | None:
    """Return the event whose time an edge represents by HTA's rules (2.8.6), or None if the edge has no owner.

    For an operator's edge, this is the event that starts or ends at the edge.
    """
    if EDGE_TYPES[kind].time_of == "nobody":
        return None
    ends_there = EDGE_TYPES[kind].is_own_time and src % 2 == 1 and dst % 2 == 1
    return int(dst if ends_there else src) // 2
