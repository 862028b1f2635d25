"""What the host threads of a window did, without a hole: every node of a thread has an edge from the one before it.

Inside operators that is the operators' own time, as in a call stack. Outside them it is a gap, cut where an annotation or
a Python function begins or ends, so that each part belongs to the innermost one that spans it. All of these edges claim
the time that passed, except where the thread waited for another one (`hand_offs.py`): there the other one's edge does.

numpy, because SQL would sort the rows once for the stacks, once for the gaps, and once for every question to other threads.
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
from pipelines.critical_path.graph.host_nodes import Frames, HostEvents, HostNodes, host_nodes
from pipelines.critical_path.graph.stack_order import EVENTS, Flags, Ints
from pipelines.models.catalog import load_catalog
from pipelines.models.python_tables import create_table, fetch_columns, python_model
from pipelines.models.sqltext import quoted

_READS = (
    *("_clip", "_asked_windows", "_thread_roles", "_poll_loops", "waiting_frames", "python_frames", "events"),
    "thresholds",
)
_NODES = (
    ("window_no", "BIGINT", "The window."),
    ("node_id", "BIGINT", "The node."),
    ("at_ns", "BIGINT", "Its time since the window's start, ns."),
)
_PART = 1 << 18  # rows that are written at a time
_HAND_OFFS = 1 << 40
"""The first number of hand-offs in a window, behind all other edges of its threads."""
# What is read of each model for windows {first} … {last}: name here → expression. The SQL of the models is part of the query:
# tables of all windows would be copies of _clip.
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
    "_host_roots": '"window", node, "at"',
    "_gap_nodes": '"window", node, "at"',
    "_left_out": '"window", event',
    "_gap_owners": '"window", event, nullif(around, -1), owner',
    "_early_work": '"window", event, node, elapsed',
}


@python_model(
    "_host_edges",
    layer="critical_path",
    doc="One row: an edge into a node of a host thread, in a window that the path covers: from the node before it on the thread, or from another thread that handed over to it.",
    columns=(
        ("window_no", "BIGINT", "The window."),
        ("ordinal", "BIGINT", "Place in the window: thread after thread, hand-offs after all of them."),
        ("src_node_id", "BIGINT", "Source node: twice the event, plus 1 for its end."),
        ("dst_node_id", "BIGINT", "Destination node."),
        ("edge_code", "INTEGER", "Type of the edge, in edge_types."),
        ("elapsed_ns", "BIGINT", "Time from the source to the destination, ns."),
        ("claim_ns", "BIGINT", "What the edge claims of it, ns, unless the call that it ends waited for the GPU."),
        (
            "attributed_event_id",
            "BIGINT",
            "Operator, call, annotation or Python function whose time it is; NULL for none.",
        ),
        ("is_inferred", "BOOLEAN", "A hand-off that no arrow and no name shows: inferred from the times."),
    ),
    reads=_READS,
    runs=_RUNS,
)
@python_model(
    "_host_roots",
    layer="critical_path",
    doc="One row: the first node of a host thread, in a window that the path covers, where no other thread handed over to it.",
    columns=_NODES,
    reads=_READS,
    runs=_RUNS,
)
@python_model(
    "_gap_nodes",
    layer="critical_path",
    doc="One row: the start or end of an annotation or Python function outside operators, which is a node of a window that the path covers.",
    columns=_NODES,
    reads=_READS,
    runs=_RUNS,
)
@python_model(
    "_left_out",
    layer="critical_path",
    doc="One row: an operator or call that is left out of the graph of a window that the path covers. Either it lies within a loop that asked until GPU work had ended; or its thread only polls; or its thread launches no GPU work, and goes on after the window's end or has no other thread waiting for it.",
    columns=(("window_no", "BIGINT", "The window."), ("event_id", "BIGINT", "The event.")),
    reads=_READS,
    runs=_RUNS,
)
@python_model(
    "_gap_owners",
    layer="critical_path",
    doc="One row: an annotation or Python function outside operators, in a window that the path covers: the host time there is its own, or that of the ones around it.",
    columns=(
        ("window_no", "BIGINT", "The window."),
        ("event_id", "BIGINT", "The annotation or function."),
        ("around_event_id", "BIGINT", "The one around it; NULL for none."),
        (
            "owner_event_id",
            "BIGINT",
            "The one that is shown: the annotation around it, else the module's or user's own function, else itself.",
        ),
    ),
    reads=_READS,
    runs=_RUNS,
)
@python_model(
    "_early_work",
    layer="critical_path",
    doc="One row: GPU work, in a window that the path covers, that began before the call that launched it, because clocks disagree, and the node that its thread had passed by then.",
    columns=(
        ("window_no", "BIGINT", "The window."),
        ("event_id", "BIGINT", "The GPU work."),
        ("node_id", "BIGINT", "The last node of the launching thread before it."),
        ("elapsed_ns", "BIGINT", "Time from that node to the work's start, ns."),
    ),
    reads=_READS,
    runs=_RUNS,
)
def host_edges(con: duckdb.DuckDBPyConnection) -> None:
    """Create the six tables from `_clip`, for the windows that the path covers."""
    for name in _INSERTS:
        create_table(con, name)
    counted = con.execute(
        f"SELECT window_no, count(*) FROM (\n{_sql('_thread_events')}\n) GROUP BY window_no ORDER BY window_no"
    ).fetchall()
    (last,) = con.execute("SELECT coalesce(max(event_id), 0) FROM _clip").fetchall()[0]
    told = {
        "number": "INTEGER" if last < 1 << 30 else "BIGINT",  # half the memory; nodes are twice that
        "waiting": _any_of(con, "SELECT name_pattern FROM waiting_frames"),
        "shown": _any_of(con, "SELECT name_pattern FROM waiting_frames WHERE is_shown"),
        "library": _any_of(con, "SELECT name_pattern FROM python_frames WHERE owner <> 'module'"),
    }
    sizes = dict(counted)
    for numbers in in_groups(counted, EVENTS):
        these = {"first": numbers[0], "last": numbers[-1], **told}
        for name, rows in _tables(con, these, many=sizes[numbers[0]] > EVENTS):
            if len(rows["window"]):  # DuckDB reads the arrays by the name of this variable
                con.execute(f"INSERT INTO {name} SELECT {_INSERTS[name]} FROM rows")


def _any_of(con: duckdb.DuckDBPyConnection, query: str) -> str:
    """Returns one pattern for all of a rule table, as SQL text."""
    return quoted("|".join(f"({pattern})" for (pattern,) in con.execute(query).fetchall()))


def _sql(model: str) -> str:
    return load_catalog().models[model].sql


def _columns(
    con: duckdb.DuckDBPyConnection, model: str, these: dict[str, Any], *, many: bool = False
) -> dict[str, Any]:
    """Returns the columns of a model (_READ) for some windows."""
    columns = ", ".join(f'{expression.format(**these)} AS "{name}"' for name, expression in _READ[model].items())
    query = f"SELECT {columns} FROM (\n{_sql(model)}\n) WHERE window_no BETWEEN {these['first']} AND {these['last']}"
    if order := _ORDER.get(model):
        query += f" ORDER BY {order}"
    if many:
        return fetch_columns(con, query)
    return {name: np.asarray(column) for name, column in con.execute(query).fetchnumpy().items()}


def _tables(
    con: duckdb.DuckDBPyConnection, these: dict[str, Any], *, many: bool
) -> Iterator[tuple[str, dict[str, Ints]]]:
    """Yields the names and rows of the six tables for some windows, part by part: what is done with is let go."""
    if many:
        give_back(con)
    rows = _columns(con, "_thread_events", these, many=many)
    windows = _columns(con, "_work_ends", these)
    loops = _columns(con, "_loop_calls", these)
    kept = _kept(rows, windows["window"], windows["work_end"]) & ~_within_loops(rows, loops)
    left = ~kept & rows["is_operator"]
    yield "_left_out", {"window": rows["window"][left], "event": rows["event"][left]}
    if not kept.all():
        rows = {name: rows.pop(name)[kept] for name in list(rows)}
    key = rows.pop("window").astype(np.int64) << 20 | rows.pop("thread_id")
    threads = np.unique(key)
    thread = np.searchsorted(threads, key).astype(np.min_scalar_type(len(threads)))
    window = (threads >> 20).astype(np.int32)
    some = np.zeros(len(threads), dtype=np.int64)
    some[thread] = np.arange(len(thread))  # a row of each thread, which all say the same of it
    roles = Roles(*(rows.pop(name)[some] for name in ("process", "works", "autograd", "calls", "serves")))
    waits, shown = _of_names(key >> 20, rows, _columns(con, "_thread_frames", these))
    of_rows = {name: rows[name] for name in ("event", "start", "duration", "is_operator")}
    # In a list, so that host_nodes alone holds them and can let them go.
    events = [HostEvents(thread=thread, **of_rows, waits=waits, shown=shown)]
    del key, kept, left, rows, of_rows, thread, waits, shown
    until = windows["until"][np.searchsorted(windows["window"], window)]
    if many:
        give_back(con)
    nodes, owners = _nodes(events, until)
    if len(loops["window"]):
        nodes = nodes[~_frames_in_loops(nodes, threads, loops)]
    found = _all_hand_offs(nodes, window, roles, 2 * loops["last"])
    idle = _waited_for_by_none(nodes, found, roles.works, window, windows)
    if idle.any():
        out = idle[nodes.thread]
        starts = np.flatnonzero(out & ~nodes.of_frame & (nodes.node % 2 == 0))
        yield "_left_out", {"window": window[nodes.thread[starts]], "event": nodes.node[starts] // 2}
        nodes, owners = nodes[~out], owners[~idle[owners.thread]]
        found = _all_hand_offs(nodes, window, roles, 2 * loops["last"])
    bound = np.zeros(len(nodes.node), dtype=bool)
    bound[found.to] = True
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
    for name, chosen in (("_host_roots", roots), ("_gap_nodes", nodes.of_frame)):
        for places in _places(chosen):
            yield name, {"window": window[nodes.thread[places]], "node": nodes.node[places], "at": nodes.at[places]}
    for edges in _edges(nodes, window, found, bound):
        yield "_host_edges", edges


def _nodes(events: list[HostEvents], until: Ints) -> tuple[HostNodes, Frames]:
    """Returns the nodes of the events, which are taken out of the list. Many events are sorted a few threads at a time, because
    sorting takes the most memory.
    """
    thread = events[0].thread
    groups = list(in_groups(enumerate(np.bincount(thread).tolist()), EVENTS))
    if len(groups) < 2:
        return host_nodes(events.pop(), until)
    parts = [events[0][(thread >= group[0]) & (thread <= group[-1])] for group in groups]
    del thread, events[0]
    found = []
    while parts:
        found.append(host_nodes(parts.pop(0), until))
    nodes, frames = map(list, zip(*found, strict=True))
    del found
    return HostNodes.joined(nodes), Frames.joined(frames)


def _places(chosen: Flags) -> Iterator[Ints]:
    """Yields where it is true, part by part."""
    for first in range(0, len(chosen), _PART):
        yield first + np.flatnonzero(chosen[first : first + _PART])


def _early(nodes: HostNodes, threads: Ints, early: dict[str, Any]) -> dict[str, Ints]:
    """Returns for GPU work that began before its launch the last node of the launching thread before it."""
    key = early["window"] << 20 | early["thread_id"]
    thread = np.minimum(np.searchsorted(threads, key), max(len(threads) - 1, 0))
    span = max(int(nodes.at.max(initial=0)), int(early["at"].max(initial=0))) + 1
    keys = nodes.thread * np.int64(span) + nodes.at
    place = np.searchsorted(keys, thread * span + early["at"], side="right") - 1
    there = np.zeros(0, dtype=bool)
    if len(place) and len(threads):
        there = (threads[thread] == key) & (place >= 0) & (early["at"] >= 0) & (nodes.thread[place] == thread)
    place = place[there]
    return {
        "window": early["window"][there],
        "event": early["event"][there],
        "node": nodes.node[place],
        "elapsed": early["at"][there] - nodes.at[place],
    }


def _of_names(window: Ints, rows: dict[str, Any], frames: dict[str, Any]) -> tuple[Flags, Ints]:
    """Returns for each event whether it is named after a wait, and how it is shown as an owner (0 for operators)."""
    n = len(rows["event"])
    waits, shown = np.zeros(n, dtype=bool), np.zeros(n, dtype=np.int8)
    asked = np.flatnonzero(~rows["is_operator"])
    key = frames["window"] << 40 | frames["event"]
    order = np.argsort(key)
    place = order[np.searchsorted(key[order], window[asked] << 40 | rows["event"][asked])]
    rank = np.where(frames["is_function"], ~frames["library"], np.where(frames["is_step"], 0, 2))
    waits[asked], shown[asked] = frames["waits"][place], rank[place]
    return waits, shown


def _kept(rows: dict[str, Any], windows: Ints, work_end: Ints) -> Flags:
    """Returns the events of the graph (n,): not those of threads that only poll, nor what a thread that launches nothing
    does after the window's end, which is the end of GPU work (-1: none) or of a thread that launches some.
    """
    place = np.searchsorted(windows, rows["window"]).astype(np.int32)
    # Annotations alone are no work: a window has a path if there is an operator or GPU work in it.
    works = (np.bincount(place[rows["is_operator"]], minlength=len(windows)) > 0) | (work_end >= 0)
    kept = ~rows["polls"] & works[place]
    if rows["works"].all():
        return kept
    limit = work_end.copy()
    end = rows["start"] + rows["duration"]
    np.maximum.at(limit, place[rows["works"]], end[rows["works"]])
    return kept & (rows["works"] | (limit[place] < 0) | (end <= limit[place]))


def _waited_for_by_none(
    nodes: HostNodes, found: HandOffs, works: Flags, window: Ints, windows: dict[str, Any]
) -> Flags:
    """Return which threads (t,) launch nothing and hand over to no thread that counts, so that nothing waits for them.

    In a window without GPU work and without a thread that launches some, all threads count.
    """
    has_work = windows["window"][windows["work_end"] >= 0]
    has_work = np.union1d(has_work, window[np.unique(nodes.thread[works[nodes.thread]])])
    counts = works | ~np.isin(window, has_work)
    while True:
        waited_for = nodes.thread[found.of][counts[nodes.thread[found.to]]]
        if counts[waited_for].all():
            return ~counts
        counts[waited_for] = True


def _within_loops(rows: dict[str, Any], loops: dict[str, Any]) -> Flags:
    """Returns the calls before the last of a loop that asked until GPU work had ended."""
    within = loops["event"] != loops["last"]
    left = loops["window"][within] << 40 | loops["event"][within]
    if not len(left):
        return np.zeros(len(rows["event"]), dtype=bool)
    return np.isin(rows["window"].astype(np.int64) << 40 | rows["event"], left)


def _frames_in_loops(nodes: HostNodes, threads: Ints, loops: dict[str, Any]) -> Flags:
    """Returns the nodes of annotations and Python functions within such loops: what a loop does while it waits is nobody's."""
    is_last = loops["event"] == loops["last"]
    is_first = np.append(True, is_last[:-1])
    thread = np.searchsorted(threads, loops["window"][is_last] << 20 | loops["thread_id"][is_last])
    span = max(int(nodes.at.max(initial=0)), int(loops["start"].max(initial=0))) + 1
    since, until = (thread * span + loops["start"][of] for of in (is_first, is_last))
    order = np.argsort(since)
    key = nodes.thread * np.int64(span) + nodes.at
    place = np.searchsorted(since[order], key, side="right") - 1
    return nodes.of_frame & (place >= 0) & (key <= until[order][place])


def _all_hand_offs(nodes: HostNodes, window: Ints, roles: Roles, polled: Ints) -> HandOffs:
    """Returns the hand-offs of all windows, as indices of nodes; none to the nodes `polled`, which waited for the GPU."""
    firsts = np.flatnonzero(~nodes.before)
    pasts = np.append(firsts[1:], len(nodes.node))
    thread = nodes.thread[firsts]
    found = []
    for places in np.split(np.arange(len(firsts)), np.flatnonzero(np.diff(window[thread])) + 1):
        if len(places) > 1:
            bounds = list(zip(firsts[places].tolist(), pasts[places].tolist(), strict=True))
            of_these = Roles(*(getattr(roles, name)[thread[places]] for name in Roles.__dataclass_fields__))
            found.append(hand_offs(nodes, bounds, of_these))
    nothing = np.zeros(0, dtype=np.int64)
    all_of_them = HandOffs.joined([HandOffs(nothing, nothing, nothing.astype(bool)), *found])
    return all_of_them[~np.isin(nodes.node[all_of_them.to], polled)] if len(polled) else all_of_them


def _edges(nodes: HostNodes, window: Ints, found: HandOffs, bound: Flags) -> Iterator[dict[str, Any]]:
    """Yields the edges part by part; `window` is that of each thread."""
    own, gap, hand_off = edge_codes(("OPERATOR_KERNEL", "HOST_GAP", "THREAD_HAND_OFF"))
    begins = _begins(nodes, window)
    for to in _places(nodes.before):
        elapsed = nodes.at[to] - nodes.at[to - 1]
        yield {
            "window": window[nodes.thread[to]],
            "ordinal": to - begins[nodes.thread[to]],
            "src": nodes.node[to - 1],
            "dst": nodes.node[to],
            "code": np.where(nodes.in_gap[to], gap, own).astype(np.int8),
            "elapsed": elapsed,
            "claim": np.where(bound[to], 0, elapsed),
            "owner": nodes.owner[to],
            "inferred": np.zeros(len(to), dtype=bool),
        }
    passed = nodes.at[found.to] - nodes.at[found.of]
    # What a thread does after the other one has stopped, until its next node, is its own gap.
    short = (passed <= SHORT_NS) | nodes.waits[found.to]
    # Whose it is, is what spans it there; else what spans the thread that handed over.
    gap_after = np.append(nodes.in_gap, False)[found.of + 1]
    after = np.where(gap_after, np.append(nodes.owner, -1)[found.of + 1], -1)
    spans = np.where(nodes.before[found.to], nodes.owner[found.to], -1)
    spans = np.where(spans < 0, after, spans)
    yield {
        "window": window[nodes.thread[found.to]],
        "ordinal": _HAND_OFFS + found.to - begins[nodes.thread[found.to]],
        "src": nodes.node[found.of],
        "dst": nodes.node[found.to],
        "code": np.where(short, hand_off, gap).astype(np.int8),
        "elapsed": passed,
        "claim": passed,
        "owner": np.where(short, -1, spans),
        "inferred": found.inferred,
    }


def _begins(nodes: HostNodes, window: Ints) -> Ints:
    """Returns for each thread the first node of its window: places count from there, whatever others are computed with it."""
    first = np.flatnonzero(np.append(True, nodes.thread[1:] != nodes.thread[:-1])[: len(nodes.thread)])
    threads = nodes.thread[first]
    is_new = np.append(True, np.diff(window[threads]) != 0)[: len(threads)]
    begins = np.zeros(len(window), dtype=np.int64)
    begins[threads] = np.maximum.accumulate(np.where(is_new, first, 0))
    return begins
