"""Our longest path against plain networkx: the same nodes, ties and negative weights included."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.critical_path.graph.dependency_graph import ArrayGraph
from tests.effort import examples


@st.composite
def dags(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    """Edges of a random graph without cycles, in random order, with many equal, zero and negative weights."""
    order = draw(st.permutations(range(draw(st.integers(2, 12)))))
    places = st.tuples(st.integers(0, len(order) - 1), st.integers(0, len(order) - 1)).filter(lambda p: p[0] < p[1])
    pairs = draw(st.lists(places, min_size=1, max_size=25, unique=True))
    return [(order[a], order[b], draw(st.sampled_from([0, 0, 1, 1, 2, 5, -1, -3]))) for a, b in pairs]


def both(edges: list[tuple[int, int, int]]) -> tuple[nx.DiGraph, ArrayGraph]:
    plain = nx.DiGraph()
    for u, v, w in edges:
        plain.add_edge(u, v, weight=w)
    src, dst, weight = (np.array([e[k] for e in edges]) for k in range(3))
    return plain, ArrayGraph.from_edges(src, dst, weight)


@settings(max_examples=examples(400), deadline=None)
@given(dags())
def test_networkx_dispatches_to_the_same_path(edges: list[tuple[int, int, int]]) -> None:
    plain, ours = both(edges)
    assert nx.dag_longest_path(ours, weight="weight") == nx.dag_longest_path(plain, weight="weight")
    assert nx.dag_longest_path_length(ours) == nx.dag_longest_path_length(plain)


@settings(max_examples=examples(100), deadline=None)
@given(dags())
def test_conversion_keeps_nodes_edges_and_path(edges: list[tuple[int, int, int]]) -> None:
    plain, ours = both(edges)
    back = ours.to_networkx()
    assert list(back) == list(plain)
    assert list(back.edges(data="weight")) == list(plain.edges(data="weight"))


def test_an_empty_graph() -> None:
    empty = np.array([], dtype=np.int64)
    assert nx.dag_longest_path(ArrayGraph.from_edges(empty, empty, empty)) == []


def test_a_cycle_is_named() -> None:
    _, ours = both([(0, 1, 1), (1, 2, 1), (2, 1, 1)])
    with pytest.raises(nx.NetworkXUnfeasible, match="1"):
        nx.dag_longest_path(ours)
