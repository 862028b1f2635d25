"""A window whose graph is too large to hold: its edges are read piece by piece, as a table of which only the chains are kept.

Memory: 9 bytes per node id while edges are counted; then some 30 per chain (a training trace has one for three edges), and as
much again while the path is sought; 16 per edge of the path.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import duckdb
import numpy as np

from pipelines.base.groups import in_groups
from pipelines.critical_path.graph.chains import Chains, Choice, Ints, Piece, small_enough
from pipelines.models.python_tables import fetch_columns

LONG = 4_000_000
"""A window with more edges is read in pieces. The whole graph of a smaller one takes at most some 250 MB, and a quarter less CPU time."""
PIECE = 1 << 20
"""Edges that are in memory at a time."""
GRAPH = ("src_node_id", "dst_node_id", "path_weight_ns")
_BUCKET = 17  # bits of an edge's number within a bucket, of which pieces are made


@dataclass(frozen=True)
class _Part:
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
        self.parts: list[_Part] = []
        for group in in_groups(buckets, PIECE):
            self.parts.append(_Part(group[0] << _BUCKET, (group[-1] + 1) << _BUCKET, before))
            before += sum(sizes[bucket] for bucket in group)
        self.n_edges = before

    def pieces(self, *, ordered: bool) -> Iterator[Piece]:
        """Yields the pieces: sources, destinations and weights, each in order of edge_id or as they are stored."""
        for part in self.parts:
            src, dst, weight = self._read(part, GRAPH, ordered=ordered)
            yield src, dst, weight

    def path(self, choose: Choice = min) -> Ints:
        """Returns the numbers of the edges on the longest path, in order. Raises GraphHasCycle."""
        most = "max(greatest(src_node_id, dst_node_id))"
        ((last,),) = self._con.execute(f"SELECT {most} {self._of}").fetchall()
        chains = Chains(self.pieces(ordered=True), last + 1, unordered=self.pieces(ordered=False))
        places = chains.path(chains.weight, self._weights, choose)
        del chains
        return self._numbers(places)

    def sums_fit(self) -> bool:
        """Whether the weights add up to no more than 63 bits."""
        most = self._con.execute(f"SELECT coalesce(sum(abs(CAST(path_weight_ns AS HUGEINT))), 0) {self._of}").fetchall()
        return most[0][0] < 2**63

    def _weights(self, first: int, past: int) -> Ints:
        """Returns the weights of edges of one chain, and so of one piece, by their places in the window."""
        part = next(part for part in reversed(self.parts) if part.before <= first)
        (weight,) = self._read(part, GRAPH[2:])
        return weight[first - part.before : past - part.before]

    def _numbers(self, places: Ints) -> Ints:
        """Replaces the places of edges in the window by their numbers, and returns the array."""
        order = np.argsort(places).astype(small_enough(len(places)))
        bounds = np.searchsorted(places, [part.before for part in self.parts] + [self.n_edges], sorter=order)
        for part, begin, end in zip(self.parts, bounds[:-1], bounds[1:], strict=True):
            if end > begin:
                (numbers,) = self._read(part, ("edge_id",))
                asked = order[begin:end]
                places[asked] = numbers[places[asked] - part.before]
        return places

    def _read(self, part: _Part, columns: Sequence[str], *, ordered: bool = True) -> list[np.ndarray]:
        """Returns columns of a part, in order of edge_id or as they are stored."""
        names = dict.fromkeys((*columns, "edge_id") if ordered else columns)
        within = f"edge_id >= {part.first} AND edge_id < {part.past}"
        found = fetch_columns(self._con, f"SELECT {', '.join(names)} {self._of} AND {within}")
        numbers = found["edge_id"] if ordered else np.arange(0)
        if (numbers[1:] < numbers[:-1]).any():  # mostly they are in order
            order = np.argsort(numbers)
            return [found[name][order] for name in columns]
        return [found[name] for name in columns]
