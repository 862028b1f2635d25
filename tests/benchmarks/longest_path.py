"""The longest path of a graph like those of captures: `longest_path.py networkx|tracelake EVENTS`, prints JSON.

networkx's plain `dag_longest_path` on a `networkx.DiGraph` against the same call on our `ArrayGraph`, a process each.
"""

from __future__ import annotations

import json
import sys
import time

import networkx as nx
import numpy as np

from pipelines.critical_path.graph import ArrayGraph


def capture_like(events: int, seed: int = 0) -> ArrayGraph:
    """Two nodes an event; half of the events are operators in a row on the CPU, each launching a kernel on a stream."""
    random = np.random.default_rng(seed)
    n = events // 2
    op_start, op_end, kernel_start, kernel_end = (np.arange(n) * 4 + k for k in range(4))
    waits = np.flatnonzero(random.random(n - 1) < 0.01)  # one operator of a hundred waits for the GPU
    src = np.concatenate([op_start, op_end[:-1], op_start, kernel_start, kernel_end[:-1], kernel_end[waits]])
    dst = np.concatenate([op_end, op_start[1:], kernel_start, kernel_end, kernel_start[1:], op_end[waits + 1]])
    weight = random.integers(1, 20_000, len(src))
    weight[len(src) - len(waits) :] = 0
    order = np.argsort(dst, kind="stable")
    return ArrayGraph.from_edges(src[order], dst[order], weight[order])


def main(which: str, events: int) -> dict[str, float]:
    """Build the graph, find its longest path, and tell what it took."""
    arrays = capture_like(events)
    began = time.perf_counter()
    graph = arrays.to_networkx() if which == "networkx" else arrays
    built = time.perf_counter()
    path = nx.dag_longest_path(graph)  # type: ignore[arg-type]
    ended = time.perf_counter()
    sizes = {
        "nodes": arrays.number_of_nodes(),
        "edges": arrays.number_of_edges(),
        "path": len(path),
        "hash": hash(tuple(path)),
    }
    return {"build_s": built - began, "path_s": ended - built, **sizes}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]))))
