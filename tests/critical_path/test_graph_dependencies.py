"""Edges inside CUDA graphs, as Cuspy draws them (torch/profiler/_cuspy/trace.py).

If a graph has drawn edges, no edge between its nodes is inferred.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from pipelines.critical_path.graph.windows import WindowRequest, request_windows
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from tests.harness import call, connect_all, kernel, only, x

Event = dict[str, Any]
LAUNCH = call("cudaGraphLaunch", 0, 10, 1)
OWN, GAP, DELAY = "OPERATOR_KERNEL", "KERNEL_KERNEL_DELAY", "KERNEL_LAUNCH_DELAY"


def node(number: int, event: Event, correlation: int = 1, lane: int | None = None) -> Event:
    event["args"] |= {"graph node id": number, "graph id": 3, "correlation": correlation}
    if lane is not None:
        event["args"] |= {"original_stream": event["args"]["stream"], "stream": lane}
        event["tid"] = lane
    return event


def arrow(ph: str, flow: int, at: float, event: Event) -> Event:
    ends = {"bp": "e"} if ph == "f" else {}
    where = {"pid": event["pid"], "tid": event["tid"], "ts": at}
    return {"ph": ph, "id": flow, **where, "cat": "ac2g", "name": "ac2g", **ends}


def with_arrows(nodes: Sequence[Event], edges: Sequence[tuple[int, int]], first: int = 1 << 40) -> list[Event]:
    """Return the nodes and the edges between them (pairs of indices), as Cuspy writes both."""
    events = [LAUNCH, *nodes]
    targets = {target for _, target in edges}
    events += [
        arrow("f", event["args"]["correlation"], event["ts"], event)
        for i, event in enumerate(nodes)
        if i not in targets
    ]
    events.append({"ph": "s", "id": 1, "pid": 100, "tid": 1, "ts": 0, "cat": "ac2g", "name": "ac2g"})
    for flow, (source, target) in enumerate(edges, first):
        source_node = nodes[source]
        events += [
            arrow("s", flow, source_node["ts"] + source_node["dur"], source_node),
            arrow("f", flow, nodes[target]["ts"], nodes[target]),
        ]
    return events


def fork(lanes: bool = False) -> list[Event]:
    """Return four kernels: b and d begin when a ends, and c waits only for b, although d ends last before it."""
    work = [
        kernel("a", 20, 100, 1),
        kernel("b", 130, 50, 1, stream=8),
        kernel("d", 130, 55, 1, stream=9),
        kernel("c", 190, 60, 1, stream=7),
    ]
    return [node(40 + i, event, lane=1000 + i % 2 if lanes else None) for i, event in enumerate(work)]


EDGES = [(0, 1), (0, 2), (1, 3)]
RECORD = "graph_event_node"


def recorded(name: str, at: float, duration: float = 0.0, cat: str = RECORD) -> Event:
    return x(cat, name, at, duration, 7, 0, stream=7, device=0)


def through(*between: Event) -> list[Event]:
    work = [kernel("a", 20, 100, 1), *between, kernel("x", 20, 120, 1, stream=9), kernel("c", 150, 60, 1, stream=8)]
    return [node(40 + i, event) for i, event in enumerate(work)]


GUESS = [(DELAY, "a", 20), (OWN, "a", 100), (GAP, "d", 10), (OWN, "d", 55), (GAP, "c", 5), (OWN, "c", 60)]
KNOWN = [(DELAY, "a", 20), (OWN, "a", 100), (GAP, "b", 10), (OWN, "b", 50), (GAP, "c", 10), (OWN, "c", 60)]
OF_A = [(DELAY, "a", 20), (OWN, "a", 100), (GAP, "c", 30), (OWN, "c", 60)]
TRACES: dict[str, tuple[list[Event], list[tuple[str, str, int]]]] = {
    "no arrows": ([LAUNCH, *fork()], GUESS),
    "arrows": (with_arrows(fork(), EDGES), KNOWN),
    "on lanes": (with_arrows(fork(lanes=True), EDGES), KNOWN),
    "one of several": (with_arrows(fork(), [*EDGES, (0, 3)]), KNOWN),
    # Unknown edges are inferred. c has an arrow neither from its launch nor from other work.
    "some unknown": (
        [e for e in with_arrows(fork(), EDGES[:2]) if (e["ph"], e.get("ts")) != ("f", 190)], GUESS,
    ),
    "a root": (with_arrows(fork(), EDGES[:2]), [(DELAY, "a", 20), (OWN, "a", 100), (GAP, "c", 70), (OWN, "c", 60)]),
    "through a record": (with_arrows(through(recorded("EventRecord", 121)), [(0, 1), (1, 3)]), OF_A),
    "through two": (
        with_arrows(
            through(recorded("EventRecord", 121), recorded("HostNode", 122, 8, "graph_host_node")),
            [(0, 1), (1, 2), (2, 4)],
        ),
        OF_A,
    ),
    "as guessed": (with_arrows(fork(), [(0, 1), (0, 2), (2, 3)]), GUESS),
}  # fmt: skip


def paths_of(traces: Sequence[list[Event]], profile: str = "default") -> list[list[tuple]]:
    con, trace_ids = connect_all(traces)
    with con:
        request_windows(con, [WindowRequest(trace_id, profile=profile) for trace_id in trace_ids])
        run_models(con, load_catalog(), ["critical_path"])
        query = "SELECT edge_type, name, path_weight_ns / 1000 FROM critical_path WHERE path_weight_ns <> 0"
        return [con.execute(f"{query} AND trace_id = '{trace_id}' ORDER BY seq").fetchall() for trace_id in trace_ids]


@pytest.mark.slow  # 5 s
def test_the_path_follows_the_graph_s_edges() -> None:
    paths = paths_of([events for events, _ in TRACES.values()])
    for (name, (_, expected)), path in zip(TRACES.items(), paths, strict=True):
        assert path == expected, name


@pytest.mark.slow  # 2 s
def test_profile_hta_knows_no_edges_of_graphs() -> None:
    without, with_edges = paths_of([[LAUNCH, *fork()], with_arrows(fork(), EDGES)], "hta")
    assert without == with_edges


def test_edges_are_of_one_replay_and_all_of_them_are_there() -> None:
    """A second replay has its own arrows. Ends and starts at the same time do not connect the replays."""
    second = [{**event, "ts": event["ts"] + 170, "args": {**event["args"], "correlation": 2}} for event in fork()]
    other = [arrow("f", 2, second[0]["ts"], second[0])]
    for flow, (source, target) in enumerate(EDGES, 2 << 40):
        source_node = second[source]
        other += [
            arrow("s", flow, source_node["ts"] + source_node["dur"], source_node),
            arrow("f", flow, second[target]["ts"], second[target]),
        ]
    first = with_arrows(fork(), [*EDGES, (2, 3)])
    con, (trace_id, _) = connect_all([[*first, call("cudaGraphLaunch", 12, 5, 2), *second, *other], [LAUNCH]])
    with con:
        run_models(con, load_catalog(), ["_graph_dependencies"])
        only(con, trace_id, ["_graph_dependencies"])
        edges = con.execute("SELECT source_event_id, event_id FROM _graph_dependencies").fetchall()
    again = len(first) + 1
    ours = {(None, 1), (1, 2), (1, 3), (2, 4), (3, 4)}
    theirs = {(None, again), (again, again + 1), (again, again + 2), (again + 1, again + 3)}
    assert set(edges) == ours | theirs and len(edges) == len(ours | theirs)


@pytest.mark.slow  # 3 s
def test_arrows_that_meet_no_work_are_none() -> None:
    changes = ("end", "pid", "flow")
    traces = []
    for change in changes:
        events = with_arrows(fork(), EDGES)
        for event in events:
            if event["ph"] == "s" and event["id"] > 1:
                event |= {"end": {"ts": event["ts"] - 1}, "pid": {"pid": 1}, "flow": {"id": event["id"] + 100}}[change]
        traces.append(events)
    assert [path[-2:] for path in paths_of(traces)] == [GUESS[-2:]] * len(changes)


@pytest.mark.slow  # 2 s; a test above checks the edges themselves
def test_work_has_an_edge_from_each_that_it_depends_on() -> None:
    """c depends on both b and d."""
    con, _ = connect_all([with_arrows(fork(), [*EDGES, (2, 3)])])
    with con:
        run_models(con, load_catalog(), ["critical_path_edges"])
        into_c = con.execute(
            "SELECT src_event_id FROM critical_path_edges WHERE dst_event_id = 4 AND dst_is_start ORDER BY src_event_id"
        ).fetchall()
    assert {source for (source,) in into_c} >= {2, 3}
