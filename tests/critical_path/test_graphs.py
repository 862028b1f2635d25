"""CUDA and HIP graphs, and overlaps on one stream: what caused a kernel, in which order, and no time counted twice.

Expected values of real traces are computed here from their JSON, without tracelake's tables.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pipelines.critical_path.graph.windows import WindowRequest, request_windows
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from tests.batch import Batch
from tests.effort import named
from tests.harness import call, connect, connect_all, kernel, sync

GRAPH_TRACES = {"mi300_sglang_decode_graph": (1, 544), "a100_cuda_graphs_rank0_of_16": (70, 345)}
TRACES = [*GRAPH_TRACES, "b200_eager_71_process_groups"]

Edge = tuple[int, bool, int, bool]  # source event, whether at its start; destination event, whether at its start


@dataclass(frozen=True)
class Raw:
    """A trace as stored in its file: GPU work (position → event) and calls by correlation, with times in ns."""

    work: dict[int, dict[str, Any]]
    calls: dict[int, int]
    graph_launches: dict[int, int]
    start: dict[int, int]
    end: dict[int, int]

    def streams(self) -> list[list[int]]:
        """Return the work of each stream in order of start."""
        by_stream = defaultdict(list)
        for i, event in self.work.items():
            by_stream[event["args"]["device"], event["args"]["stream"]].append(i)
        return [sorted(of, key=lambda i: (self.start[i], i)) for of in by_stream.values()]

    def launch(self, i: int) -> int | None:
        return self.calls.get(self.work[i]["args"]["correlation"])

    def graph_launch(self, i: int) -> int | None:
        return self.graph_launches.get(self.work[i]["args"]["correlation"])


@cache
def raw(path: Path) -> Raw:
    events = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)["traceEvents"]
    timed = {i: e for i, e in enumerate(events) if e.get("ph") == "X"}
    start = {i: int(Decimal(e["ts"]) * 1000) for i, e in timed.items()}
    calls = {e["args"]["correlation"]: i for i, e in timed.items()
             if e.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in e.get("args", {})}  # fmt: skip
    return Raw(
        {i: e for i, e in timed.items() if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")},
        calls,
        {correlation: i for correlation, i in calls.items() if "GraphLaunch" in timed[i]["name"]},
        start,
        {i: start[i] + int(Decimal(e["dur"]) * 1000) for i, e in timed.items()},
    )


@cache
def graph(path: Path) -> tuple[dict[Edge, tuple[str, int, int]], list[Edge], int]:
    """Return the edges of the whole trace in `default`, the path, and the length of the window.

    Each edge has its type, path weight, and attributed event or -1.
    """
    con, trace_id = connect(path)
    with con:
        request_windows(con, [WindowRequest(trace_id)])
        run_models(con, load_catalog(), ["critical_path_edges", "critical_path", "critical_path_windows"])
        columns = "src_event_id, src_is_start, dst_event_id, dst_is_start"
        rows = con.execute(
            f"SELECT {columns}, edge_type, path_weight_ns, coalesce(attributed_event_id, -1) FROM critical_path_edges"
        ).fetchall()
        on_path = con.execute(f"SELECT {columns} FROM critical_path ORDER BY seq").fetchall()
        window = con.execute("SELECT end_ns - start_ns FROM critical_path_windows").fetchall()[0][0]
    edges = {row[:4]: row[4:] for row in rows}
    assert len(edges) == len(rows), "two edges join the same nodes"
    return edges, on_path, window


@pytest.fixture(params=named(TRACES))
def traced(request: pytest.FixtureRequest, shared: Path) -> tuple[str, Path]:
    return request.param, shared / "traces" / "single" / f"{request.param}.json.gz"


def test_all_work_is_caused_by_its_launch(traced: tuple[str, Path]) -> None:
    """The launch edges are exactly the pairs of work and call with the same correlation.

    A graph's launch has an edge to each of its kernels.
    """
    name, path = traced
    of, (edges, _, _) = raw(path), graph(path)
    expected = {(launch, True, i, True) for i in of.work if (launch := of.launch(i)) is not None}
    # If work waited for work from before the trace, the edge from its launch has another type.
    calls = set(of.calls.values())
    assert {edge for edge in edges if edge[0] in calls and edge[2] in of.work} == expected
    in_graphs = [i for i in of.work if of.graph_launch(i) is not None]
    assert (len(of.graph_launches), len(in_graphs)) == GRAPH_TRACES.get(name, (0, 0))
    assert expected >= {(of.graph_launch(i), True, i, True) for i in in_graphs}


def test_kernels_of_a_graph_follow_each_other_on_their_stream(traced: tuple[str, Path]) -> None:
    """Consecutive kernels of a graph have an edge from end to start, or from start to start if they overlap.

    An edge from end to start has the gap between the kernels.
    """
    name, path = traced
    of, (edges, _, _) = raw(path), graph(path)
    followed = 0
    for stream in of.streams():
        for first, second in pairwise(stream):
            if of.graph_launch(second) is None or of.graph_launch(first) != of.graph_launch(second):
                continue
            gap = of.start[second] - of.end[first]
            if gap >= 0:
                assert edges[first, False, second, True] == ("KERNEL_KERNEL_DELAY", gap, -1)
            else:
                own = ("OPERATOR_KERNEL", of.start[second] - of.start[first], first)
                assert edges[first, True, second, True] == own
            followed += 1
    launches, kernels = GRAPH_TRACES.get(name, (0, 0))
    assert followed == kernels - launches  # each graph of these traces ran on one stream


def test_time_on_a_stream_counts_once(traced: tuple[str, Path]) -> None:
    """An edge between activities of one stream is never longer than the time between its nodes.

    The order of the activities is kept.
    """
    name, path = traced
    of, (edges, on_path, window) = raw(path), graph(path)
    overlaps = 0
    for stream in of.streams():
        reached = stream[0]  # the work with the latest end so far
        for second in stream[1:]:
            if of.start[second] < of.end[reached]:
                overlaps += 1
                own = ("OPERATOR_KERNEL", of.start[second] - of.start[reached], reached)
                assert edges[reached, True, second, True] == own
                assert (reached, False, second, True) not in edges
                if of.end[reached] <= of.end[second]:
                    assert edges[reached, False, second, False] == ("DEPENDENCY", 0, -1)
            reached = max(reached, second, key=lambda i: (of.end[i], of.start[i], i))
    assert overlaps == {"a100_cuda_graphs_rank0_of_16": 1, "b200_eager_71_process_groups": 74}.get(name, 0)
    for (src, src_start, dst, dst_start), (_, weight, _) in edges.items():
        if src in of.work and dst in of.work:
            at, after = (of.start if src_start else of.end)[src], (of.start if dst_start else of.end)[dst]
            assert 0 <= weight <= after - at
    assert 0 < sum(edges[edge][1] for edge in on_path) <= window


LAUNCH = call("cudaGraphLaunch", 0, 10, 1)


def paths_of(traces: list[list[dict[str, Any]]], profile: str = "default") -> list[list[tuple]]:
    """Return for each trace (type, event that owns the time or is shown, µs) of the path's edges with a weight."""
    con, trace_ids = connect_all(traces)
    with con:
        request_windows(con, [WindowRequest(trace_id, profile=profile) for trace_id in trace_ids])
        run_models(con, load_catalog(), ["critical_path"])
        query = "SELECT edge_type, name, path_weight_ns / 1000 FROM critical_path WHERE path_weight_ns <> 0"
        return [con.execute(f"{query} AND trace_id = '{trace_id}' ORDER BY seq").fetchall() for trace_id in trace_ids]


OWN, GAP, DELAY = "OPERATOR_KERNEL", "KERNEL_KERNEL_DELAY", "KERNEL_LAUNCH_DELAY"


SMALL: list[tuple[list[dict[str, Any]], list[tuple], str]] = [
    (
        [kernel("a", 20, 30, 1), kernel("b", 55, 30, 1), kernel("c", 90, 30, 1)],
        [(DELAY, "a", 20), (OWN, "a", 30), (GAP, "b", 5), (OWN, "b", 30), (GAP, "c", 5), (OWN, "c", 30)],
        "one stream",
    ),
    (  # 20..120, 100..150, 140..200: 200 us of wall clock, 210 us of kernels
        [kernel("a", 20, 100, 1), kernel("b", 100, 50, 1), kernel("c", 140, 60, 1)],
        [(DELAY, "a", 20), (OWN, "a", 80), (OWN, "b", 40), (OWN, "c", 60)],
        "each begins before the last ended",
    ),
    (  # b runs within a; c waits for a, which ended last
        [kernel("a", 20, 100, 1), kernel("b", 40, 20, 1), kernel("c", 130, 10, 1)],
        [(DELAY, "a", 20), (OWN, "a", 100), (GAP, "c", 10), (OWN, "c", 10)],
        "one within another",
    ),
    (  # b and c both run within a, c after b: b's 20 us do not matter
        [kernel("a", 20, 100, 1), kernel("b", 40, 20, 1), kernel("c", 70, 90, 1)],
        [(DELAY, "a", 20), (OWN, "a", 50), (OWN, "c", 90)],
        "two begin within another",
    ),
    (  # a fork after a and a join before c
        [kernel("a", 20, 100, 1), kernel("b", 130, 50, 1, stream=8), kernel("c", 190, 10, 1)],
        [(DELAY, "a", 20), (OWN, "a", 100), (GAP, "b", 10), (OWN, "b", 50), (GAP, "c", 10), (OWN, "c", 10)],
        "fork and join on two streams",
    ),
    (  # both begin before any kernel of the graph has ended, so both waited for the launch
        [kernel("a", 20, 30, 1), kernel("b", 25, 100, 1, stream=8)],
        [(DELAY, "b", 25), (OWN, "b", 100)],
        "two roots on two streams",
    ),
]
"""Kernels of a graph, the expected path, and the name of the case."""


@cache
def small_graphs() -> list[list[tuple]]:
    return paths_of([[LAUNCH, *kernels] for kernels, _, _ in SMALL])


@pytest.mark.slow  # 4 s
@pytest.mark.parametrize("number", range(len(SMALL)), ids=[shown for *_, shown in SMALL])
def test_small_graphs(number: int) -> None:
    """The graphs end with the last kernel, and the path is as long as the wall-clock time since the launch began."""
    kernels, expected, _ = SMALL[number]
    assert small_graphs()[number] == expected
    assert sum(us for *_, us in expected) == max(k["ts"] + k["dur"] for k in kernels)


IDS = {"a": 4294967297, "b": 4294967298}
"""Ids of the nodes of a graph."""


def node(name: str, start: float, takes: float, replay: int) -> dict[str, Any]:
    """Return a kernel with the id of its graph node."""
    event = kernel(name, start, takes, replay)
    event["args"] |= {"graph node id": IDS[name], "graph id": 1}
    return event


REPLAYS = [node("a", 20, 30, 1), node("b", 50, 10, 1), node("a", 60, 40, 2), node("b", 105, 10, 2)]
MADE = Batch("critical_path_edges", "_window_waits", "critical_path", "kernels", "launches")
JOIN, BRANCHES, REPLAYED = (
    MADE.append(trace)
    for trace in (
        [LAUNCH, kernel("a", 20, 100, 1), kernel("b", 130, 50, 1, stream=8), kernel("c", 190, 10, 1)],
        [
            *(call("cudaGraphLaunch", 0, 5, 1), kernel("long", 10, 500, 1), kernel("short", 20, 100, 1)),
            *(call("cudaStreamSynchronize", 30, 490, 2), sync("Stream Sync", 31, 482, 2, stream=7)),
        ],
        [LAUNCH, call("cudaGraphLaunch", 12, 5, 2), *REPLAYS],
    )
)


def test_a_join_keeps_the_order_of_the_stream() -> None:
    """c waits for b on another stream, but cannot begin before a on its own stream has ended."""
    into_c = MADE.rows(
        JOIN,
        "SELECT src_event_id, src_is_start, edge_type, path_weight_ns FROM critical_path_edges "
        "WHERE dst_event_id = 3 AND dst_is_start ORDER BY ALL",
    )
    assert into_c == [(0, True, DELAY, 20_000), (1, False, "DEPENDENCY", 0), (2, False, GAP, 10_000)]


@pytest.mark.slow  # 2 s; test_inferred.py tests the default path
def test_the_order_of_a_stream_is_one_edge_beside_an_inferred_wait() -> None:
    """Work with an inferred wait also has one edge from the work before it on its stream.

    This is so even if the path need not cover the window, as with data dependencies.
    """
    trace = [
        *(call("cudaLaunchKernel", 0, 5, 1), kernel("aside", 10, 40, 1, stream=8), call("cudaEventRecord", 6, 1, 2)),
        *(call("cudaLaunchKernel", 8, 5, 3), kernel("a", 14, 86, 3), call("cudaStreamWaitEvent", 20, 1, 4)),
        *(call("cudaLaunchKernel", 24, 5, 5), kernel("b", 102, 10, 5)),
    ]
    con, trace_id = connect(trace)
    request_windows(con, [WindowRequest(trace_id)], {("default", "covers_window"): "false"})
    run_models(con, load_catalog(), ["critical_path_edges"])
    query = (
        "SELECT src_event_id, edge_type FROM critical_path_edges WHERE dst_event_id = 7 AND dst_is_start ORDER BY ALL"
    )
    assert con.execute(query).fetchall() == [(1, GAP), (4, GAP), (6, DELAY)]


def test_a_call_for_a_stream_waits_for_the_branch_that_ends_last() -> None:
    """A call for a stream waits for the branch that ends last, not for the branch that began last.

    Some writers record all branches of a graph on the stream of its launch.
    """
    waits = MADE.rows(BRANCHES, "SELECT source_event_id, event_id, explains_wait FROM _window_waits WHERE is_recorded")
    assert waits == [(1, 3, True)]
    into_its_end = MADE.rows(
        BRANCHES,
        "SELECT src_event_id, path_weight_ns FROM critical_path_edges "
        "WHERE dst_event_id = 3 AND NOT dst_is_start AND NOT src_is_start",
    )
    assert into_its_end == [(1, 10_000)]


@pytest.mark.slow  # 5 s
def test_the_switch_and_profile_hta_count_the_overlap_twice() -> None:
    """HTA draws the edge from end to start and cuts the negative gap off at 0. It uses only the graph's last kernel."""
    eager = [call("cudaLaunchKernel", 0, 5, 1), call("cudaLaunchKernel", 6, 5, 2)]
    trace = [*eager, kernel("a", 20, 100, 1), kernel("b", 100, 50, 2)]
    # The trace does not show the shortest launch latency. b began 94 us after its launch, while a ran.
    assert paths_of([trace]) == [[(DELAY, "a", 20), (OWN, "a", 80), (OWN, "b", 50)]]
    assert paths_of([trace], "hta")[0][-2:] == [(OWN, "a", 100), (OWN, "b", 50)]


def test_nodes_of_a_graph_are_known_by_their_id_in_every_replay() -> None:
    """Kernels are assigned to the nodes of a graph by id in each replay.

    A graph of two nodes is launched twice, the second time while the kernels of the first launch still run.
    """
    by_node = MADE.rows(
        REPLAYED,
        "SELECT k.graph_node, count(DISTINCT p.event_id), sum(p.duration_ns) FROM critical_path AS p "
        "JOIN kernels AS k ON k.trace_id = p.trace_id AND k.event_id = p.attributed_event_id "
        "WHERE p.edge_type = 'OPERATOR_KERNEL' GROUP BY k.graph_node ORDER BY k.graph_node",
    )
    launched = MADE.rows(REPLAYED, "SELECT event_id, n_kernels FROM launches ORDER BY event_id")
    assert by_node == [(IDS["a"], 2, 70_000), (IDS["b"], 2, 20_000)]
    assert launched == [(0, 2), (1, 2)]
