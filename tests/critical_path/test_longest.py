"""Our longest path against plain networkx: the same nodes, ties and negative weights included."""

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

from pipelines.critical_path.graph import window_edges
from pipelines.critical_path.graph.dependency_graph import ArrayGraph
from pipelines.critical_path.longest import long_window, window_paths
from pipelines.critical_path.longest.long_window import LongWindow
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


def stored(edges: list[tuple[int, int, int]], seed: int) -> duckdb.DuckDBPyConnection:
    """The graph as window 5 of `_edges`, between two others, its rows in any order and with holes between their numbers."""
    con = duckdb.connect(config={"threads": 1})
    con.execute("CREATE TABLE _refused_windows (window_no BIGINT)")
    columns = "window_no BIGINT, edge_id BIGINT, src_node_id BIGINT, dst_node_id BIGINT, path_weight_ns BIGINT"
    con.execute(f"CREATE TABLE _edges ({columns})")
    rows = [(5, number(i), *edge) for i, edge in enumerate(edges)] + [(4, 3, 0, 1, 50), (6, 4, 1, 2, 50)]
    random.Random(seed).shuffle(rows)
    con.execute(f"INSERT INTO _edges VALUES {', '.join(map(str, rows))}")
    return con


def number(place: int) -> int:
    """The number of an edge: those of two kinds, with holes."""
    return 3 * place + (1 << 60) * (place // 9)


def numbers_of_path(con: duckdb.DuckDBPyConnection) -> list[int]:
    window_paths.longest_paths(con)
    found = con.execute("SELECT seq, edge_id FROM _longest_path WHERE window_no = 5 ORDER BY seq").fetchall()
    assert [seq for seq, _ in found] == list(range(1, len(found) + 1))
    assert con.execute("SELECT window_no, edge_id FROM _longest_path WHERE window_no <> 5 ORDER BY 1").fetchall() == [
        (4, 3),
        (6, 4),
    ]
    return [edge_id for _, edge_id in found]


@contextmanager
def in_pieces(piece: int, bucket: int) -> Iterator[None]:
    """Each window alone, in such pieces."""
    with (
        patch.multiple(long_window, PIECE=piece, _BUCKET=bucket, _COUNTED=3),
        patch.object(window_paths, "LONG", 0),
        patch.object(window_edges, "EDGES", 1),
    ):
        yield


@example([(0, 1, 5), (1, 2, -9), (2, 3, 7)], 8, 3, 1)  # its path begins within what would be a chain
@settings(max_examples=examples(150), deadline=None)
@given(dags(), st.integers(1, 8), st.integers(0, 3), st.integers(0, 99))
def test_a_window_read_in_pieces_has_the_same_path(
    edges: list[tuple[int, int, int]], piece: int, bucket: int, seed: int
) -> None:
    plain, _ = both(edges)
    nodes = nx.dag_longest_path(plain, weight="weight")
    places = {(u, v): number(i) for i, (u, v, _) in enumerate(edges)}
    with stored(edges, seed) as con, in_pieces(piece, bucket):
        assert numbers_of_path(con) == [places[pair] for pair in pairwise(nodes)]


def test_what_pieces_cut_is_found_without_the_whole_graph() -> None:
    """A chain over four pieces, with a way beside it, and a node in the middle of a piece after which nothing takes time."""
    edges = [(i, i + 1, 5 if i < 5 else 0) for i in range(9)] + [(0, 20, 1), (20, 3, 1)]
    with stored(edges, 1) as con, in_pieces(3, 1):
        window = LongWindow(con, 5)
        assert [piece.before for piece in window.pieces] == [0, 3, 6, 9] and window.n_edges == 11
        found = window.path()
    assert found is not None and found.tolist() == [number(i) for i in range(5)]


def test_a_window_in_pieces_has_no_path_through_a_cycle_and_leaves_large_sums_to_networkx() -> None:
    with in_pieces(2, 1):
        with stored([(0, 1, 1), (1, 2, 1), (2, 1, 1)], 1) as con:
            assert numbers_of_path(con) == []
        with stored([(0, 1, 2**62), (1, 2, 2**62), (2, 3, 2**62), (0, 3, 7)], 1) as con:
            assert not LongWindow(con, 5).sums_fit()
            assert numbers_of_path(con) == [number(i) for i in range(3)]


def test_a_node_with_more_edges_than_two_bytes_count_is_no_part_of_a_chain() -> None:
    with stored([(1, 0, 1)], 1) as con:
        con.execute("INSERT INTO _edges SELECT 5, 100 + i, 2 + i, 1, 1 FROM range(65_537) AS r(i)")
        inner = LongWindow(con, 5)._inner_nodes()
    assert not inner.any() and len(inner) == 65_539
