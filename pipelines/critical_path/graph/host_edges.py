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

from pipelines.critical_path.graph.edge_types import edge_codes
from pipelines.critical_path.graph.hand_offs import SHORT_NS, HandOffs, Roles, hand_offs
from pipelines.critical_path.graph.host_nodes import HostEvents, HostNodes, host_nodes
from pipelines.critical_path.graph.stack_order import EVENTS, Flags, Ints
from pipelines.models.groups import in_groups
from pipelines.models.python_tables import create_table, python_model
from pipelines.models.sqltext import quoted

_READS = ("_clip", "_asked_windows", "_thread_roles", "waiting_frames", "python_frames", "events")
_NODES = (
    ("window_no", "BIGINT", "The window."),
    ("node_id", "BIGINT", "The node."),
    ("at_ns", "BIGINT", "Its time since the window's start, ns."),
)
_HAND_OFFS = 1 << 40
"""The first number of hand-offs in a window, behind all other edges of its threads."""
_OF = "c.side = 'cpu' AND c.window_no BETWEEN {first} AND {last} AND w.covers_window"
_EVENTS = f"""
    SELECT
        c.window_no AS "window", c.thread_id, c.event_id AS event, c.start_ns - w.start_ns AS start, c.duration_ns AS duration,
        c.is_operator, c.is_blocking AS blocks, w.end_ns - w.start_ns AS until,
        coalesce(r.process_no, 0) AS process, coalesce(r.is_working, FALSE) AS works,
        coalesce(r.only_polls, FALSE) AS polls, coalesce(r.is_autograd, FALSE) AS autograd,
        coalesce(r.calls_backward, FALSE) AS calls
    FROM _clip AS c
    JOIN _asked_windows AS w ON w.window_no = c.window_no
    LEFT JOIN _thread_roles AS r ON r.trace_profile_id = w.trace_profile_id AND r.thread_id = c.thread_id
    WHERE {_OF}
"""
_FRAMES = f"""
    SELECT
        c.window_no AS "window", c.event_id AS event, coalesce(regexp_matches(e.name, {{waiting}}), FALSE) AS waits,
        CASE
            WHEN e.cat <> 'python_function' THEN CASE WHEN starts_with(e.name, 'ProfilerStep#') THEN 0 ELSE 2 END
            WHEN regexp_matches(e.name, {{library}}) THEN 0
            ELSE 1
        END AS shown
    FROM _clip AS c
    JOIN _asked_windows AS w ON w.window_no = c.window_no
    JOIN events AS e ON e.trace_id = w.trace_id AND e.event_id = c.event_id
    WHERE {_OF} AND NOT c.is_operator
"""
_WORK_ENDS = """
    SELECT c.window_no, max(c.start_ns + c.duration_ns - w.start_ns)
    FROM _clip AS c JOIN _asked_windows AS w ON w.window_no = c.window_no
    WHERE c.side = 'gpu' AND c.window_no BETWEEN {first} AND {last} GROUP BY c.window_no
"""
# GPU work that began before the call that launched it: the clocks of both disagree.
_EARLY = """
    SELECT k.window_no AS "window", k.event_id AS event, k.start_ns - w.start_ns AS "at", l.thread_id
    FROM _clip AS k
    JOIN _asked_windows AS w ON w.window_no = k.window_no
    JOIN _clip AS l ON l.window_no = k.window_no AND l.event_id = k.launch_event_id AND l.is_operator
    WHERE k.side = 'gpu' AND k.launch_in_window AND k.launch_ts_ns > k.start_ns AND w.covers_window
        AND k.window_no BETWEEN {first} AND {last}
"""
_INSERTS = {
    "_host_edges": '"window", ordinal, src, dst, code, elapsed, claim, nullif(owner, -1), blocks, inferred',
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
        ("ends_blocking_call", "BOOLEAN", "It leads to the end of a call that may wait for the GPU."),
        ("is_inferred", "BOOLEAN", "A hand-off that no arrow and no name shows: inferred from the times."),
    ),
    reads=_READS,
)
@python_model(
    "_host_roots",
    layer="critical_path",
    doc="One row: the first node of a host thread, in a window that the path covers, where no other thread handed over to it.",
    columns=_NODES,
    reads=_READS,
)
@python_model(
    "_gap_nodes",
    layer="critical_path",
    doc="One row: the start or end of an annotation or Python function outside operators, which is a node of a window that the path covers.",
    columns=_NODES,
    reads=_READS,
)
@python_model(
    "_left_out",
    layer="critical_path",
    doc="One row: an operator or call that is no part of the graph of a window that the path covers: its thread only polls, or launches no GPU work and goes on after the window's end.",
    columns=(("window_no", "BIGINT", "The window."), ("event_id", "BIGINT", "The event.")),
    reads=_READS,
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
)
def host_edges(con: duckdb.DuckDBPyConnection) -> None:
    """Create the six tables from `_clip`, for the windows that the path covers."""
    for name in _INSERTS:
        create_table(con, name)
    for rows, frames, work_ends, early in _groups(con):
        for name, found in _tables(rows, frames, work_ends, early).items():
            if len(found["window"]):
                con.execute(f"INSERT INTO {name} SELECT {_INSERTS[name]} FROM found")


def _groups(
    con: duckdb.DuckDBPyConnection,
) -> Iterator[tuple[dict[str, Any], dict[str, Any], dict[int, int], dict[str, Any]]]:
    """Yields the CPU events of windows, what the names of annotations and functions among them say, when the last GPU work
    of each window ends, and the GPU work that began before its launch.
    """
    counted = con.execute(
        "SELECT c.window_no, count(*) FROM _clip AS c JOIN _asked_windows AS w ON w.window_no = c.window_no "
        "WHERE w.covers_window AND c.side = 'cpu' GROUP BY 1 ORDER BY 1"
    ).fetchall()
    waiting = _any_of(con, "SELECT name_pattern FROM waiting_frames")
    library = _any_of(con, "SELECT name_pattern FROM python_frames WHERE owner <> 'module'")
    for numbers in in_groups(counted, EVENTS):
        these = {"first": numbers[0], "last": numbers[-1], "waiting": waiting, "library": library}
        rows, frames, early = (_columns(con, query.format(**these)) for query in (_EVENTS, _FRAMES, _EARLY))
        yield rows, frames, dict(con.execute(_WORK_ENDS.format(**these)).fetchall()), early


def _any_of(con: duckdb.DuckDBPyConnection, query: str) -> str:
    """Returns one pattern for all of a rule table, as SQL text."""
    return quoted("|".join(f"({pattern})" for (pattern,) in con.execute(query).fetchall()))


def _columns(con: duckdb.DuckDBPyConnection, query: str) -> dict[str, Any]:
    return {name: np.asarray(column) for name, column in con.execute(query).fetchnumpy().items()}


def _tables(
    rows: dict[str, Any], frames: dict[str, Any], work_ends: dict[int, int], early: dict[str, Any]
) -> dict[str, dict[str, Ints]]:
    """Returns the rows of the six tables for some windows."""
    kept = _kept(rows, work_ends)
    left = ~kept & rows["is_operator"]
    left_out = {"window": rows["window"][left], "event": rows["event"][left]}
    rows = {name: column[kept] for name, column in rows.items()}
    threads, first, thread = np.unique(rows["window"] << 20 | rows["thread_id"], return_index=True, return_inverse=True)
    window = threads >> 20
    roles = Roles(*(rows[name][first] for name in ("process", "works", "autograd", "calls")))
    waits, shown = _of_names(rows, frames)
    of_rows = {name: rows[name] for name in ("event", "start", "duration", "until", "is_operator", "blocks")}
    events = HostEvents(thread=thread, **of_rows, waits=waits, shown=shown)
    del rows, thread, frames
    nodes, owners = host_nodes(events)
    found = _all_hand_offs(nodes, window, roles)
    bound = np.zeros(len(nodes.node), dtype=bool)
    bound[found.to] = True
    roots = ~nodes.before & ~bound
    gap_owners = {
        "window": window[owners.thread],
        "event": owners.event,
        "around": owners.around,
        "owner": owners.shown,
    }
    window = window[nodes.thread]
    return {
        "_host_edges": _edges(nodes, window, found, bound),
        "_host_roots": {"window": window[roots], "node": nodes.node[roots], "at": nodes.at[roots]},
        "_gap_nodes": {
            name: column[nodes.of_frame]
            for name, column in (("window", window), ("node", nodes.node), ("at", nodes.at))
        },
        "_left_out": left_out,
        "_gap_owners": gap_owners,
        "_early_work": _early(nodes, threads, early),
    }


def _early(nodes: HostNodes, threads: Ints, early: dict[str, Any]) -> dict[str, Ints]:
    """Returns for GPU work that began before its launch the last node of the launching thread before it."""
    key = early["window"] << 20 | early["thread_id"]
    thread = np.minimum(np.searchsorted(threads, key), max(len(threads) - 1, 0))
    span = max(int(nodes.at.max(initial=0)), int(early["at"].max(initial=0))) + 1
    place = np.searchsorted(nodes.thread * span + nodes.at, thread * span + early["at"], side="right") - 1
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


def _of_names(rows: dict[str, Any], frames: dict[str, Any]) -> tuple[Flags, Ints]:
    """Returns for each event whether it is named after a wait, and how it is shown as an owner (0 for operators)."""
    key, wanted = frames["window"] << 40 | frames["event"], rows["window"] << 40 | rows["event"]
    order = np.argsort(key)
    place = np.minimum(np.searchsorted(key[order], wanted), max(len(key) - 1, 0))
    there = key[order][place] == wanted if len(key) else np.zeros(len(wanted), dtype=bool)
    waits, shown = (np.append(frames[name][order], 0) for name in ("waits", "shown"))
    return there & waits[place].astype(bool), np.where(there, shown[place], 0).astype(np.int64)


def _kept(rows: dict[str, Any], work_ends: dict[int, int]) -> Flags:
    """Returns the events of the graph (n,): not those of threads that only poll, nor what a thread that launches nothing
    does after the window's end, which is the end of GPU work or of a thread that launches some.
    """
    windows, place = np.unique(rows["window"], return_inverse=True)
    # Annotations alone are no work: a window has a path if there is an operator or GPU work in it.
    works = np.bincount(place, rows["is_operator"], minlength=len(windows)) > 0
    works |= np.array([window in work_ends for window in windows.tolist()], dtype=bool)
    kept = ~rows["polls"] & works[place]
    if rows["works"].all():
        return kept
    limit = np.array([work_ends.get(window, -1) for window in windows.tolist()])
    end = rows["start"] + rows["duration"]
    np.maximum.at(limit, place[rows["works"]], end[rows["works"]])
    return kept & (rows["works"] | (limit[place] < 0) | (end <= limit[place]))


def _all_hand_offs(nodes: HostNodes, window: Ints, roles: Roles) -> HandOffs:
    """Returns the hand-offs of all windows, as indices of nodes."""
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
    parts = [HandOffs(nothing, nothing, nothing.astype(bool)), *found]
    return HandOffs(*(np.concatenate([getattr(one, name) for one in parts]) for name in HandOffs.__dataclass_fields__))


def _edges(nodes: HostNodes, window: Ints, found: HandOffs, bound: Flags) -> dict[str, Ints]:
    own, gap, hand_off = edge_codes(("OPERATOR_KERNEL", "HOST_GAP", "THREAD_HAND_OFF"))
    to = np.flatnonzero(nodes.before)
    elapsed = nodes.at[to] - nodes.at[to - 1]
    begins = np.maximum.accumulate(np.where(np.append(-1, window[:-1]) != window, np.arange(len(window)), 0))
    passed = nodes.at[found.to] - nodes.at[found.of]
    # What a thread does after the other one has stopped, until its next node, is its own gap.
    short = (passed <= SHORT_NS) | nodes.waits[found.to]
    # Whose it is, is what spans it there; else what spans the thread that handed over.
    gap_after = np.append(nodes.in_gap, False)[found.of + 1]
    after = np.where(gap_after, np.append(nodes.owner, -1)[found.of + 1], -1)
    spans = np.where(nodes.before, nodes.owner, -1)[found.to]
    spans = np.where(spans < 0, after, spans)
    return {
        "window": np.append(window[to], window[found.to]),
        # Of the window alone, whatever others are computed with it.
        "ordinal": np.append(to - begins[to], _HAND_OFFS + found.to - begins[found.to]),
        "src": nodes.node[np.append(to - 1, found.of)],
        "dst": nodes.node[np.append(to, found.to)],
        "code": np.append(np.where(nodes.in_gap[to], gap, own), np.where(short, hand_off, gap)),
        "elapsed": np.append(elapsed, passed),
        "claim": np.append(np.where(bound[to], 0, elapsed), passed),
        "owner": np.append(nodes.owner[to], np.where(short, -1, spans)),
        "blocks": np.append(nodes.blocks[to], np.zeros(len(passed), dtype=bool)),
        "inferred": np.append(np.zeros(len(to), dtype=bool), found.inferred),
    }
