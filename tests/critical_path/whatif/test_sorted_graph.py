"""A graph sorted once against plain networkx: the same path under every change of weights, ties included."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.critical_path.graph.cycle import GraphHasCycle
from pipelines.critical_path.graph.dependency_graph import ArrayGraph
from pipelines.critical_path.whatif.sorted_graph import Forest
from tests.effort import examples

Edges = list[tuple[int, int, int]]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Edges, list[list[float]]]:
    """Edges of a random graph without cycles, in random order, and factors for them."""
    order = draw(st.permutations(range(draw(st.integers(2, 12)))))
    places = st.tuples(st.integers(0, len(order) - 1), st.integers(0, len(order) - 1)).filter(lambda p: p[0] < p[1])
    pairs = draw(st.lists(places, min_size=1, max_size=25, unique=True))
    weights = st.sampled_from([0, 0, 1, 1, 2, 5, -1, -3])
    changes = st.lists(st.sampled_from([0, 0.5, 1, 1, 3]), min_size=len(pairs), max_size=len(pairs))
    edges = [(order[a], order[b], draw(weights)) for a, b in pairs]
    return edges, [[1.0] * len(edges), draw(changes), draw(changes)]


def array_graph(edges: Edges) -> ArrayGraph:
    src, dst, weight = (np.array([edge[k] for edge in edges], dtype=np.int64) for k in range(3))
    return ArrayGraph.from_edges(src, dst, weight)


@settings(max_examples=examples(300), deadline=None)
@given(graphs())
def test_changed_weights_have_networkx_path(case: tuple[Edges, list[list[float]]]) -> None:
    edges, changes = case
    graph = array_graph(edges)
    forest = Forest(graph)  # once for all changes
    for factors in changes:
        weight = np.rint(graph.weight * np.array(factors)).astype(np.int64)
        plain = nx.DiGraph()
        plain.add_weighted_edges_from((u, v, int(w)) for (u, v, _), w in zip(edges, weight, strict=True))
        nodes = nx.dag_longest_path(plain)
        found = forest.distances(weight)
        path = forest.longest_path(found)
        assert graph.node_ids[graph.dst[path]].tolist() == nodes[1:]
        assert graph.node_ids[graph.src[path]].tolist() == nodes[:-1]
        assert weight[path].sum() == found.at.max() == nx.dag_longest_path_length(plain)


@settings(max_examples=examples(100), deadline=None)
@given(graphs())
def test_times_are_the_latest_of_all_ways(case: tuple[Edges, list[list[float]]]) -> None:
    edges, _ = case
    graph = array_graph(edges)
    begin = np.arange(len(graph)) * 7
    at = Forest(graph).distances(graph.weight, begin=begin).at
    for node in range(len(graph)):
        into = np.flatnonzero(graph.dst == node)
        assert at[node] == (max(at[graph.src[into]] + graph.weight[into]) if len(into) else begin[node])


@pytest.mark.parametrize("edges", [[(0, 1, 1), (1, 0, 1)], [(0, 1, 1), (1, 2, 1), (2, 1, 1)], [(5, 6, 1), (7, 7, 0)]])
def test_a_cycle_is_named(edges: Edges) -> None:
    with pytest.raises(GraphHasCycle, match=r"[0-9]"):
        Forest(array_graph(edges))


def test_a_long_chain_does_not_nest() -> None:
    graph = array_graph([(i, i + 1, 1) for i in range(50_000)])
    forest = Forest(graph)
    assert forest.longest_path(forest.distances(2 * graph.weight)).tolist() == list(range(50_000))
