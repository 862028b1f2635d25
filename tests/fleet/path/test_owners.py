"""Owners of time on the path through all ranks. They equal those of a rank's own path, even if another thread polls."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pipelines.faces.cli.app import app
from pipelines.fleet.path.joined import join_ranks
from pipelines.fleet.path.walk import walk_back
from pipelines.synthetic import CaptureSpec, write_capture
from tests.critical_path.test_invariants import without_sync_rows
from tests.fleet.path.opened_once import opened_once
from tests.fleet.path.solved import MADE, graphs_of, solved
from tests.harness import call, kernel, op, sync, x

SPEC = CaptureSpec(ranks=3, steps=3, straggler=1, seed=5, layers=3)
SLEEP_US = 1_001_000
SPARSE = "# running sparse arch"


def slept(trace: dict[str, Any], rank: int) -> dict[str, Any]:
    """Return the trace in which the main thread of rank 1 sleeps before the second step.

    Every rank's NCCL watchdog polls during the sleep. It also polls right before the sleep ends.
    """
    events = trace["traceEvents"]
    second = sorted(e["ts"] for e in events if e["name"].startswith("ProfilerStep") and e["cat"] == "user_annotation")[
        1
    ]
    (pid, main), *_ = ((e["pid"], e["tid"]) for e in events if e.get("cat") == "user_annotation")
    for e in events:
        if e["ph"] != "M" and e["ts"] >= second:
            e["ts"] += SLEEP_US
    if rank == 1:
        events.append(x("user_annotation", SPARSE, second + 100, SLEEP_US - 200, main, pid))
    polls = [*range(0, SLEEP_US + 1_000_000, 100_000), SLEEP_US - 15]
    events += [call("cudaEventQuery", second + at, 10, 900_000 + at, 999) | {"pid": pid} for at in polls]
    return without_sync_rows(trace)


@pytest.mark.slow  # tests/critical_path/test_polls.py tests polls
def test_a_watchdog_that_polls_owns_no_time(tmp_path: Path) -> None:
    for rank, path in enumerate(write_capture(SPEC, tmp_path).paths):
        trace = slept(json.loads(gzip.decompress(path.read_bytes())), rank)
        path.write_bytes(gzip.compress(json.dumps(trace).encode()))
    with opened_once("pipelines.faces.cli.fleet.capture_path"):
        ran, said = (CliRunner().invoke(app, ["capture-path", str(tmp_path), *more]) for more in (["--json"], []))
    assert ran.exit_code == 0, ran.output
    answer = json.loads(ran.stdout)
    asleep = [part for part in answer["segments"] if part["owner"] == SPARSE]
    assert sum(part["dur_us"] for part in asleep) == pytest.approx(SLEEP_US - 200, abs=1)
    assert {(part["rank"], part["kind"], part["owner_cat"]) for part in asleep} == {(1, "gap", "user_annotation")}
    assert not any("cudaEventQuery" in part["owner"] for part in answer["segments"])
    assert sum(answer["owner_us"].values()) == pytest.approx(answer["span_us"])
    assert SPARSE in said.stdout and "host outside operators: " in said.stdout


# Traces of rank 0 alone: a copy that waits for another stream, a wait for the device, threads that hand over,
# annotations, and polls of a thread without other work.
TRACES = {
    "copy": [
        op("aten::mm", 1000, 30),
        call("cudaLaunchKernel", 1010, 10, 1),
        kernel("gemm", 1050, 400, 1, stream=7),
        call("cudaMemcpyAsync", 1040, 430, 2),
        kernel("Memcpy DtoH (Device -> Pageable)", 1455, 10, 2, stream=20, cat="gpu_memcpy"),
        op("aten::add", 1475, 25),
    ],
    "device": [
        call("cudaLaunchKernel", 1000, 10, 1),
        kernel("gemm", 1020, 400, 1, stream=7),
        call("cudaDeviceSynchronize", 1020, 410, 2),
        call("cudaLaunchKernel", 1405, 5, 3, tid=2),
        kernel("late", 1421, 8, 3, stream=20),
        op("aten::add", 1440, 25),
    ],
    "threads": [
        *(op("aten::linear", 1000, 100, tid=1), op("AddmmBackward0", 1130, 200, tid=2), op("optimizer", 1345, 50)),
    ],
    "annotations": [
        *(x("user_annotation", "ProfilerStep#1", 1000, 900), x("user_annotation", SPARSE, 1200, 500)),
        *(op("aten::mm", 1100, 50), op("aten::add", 1750, 100)),
        *(call("cudaEventQuery", 1300 + 40 * i, 30, 10 + i, tid=9) for i in range(10)),
    ],
}
GUESSED = {
    "copy": [("cross_stream_wait", "Memcpy DtoH (Device -> Pageable)", 5), ("sync_return", "cudaMemcpyAsync", 5)],
    "device": [("sync_return", "cudaDeviceSynchronize", 10)],
    "threads": [("thread_hand_off", "AddmmBackward0", 30), ("thread_hand_off", "optimizer", 15)],
    "annotations": [],
}
"""For each trace the waits without a cuda_sync row: kind, event that waited, us."""


def trace_of(name: str, is_synced: bool) -> list[dict[str, Any]]:
    return [*TRACES[name], *([sync("Context Sync", 990, 1, 99)] if is_synced else [])]


MADE.update({(name, is_synced): trace_of(name, is_synced) for name in TRACES for is_synced in (False, True)})


@pytest.mark.parametrize("name", TRACES)
@pytest.mark.parametrize("is_synced", [False, True])
def test_a_ranks_path_is_the_one_that_it_has_alone(name: str, is_synced: bool) -> None:
    trace, (con, ids) = trace_of(name, is_synced), solved()
    trace_id = ids[name, is_synced]
    path = walk_back(join_ranks(graphs_of((name, is_synced)), []), "last_event_end")
    alone: defaultdict[tuple[Any, ...], int] = defaultdict(int)
    rows = con.execute(
        "SELECT edge_type, dst_event_id, attributed_event_id, is_inferred, path_weight_ns FROM critical_path "
        f"WHERE path_weight_ns > 0 AND trace_id = '{trace_id}'"
    )
    for *what, ns in rows.fetchall():
        alone[tuple(what)] += ns
    through: defaultdict[tuple[Any, ...], int] = defaultdict(int)
    for s in path:
        through[s.edge_type, s.event_id, s.owner_event_id, s.guessed] += s.duration_ns
    # The path of the rank alone begins and ends with its annotations, the path through all ranks with operators.
    work = [e for e in TRACES[name] if e["cat"] != "user_annotation" and e["tid"] != 9]
    (first, last), (begin, end) = (
        (min(e["ts"] for e in some), max(e["ts"] + e["dur"] for e in some)) for some in (work, TRACES[name])
    )
    assert sum(ns for what, ns in alone.items() if what not in through) == 1000 * (first - begin + end - last)
    assert {what: ns for what, ns in alone.items() if what in through} == through
    guessed = [(s.kind, trace[s.event_id]["name"], s.duration_ns / 1000) for s in path if s.guessed]
    # cuda_sync rows record neither hand-offs between threads nor waits of these calls.
    assert guessed == (
        [wait for wait in GUESSED[name] if wait[0] != "cross_stream_wait"] if is_synced else GUESSED[name]
    )
