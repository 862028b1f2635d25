"""The edges of a window's host threads. Every node of a thread has an edge from the node before it.

Inside operators, the edge is the operator's self time, as in a call stack. Outside operators, it is a gap. Gaps are cut
where an annotation or a Python function starts or ends, so that each part belongs to the innermost annotation or
function that spans it. Each edge claims the time that passed, unless the thread waited for another thread
(`hand_offs.py`). Then the edge of the hand-off claims the time.

The code uses numpy because SQL would sort the rows once for the stacks, once for the gaps and once for each lookup in
other threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np

from pipelines.base.database import give_back
from pipelines.base.groups import in_groups
from pipelines.critical_path.graph.edge_types import edge_codes
from pipelines.critical_path.graph.hand_offs import SHORT_NS, HandOffs, Roles, hand_offs
from pipelines.critical_path.graph.host_nodes import Frames, HostEvents, HostNodes, host_nodes, nodes_without
from pipelines.critical_path.graph.stack_order import EVENTS, Flags, Ints
from pipelines.models.catalog import load_catalog
from pipelines.models.python_tables import create_table, fetch_columns, python_model
from pipelines.models.sqltext import quoted

_READS = (
    *("_clip", "_asked_windows", "_thread_roles", "_poll_loops", "waiting_frames", "python_frames", "events"),
    "thresholds",
)
_PART = 1 << 18  # rows per INSERT
_HAND_OFFS = 1 << 40
"""The offset of the ordinals of hand-offs: larger than the ordinal of any other edge of a host thread."""
# The columns that are read from each model for windows {first} … {last}, as array name → SQL expression. The models'
# SQL is inlined into the query, because tables of all windows would be copies of _clip.
_READ = {
    "_thread_events": {
        "window": "CAST(window_no AS INTEGER)", "thread_id": "CAST(thread_id AS INTEGER)", "event": "CAST(event_id AS {number})",
        "start": "at_ns", "duration": "duration_ns", "is_operator": "is_operator",
        "process": "CAST(process_no AS INTEGER)", "works": "is_working", "polls": "only_polls",
        "autograd": "is_autograd", "calls": "calls_backward", "serves": "runs_collectives",
    },
    "_thread_frames": {
        "window": "window_no", "event": "event_id", "is_function": "is_function", "is_step": "is_step",
        "waits": "coalesce(regexp_matches(name, {waiting}), FALSE)",
        "library": "is_function AND coalesce(regexp_matches(name, {library}) AND NOT regexp_matches(name, {shown}), FALSE)",
    },
    "_work_ends": {"window": "window_no", "until": "until_ns", "work_end": "coalesce(work_end_ns, -1)"},
    "_early_launches": {"window": "window_no", "event": "event_id", "at": "at_ns", "thread_id": "thread_id"},
    "_loop_calls": {
        "window": "window_no", "thread_id": "thread_id", "event": "event_id", "start": "at_ns", "last": "last_event_id",
    },
}  # fmt: skip
_RUNS = ("_thread_events", "_thread_frames", "_work_ends", "_early_launches", "_loop_calls")
_ORDER = {"_work_ends": "window_no", "_loop_calls": "window_no, last_event_id, at_ns, event_id"}
_INSERTS = {
    "_host_edges": '"window", ordinal, src, dst, code, elapsed, claim, nullif(owner, -1), inferred',
    "_host_nodes": '"window", node, "at", is_root, is_gap',
    "_left_out": '"window", event',
    "_gap_owners": '"window", event, nullif(around, -1), owner',
    "_early_work": '"window", event, node, elapsed',
}


@python_model(
    "_host_edges",
    layer="critical_path",
    doc="One row: an edge into a node of a host thread, in a window with a covering path. The edge starts at the previous node of the thread, or on another thread that handed over to this one.",
    columns=(
        ("window_no", "BIGINT", "The window."),
        ("ordinal", "BIGINT", "Position in the window: thread after thread, then all hand-offs."),
        ("src_node_id", "BIGINT", "Source node: twice the event, plus 1 for its end."),
        ("dst_node_id", "BIGINT", "Destination node."),
        ("edge_code", "INTEGER", "Type of the edge, in edge_types."),
        ("elapsed_ns", "BIGINT", "Time from the source to the destination, ns."),
        (
            "claim_ns",
            "BIGINT",
            "Part of elapsed_ns that the edge claims, ns, unless it ends a call that waited for the GPU.",
        ),
        (
            "attributed_event_id",
            "BIGINT",
            "Operator, call, annotation or Python function that the time belongs to; NULL if none.",
        ),
        (
            "is_inferred",
            "BOOLEAN",
            "Whether the edge is a hand-off inferred from the times, because no arrow and no name shows it.",
        ),
    ),
    reads=_READS,
    runs=_RUNS,
)
@python_model(
    "_host_nodes",
    layer="critical_path",
    doc="One row: a node of a host thread, in a window with a covering path, that no edge of _host_edges leads to or that is in a gap.",
    columns=(
        ("window_no", "BIGINT", "The window."),
        ("node_id", "BIGINT", "The node."),
        ("at_ns", "BIGINT", "Time since the window's start, ns."),
        ("is_root", "BOOLEAN", "Whether it is the first node of its thread, and no other thread handed over to it."),
        ("is_gap", "BOOLEAN", "Whether it is the start or end of an annotation or Python function outside operators."),
    ),
    reads=_READS,
    runs=_RUNS,
)
@python_model(
    "_left_out",
    layer="critical_path",
    doc="One row: an operator or call that is excluded from the graph of a window with a covering path. Either it is within a loop that polled until GPU work had ended, or its thread only polls, or its thread launches no GPU work and either continues after the window's end or has no other thread waiting for it.",
    columns=(("window_no", "BIGINT", "The window."), ("event_id", "BIGINT", "The event.")),
    reads=_READS,
    runs=_RUNS,
)
@python_model(
    "_gap_owners",
    layer="critical_path",
    doc="One row: an annotation or Python function outside operators, in a window with a covering path. The host time there belongs to it or to those around it.",
    columns=(
        ("window_no", "BIGINT", "The window."),
        ("event_id", "BIGINT", "The annotation or function."),
        ("around_event_id", "BIGINT", "The annotation or function around it; NULL if none."),
        (
            "owner_event_id",
            "BIGINT",
            "The event that is shown: the annotation around it, else the module's or user's own function, else itself.",
        ),
    ),
    reads=_READS,
    runs=_RUNS,
)
@python_model(
    "_early_work",
    layer="critical_path",
    doc="One row: GPU work in a window with a covering path that started before its launch call, because CPU and GPU clocks disagree, and the node that the launching thread had passed by then.",
    columns=(
        ("window_no", "BIGINT", "The window."),
        ("event_id", "BIGINT", "The GPU work."),
        ("node_id", "BIGINT", "The last node of the launching thread before the GPU work started."),
        ("elapsed_ns", "BIGINT", "Time from that node to the work's start, ns."),
    ),
    reads=_READS,
    runs=_RUNS,
)
def host_edges(con: duckdb.DuckDBPyConnection) -> None:
    """Create the five tables from `_clip`, for the windows with a covering path."""
    for name in _INSERTS:
        create_table(con, name)
    counted = con.execute(
        f"SELECT window_no, count(*) FROM (\n{_sql('_thread_events')}\n) GROUP BY window_no ORDER BY window_no"
    ).fetchall()
    (last,) = con.execute("SELECT coalesce(max(event_id), 0) FROM _clip").fetchall()[0]
    constants = {
        # INTEGER takes half the memory. Node ids are twice the event ids, so they fit too.
        "number": "INTEGER" if last < 1 << 30 else "BIGINT",
        "waiting": _any_of(con, "SELECT name_pattern FROM waiting_frames"),
        "shown": _any_of(con, "SELECT name_pattern FROM waiting_frames WHERE is_shown"),
        "library": _any_of(con, "SELECT name_pattern FROM python_frames WHERE owner <> 'module'"),
    }
    sizes = dict(counted)
    for numbers in in_groups(counted, EVENTS):
        these = {"first": numbers[0], "last": numbers[-1], **constants}
        for name, rows in _tables(con, these, many=sizes[numbers[0]] > EVENTS):
            if len(rows["window"]):  # DuckDB reads the arrays by the name of this variable
                con.execute(f"INSERT INTO {name} SELECT {_INSERTS[name]} FROM rows")


def _any_of(con: duckdb.DuckDBPyConnection, query: str) -> str:
    """Return the patterns that a query selects as one regular expression, in an SQL literal."""
    return quoted("|".join(f"({pattern})" for (pattern,) in con.execute(query).fetchall()))


def _sql(model: str) -> str:
    return load_catalog().models[model].sql


def _columns(
    con: duckdb.DuckDBPyConnection, model: str, these: dict[str, Any], *, many: bool = False
) -> dict[str, Any]:
    """Return the columns of a model, as in `_READ`, for some windows, by array name."""
    columns = ", ".join(f'{expression.format(**these)} AS "{name}"' for name, expression in _READ[model].items())
    query = f"SELECT {columns} FROM (\n{_sql(model)}\n) WHERE window_no BETWEEN {these['first']} AND {these['last']}"
    if order := _ORDER.get(model):
        query += f" ORDER BY {order}"
    if many:
        return fetch_columns(con, query)
    return {name: np.asarray(column) for name, column in con.execute(query).fetchnumpy().items()}


def _tables(
    con: duckdb.DuckDBPyConnection, these: dict[str, Any], *, many: bool
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and the rows of each of the five tables for some windows, in parts.

    Arrays are freed as soon as no later part needs them.
    """
    if many:
        give_back(con)
    rows = _columns(con, "_thread_events", these, many=many)
    windows = _columns(con, "_work_ends", these)
    loops = _columns(con, "_loop_calls", these)
    is_in_graph = _kept(rows, windows["window"], windows["work_end"]) & ~_within_loops(rows, loops)
    is_left_out = ~is_in_graph & rows["is_operator"]
    yield "_left_out", {"window": rows["window"][is_left_out], "event": rows["event"][is_left_out]}
    if not is_in_graph.all():
        rows = {name: rows.pop(name)[is_in_graph] for name in list(rows)}
    key = rows.pop("window").astype(np.int64) << 20 | rows.pop("thread_id")
    threads = np.unique(key)
    thread = np.searchsorted(threads, key).astype(np.min_scalar_type(len(threads)))
    window = (threads >> 20).astype(np.int32)
    any_row = np.zeros(len(threads), dtype=np.int64)
    any_row[thread] = np.arange(len(thread))  # all rows of a thread have the same roles
    roles = Roles(*(rows.pop(name)[any_row] for name in ("process", "works", "autograd", "calls", "serves")))
    waits, owner_rank = _of_names(key >> 20, rows, _columns(con, "_thread_frames", these))
    of_rows = {name: rows[name] for name in ("event", "start", "duration", "is_operator")}
    # The list lets host_nodes hold the only reference, so that it can free the events.
    events = [HostEvents(thread=thread, **of_rows, waits=waits, shown=owner_rank)]
    del key, is_in_graph, is_left_out, rows, of_rows, thread, waits, owner_rank
    until = windows["until"][np.searchsorted(windows["window"], window)]
    if many:
        give_back(con)
    nodes, owners = _nodes(events, until)
    if len(loops["window"]):
        nodes = nodes_without(nodes, _frames_in_loops(nodes, threads, loops))
    handed_over = _all_hand_offs(nodes, window, roles, 2 * loops["last"])
    idle = _waited_for_by_none(nodes, handed_over, roles.works, window, windows)
    if idle.any():
        out = idle[nodes.thread]
        starts = np.flatnonzero(out & ~nodes.of_frame & (nodes.node % 2 == 0))
        yield "_left_out", {"window": window[nodes.thread[starts]], "event": nodes.node[starts] // 2}
        nodes, owners = nodes[~out], owners[~idle[owners.thread]]
        handed_over = _all_hand_offs(nodes, window, roles, 2 * loops["last"])
    bound = np.zeros(len(nodes.node), dtype=bool)
    bound[handed_over.to] = True
    roots = ~nodes.before & ~bound
    early = _early(nodes, threads, _columns(con, "_early_launches", these))
    yield (
        "_gap_owners",
        {
            "window": window[owners.thread],
            "event": owners.event,
            "around": owners.around,
            "owner": owners.shown,
        },
    )
    yield "_early_work", early
    for places in _places(roots | nodes.of_frame):
        yield (
            "_host_nodes",
            {
                "window": window[nodes.thread[places]],
                "node": nodes.node[places],
                "at": nodes.at[places],
                "is_root": roots[places],
                "is_gap": nodes.of_frame[places],
            },
        )
    for edges in _edges(nodes, window, handed_over, bound):
        yield "_host_edges", edges


def _nodes(events: list[HostEvents], until: Ints) -> tuple[HostNodes, Frames]:
    """Return the nodes of the events, and remove the events from the list.

    Many events are sorted a few threads at a time, because sorting takes the most memory.
    """
    thread = events[0].thread
    groups = list(in_groups(enumerate(np.bincount(thread).tolist()), EVENTS))
    if len(groups) < 2:
        return host_nodes(events.pop(), until)
    parts = [events[0][(thread >= group[0]) & (thread <= group[-1])] for group in groups]
    del thread, events[0]
    results = []
    while parts:
        results.append(host_nodes(parts.pop(0), until))
    nodes, frames = map(list, zip(*results, strict=True))
    del results
    return HostNodes.joined(nodes), Frames.joined(frames)


def _places(chosen: Flags) -> Iterator[Ints]:
    """Yield the indices of the true values, in parts."""
    for first in range(0, len(chosen), _PART):
        yield first + np.flatnonzero(chosen[first : first + _PART])


def _early(nodes: HostNodes, threads: Ints, early: dict[str, Any]) -> dict[str, Ints]:
    """Return the last node of the launching thread before each GPU activity that starts before its launch call."""
    key = early["window"] << 20 | early["thread_id"]
    thread = np.minimum(np.searchsorted(threads, key), max(len(threads) - 1, 0))
    span = max(int(nodes.at.max(initial=0)), int(early["at"].max(initial=0))) + 1
    keys = nodes.thread * np.int64(span) + nodes.at
    index = np.searchsorted(keys, thread * span + early["at"], side="right") - 1
    has_node = np.zeros(0, dtype=bool)
    if len(index) and len(threads):
        has_node = (threads[thread] == key) & (index >= 0) & (early["at"] >= 0) & (nodes.thread[index] == thread)
    index = index[has_node]
    return {
        "window": early["window"][has_node],
        "event": early["event"][has_node],
        "node": nodes.node[index],
        "elapsed": early["at"][has_node] - nodes.at[index],
    }


def _of_names(window: Ints, rows: dict[str, Any], frames: dict[str, Any]) -> tuple[Flags, Ints]:
    """Return whether each event is named after a wait, and each event's rank as a displayed owner (0 for operators)."""
    n = len(rows["event"])
    waits, owner_rank = np.zeros(n, dtype=bool), np.zeros(n, dtype=np.int8)
    not_operators = np.flatnonzero(~rows["is_operator"])
    key = frames["window"] << 40 | frames["event"]
    order = np.argsort(key)
    frame_index = order[np.searchsorted(key[order], window[not_operators] << 40 | rows["event"][not_operators])]
    rank = np.where(frames["is_function"], ~frames["library"], np.where(frames["is_step"], 0, 2))
    waits[not_operators], owner_rank[not_operators] = frames["waits"][frame_index], rank[frame_index]
    return waits, owner_rank


def _kept(rows: dict[str, Any], windows: Ints, work_end: Ints) -> Flags:
    """Return which events (n,) are in the graph.

    A window without an operator and without GPU work has no events in the graph. Events of threads that only poll are
    excluded. So are events that end after the window's end, on threads that launch no GPU work. The window's end is the
    later of the end of GPU work (`work_end`, -1 if there is none) and the last end of an event of a thread that
    launches GPU work.
    """
    window_index = np.searchsorted(windows, rows["window"]).astype(np.int32)
    # A window has a path only if it contains an operator or GPU work. Annotations alone are not enough.
    works = (np.bincount(window_index[rows["is_operator"]], minlength=len(windows)) > 0) | (work_end >= 0)
    is_in_graph = ~rows["polls"] & works[window_index]
    if rows["works"].all():
        return is_in_graph
    limit = work_end.copy()
    end = rows["start"] + rows["duration"]
    np.maximum.at(limit, window_index[rows["works"]], end[rows["works"]])
    return is_in_graph & (rows["works"] | (limit[window_index] < 0) | (end <= limit[window_index]))


def _waited_for_by_none(
    nodes: HostNodes, handed_over: HandOffs, works: Flags, window: Ints, windows: dict[str, Any]
) -> Flags:
    """Return which threads (t,) do not count, because neither GPU work nor a counting thread depends on them.

    A thread counts if it launches GPU work, or if it hands over to a thread that counts. In a window without GPU work
    and without a thread that launches any, all threads count.
    """
    has_work = windows["window"][windows["work_end"] >= 0]
    has_work = np.union1d(has_work, window[np.unique(nodes.thread[works[nodes.thread]])])
    counts = works | ~np.isin(window, has_work)
    while True:
        waited_for = nodes.thread[handed_over.of][counts[nodes.thread[handed_over.to]]]
        if counts[waited_for].all():
            return ~counts
        counts[waited_for] = True


def _within_loops(rows: dict[str, Any], loops: dict[str, Any]) -> Flags:
    """Return which events (n,) are calls of a loop that polls until GPU work has ended, except its last call."""
    is_earlier = loops["event"] != loops["last"]
    keys = loops["window"][is_earlier] << 40 | loops["event"][is_earlier]
    if not len(keys):
        return np.zeros(len(rows["event"]), dtype=bool)
    return np.isin(rows["window"].astype(np.int64) << 40 | rows["event"], keys)


def _frames_in_loops(nodes: HostNodes, threads: Ints, loops: dict[str, Any]) -> Flags:
    """Return which nodes (m,) of annotations and Python functions are within polling loops.

    The time that a loop waits has no owner.
    """
    is_last = loops["event"] == loops["last"]
    is_first = np.append(True, is_last[:-1])
    key = loops["window"][is_last] << 20 | loops["thread_id"][is_last]
    has_nodes = np.isin(key, threads)  # a thread that only polls may have none
    if not has_nodes.any():
        return np.zeros(len(nodes.node), dtype=bool)
    thread = np.searchsorted(threads, key[has_nodes])
    span = max(int(nodes.at.max(initial=0)), int(loops["start"].max(initial=0))) + 1
    since, until = (thread * span + loops["start"][mask][has_nodes] for mask in (is_first, is_last))
    order = np.argsort(since)
    key = nodes.thread * np.int64(span) + nodes.at
    index = np.searchsorted(since[order], key, side="right") - 1
    return nodes.of_frame & (index >= 0) & (key <= until[order][index])


def _all_hand_offs(nodes: HostNodes, window: Ints, roles: Roles, polled: Ints) -> HandOffs:
    """Return the hand-offs of all windows, as indices of nodes.

    Hand-offs to the nodes `polled` are excluded, because those nodes waited for the GPU.
    """
    firsts = np.flatnonzero(~nodes.before)
    pasts = np.append(firsts[1:], len(nodes.node))
    thread = nodes.thread[firsts]
    parts = []
    for indices in np.split(np.arange(len(firsts)), np.flatnonzero(np.diff(window[thread])) + 1):
        if len(indices) > 1:
            bounds = list(zip(firsts[indices].tolist(), pasts[indices].tolist(), strict=True))
            of_these = Roles(*(getattr(roles, name)[thread[indices]] for name in Roles.__dataclass_fields__))
            parts.append(hand_offs(nodes, bounds, of_these))
    nothing = np.zeros(0, dtype=np.int64)
    all_of_them = HandOffs.joined([HandOffs(nothing, nothing, nothing.astype(bool)), *parts])
    return all_of_them[~np.isin(nodes.node[all_of_them.to], polled)] if len(polled) else all_of_them


def _edges(nodes: HostNodes, window: Ints, handed_over: HandOffs, bound: Flags) -> Iterator[dict[str, Any]]:
    """Yield the edges in parts. `window` is the window of each thread."""
    self_time, gap, hand_off = edge_codes(("OPERATOR_KERNEL", "HOST_GAP", "THREAD_HAND_OFF"))
    begins = _begins(nodes, window)
    for to in _places(nodes.before):
        elapsed = nodes.at[to] - nodes.at[to - 1]
        yield {
            "window": window[nodes.thread[to]],
            "ordinal": to - begins[nodes.thread[to]],
            "src": nodes.node[to - 1],
            "dst": nodes.node[to],
            "code": np.where(nodes.in_gap[to], gap, self_time).astype(np.int8),
            "elapsed": elapsed,
            "claim": np.where(bound[to], 0, elapsed),
            "owner": nodes.owner[to],
            "inferred": np.zeros(len(to), dtype=bool),
        }
    passed = nodes.at[handed_over.to] - nodes.at[handed_over.of]
    # The time from the other thread's stop to this thread's next node is this thread's own gap, unless it is short.
    short = (passed <= SHORT_NS) | nodes.waits[handed_over.to]
    # The gap's owner is the event that spans it on this thread, else the event that spans the other thread's gap.
    gap_after = np.append(nodes.in_gap, False)[handed_over.of + 1]
    after = np.where(gap_after, np.append(nodes.owner, -1)[handed_over.of + 1], -1)
    spans = np.where(nodes.before[handed_over.to], nodes.owner[handed_over.to], -1)
    spans = np.where(spans < 0, after, spans)
    yield {
        "window": window[nodes.thread[handed_over.to]],
        "ordinal": _HAND_OFFS + handed_over.to - begins[nodes.thread[handed_over.to]],
        "src": nodes.node[handed_over.of],
        "dst": nodes.node[handed_over.to],
        "code": np.where(short, hand_off, gap).astype(np.int8),
        "elapsed": passed,
        "claim": passed,
        "owner": np.where(short, -1, spans),
        "inferred": handed_over.inferred,
    }


def _begins(nodes: HostNodes, window: Ints) -> Ints:
    """Return the first node of each thread's window.

    Ordinals count from this node, so they do not depend on the other windows of the same call.
    """
    first = np.flatnonzero(np.append(True, nodes.thread[1:] != nodes.thread[:-1])[: len(nodes.thread)])
    threads = nodes.thread[first]
    is_new = np.append(True, np.diff(window[threads]) != 0)[: len(threads)]
    begins = np.zeros(len(window), dtype=np.int64)
    begins[threads] = np.maximum.accumulate(np.where(is_new, first, 0))
    return begins
