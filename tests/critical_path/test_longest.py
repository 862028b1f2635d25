"""tracelake's longest path compared with plain networkx, before and after changes of weights.

Both paths have the same nodes, even with ties and negative weights.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from unittest.mock import patch

import duckdb
import networkx as nx
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipelines.critical_path.graph import chains, window_edges
from pipelines.critical_path.graph.chains import Chains
from pipelines.critical_path.graph.cycle import GraphHasCycle
from pipelines.critical_path.graph.dependency_graph import ArrayGraph
from pipelines.critical_path.graph.windows import PROFILES
from pipelines.critical_path.longest import long_window, window_paths
from pipelines.critical_path.longest.long_window import LongWindow
from tests.effort import examples

TIE = [(0, 1, 1), (1, 2, 4), (0, 3, 5)]
"""Of the edges that a longest path may end with, the second edge is the first in the table. networkx visits the end of
the third edge first.
"""


@pytest.fixture(scope="module", autouse=True)
def parts_of_two() -> Iterator[None]:
    """Limit parts to two elements. Code that works part by part then has several parts."""
    with patch.object(chains, "_PART", 2):
        yield


@st.composite
def dags(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    """Draw edges of a random acyclic graph, in random order, with many equal, zero and negative weights."""
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


def lengths_to(edges: list[tuple[int, int, int]]) -> dict[int, int]:
    """Return the length of the longest path to each node, computed by its definition."""
    into = {node: [(a, w) for a, b, w in edges if b == node] for a, b, _ in edges for node in (a, b)}
    plain, _ = both(edges)
    at: dict[int, int] = {}
    for node in nx.topological_sort(plain):
        at[node] = max([0, *(at[a] + w for a, w in into[node])])
    return at


@settings(max_examples=examples(300), deadline=None)
@given(dags(), st.data())
def test_changed_weights_have_networkx_path(edges: list[tuple[int, int, int]], data: st.DataObject) -> None:
    """The graph is sorted once for all changes. Weights are negative only where the graph's own weights are."""
    _, ours = both(edges)
    factors = st.lists(st.sampled_from([0, 1, 1, 3]), min_size=len(edges), max_size=len(edges))
    for _ in range(3):
        weight = ours.weight * np.array(data.draw(factors))
        changed = [(u, v, int(w)) for (u, v, _), w in zip(edges, weight, strict=True)]
        plain, _ = both(changed)
        path = ours.path(weight)
        ids = [ours.node_ids[ends[path]].tolist() for ends in (ours.src, ours.dst)]
        nodes = nx.dag_longest_path(plain)
        assert ids == [nodes[:-1], nodes[1:]]
        at = dict(zip(ours.node_ids.tolist(), ours.forward(weight).tolist(), strict=True))
        assert at == lengths_to(changed) and max(at.values()) == weight[path].sum()


@settings(max_examples=examples(100), deadline=None)
@given(dags())
def test_the_longest_way_from_a_node_is_that_to_it_backward(edges: list[tuple[int, int, int]]) -> None:
    _, ours = both(edges)
    chains = ours.chains
    backward = dict(zip(ours.node_ids[chains.node].tolist(), chains.backward(chains.weight).tolist(), strict=True))
    at = lengths_to([(v, u, w) for u, v, w in edges])
    assert backward == {node: at[node] for node in backward}


@settings(max_examples=examples(100), deadline=None)
@given(dags())
def test_times_are_the_latest_of_all_ways(edges: list[tuple[int, int, int]]) -> None:
    _, ours = both(edges)
    begin = np.arange(len(ours)) * 7 - 40
    at = ours.forward(ours.weight, begin=begin)
    for node in range(len(ours)):
        into = np.flatnonzero(ours.dst == node)
        assert at[node] == (max(at[ours.src[into]] + ours.weight[into]) if len(into) else begin[node])


@settings(max_examples=examples(300), deadline=None)
@given(dags())
def test_in_profile_default_the_first_edge_wins_a_tie(edges: list[tuple[int, int, int]]) -> None:
    """Longest paths that continue without getting longer do not count.

    Of the others, the path ends with the first edge of the table, and the rule is repeated backward.
    """
    plain, _ = both(edges)
    src, dst, weight = (np.array([e[k] for e in edges]) for k in range(3))
    path = ArrayGraph.from_edges(src, dst, weight, "default").path().tolist()
    at = lengths_to(edges)
    longest = max(at.values())
    assert sum(edges[i][2] for i in path) == longest == nx.dag_longest_path_length(plain)
    ends = [i for i, (a, b, w) in enumerate(edges) if at[a] + w == at[b] == longest > at[a]]
    assert path[-1:] == ends[:1]
    if path:
        begin = edges[path[0]][0]
        assert at[begin] == 0 and not any(b == begin and at[a] + w == 0 for a, b, w in edges)
    for before, after in pairwise(path):
        node = edges[after][0]
        assert before == min(i for i, (a, b, w) in enumerate(edges) if b == node and at[a] + w == at[b])


def test_a_tie_that_only_networkx_breaks() -> None:
    """Two ends are equally far, and networkx visits one of them first, to which the first edge does not lead.

    The path of networkx and of profile `hta` ends there. In profile `default`, the path follows the first edge.
    """
    src, dst, weight = (np.array([e[k] for e in TIE]) for k in range(3))
    assert nx.dag_longest_path(both(TIE)[0]) == [0, 3]
    assert nx.dag_longest_path(ArrayGraph.from_edges(src, dst, weight)) == [0, 3]
    assert nx.dag_longest_path(ArrayGraph.from_edges(src, dst, weight, "hta")) == [0, 3]
    assert nx.dag_longest_path(ArrayGraph.from_edges(src, dst, weight, "default")) == [0, 1, 2]


def test_a_node_without_an_edge_stays() -> None:
    graph = ArrayGraph(np.array([4, 8, 6]), np.array([0]), np.array([1]), np.array([5]))
    assert list(graph.to_networkx()) == [4, 8, 6] and graph.forward(graph.weight).tolist() == [0, 5, 0]
    assert graph.forward(graph.weight, begin=np.array([1, 2, 3])).tolist() == [1, 6, 3]


def test_an_empty_graph() -> None:
    empty = np.array([], dtype=np.int64)
    assert nx.dag_longest_path(ArrayGraph.from_edges(empty, empty, empty)) == []


@pytest.mark.parametrize(
    ("edges", "on_or_after"),
    [
        ([(10, 11, 1), (11, 10, 1)], {10, 11}),
        ([(0, 1, 1), (1, 2, 1), (2, 1, 1)], {1, 2}),
        ([(5, 6, 1), (7, 7, 0)], {7}),
        ([(0, 1, 1), (1, 2, 1), (2, 13, 1), (13, 14, 1), (14, 13, 1)], {13, 14}),
    ],
)
def test_a_cycle_is_named(edges: list[tuple[int, int, int]], on_or_after: set[int]) -> None:
    _, ours = both(edges)
    with pytest.raises(GraphHasCycle) as refused:
        nx.dag_longest_path(ours)
    assert refused.value.nodes and set(refused.value.nodes) <= on_or_after
    with pytest.raises(nx.NetworkXUnfeasible, match=r"after it: [0-9]"):
        ours.forward(ours.weight)


def test_a_long_chain_does_not_nest() -> None:
    _, ours = both([(i, i + 1, 1) for i in range(50_000)])
    assert ours.path(2 * ours.weight).tolist() == list(range(50_000))


@settings(max_examples=examples(100), deadline=None)
@given(dags(), st.data())
def test_a_table_in_pieces_has_the_same_distances(edges: list[tuple[int, int, int]], data: st.DataObject) -> None:
    _, ours = both(edges)
    cuts = sorted({0, len(edges), *data.draw(st.lists(st.integers(0, len(edges))))})
    pieces = [tuple(column[a:b] for column in (ours.src, ours.dst, ours.weight)) for a, b in pairwise(cuts)]
    chains = Chains(pieces, len(ours))
    assert chains.forward(chains.weight).tolist() == ours.forward(ours.weight)[chains.node].tolist()
    assert chains.edges(np.arange(len(chains.first))).tolist() == list(range(len(edges)))


def test_chains_follow_the_table() -> None:
    """A trace has about one chain for three edges. A run of consecutive edges without a parallel edge is one chain."""
    _, ours = both([(0, 1, 1), (1, 2, 0), (2, 3, 1), (3, 4, 1), (2, 5, 1)])
    assert ours.chains.first.tolist() == [0, 2, 4]
    _, ours = both([(0, 1, 1), (1, 2, -1), (2, 3, 1)])  # a path may begin after a negative edge
    assert ours.chains.first.tolist() == [0, 1, 2]


def stored(edges: list[tuple[int, int, int]], seed: int, profile: str = "hta") -> duckdb.DuckDBPyConnection:
    """Return a connection with the graph as window 5 of `_edges`, between two other windows.

    The rows are in random order, and their numbers have gaps.
    """
    con = duckdb.connect(config={"threads": 1})
    con.execute("CREATE TABLE _refused_windows (window_no BIGINT)")
    con.execute(f"CREATE TABLE critical_path_windows AS SELECT unnest([4, 5, 6]) AS window_no, '{profile}' AS profile")
    columns = "window_no BIGINT, edge_id BIGINT, src_node_id BIGINT, dst_node_id BIGINT, path_weight_ns BIGINT"
    con.execute(f"CREATE TABLE _edges ({columns})")
    rows = [(5, number(i), *edge) for i, edge in enumerate(edges)] + [(4, 3, 0, 1, 50), (6, 4, 1, 2, 50)]
    random.Random(seed).shuffle(rows)
    con.execute(f"INSERT INTO _edges VALUES {', '.join(map(str, rows))}")
    return con


def number(place: int) -> int:
    """Return the number of an edge from one of two ranges, with gaps between the numbers."""
    return 3 * place + (1 << 60) * (place // 9)


def numbers_of_path(con: duckdb.DuckDBPyConnection) -> list[int]:
    window_paths.longest_paths(con)
    rows = con.execute("SELECT seq, edge_id FROM _longest_path WHERE window_no = 5 ORDER BY seq").fetchall()
    assert [seq for seq, _ in rows] == list(range(1, len(rows) + 1))
    assert con.execute("SELECT window_no, edge_id FROM _longest_path WHERE window_no <> 5 ORDER BY 1").fetchall() == [
        (4, 3),
        (6, 4),
    ]
    return [edge_id for _, edge_id in rows]


@contextmanager
def in_pieces(piece: int, bucket: int) -> Iterator[None]:
    """Read each window alone, in pieces of these sizes."""
    with (
        patch.multiple(long_window, PIECE=piece, _BUCKET=bucket),
        patch.object(window_paths, "LONG", 0),
        patch.object(window_edges, "EDGES", 1),
    ):
        yield


@pytest.mark.slow  # 7 s
@example([(0, 1, 5), (1, 2, -9), (2, 3, 7)], 8, 3, 1)  # its path begins inside a run that would otherwise be a chain
@settings(max_examples=examples(150), deadline=None)
@given(dags(), st.integers(1, 8), st.integers(0, 3), st.integers(0, 99))
def test_a_window_read_in_pieces_has_the_same_path(
    edges: list[tuple[int, int, int]], piece: int, bucket: int, seed: int
) -> None:
    src, dst, weight = (np.array([e[k] for e in edges]) for k in range(3))
    for profile in PROFILES:
        path = ArrayGraph.from_edges(src, dst, weight, profile).path().tolist()
        with stored(edges, seed, profile) as con, in_pieces(piece, bucket):
            assert numbers_of_path(con) == [number(edge) for edge in path]


@pytest.mark.slow  # 6 s
@example([(1, 2, 5), (0, 1, 5)], 0)  # the path's edges are not in table order
@settings(max_examples=examples(100), deadline=None)
@given(dags(), st.integers(0, 99))
def test_a_program_with_networkx_asks_it_and_a_command_the_class(edges: list[tuple[int, int, int]], seed: int) -> None:
    place_of = {(src, dst): place for place, (src, dst, _) in enumerate(edges)}
    expected = [number(place_of[pair]) for pair in pairwise(nx.dag_longest_path(both(edges)[0]))]
    for profile in PROFILES:
        asked = patch.object(nx, "dag_longest_path", wraps=nx.dag_longest_path)
        with stored(edges, seed, profile) as con, asked as networkx:
            path = numbers_of_path(con)
            backends = [call.kwargs["backend"] for call in networkx.call_args_list]
            assert backends.count("tracelake") == 3, "one call for each window"
        with stored(edges, seed, profile) as con, patch.object(window_paths, "_imported_networkx", lambda: None):
            assert numbers_of_path(con) == path
        assert path == expected or profile == "default"


@pytest.mark.parametrize(("profile", "path"), [("default", [0, 1]), ("hta", [2])])
def test_a_tie_is_broken_as_the_profile_of_the_window_says(profile: str, path: list[int]) -> None:
    with stored(TIE, 1, profile) as con:
        assert numbers_of_path(con) == [number(edge) for edge in path]
        con.execute("DROP TABLE _longest_path")
        with in_pieces(2, 0), patch.object(window_paths, "read_windows", wraps=window_paths.read_windows) as whole:
            assert numbers_of_path(con) == [number(edge) for edge in path]
            assert whole.called == (profile == "hta"), "for networkx alone the window is read at once"


def test_what_pieces_cut_is_found_without_the_whole_graph() -> None:
    """A chain spans four pieces with a parallel path, and after a node in the middle of a piece no edge takes time."""
    edges = [(i, i + 1, 5 if i < 5 else 0) for i in range(9)] + [(0, 20, 1), (20, 3, 1)]
    with stored(edges, 1) as con, in_pieces(3, 1):
        window = LongWindow(con, 5)
        assert [part.before for part in window.parts] == [0, 3, 6, 9] and window.n_edges == 11
        assert window.path().tolist() == [number(i) for i in range(5)]


def test_a_window_in_pieces_has_no_path_through_a_cycle_and_leaves_large_sums_to_networkx() -> None:
    with in_pieces(2, 1):
        with stored([(0, 1, 1), (1, 2, 1), (2, 1, 1)], 1) as con:
            assert numbers_of_path(con) == []
        with stored([(0, 1, 2**62), (1, 2, 2**62), (2, 3, 2**62), (0, 3, 7)], 1) as con:
            assert not LongWindow(con, 5).sums_fit()
            assert numbers_of_path(con) == [number(i) for i in range(3)]


def test_a_node_with_more_edges_than_two_bytes_count_is_no_part_of_a_chain() -> None:
    src, dst = np.append(np.arange(2, 65_539), 1), np.append(np.ones(65_537, dtype=np.int64), 0)
    assert len(Chains([(src, dst, src * 0 + 1)], 65_539).first) == 65_538


def test_a_path_may_end_before_an_edge_that_is_removed() -> None:
    """A path may end before a removed edge.

    With the graph's own weights, the node before this edge is in the middle of a chain.
    """
    src, dst, weight = (np.array(column) for column in zip(*[(0, 1, 10), (1, 3, 2), (0, 2, 1), (2, 3, 1)], strict=True))
    graph = ArrayGraph.from_edges(src, dst, weight, "default")
    removed = np.where(graph.weight == 2, -(1 << 40), graph.weight)
    path = graph.path(removed)
    assert int(removed[path].sum()) == 10 == int(graph.forward(removed).max())
    assert int(graph.weight[graph.path()].sum()) == 12
