"""What a window saves against plain networkx: the longest path of the graph without an edge, or with less of it."""

from __future__ import annotations

from dataclasses import dataclass

import networkx as nx
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.critical_path.causes.edge_causes import CAUSES
from pipelines.critical_path.causes.savings import Retimed, Shares
from pipelines.critical_path.graph.dependency_graph import ArrayGraph
from tests.effort import examples

_SYNC, _OTHER = CAUSES.index("synchronization"), CAUSES.index("gpu_computing")


@dataclass(frozen=True)
class Case:
    """A graph without cycles, and the edges that are one row's, that wait, and that are a wait's own time (places)."""

    edges: list[tuple[int, int, int]]
    row: list[int]
    waits: list[int]
    spent: list[int]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Chains, whose edges follow each other as those of a thread or a stream, and edges between them."""
    lengths = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    weights = st.sampled_from([0, 1, 2, 5, 40])
    edges, first, of_chains = [], 0, []
    for length in lengths:
        edges += [(node, node + 1, draw(weights)) for node in range(first, first + length)]
        of_chains.append(range(first, first + length + 1))
        first += length + 1
    node = st.integers(0, first - 1)
    between = draw(st.lists(st.tuples(node, node), max_size=6, unique=True))
    known = {(a, b) for a, b, _ in edges}
    edges += [(a, b, draw(weights)) for a, b in between if a < b and (a, b) not in known]
    places = st.lists(st.integers(0, len(edges) - 1), unique=True, max_size=6)
    waits = draw(places)
    return Case(edges, draw(places), waits, [place for place in draw(places) if place not in waits])


def _longest(edges: list[tuple[int, int, int]], gone: set[int], changed: dict[int, int]) -> int:
    graph = nx.DiGraph()
    graph.add_nodes_from(node for a, b, _ in edges for node in (a, b))
    graph.add_weighted_edges_from((a, b, changed.get(i, w)) for i, (a, b, w) in enumerate(edges) if i not in gone)
    return nx.dag_longest_path_length(graph)


@settings(max_examples=examples(200), deadline=None)
@given(cases())
def test_savings_are_those_of_networkx(case: Case) -> None:
    src, dst, weight = (np.array([edge[k] for edge in case.edges], dtype=np.int64) for k in range(3))
    row = np.full(len(src), -1)
    row[case.row] = 0
    waits, spent = (np.array(sorted(places), dtype=np.int64) for places in (case.waits, case.spent))
    shares = Shares(row, np.where(row == 0, _OTHER, _SYNC), waits, waits * 0, spent, spent * 0)
    length = _longest(case.edges, set(), {})
    window = Retimed(ArrayGraph.from_edges(src, dst, weight), shares, length)
    own = dict.fromkeys(case.row, 0)
    assert window.without_row(0, _OTHER, 0) == window.without_cause(_OTHER) == length - _longest(case.edges, set(), own)
    halved = {i: case.edges[i][2] // 2 for i in case.row}
    assert window.with_half(0) == length - _longest(case.edges, set(), halved)
    # Of an end that only one edge leads to, none can go.
    gone = {i for i in case.waits if sum(b == case.edges[i][1] for _, b, _ in case.edges) > 1}
    left = _longest(case.edges, gone, dict.fromkeys(case.spent, 0))
    assert window.without_cause(_SYNC) == window.without_row(0, _SYNC, 0) == length - left
