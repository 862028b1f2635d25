"""The savings of a window, compared with plain networkx.

The reference is the longest path of the graph after edges are removed or shortened.
"""

from __future__ import annotations

from dataclasses import dataclass

import networkx as nx
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipelines.critical_path.causes import savings
from pipelines.critical_path.causes.edge_causes import CAUSES, NAME, EdgeCauses
from pipelines.critical_path.causes.savings import Retimed, Rows, Shares, path_rows, retime
from pipelines.critical_path.graph.dependency_graph import ArrayGraph
from tests.effort import examples

_SYNC, _OTHER = CAUSES.index("synchronization"), CAUSES.index("gpu_computing")


@dataclass(frozen=True)
class Case:
    """An acyclic graph and the indices of the edges that play a role in savings.

    `row` are the edges of one row, and `waits` the waits for an unneeded synchronization, whose own time is on the
    edges `spent`. `freed` maps each edge that waits for nothing once another edge is removed to that other edge.
    """

    edges: list[tuple[int, int, int]]
    row: list[int]
    freed: dict[int, int]
    waits: list[int]
    spent: list[int]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw chains of consecutive edges, like the edges of a thread or a stream, and edges between the chains."""
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
    place = st.integers(0, len(edges) - 1)
    places = st.lists(place, unique=True, max_size=6)
    row, waits, freed = draw(places), draw(places), draw(st.dictionaries(place, place, max_size=6))
    return Case(edges, row, freed, waits, [place for place in draw(places) if place not in waits])


def _longest(edges: list[tuple[int, int, int]], gone: set[int], changed: dict[int, int]) -> int:
    graph = nx.DiGraph()
    graph.add_nodes_from(node for a, b, _ in edges for node in (a, b))
    graph.add_weighted_edges_from((a, b, changed.get(i, w)) for i, (a, b, w) in enumerate(edges) if i not in gone)
    return nx.dag_longest_path_length(graph)


_AN_END = [(0, 1, 1), (2, 3, 40), (3, 4, 1), (0, 4, 0)]
"""If the third edge is removed, node 3 in the middle of a chain is the last node in time."""


@example(Case(_AN_END, row=[3], freed={2: 3}, waits=[], spent=[]))
@example(Case(_AN_END, row=[], freed={}, waits=[2], spent=[]))
@settings(max_examples=examples(200), deadline=None)
@given(cases())
def test_savings_are_those_of_networkx(case: Case) -> None:
    src, dst, weight = (np.array([edge[k] for edge in case.edges], dtype=np.int64) for k in range(3))
    row = np.full(len(src), -1)
    row[case.row] = 0
    waits, spent = (np.array(sorted(of), dtype=np.int64) for of in (case.waits, case.spent))
    freed, freed_with = (np.array([*of], dtype=np.int64) for of in (case.freed, case.freed.values()))
    shares = Shares(row, np.where(row == 0, _OTHER, _SYNC), waits, waits * 0, spent, spent * 0, freed, freed_with)
    length = _longest(case.edges, set(), {})
    window = Retimed(ArrayGraph.from_edges(src, dst, weight), shares, length)
    # An edge cannot be removed if no other edge leads to its end node.
    chooses = {i for i, (_, end, _) in enumerate(case.edges) if sum(b == end for _, b, _ in case.edges) > 1}
    gone = {edge for edge, without in case.freed.items() if without in case.row}
    left = _longest(case.edges, chooses & gone, dict.fromkeys(case.row, 0))
    assert window.without_row(0, _OTHER, 0) == window.without_cause(_OTHER) == length - left
    halved = {i: round(case.edges[i][2] / 2) for i in case.row}
    assert window.with_half(row == 0) == length - _longest(case.edges, set(), halved)
    left = _longest(case.edges, chooses & {*case.waits}, dict.fromkeys(case.spent, 0))
    assert window.without_cause(_SYNC) == window.without_row(0, _SYNC, 0) == length - left


def retimed(time: dict[str, list[int]]) -> Rows:
    """Return the savings of a chain without parallel work, with one name per time in each cause."""
    cause, weight = np.array([(CAUSES.index(cause), ns) for cause, of in time.items() for ns in of]).T
    edge, no_edge = np.arange(len(weight)), np.full(len(weight), -1)
    of_edges = EdgeCauses(cause, edge * 0 + NAME, edge, edge, no_edge, no_edge, edge[:0], edge[:0])
    rows, shares = path_rows(weight, edge, of_edges, edge * 0, edge * 0, edge < 0)
    retime(ArrayGraph.from_edges(edge, edge + 1, weight), rows, shares)
    return rows


_SMALL_NAMES = {
    "gpu_computing": [1100] * 8,
    "host_operators": [9] * 111,
    "copies": [50, 50],
    "launching": [50, 49],
    "allocation": [2],
}
"""Eight names use up the retimings of names. Of the causes whose names have less than 1 % each, copies have just 1 % in
all.
"""


def test_a_cause_is_retimed_by_its_sum_and_a_name_by_its_own_time() -> None:
    rows = retimed(_SMALL_NAMES)
    assert {CAUSES[cause]: int(ns) for cause, ns in zip(rows.cause, rows.all_saves, strict=True)} == {
        "gpu_computing": 8800,
        "host_operators": 999,
        "copies": 100,
        "launching": -1,
        "allocation": -1,
    }
    assert rows.saves.tolist() == [1100] * 8 + [-1] * (len(rows.saves) - 8)
    assert rows.halved_saves.tolist() == [550] * 8 + [-1] * (len(rows.saves) - 8)


@pytest.mark.parametrize(("retimings", "n_causes"), [(17, 1), (18, 2), (19, 3), (20, 3)])
def test_of_a_large_graph_names_are_retimed_before_causes_of_small_names(
    monkeypatch: pytest.MonkeyPatch, retimings: int, n_causes: int
) -> None:
    """The first cause, its eight names and the halves of these names take 17 retimings.

    Each of the next two retimings is used for another cause.
    """
    n_edges = sum(map(len, _SMALL_NAMES.values()))
    monkeypatch.setattr(savings, "_EDGES", retimings * n_edges)
    rows = retimed(_SMALL_NAMES)
    assert (rows.halved_saves >= 0).sum() == 8
    assert len(set(rows.cause[rows.all_saves >= 0])) == n_causes
