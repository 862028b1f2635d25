"""A window whose graph is too large for memory. Its edges are read in pieces, and only their chains are kept.

Memory: 9 bytes per node id while edges are counted. Then about 30 bytes per chain (a training trace has one chain for
three edges), and as much again during the search for the path. 16 bytes per edge of the path.
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
"""Number of edges above which a window is read in pieces. The whole graph of a smaller window takes at most about 250
MB, and a quarter less CPU time than reading it in pieces.
"""
PIECE = 1 << 20
"""Maximum number of edges in memory at a time."""
GRAPH = ("src_node_id", "dst_node_id", "path_weight_ns")
_BUCKET = 17  # bits of an edge's number within a bucket; a piece consists of whole buckets


@dataclass(frozen=True)
class _Part:
    """The edges numbered from `first` to before `past`, and the number of edges before them."""

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
        """Yield sources, destinations and weights of each piece, in order of edge_id if `ordered`, else as stored."""
        for part in self.parts:
            src, dst, weight = self._read(part, GRAPH, ordered=ordered)
            yield src, dst, weight

    def path(self, choose: Choice = min) -> Ints:
        """Return the edge ids of the longest path, in order. Raises GraphHasCycle."""
        expression = "max(greatest(src_node_id, dst_node_id))"
        ((last,),) = self._con.execute(f"SELECT {expression} {self._of}").fetchall()
        chains = Chains(self.pieces(ordered=True), last + 1, unordered=self.pieces(ordered=False))
        indices = chains.path(chains.weight, self._weights, choose)
        del chains
        return self._numbers(indices)

    def sums_fit(self) -> bool:
        """Return whether the sum of the absolute weights fits 63 bits."""
        rows = self._con.execute(f"SELECT coalesce(sum(abs(CAST(path_weight_ns AS HUGEINT))), 0) {self._of}").fetchall()
        return rows[0][0] < 2**63

    def _weights(self, first: int, past: int) -> Ints:
        """Return the weights of the window's edges first … past - 1, which belong to one chain, so to one piece."""
        part = next(part for part in reversed(self.parts) if part.before <= first)
        (weight,) = self._read(part, GRAPH[2:])
        return weight[first - part.before : past - part.before]

    def _numbers(self, indices: Ints) -> Ints:
        """Replace the indices of edges in the window with their edge ids in place, and return the array."""
        order = np.argsort(indices).astype(small_enough(len(indices)))
        bounds = np.searchsorted(indices, [part.before for part in self.parts] + [self.n_edges], sorter=order)
        for part, begin, end in zip(self.parts, bounds[:-1], bounds[1:], strict=True):
            if end > begin:
                (numbers,) = self._read(part, ("edge_id",))
                chosen = order[begin:end]
                indices[chosen] = numbers[indices[chosen] - part.before]
        return indices

    def _read(self, part: _Part, columns: Sequence[str], *, ordered: bool = True) -> list[np.ndarray]:
        """Return columns of a part, in order of edge_id if `ordered`, else as stored."""
        names = dict.fromkeys((*columns, "edge_id") if ordered else columns)
        within = f"edge_id >= {part.first} AND edge_id < {part.past}"
        values = fetch_columns(self._con, f"SELECT {', '.join(names)} {self._of} AND {within}")
        numbers = values["edge_id"] if ordered else np.arange(0)
        if (numbers[1:] < numbers[:-1]).any():  # usually they are in order
            order = np.argsort(numbers)
            return [values[name][order] for name in columns]
        return [values[name] for name in columns]
