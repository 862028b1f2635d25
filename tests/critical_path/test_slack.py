"""Slack and drag compared with plain networkx: an event is lengthened by its slack, by one more, or removed."""

from __future__ import annotations

from functools import cache

import duckdb
import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.critical_path.graph.cycle import GraphHasCycle
from pipelines.critical_path.graph.dependency_graph import ArrayGraph
from pipelines.critical_path.graph.windows import WindowRequest, request_windows
from pipelines.critical_path.longest.drag import _by_time
from pipelines.critical_path.longest.reach import reach
from pipelines.critical_path.longest.slack import AttributedGraph, event_slack
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from tests.effort import SLOW, examples, first_of
from tests.harness import call, connect_all, each, kernel, only, op
from tests.synthetic.random_capture import random_capture

Edge = tuple[int, int, int, int]  # source, destination, weight, event (-1: none)


@st.composite
def graphs(draw: st.DrawFn, weights: tuple[int, ...]) -> list[Edge]:
    """Draw edges of a random acyclic graph, in random order; an event may have several edges anywhere."""
    order = draw(st.permutations(range(draw(st.integers(2, 14)))))
    places = st.tuples(st.integers(0, len(order) - 1), st.integers(0, len(order) - 1)).filter(lambda p: p[0] < p[1])
    pairs = draw(st.lists(places, min_size=1, max_size=32, unique=True))
    events = st.integers(-1, draw(st.sampled_from([2, 5, 40])))
    return [(order[a], order[b], draw(st.sampled_from(weights)), draw(events)) for a, b in pairs]


def attributed(edges: list[Edge]) -> AttributedGraph:
    src, dst, weight, event = (np.array([e[k] for e in edges], dtype=np.int64) for k in range(4))
    return AttributedGraph(ArrayGraph.from_edges(src, dst, weight), event)


def length(edges: list[Edge]) -> int:
    plain = nx.DiGraph()
    plain.add_weighted_edges_from(edge[:3] for edge in edges)
    return nx.dag_longest_path_length(plain, backend="networkx")


def holds_by_brute_force(edges: list[Edge]) -> None:
    slacks, whole = event_slack(attributed(edges)), length(edges)
    assert slacks.event_id.tolist() == sorted({e[3] for e in edges if e[3] >= 0})
    for event, slack, drag, own in zip(slacks.event_id, slacks.slack_ns, slacks.drag_ns, slacks.own_ns, strict=True):
        mine = [i for i, e in enumerate(edges) if e[3] == event]
        longer = [
            [length([(u, v, w + more * (i == j), e) for j, (u, v, w, e) in enumerate(edges)]) for i in mine]
            for more in (slack, slack + 1)
        ]
        assert set(longer[0]) == {whole}, "by its slack, on any of its edges: the same"
        assert max(longer[1]) == whole + 1, "by one more, on one of them: one longer"
        removed = length([(u, v, 0 if e == event else w, e) for u, v, w, e in edges])
        assert whole - removed == drag
        assert own == sum(edges[i][2] for i in mine)


@settings(max_examples=examples(400), deadline=None)
@given(graphs((0, 1, 1, 2, 3, 5, 9, 30)))
def test_random_graphs(edges: list[Edge]) -> None:
    holds_by_brute_force(edges)


@settings(max_examples=examples(400), deadline=None)
@given(graphs((0, 1, 2, 5, 9, -1, -3, -8)))
def test_random_graphs_with_negative_weights(edges: list[Edge]) -> None:
    holds_by_brute_force(edges)


def test_the_sweep_for_a_drag_looks_at_the_time_of_its_event() -> None:
    """A thread with many nodes runs concurrently with a thread with few.

    Nodes of the same time are close to each other, however long the trace is.
    """
    fine = [edge for i in range(400) for edge in ((i, i + 1, 1, -1), (i, 2000 + i, 0, -1))]
    coarse = [edge for k in range(20) for edge in ((1000 + k, 1001 + k, 20, -1), (1000 + k, 3000 + k, 0, -1))]
    graph = attributed([(5000, 0, 0, -1), (5000, 1000, 0, -1), *fine, *coarse]).graph
    graph_reach = reach(graph)
    place, src, dst = _by_time(graph_reach), graph_reach.chains.src, graph_reach.chains.dst
    assert (place[dst] > place[src]).all()
    nodes = np.append(graph.node_ids, [-1, -2])[graph_reach.chains.node].tolist()
    at = dict(zip(nodes, place.tolist(), strict=True))
    assert max(abs(at[1000 + k] - at[20 * k]) for k in range(20)) <= 5


@settings(max_examples=examples(200), deadline=None)
@given(graphs((1, 2, 5, 9, 30)), st.data())
def test_slack_spread_over_the_edges_changes_nothing(edges: list[Edge], data: st.DataObject) -> None:
    slacks = event_slack(attributed(edges))
    for event, slack in zip(slacks.event_id.tolist(), slacks.slack_ns.tolist(), strict=True):
        mine = [i for i, e in enumerate(edges) if e[3] == event]
        where = data.draw(st.lists(st.sampled_from(mine), min_size=min(slack, 40), max_size=min(slack, 40)))
        longer = [(u, v, w + where.count(i), e) for i, (u, v, w, e) in enumerate(edges)]
        assert length(longer) == length(edges)


@pytest.mark.slow
@pytest.mark.parametrize("profile", first_of(["default", "hta"], 1))
def test_random_captures(profile: str) -> None:
    con, traces = connect_all(random_capture(seed) for seed in range(5 if SLOW else 2))
    request_windows(con, [WindowRequest(trace_id, profile=profile) for trace_id in traces])
    tables = ("critical_path_edges", "critical_path_nodes", "critical_path", "event_slack")
    run_models(con, load_catalog(), tables)
    for trace_id in traces:
        only(con, trace_id, tables)
        slack_of_the_edges(con)


def slack_of_the_edges(con: duckdb.DuckDBPyConnection) -> None:
    edges = con.execute(
        "SELECT src_node_id, dst_node_id, path_weight_ns, coalesce(attributed_event_id, -1) FROM critical_path_edges "
        "ORDER BY edge_id"
    ).fetchall()
    assert con.execute("SELECT sum(path_weight_ns) FROM critical_path").fetchall() == [(length(edges),)]
    rows = con.execute("SELECT event_id, slack_ns, drag_ns, own_ns FROM event_slack ORDER BY event_id").fetchall()
    owners = {e[3] for e in edges} - {-1}
    nodes = {event for (event,) in con.execute("SELECT event_id FROM critical_path_nodes").fetchall()}
    assert [row[0] for row in rows] == sorted(nodes | owners)
    without = [row[0] for row in rows if row[1] is None]
    assert without == sorted(nodes - owners)
    holds_by_brute_force(edges)
    slacks = event_slack(attributed(edges))
    assert [row for row in rows if row[0] not in without] == list(
        zip(*(getattr(slacks, name).tolist() for name in ("event_id", "slack_ns", "drag_ns", "own_ns")), strict=True)
    )


@pytest.mark.parametrize("seed", first_of(range(6), 2))
def test_drag_on_larger_graphs_whose_events_lie_far_apart(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 150, 400)
    pairs = {(int(u), int(u + d)) for u, d in zip(a, rng.integers(1, [4, 30][seed % 2], 400), strict=True)}
    per_event = [1, 10, 40][seed % 3]
    edges = [(u, v, int(w), u // per_event) for (u, v), w in zip(sorted(pairs), rng.integers(0, 9, 400), strict=False)]
    slacks, whole = event_slack(attributed(edges)), length(edges)
    for event, drag in zip(slacks.event_id, slacks.drag_ns, strict=True):
        assert whole - length([(u, v, 0 if e == event else w, e) for u, v, w, e in edges]) == drag


SIDE_BY_SIDE = [op("aten::a", 0, 1), kernel("long", 10, 30, 1, stream=7), kernel("short", 10, 20, 2, stream=8)]
OVERLAPPING = [
    call("cudaGraphLaunch", 0, 5, 1),
    *(kernel(*k, 1) for k in (("a", 20, 100), ("b", 100, 50), ("c", 140, 60))),
]


@cache
def of_both() -> list[list[tuple]]:
    """Return the rows of `event_slack` for each trace; the models run once."""
    query = "SELECT event_id, slack_ns, drag_ns, own_ns FROM event_slack ORDER BY ALL"
    return [con.execute(query).fetchall() for con in each([SIDE_BY_SIDE, OVERLAPPING], "event_slack")]


def test_two_streams_side_by_side() -> None:
    """The short kernel's slack is the difference. Without the long kernel, the short kernel is on the path."""
    assert of_both()[0] == [
        (0, 39_000, 0, 1_000),  # no GPU work waits for the call
        (1, 0, 10_000, 30_000),
        (2, 10_000, 0, 20_000),
    ]


def test_kernels_that_overlap_on_a_stream() -> None:
    """The kernels run at 20..120, 100..150 and 140..200.

    Without a, the others begin 80 us earlier. Without b, the third begins 40 us earlier. Without c, the path ends with
    b at 150.
    """
    rows = [row[:3] for row in of_both()[1]]
    assert rows == [(0, 195_000, 0), (1, 0, 80_000), (2, 0, 40_000), (3, 0, 50_000)]


def test_nothing_a_cycle_and_fractions() -> None:
    assert len(event_slack(attributed([])).event_id) == 0
    assert len(event_slack(attributed([(0, 1, 5, -1)])).event_id) == 0
    with pytest.raises(GraphHasCycle, match="1"):
        event_slack(attributed([(0, 1, 1, 0), (1, 2, 1, 0), (2, 1, 1, 0)]))
    with pytest.raises(GraphHasCycle):
        event_slack(attributed([(1, 2, 1, 0), (2, 1, 1, 0)]))
    with pytest.raises(TypeError, match="nanoseconds"):
        ArrayGraph.from_edges(np.array([0]), np.array([1]), np.array([0.5]))
