"""Time of the longest-path search in a graph shaped like a capture's, from its table of edges to the path's nodes.

`longest_path.py make EVENTS FILE` writes the edges. `longest_path.py networkx FILE` finds the path with plain networkx
on a `networkx.DiGraph`. `longest_path.py tracelake FILE` makes the same call on an `ArrayGraph`. Both print JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

from pipelines.critical_path.graph.dependency_graph import ArrayGraph


def capture_like(events: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return source, destination and weight (ns) of edges, with two nodes per event.

    Half of the events are consecutive operators on the CPU, each of which launches a kernel on a stream.
    """
    random = np.random.default_rng(seed)
    n = events // 2
    op_start, op_end, kernel_start, kernel_end = (np.arange(n) * 4 + k for k in range(4))
    waits = np.flatnonzero(random.random(n - 1) < 0.01)  # one operator in a hundred waits for the GPU
    src = np.concatenate([op_start, op_end[:-1], op_start, kernel_start, kernel_end[:-1], kernel_end[waits]])
    dst = np.concatenate([op_end, op_start[1:], kernel_start, kernel_end, kernel_start[1:], op_end[waits + 1]])
    weight = random.integers(1, 20_000, len(src))
    weight[len(src) - len(waits) :] = 0
    order = np.argsort(dst, kind="stable")
    return src[order], dst[order], weight[order]


def in_pieces(*arrays: np.ndarray, size: int = 50_000) -> Iterator[tuple]:
    """Yield the rows as Python numbers in pieces, so that the measurement does not include large lists."""
    for begin in range(0, len(arrays[0]), size):
        yield from zip(*(array[begin : begin + size].tolist() for array in arrays), strict=True)


def measure(implementation: str, file: Path) -> dict[str, float]:
    """Build the graph from the table of edges, find its longest path, and return the seconds and sizes."""
    src, dst, weight = np.load(file)
    began = time.perf_counter()
    graph: Any
    if implementation == "networkx":
        graph = nx.DiGraph()
        graph.add_weighted_edges_from(in_pieces(src, dst, weight))
    elif implementation == "tracelake":
        graph = ArrayGraph.from_edges(src, dst, weight)
    else:
        raise ValueError(f"unknown implementation {implementation!r}: networkx or tracelake")
    built = time.perf_counter()
    path = nx.dag_longest_path(graph)
    ended = time.perf_counter()
    return {
        "build_s": built - began,
        "path_s": ended - built,
        "nodes": graph.number_of_nodes(),
        "edges": graph.number_of_edges(),
        "path": len(path),
        "hash": hash(tuple(path)),
    }


if __name__ == "__main__":
    if sys.argv[1] == "make":
        with Path(sys.argv[3]).open("wb") as target:
            np.save(target, np.stack(capture_like(int(sys.argv[2]))))
    else:
        print(json.dumps(measure(sys.argv[1], Path(sys.argv[2]))))
