"""Longest distances over a graph whose edges are chains of a table's edges, so that Python visits few nodes.

The table is reduced twice: its edges to chains, and the chains to runs. Most nodes of a trace are inside a chain: they
have one edge in and one edge out, and the second follows the first in the table. A chain is stored as one edge. The
table is read in pieces, twice, and only its chains stay in memory, so a long trace need not fit. Most of the remaining
nodes have one edge in, so numpy sums up the distances along runs of them. Python visits only the first node of each
run, in an order that does not depend on weights.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cached_property

import numpy as np
import numpy.typing as npt

from pipelines.base.database import trim

Flags = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Nodes = npt.NDArray[np.int32 | np.int64]
Piece = tuple[Nodes, Nodes, Ints]
"""Source, destination and weight of consecutive edges of a table."""
_PART = 1 << 16
Choice = Callable[[Collection[int]], int]
"""Returns the edge that a longest path ends with, from the candidates as indices into the table."""


class Chains:
    """The chains of a table of edges. Chain i consists of the edges first[i] … first[i + 1] - 1.

    `node` (k,) are the remaining nodes, ascending. `src` and `dst` (c,) are indices into `node`. Distances are 64-bit
    integers. Distances are correct for all weights that are negative only where the table's weights are negative.
    """

    def __init__(
        self,
        pieces: Iterable[Piece],
        n_nodes: int,
        named: Nodes | None = None,
        unordered: Iterable[Piece] | None = None,
    ) -> None:
        """Read the pieces of a table twice.

        `unordered` are the same pieces in an order that is cheaper for the first pass. The nodes are numbers below
        `n_nodes`. Errors report nodes by their ids in `named`.
        """
        self._named, self.n_edges = named, 0
        inner = _inner_nodes(pieces if unordered is None else unordered, n_nodes)
        parts: list[tuple[np.ndarray, ...]] = []
        for src, dst, weight in pieces:
            begins, ends = np.ones((2, len(src)), dtype=bool)
            begins[1:] = (dst[:-1] != src[1:]) | ~inner[src[1:]]
            ends[:-1] = begins[1:]
            first, small = np.flatnonzero(begins), small_enough(max(n_nodes, self.n_edges + len(src)))
            columns = (src[begins], dst[ends], first + self.n_edges)
            parts.append((np.add.reduceat(weight, first), *(column.astype(small, copy=False) for column in columns)))
            self.n_edges += len(src)
        self.weight, src, dst, self.first = (
            parts[0] if len(parts) == 1 else map(np.concatenate, zip(*parts, strict=True))
        )
        del parts, inner
        has_edge = np.zeros(n_nodes, dtype=bool)
        has_edge[src] = has_edge[dst] = True
        self.node = np.flatnonzero(has_edge).astype(src.dtype)
        new_index = np.cumsum(has_edge, dtype=src.dtype) - 1
        self.src, self.dst = src, dst
        for part in parts_of(len(src)):
            src[part], dst[part] = new_index[src[part]], new_index[dst[part]]
        del has_edge, new_index
        _trim(len(src))

    @property
    def size(self) -> Nodes:
        """Return the number of edges of each chain (c,)."""
        return np.diff(self.first, append=self.first.dtype.type(self.n_edges))

    def forward(self, weight: Ints, begin: Ints | None = None) -> Ints:
        """Return the longest distance to each node (k,) for these weights of the chains, at least 0.

        `begin` is a time for each of the table's nodes. With it, nodes without an incoming edge start at that time, and
        distances are times, which may be negative. Raises GraphHasCycle.
        """
        return self._onward.distances(weight, None if begin is None else begin[self.node[self._onward.heads]])

    def backward(self, weight: Ints) -> Ints:
        """Return the longest distance from each node (k,). Raises GraphHasCycle."""
        return self._back.distances(weight)

    @cached_property
    def _onward(self) -> _Order:
        return _Order(self.src, self.dst, self.weight < 0, self._name)

    @cached_property
    def _back(self) -> _Order:
        return _Order(self.dst, self.src, self.weight < 0, self._name)

    def _name(self, nodes: Nodes) -> list[int]:
        numbers = self.node[nodes]
        return (numbers if self._named is None else self._named[numbers]).tolist()

    def path(self, weight: Ints, within: Callable[[int, int], Ints], choose: Choice = min) -> Ints:
        """Return the edges of the longest path, in order, as indices into the table.

        `within(first, past)` returns the weights of a range of edges. Among equally long ways to a node, the smallest
        edge wins. `choose` selects the edge that the path ends with, by default also the smallest. Raises
        GraphHasCycle.
        """
        distance = self.forward(weight)
        longest = distance.max(initial=0)
        reaching = []
        for part in parts_of(len(weight)):
            begin = distance[self.src[part]]
            reaching += (part.start + np.flatnonzero((begin < longest) & (begin + weight[part] == longest))).tolist()
        if not reaching:
            return np.arange(0)
        ends, sizes = {}, self.size[reaching].tolist()
        for chain, size in zip(reaching, sizes, strict=True):
            first, missing = int(self.first[chain]), longest - distance[self.src[chain]]
            ends[first + int(np.argmax(np.cumsum(within(first, first + size)) == missing))] = chain
        end = choose(ends) if len(ends) > 1 else min(ends)
        before = self.edges(self.walk_back(int(self.src[ends[end]]), weight, distance))
        return np.append(before, np.arange(int(self.first[ends[end]]), end + 1))

    def walk_back(self, node: int, weight: Ints, at: Ints) -> Ints:
        """Return the chains of the longest way to a node, in order. `at` are the distances for these weights."""
        into = np.full(len(self.node), -1, dtype=self.src.dtype)
        for part in reversed([*parts_of(len(weight))]):
            src, dst = self.src[part], self.dst[part]
            fits = np.flatnonzero(at[src] + weight[part] == at[dst])[::-1]
            into[dst[fits]] = part.start + fits  # later writes win, so the smallest chain is written last
        before, reversed_chains, chain = compact(into[self.src]), array("q"), int(into[node])
        while chain >= 0:
            reversed_chains.append(chain)
            chain = before[chain]
        return np.frombuffer(reversed_chains, dtype="i8")[::-1] if reversed_chains else np.arange(0)

    def edges(self, chains: Ints) -> Ints:
        """Return the edges of `chains`, one chain after another."""
        size = self.size[chains].astype(np.int64)
        edges = np.repeat(self.first[chains] - (np.cumsum(size) - size), size)
        edges += np.arange(len(edges))
        return edges


class _Order:
    """A topological order of a graph's nodes, independent of the weights.

    A run is a path of nodes, each of which has one incoming edge, except the first. Of several such successors of a
    node, one continues the run, and each of the others starts another run. A path is longer if it starts after a
    negative edge instead of including the edge, so a run also starts after each negative edge. Raises GraphHasCycle.
    """

    def __init__(self, src: Nodes, dst: Nodes, negative: Flags, name: Callable[[Nodes], list[int]]) -> None:
        n, small = int(max(src.max(initial=-1), dst.max(initial=-1))) + 1, src.dtype
        begins = np.bincount(dst, minlength=n) != 1
        begins[dst[negative]] = True
        only, following = np.flatnonzero(~begins[dst]).astype(small), np.full(n, -1, dtype=small)
        following[src[only]] = only
        begins[dst[only[following[src[only]] != only]]] = True
        inside = following[following >= 0]
        del only, following
        head, depth = _heads(src[inside], dst[inside], begins)
        if head is None:
            raise _cycle(name(depth))
        run = (np.cumsum(begins, dtype=small) - 1)[head]
        del head
        self.heads, self._size = np.flatnonzero(begins).astype(small), np.bincount(run).astype(small)
        self._start = np.cumsum(self._size, dtype=small) - self._size
        self._place = self._start[run] + depth
        del depth
        self._into = np.full(n, -1, dtype=small)
        self._into[self._place[dst[inside]]] = inside
        self._sort(run, src, dst, np.flatnonzero(begins[dst]).astype(small), name)
        del run, inside, begins
        _trim(len(src))

    def _sort(self, run: Nodes, src: Nodes, dst: Nodes, joins: Nodes, name: Callable[[Nodes], list[int]]) -> None:
        """Sort the runs topologically, and the chains that lead to their first nodes."""
        n, out_of, into = len(self.heads), run[src[joins]], run[dst[joins]]
        runs = _visited(n, out_of, into)
        if len(runs) < n:
            raise _cycle(name(self.heads[np.setdiff1d(np.arange(n), runs)]))
        turn = np.empty(n, dtype=joins.dtype)
        turn[runs] = np.arange(n)
        order = np.argsort(turn[into])
        size = np.bincount(into, minlength=n)[runs]
        past, chooses = np.cumsum(size), size > 0
        self._steps = [compact(column[chooses].astype(joins.dtype)) for column in (runs, past - size, past)]
        self._joins, self._out_of = joins[order], compact(out_of[order])
        self._from = self._place[src[self._joins]]

    def distances(self, weight: Ints, begin: Ints | None = None) -> Ints:
        """Return the longest distance to each node, as `Chains.forward` does.

        `begin` is the time of the first node of each run.
        """
        way = weight[self._into]
        way[self._start] = 0
        way[self._start[1:]] -= np.add.reduceat(way, self._start)[:-1]  # the sums of each run start at 0
        np.cumsum(way, out=way)
        add, out_of = compact(way[self._from] + weight[self._joins]), self._out_of
        top, is_time = array("q", [0]) * len(self.heads) if begin is None else compact(begin), begin is not None
        del begin
        for run, first, past in zip(*self._steps, strict=True):
            best = top[out_of[first]] + add[first]
            for i in range(first + 1, past):
                reached = top[out_of[i]] + add[i]
                if reached > best:
                    best = reached
            if best >= 0 or is_time:
                top[run] = best
        del add, out_of
        tops = np.frombuffer(top, dtype="i8") if top else way
        for runs in parts_of(len(tops)):
            first, size = self._start[runs], self._size[runs]
            way[first[0] : first[-1] + size[-1]] += np.repeat(tops[runs], size)
        return way[self._place]


def parts_of(n: int) -> Iterator[slice]:
    """Yield slices of n chains or runs, because temporary arrays over all their edges would fill memory."""
    return (slice(first, min(first + _PART, n)) for first in range(0, n, _PART))


def _trim(n_chains: int) -> None:
    """Return freed memory to the operating system after reading or sorting many chains.

    The peak is twice the memory of the result.
    """
    if n_chains > _PART:
        trim()


def _cycle(nodes: list[int]) -> Exception:
    from pipelines.critical_path.graph.cycle import GraphHasCycle  # imports networkx, which is slow

    return GraphHasCycle(nodes[:10])


def _heads(src: Nodes, dst: Nodes, begins: Flags) -> tuple[Nodes | None, Nodes]:
    """Return the first node of each node's run, and the number of steps from it to the node.

    If there is a cycle, returns None and nodes on or after it instead. `src` and `dst` are the edges within runs. Every
    iteration doubles the known distance.
    """
    head, depth, child = np.arange(len(begins), dtype=src.dtype), np.zeros(len(begins), dtype=src.dtype), dst
    head[dst], depth[dst] = src, 1
    for _ in range(64):
        child = child[~begins[head[child]]]
        if not len(child):
            return head, depth
        above = head[child]
        depth[child] += depth[above]
        head[child] = head[above]
    return None, child


def _inner_nodes(pieces: Iterable[Piece], n: int) -> Flags:
    """Return which nodes have exactly one incoming and one outgoing edge, neither of them negative."""
    n_in, n_out, ends = np.zeros(n, dtype=np.uint32), np.zeros(n, dtype=np.uint32), np.zeros(n, dtype=bool)
    for src, dst, weight in pieces:
        np.add.at(n_out, src, np.uint32(1))
        np.add.at(n_in, dst, np.uint32(1))
        negative = weight < 0
        ends[src[negative]] = ends[dst[negative]] = True
    return (n_in == 1) & (n_out == 1) & ~ends


def _visited(n: int, src: Nodes, dst: Nodes) -> Nodes:
    """Return the n nodes in topological order. Nodes on or after a cycle are missing."""
    begins = np.zeros(n + 1, dtype=small_enough(len(src)))
    np.cumsum(np.bincount(src, minlength=n), out=begins[1:])
    child, begin = compact(dst[np.argsort(src, kind="stable")]), compact(begins)
    waits = np.bincount(dst, minlength=n).astype(begins.dtype)
    waits_for, order = compact(waits), compact(np.flatnonzero(waits == 0).astype(begins.dtype))
    for node in order:  # grows in the loop
        for target in child[begin[node] : begin[node + 1]]:
            waiting = waits_for[target] - 1
            if waiting:
                waits_for[target] = waiting
            else:
                order.append(target)
    return np.array(order, dtype=begins.dtype)


def small_enough(size: int) -> type[np.int32 | np.int64]:
    """Return the smaller integer type of int32 and int64 that can represent `size`."""
    return np.int32 if size < 2**31 else np.int64


def compact(values: np.ndarray) -> array:
    """Return a Python array with as many bytes per item as the numpy array.

    A list takes 32 bytes more per item, and indexing a numpy array from Python is slow.
    """
    out = array("i" if values.dtype == np.int32 else "q")
    out.frombytes(np.ascontiguousarray(values).view(np.uint8).data)
    return out
