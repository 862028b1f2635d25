"""The kind of each edge on the path through all ranks, in traces of one rank whose times can be added by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipelines.critical_path.graph.edge_types import edge_codes
from pipelines.fleet.path.joined import join_ranks
from pipelines.fleet.path.rank_graph import GPU, rank_graph
from pipelines.fleet.path.walk import Segment, walk_back
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from tests.fleet.path.solved import MADE, graphs_of
from tests.harness import call, connect, kernel, op, sync, x

Rows = list[tuple[str, str, float, bool]]
"""Kind, event that the segment leads into, us, and whether it is inferred."""


WAITED_FOR = {"wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": 2}
TRACES: dict[str, list[dict[str, Any]]] = {
    "waits": [
        *(call("cudaLaunchKernel", 0, 5, 1), kernel("gemm", 10, 400, 1, stream=7)),
        *(call("cudaEventRecord", 6, 1, 2), call("cudaStreamWaitEvent", 8, 1, 3)),
        sync("Stream Wait Event", 8, 1, 3, stream=8, **WAITED_FOR),
        *(call("cudaLaunchKernel", 10, 5, 4), kernel("nccl", 412, 100, 4, stream=8)),
        *(call("cudaDeviceSynchronize", 20, 500, 5), sync("Context Sync", 21, 491, 5)),
    ],
    "a long call": [
        *(call("cudaLaunchKernel", 0, 5, 1), kernel("gemm", 10, 400, 1)),
        *(call("cudaFree", 20, 1000, 2), op("aten::add", 1020, 30)),
    ],
    "earlier work": [call("cudaLaunchKernel", 0, 5, 1), kernel("decode", 400_000, 100, 1)],
    "gaps": [
        op("aten::a", 0, 100),
        *(x("user_annotation", "# running sparse arch", 90, 800), x("python_function", "sleep", 200, 600)),
        op("aten::b", 900, 100),
    ],
}
MADE.update(TRACES)


def path_of(name: str) -> list[Segment]:
    return walk_back(join_ranks(graphs_of(name), []), "last_event_end")


def rows_of(name: str) -> Rows:
    return [(s.kind, TRACES[name][s.event_id]["name"], s.duration_ns / 1000, s.guessed) for s in path_of(name)]


def test_waits_that_rows_tell() -> None:
    assert rows_of("waits") == [
        ("launch_delay", "gemm", 10, False),
        ("gpu_kernel", "gemm", 400, False),
        ("cross_stream_wait", "nccl", 2, False),
        ("gpu_kernel", "nccl", 100, False),
        ("sync_return", "cudaDeviceSynchronize", 8, False),
    ]


def test_what_a_call_takes_beyond_its_return_is_its_own() -> None:
    """The time of the edge from GPU work into a long cudaFree belongs to cudaFree."""
    assert rows_of("a long call")[1:] == [
        ("gpu_kernel", "gemm", 400, False),
        ("cpu_op", "cudaFree", 610, True),
        ("cpu_op", "aten::add", 30, False),
    ]


def test_work_from_before_the_trace() -> None:
    assert [(s.kind, s.earlier, s.duration_ns) for s in path_of("earlier work")] == [
        ("kernel_delay", True, 400_000_000),
        ("gpu_kernel", False, 100_000),
    ]


def test_a_gap_keeps_its_leaf_and_shows_its_annotation() -> None:
    gaps = [s for s in path_of("gaps") if s.kind == "gap"]
    assert [(s.owner_event_id, s.shown_event_id, s.duration_ns) for s in gaps] == [
        (1, 1, 100_000),
        (2, 1, 600_000),
        (1, 1, 90_000),
        (None, None, 10_000),
    ]


def test_of_two_edges_the_one_that_claims_all_has_bound() -> None:
    """Of two edges into an event, the path follows the one that requires the later start.

    Kernel c waits for a, which ended first but whose signal takes 50 ns. Kernel b, which ended later, would have
    allowed an earlier start.
    """
    own, delay = edge_codes(["OPERATOR_KERNEL", "KERNEL_KERNEL_DELAY"])
    nodes = {"node": np.arange(6), "at_ns": np.array([0, 50, 0, 80, 100, 120]), "side": np.full(6, GPU)}
    edges = np.array(
        [(0, 1, 50, own, 0), (2, 3, 80, own, 1), (4, 5, 20, own, 2), (1, 4, 50, delay, -1), (3, 4, 5, delay, -1)]
    ).T
    names = ("src", "dst", "weight", "code", "attributed")
    columns = dict(zip(names, edges, strict=True)) | {"owner": edges[4], "flags": np.zeros(5)}
    path = walk_back(join_ranks([rank_graph(0, "trace", nodes, columns)], []))
    assert [(s.kind, s.owner_event_id, s.duration_ns) for s in path] == [
        ("gpu_kernel", 0, 50),
        ("kernel_delay", None, 50),
        ("gpu_kernel", 2, 20),
    ]


def test_owners_are_named() -> None:
    """Owners have the same names as in critical_path.

    Time without an event is named by its kind and its thread or stream.
    """
    trace = [
        op("aten::a", 0, 100, tid=5),
        *(x("user_annotation", "## forward ##", 90, 800, tid=5), x("python_function", "sleep", 200, 600, tid=5)),
        *(call("cudaLaunchKernel", 900, 10, 1, tid=5), kernel("gemm", 950, 100, 1, stream=7)),
        *(x("cpu_op", "aten::b", 0, 1, 6, pid) for pid in (100, 200)),
    ]
    rows = [
        # kind, event, owner, shown, edge_type, earlier → owner, its category
        ("head", 0, None, None, None, False, "before the first event of rank 3", None),
        ("cpu_op", 0, 0, 0, "OPERATOR_KERNEL", False, "aten::a", "cpu_op"),
        ("gap", 2, 2, 1, "HOST_GAP", False, "## forward ##", "user_annotation"),
        ("gap", 3, None, None, "HOST_GAP", False, "outside operators, thread 5", None),
        ("launch_delay", 4, None, None, "KERNEL_LAUNCH_DELAY", False, "launch delay, stream 7", None),
        ("launch_delay", 4, 3, 3, "KERNEL_LAUNCH_DELAY", True, "earlier work, not in the trace", None),
        ("thread_hand_off", 0, None, None, "THREAD_HAND_OFF", False, "hand-off, thread 5", None),
        ("sync_return", 3, None, None, "SYNC_DEPENDENCY", False, "wait, thread 5", None),
        ("gap", 5, None, None, "HOST_GAP", False, "outside operators, thread 6, process 100", None),
        ("thread_hand_off", 6, None, None, "THREAD_HAND_OFF", False, "hand-off, thread 6, process 200", None),
    ]
    con, trace_id = connect(trace)
    values = ", ".join(
        str((i, kind, 3, trace_id, event, owner, shown, edge, earlier)).replace("None", "NULL")
        for i, (kind, event, owner, shown, edge, earlier, *_) in enumerate(rows)
    )
    con.execute(
        "CREATE TABLE _walked_segments AS SELECT *, 'c' AS capture_id, 'last_gpu_end' AS target, 0 AS start_ns, "
        "5 AS duration_ns, FALSE AS guessed, CAST(NULL AS BIGINT) AS collective_id, CAST(NULL AS VARCHAR) AS refused_reason, "
        "2 AS n_ranks, 2 AS n_nodes, 2 AS n_edges, 1 AS heaviest_ns FROM (VALUES "
        f"{values}) AS t(seq, kind, rank, trace_id, event_id, owner_event_id, shown_event_id, edge_type, earlier)"
    )
    con.execute(
        "CREATE TABLE collectives AS SELECT 'c' AS capture_id, 'step_order' AS matched_by, NULL AS refused_reason"
    )
    have = frozenset({"_walked_segments", "collectives"})
    run_models(con, load_catalog(), ["capture_critical_path", "capture_paths"], have)
    owners = con.execute("SELECT owner, owner_cat FROM capture_critical_path ORDER BY seq").fetchall()
    assert owners == [row[-2:] for row in rows]
    # Two of the gaps have no owner.
    assert con.execute("SELECT gap_ns, unowned_ns FROM capture_paths").fetchall() == [(15, 10)]
