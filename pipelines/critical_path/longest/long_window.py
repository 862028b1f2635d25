"""The longest path of a window whose graph is too large to hold: its edges are read piece by piece, and only chains are kept.

Memory: 5 bytes per node id while edges are counted; then some 30 per chain (a training trace has one for three edges), and as
much again while the path is sought; 16 per edge of the path.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import duckdb
import numpy as np

from pipelines.base.groups import in_groups
from pipelines.critical_path.graph.dependency_graph import ArrayGraph, Ints, Nodes
from pipelines.critical_path.graph.stack_order import Flags
from pipelines.critical_path.longest.longest_path import Chains, chains_path
from pipelines.models.python_tables import fetch_columns

LONG = 4_000_000
"""A window with more edges is read in pieces. The whole graph of a smaller one takes at most some 250 MB, and a quarter less CPU time."""
PIECE = 1 << 20
"""Edges that are in memory at a time."""
GRAPH = ("src_node_id", "dst_node_id", "path_weight_ns")
_BUCKET = 17  # bits of an edge's number within a bucket, of which pieces are made
_COUNTED = 1 << 15  # nodes that are counted at a time, so that a count fits two bytes


@dataclass(frozen=True)
class _Piece:
    """The edges numbered `first` … before `past`, and how many edges come before them."""

    first: int
    past: int
    before: int


class LongWindow:
    """One window's edges in `_edges`, in order of edge_id."""

    def __init__(self, con: duckdb.DuckDBPyConnection, number: int) -> None:
        self._con, self._of = con, f"FROM _edges WHERE window_no = {number}"
        buckets = con.execute(f"SELECT edge_id >> {_BUCKET}, count(*) {self._of} GROUP BY 1 ORDER BY 1").fetchall()
        sizes, before = dict(buckets), 0
        self.pieces: list[_Piece] = []
        for group in in_groups(buckets, PIECE):
            self.pieces.append(_Piece(group[0] << _BUCKET, (group[-1] + 1) << _BUCKET, before))
            before += sum(sizes[bucket] for bucket in group)
        self.n_edges = before

    def path(self) -> Ints | None:
        """Returns the numbers of the edges on the longest path, in order; None for a tie that only networkx's own order of visits
        breaks. Raises GraphHasCycle.
        """
        ids, chains = self._contracted(self._inner_nodes())
        found = chains_path(ArrayGraph(ids, chains.src, chains.dst, chains.weight), chains, self._weights)
        if found is None:
            return None
        places = found[0]
        del found, chains, ids
        return self._numbers(places)

    def sums_fit(self) -> bool:
        """Whether the weights add up to no more than 63 bits."""
        most = self._con.execute(f"SELECT coalesce(sum(abs(CAST(path_weight_ns AS HUGEINT))), 0) {self._of}").fetchall()
        return most[0][0] < 2**63

    def _inner_nodes(self) -> Flags:
        """Returns for each node id whether the node has one edge in and one edge out, neither of them negative."""
        size = self._con.execute(f"SELECT max(greatest(src_node_id, dst_node_id)) {self._of}").fetchall()[0][0] + 1
        n_in, n_out = (np.zeros(size, dtype=np.uint16) for _ in range(2))
        ends = np.zeros(size, dtype=bool)
        for piece in self.pieces:
            src, dst, weight = self._fetch(piece, *GRAPH).values()
            for nodes, counts in ((src, n_out), (dst, n_in)):
                for first in range(0, len(nodes), _COUNTED):
                    some = nodes[first : first + _COUNTED]
                    np.add.at(counts, some, np.uint16(1))
                    counts[some] = np.minimum(counts[some], 2)
            backwards = weight < 0
            ends[src[backwards]] = ends[dst[backwards]] = True
        return (n_in == 1) & (n_out == 1) & ~ends

    def _contracted(self, inner: Flags) -> tuple[Nodes, Chains]:
        """Returns the ids of the remaining nodes, and the chains between them; each piece begins with one."""
        small = np.int32 if max(len(inner), self.n_edges) < 2**31 else np.int64
        parts: list[tuple[Nodes, ...]] = []
        for piece, (src, dst, weight) in zip(self.pieces, self._read(*GRAPH), strict=True):
            continues = np.zeros(len(src), dtype=bool)
            continues[1:] = (dst[:-1] == src[1:]) & inner[src[1:]]
            first = np.flatnonzero(~continues)
            last = np.append(first[1:], len(src)) - 1
            ends = (src[first], dst[last], first + piece.before)
            parts.append((*(column.astype(small) for column in ends), np.add.reduceat(weight, first)))
        src, dst, first, weight = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        del parts
        kept = np.zeros(len(inner), dtype=bool)
        kept[src] = kept[dst] = True
        place = np.cumsum(kept, dtype=small) - 1
        src, dst = place[src], place[dst]
        del place
        ids, last = np.flatnonzero(kept), np.append(first[1:], np.array([self.n_edges], dtype=small)) - 1
        return ids, Chains(np.arange(len(ids)), src, dst, weight, first, last)

    def _weights(self, first: int, past: int) -> Ints:
        """Returns the weights of edges of one chain, and so of one piece, by their places in the window."""
        piece = next(piece for piece in reversed(self.pieces) if piece.before <= first)
        ((weight,),) = self._read("path_weight_ns", of=[piece])
        return weight[first - piece.before : past - piece.before]

    def _numbers(self, places: Ints) -> Ints:
        """Replaces the places of edges in the window by their numbers, and returns the array."""
        order = np.argsort(places).astype(np.int32 if len(places) < 2**31 else np.int64)
        bounds = np.searchsorted(places, [piece.before for piece in self.pieces] + [self.n_edges], sorter=order)
        for piece, begin, end in zip(self.pieces, bounds[:-1], bounds[1:], strict=True):
            if end > begin:
                ((numbers,),) = self._read(of=[piece])
                asked = order[begin:end]
                places[asked] = numbers[places[asked] - piece.before]
        return places

    def _read(self, *columns: str, of: list[_Piece] | None = None) -> Iterator[list[np.ndarray]]:
        """Yields columns of all pieces, or of some, in order of edge_id; without columns edge_id itself."""
        for piece in self.pieces if of is None else of:
            found = self._fetch(piece, "edge_id", *columns)
            numbers = found["edge_id"]
            if (numbers[1:] < numbers[:-1]).any():  # mostly they are in order
                order = np.argsort(numbers)
                found = {name: column[order] for name, column in found.items()}
            yield [found[name] for name in columns or ("edge_id",)]

    def _fetch(self, piece: _Piece, *columns: str) -> dict[str, np.ndarray]:
        within = f"edge_id >= {piece.first} AND edge_id < {piece.past}"
        return fetch_columns(self._con, f"SELECT {', '.join(columns)} {self._of} AND {within}")
