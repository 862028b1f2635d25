"""A small lake with data of every kind, so that few tables are empty: real traces, runs, dumps, recordings, prices."""

from __future__ import annotations

import json
from pathlib import Path

from pipelines.faces.cli.trace.gantt import run_simulated
from pipelines.lake import Lake
from pipelines.readers.ingest import ingest
from pipelines.record.folder import Recording
from pipelines.runs.materialize.run_order import materialize_all
from pipelines.synthetic import CaptureSpec, write_capture
from tests.harness import x
from tests.modelling.test_expert_load import rank_trace
from tests.readers.flight_recorder.test_matches import BASE_NS, calls, comm, entry
from tests.readers.provenance.make import GENUINE, written

# Real traces of few events each: ranks of two captures, HTA's critical paths, AMD, graphs, a CPU-only rank, B/E pairs.
REAL = (
    "ranks/dlrm_8/worker0.json.gz",
    "ranks/dlrm_8/worker1.json.gz",
    "ranks/torchrec_4/0.json.gz",
    "critical_path/alexnet.json.gz",
    "critical_path/cuda_event_sync.json.gz",
    "single/mi250_minitoy.json.gz",
    "single/mi300_sglang_decode_graph.json.gz",
    "single/cpu_only_rank34_of_300.json.gz",
    "dialects/begin_end_pairs_huge_tid.json",
    "stragglers/trace-ST.parquet",
)
S = 10**9


def lake_of_everything(folder: Path, traces: Path) -> Lake:
    """Create the lake `<folder>/lake`.

    `traces` is the folder of the real traces. Traces that are missing there are skipped.
    """
    inputs = folder / "inputs"
    for seed in range(3):  # a persistent straggler needs three captures
        write_capture(CaptureSpec(ranks=3, steps=2, straggler=1, seed=seed), folder / "job" / str(seed))
    graph = CaptureSpec(ranks=1, steps=1, shape="inference_graph", tokens=2, layers=3, graph_origin="both")
    write_capture(graph, inputs / "graph")
    _experts(inputs / "experts")
    _dumped(inputs / "dumped")
    _recorded(inputs / "recorded")
    _compiled(inputs / "compiled")
    lake = Lake(folder / "lake")
    for capture in sorted((folder / "job").iterdir()):
        ingest([capture], lake, job="synthetic")
    ingest([inputs, *(traces / name for name in REAL if (traces / name).exists())], lake)
    run_simulated(lake, "fused_sparse_dist")
    (lake.root / "prices.csv").write_text("job,team,price_per_gpu_hour,currency\nsynthetic,ads,36.5,EUR\n")
    (lake.root / "roles.csv").write_text("rank,role,group\n0,dp,a\n1,dp,b\n2,dp,a\n")
    materialize_all(lake)
    return lake


def _experts(folder: Path) -> None:
    """Write three ranks that send tokens to experts."""
    folder.mkdir(parents=True)
    for rank in range(3):
        (folder / f"rank{rank}.json").write_text(json.dumps(rank_trace(rank)))


def _dumped(folder: Path) -> None:
    """Write a rank's trace and its Flight Recorder dump, which have the same calls."""
    folder.mkdir(parents=True)
    listed = calls(6)
    events = [comm(at, in_trace, size) for at, _, in_trace, size in listed]
    (folder / "rank0.json").write_text(
        json.dumps({"baseTimeNanoseconds": BASE_NS, "distributedInfo": {"rank": 0}, "traceEvents": events})
    )
    entries = [
        entry(number, BASE_NS + at * 1000, in_ring, size) for number, (at, in_ring, _, size) in enumerate(listed)
    ]
    groups = {"0": {"name": "0", "desc": "pg", "ranks": "[0]"}}
    (folder / "dump_0").write_text(json.dumps({"version": "2.10", "pg_config": groups, "entries": entries}))


def _compiled(folder: Path) -> None:
    """Write a trace with the names of kernels in a log of torch.compile, and one name that the log does not contain."""
    names = ("cpp_fused__softmax_1", "cpp_fused_sum_2", "cpp_fused_other_3")
    events = [x("cpu_op", f"graph_0_{name}", 10 * at, 3, pid=4248) for at, name in enumerate(names)]
    written(folder / "torch_trace" / "a.log", GENUINE.read_text().splitlines())
    (folder / "trace.json").write_text(json.dumps({"traceEvents": events}))


def _recorded(folder: Path) -> None:
    """Write counters of a process, a second apart."""
    recording = Recording(folder, "counters", "run1", 42, 3)
    for at in range(5):
        row = {"source": "proc", "pid": 42, "t_unix_ns": (100 + at) * S, "t_mono_ns": at * S, "start_ticks": at // 3}
        recording.add("host_samples", [{**row, "utime_ns": at * S // 2, "stime_ns": 0, "minflt": 7 * at}])
        recording.add("gpu_samples", [{"t_unix_ns": row["t_unix_ns"]}])
    recording.close(source="none: made", interval_ns=S, n_late=1, cost_ns=5, start_ns=1, end_ns=2)
