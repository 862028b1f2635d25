"""The k longest alternatives, compared with an enumeration of all paths."""

from __future__ import annotations

from itertools import pairwise

import duckdb
import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.critical_path.longest.alternative_rows import alternative_rows
from pipelines.critical_path.longest.alternatives import alternatives
from tests.critical_path.test_longest import TIE
from tests.critical_path.test_slack import Edge, attributed, graphs
from tests.effort import examples


def every_set(edges: list[Edge]) -> dict[frozenset[int], int]:
    """Return the length of the longest path for each set of events with time on a path."""
    graph = nx.DiGraph()
    for u, v, w, e in edges:
        graph.add_edge(u, v, weight=w, event=e)
    # A path begins at a node without incoming edges, or after an edge of negative weight, which would only make it
    # shorter. Paths end likewise.
    begins = {v for v in graph if not graph.in_degree(v)} | {v for _, v, w, _ in edges if w < 0}
    ends = {v for v in graph if not graph.out_degree(v)} | {u for u, _, w, _ in edges if w < 0}
    lengths: dict[frozenset[int], int] = {}
    for begin in begins:
        todo = [(begin, 0, frozenset())]
        while todo:
            node, length, events = todo.pop()
            if node in ends:
                lengths[events] = max(length, lengths.get(events, length))
            for _, v, data in graph.out_edges(node, data=True):
                more = {data["event"]} if data["event"] >= 0 and data["weight"] else set()
                todo.append((v, length + data["weight"], events | more))
    return lengths


def holds_by_brute_force(edges: list[Edge], k: int) -> None:
    sets = every_set(edges)
    plain = nx.DiGraph()
    plain.add_weighted_edges_from(edge[:3] for edge in edges)
    nodes = nx.dag_longest_path(plain, backend="networkx")
    event_of = {(u, v): e for u, v, w, e in edges if w and e >= 0}
    best = frozenset(event_of[pair] for pair in pairwise(nodes) if pair in event_of)
    graph = attributed(edges)
    paths = alternatives(graph, k)
    expected = sorted((length for events, length in sets.items() if events != best), reverse=True)[:k]
    assert [a.length_ns for a in paths] == expected
    seen = {best}
    for a in paths:
        walked = [edges[i] for i in a.edges]
        assert all(before[1] == after[0] for before, after in pairwise(walked))
        assert sum(e[2] for e in walked) == a.length_ns
        events = frozenset(e[3] for e in walked if e[3] >= 0 and e[2])
        assert events not in seen and sets[events] == a.length_ns
        assert (set(a.entered.tolist()), set(a.left.tolist())) == (events - best, best - events)
        seen.add(events)


@settings(max_examples=examples(400), deadline=None)
@given(graphs((0, 0, 1, 1, 2, 3, 5, 9, 30)), st.sampled_from([1, 2, 5, 100]))
def test_random_graphs(edges: list[Edge], k: int) -> None:
    holds_by_brute_force(edges, k)


@settings(max_examples=examples(200), deadline=None)
@given(graphs((0, 1, 2, 5, 9, -1, -3, -8)), st.sampled_from([1, 2, 5]))
def test_random_graphs_with_negative_weights(edges: list[Edge], k: int) -> None:
    holds_by_brute_force(edges, k)


@pytest.mark.parametrize("per_event", [1, 2, 9])
def test_a_ladder_of_many_choices(per_event: int) -> None:
    """The graph has 2^10 paths of 20 steps with ties.

    If it has few events, most of these paths have the same events and are therefore the same alternative.
    """
    edges = []
    for i in range(10):
        for side, more in ((0, 0), (1, i % 3)):
            middle = 100 + 2 * i + side
            edges += [(i, middle, 5, (2 * i + side) // per_event), (middle, i + 1, 5 - more, -1)]
    for k in (1, 7, 60):
        holds_by_brute_force(edges, k)


def test_skipping_parts_of_an_event_is_no_alternative() -> None:
    """Paths that omit different parts of the same events are a single alternative.

    Each of forty events can omit a part for 1 ns, which makes 2^40 paths. The only other set of events is 100 ns
    shorter.
    """
    edges = []
    for i in range(40):
        edges += [(3 * i, 3 * i + 1, 5, i), (3 * i + 1, 3 * i + 2, 1, i), (3 * i + 1, 3 * i + 3, 5, i)]
        edges += [(3 * i + 2, 3 * i + 3, 5, i)]
    edges.append((0, 120, 340, 99))
    (only,) = alternatives(attributed(edges), 5)
    assert (only.length_ns, only.entered.tolist(), only.left.tolist()) == (340, [99], list(range(40)))


@pytest.mark.parametrize(("profile", "other"), [("default", [2]), ("hta", [0, 1])])
def test_the_path_that_others_differ_from_is_that_of_the_profile(profile: str, other: list[int]) -> None:
    """Alternatives differ from the critical path of the profile.

    This path is not an alternative to another path of the same length.
    """
    with duckdb.connect() as con:
        con.execute(
            f"CREATE TABLE critical_path_windows AS SELECT 't' AS trace_id, 'w' AS window_id, '{profile}' AS profile, 1 AS window_no"
        )
        con.execute("CREATE TABLE events AS SELECT 't' AS trace_id, unnest(range(3)) AS event_id, 'a' AS name")
        rows = ", ".join(f"(1, {i}, {u}, {v}, {w}, {i})" for i, (u, v, w) in enumerate(TIE))
        columns = "window_no, edge_id, src_node_id, dst_node_id, path_weight_ns, attributed_event_id"
        con.execute(f"CREATE TABLE _edges AS FROM (VALUES {rows}) AS e({columns})")
        (row,) = alternative_rows(con, "t", "w", 5)
    assert sorted(event["event_id"] for event in row["entered"]) == other and row["shorter_by_us"] == 0


def test_nothing_to_choose_from() -> None:
    assert alternatives(attributed([]), 3) == []
    assert alternatives(attributed([(0, 1, 5, 0)]), 3) == []
    assert alternatives(attributed([(0, 1, 5, 0), (0, 2, 4, 1)]), 0) == []
    (other,) = alternatives(attributed([(0, 1, 5, 0), (0, 2, 4, 1)]), 3)
    assert np.array_equal(other.edges, [1])
