"""Windows: the interval that an annotation names in either profile, and the windows that the lake computes unasked."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import duckdb
import pytest
from typer.testing import CliRunner

from bench.axes import steps
from pipelines.critical_path.graph import host_edges
from pipelines.critical_path.graph.windows import WindowRequest, parse_instance, request_windows, usual_windows
from pipelines.faces.cli.app import app
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from tests.effort import first_of
from tests.harness import call, connect, connect_all, kernel, op, sync, x


def step(number: int, ts: float) -> dict:
    return x("user_annotation", f"ProfilerStep#{number}", ts, 10)


# Steps 5, 50, 51 and 6, and an operator in each.
STEPS = [step(number, 20 * i) for i, number in enumerate((5, 50, 51, 6))]
TRACE = [*STEPS, *(op("aten::add", 20 * i + 1, 5) for i in range(4))]


def bounds(trace: list[dict], *requests: WindowRequest) -> list[tuple]:
    con, trace_id = connect(trace)
    with con:
        request_windows(con, [replace(request, trace_id=trace_id) for request in requests])
        run_models(con, load_catalog(), ["critical_path_windows"])
        return con.execute("SELECT window_id, start_ns, end_ns FROM critical_path_windows ORDER BY ALL").fetchall()


INSTANCES = [
    ("default", "ProfilerStep#5", 0, 0, (0, 10_000)),
    ("default", "ProfilerStep#5", 1, 1, None),  # ProfilerStep#50 is a different name
    ("hta", "ProfilerStep#5", 1, 1, (20_000, 30_000)),  # HTA: the second row whose name contains it
    ("default", "ProfilerStep", 1, 2, (20_000, 50_000)),  # any step, counted
    ("default", "ProfilerStep#51", 0, 0, (40_000, 50_000)),
    ("default", "no such", 0, 0, None),
    ("default", "ProfilerStep", 3, 4, None),  # the trace has no fifth step
    ("hta", "ProfilerStep", 2, 9, (40_000, 50_000)),  # HTA: the existing steps, without the last one
]


@cache
def instances() -> dict[str, tuple[int, int]]:
    """Return the bounds of the windows of INSTANCES by their index, and of the usual windows of TRACE by their id."""
    asked = [WindowRequest("", str(number), *instance[:-1]) for number, instance in enumerate(INSTANCES)]
    return {window: (start, end) for window, start, end in bounds(TRACE, *asked, *usual_of_trace())}


@cache
def usual_of_trace() -> list[WindowRequest]:
    con, trace_id = connect(TRACE)
    with con:
        return usual_windows(con, [trace_id])


@pytest.mark.parametrize("number", range(len(INSTANCES)), ids=[str(instance[:-1]) for instance in INSTANCES])
def test_instances(number: int) -> None:
    assert instances().get(str(number)) == INSTANCES[number][-1]


def test_a_step_that_is_not_in_the_trace_is_no_part_of_another_steps_name() -> None:
    asked = [
        ("default", "ProfilerStep#5"),
        ("default", "Step#5"),
        ("default", "ProfilerStep#50"),
        ("hta", "ProfilerStep#5"),
    ]
    windows = [WindowRequest("", f"{profile} {name}", profile, name) for profile, name in asked]
    assert bounds(TRACE[1:], *windows) == [
        ("default ProfilerStep#50", 20_000, 30_000),
        ("default Step#5", 20_000, 30_000),
        ("hta ProfilerStep#5", 20_000, 30_000),  # HTA: the first row whose name contains it
    ]


@pytest.mark.slow  # 1 s
def test_instances_are_steps_and_not_their_gpu_copies() -> None:
    copies = [x("gpu_user_annotation", f"ProfilerStep#{n}", 20 * i + 2, 9, 7, 0) for i, n in enumerate((5, 50, 51, 6))]
    assert bounds([*copies, *TRACE], WindowRequest("", "w", "default", "ProfilerStep", 1, 1)) == [("w", 20_000, 30_000)]


# Events before the first of two steps, which begins at 3 ms and launches a kernel; start of the whole trace in us
BEFORE_THE_STEPS = {
    "nothing": ([], 3000),
    "synchronizations": ([call("cudaDeviceSynchronize", ts, 20, 7) for ts in (100, 2000)], 3000),
    "HIP": ([call("hipDeviceSynchronize", 100, 20, 7)], 3000),
    "its row": ([call("cudaDeviceSynchronize", 100, 20, 7), sync("Context Sync", 101, 18, 7)], 3000),
    "the profiler's frames": ([x("python_function", "torch/profiler/profiler.py(810): start", 50, 2900)], 3000),
    "a watchdog": ([call("cudaEventQuery", 200, 5, 7, tid=9), call("cudaEventQuery", 2990, 5, 8, tid=9)], 3000),
    "another thread's operator": ([op("aten::stack", 200, 5, tid=9)], 3000),
    "an operator": ([call("cudaDeviceSynchronize", 100, 20, 7), op("aten::empty", 500, 5)], 100),
    "a call": ([call("cudaMalloc", 100, 20, 7)], 100),
    "an annotation": ([x("user_annotation", "set-up", 100, 20)], 100),
    "earlier work": ([kernel("gemm", 100, 20, 99)], 100),
}


def test_the_whole_trace_begins_after_the_profilers_start() -> None:
    events = [x("user_annotation", f"ProfilerStep#{n}", ts, 90) for n, ts in ((1, 3000), (2, 3100))]
    for number in (1, 2):
        events += [call("cudaLaunchKernel", 2950 + 100 * number, 5, number)]
        events += [kernel("gemm", 2960 + 100 * number, 20, number)]
    con, ids = connect_all([[*earlier, *events] for earlier, _ in BEFORE_THE_STEPS.values()])
    with con:
        request_windows(con, [WindowRequest(id, profile, profile) for id in ids for profile in ("default", "hta")])
        run_models(con, load_catalog(), ["critical_path_windows"])
        rows = con.execute("SELECT trace_id, profile, start_ns, end_ns FROM critical_path_windows").fetchall()
    bounds = {(id, profile): (start, end) for id, profile, start, end in rows}
    for id, (before, (earlier, start_us)) in zip(ids, BEFORE_THE_STEPS.items(), strict=True):
        assert bounds[id, "default"] == (start_us * 1000, 3_190_000), before
        assert bounds[id, "hta"][0] == 1000 * min(event["ts"] for event in [*earlier, *events]), before


def test_the_lake_holds_the_whole_trace_and_every_step() -> None:
    assert [w.window_id for w in usual_of_trace()] == ["full", *(f"ProfilerStep#{n}" for n in (5, 50, 51, 6))]
    assert {window: span for window, span in instances().items() if not window.isdigit()} == {
        "ProfilerStep#5": (0, 10_000),
        "ProfilerStep#50": (20_000, 30_000),
        "ProfilerStep#51": (40_000, 50_000),
        "ProfilerStep#6": (60_000, 70_000),
        "full": (0, 70_000),
    }


def test_no_trace_no_window() -> None:
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE events (trace_id VARCHAR, name VARCHAR, cat VARCHAR, start_ns BIGINT, duration_ns BIGINT)"
        )
        assert usual_windows(con, []) == []


@pytest.mark.slow  # 2 s
def test_a_step_that_two_threads_name_is_one_instance() -> None:
    """Two threads name one step if a training loop steps two profilers, or passes a step to another thread."""
    doubled = [*TRACE, *(x("user_annotation", f"ProfilerStep#{n}", 20 * i + 3, 9, 2) for i, n in enumerate((5, 50)))]
    assert bounds(doubled, WindowRequest("", "w", "default", "ProfilerStep", 1, 1)) == [("w", 20_000, 32_000)]
    assert bounds(doubled, WindowRequest("", "w", "default", "ProfilerStep#5")) == [("w", 0, 12_000)]


STEPPED = {"single/mi300_rccl_metadata": 3, "dialects/v100_2021": 6}


@pytest.fixture(params=first_of(STEPPED, 1))
def stepped(request: pytest.FixtureRequest, shared: Path) -> tuple[Path, list[tuple[str, int, int]]]:
    """Return a real trace and its steps as read from its file: name, start and end in ns, in order."""
    path = shared / "traces" / f"{request.param}.json.gz"
    events = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)["traceEvents"]
    steps = sorted((int(Decimal(e["ts"]) * 1000), int(Decimal(e["dur"]) * 1000), e["name"]) for e in events
                   if str(e.get("name")).startswith("ProfilerStep#") and e.get("ph") == "X" and "gpu" not in e["cat"])  # fmt: skip
    assert len(steps) == STEPPED[request.param]
    return path, [(name, at, at + dur) for at, dur, name in steps]


@pytest.mark.slow  # 5 s
def test_every_step_and_range_of_real_traces(stepped: tuple[Path, list[tuple[str, int, int]]]) -> None:
    path, steps = stepped
    con, trace_id = connect(path)
    with con:
        windows = usual_windows(con, [trace_id])
        assert [w.window_id for w in windows] == ["full", *(name for name, _, _ in steps)]
        last = len(steps) - 1
        ranges = [(n, m) for n in range(last + 1) for m in range(n, last + 2)]
        asked = [WindowRequest(trace_id, f"{n}:{m}", "default", "ProfilerStep", n, m) for n, m in ranges]
        request_windows(con, [*windows[1:], *asked])
        run_models(con, load_catalog(), ["critical_path_windows"])
        rows = con.execute("SELECT window_id, start_ns, end_ns FROM critical_path_windows").fetchall()
    # Times count from the first step. The lake's times count from the trace's base time, the file's need not.
    first = min(start for _, start, _ in rows)
    spans = {window_id: (start - first, end - first) for window_id, start, end in rows}
    steps = [(name, start - steps[0][1], end - steps[0][1]) for name, start, end in steps]
    expected = {name: (start, end) for name, start, end in steps}
    expected |= {f"{n}:{m}": (steps[n][1], steps[m][2]) for n, m in ranges if m <= last}
    assert spans == expected


@pytest.mark.slow  # 4 s each
@pytest.mark.parametrize(
    ("profile", "options", "said"),
    [
        ("default", ["--annotation", "ProfilerStep#500"], "no event's name contains 'ProfilerStep#500'"),
        (
            "hta",
            ["--annotation", "ProfilerStep", "--instance", "9"],
            "instance 9:9 of annotation 'ProfilerStep' is not in",
        ),
    ],
)
def test_what_is_not_there_gets_what_there_is(
    tmp_path: Path, profile: str, options: list[str], said: str, run: Callable[..., Any]
) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": TRACE}))
    failed = run("critical-path", path, "--profile", profile, *options)
    assert failed.exit_code == 1
    assert said in failed.stderr.replace("\n", " ")
    for name in ("ProfilerStep#5", "ProfilerStep#50", "ProfilerStep#51", "ProfilerStep#6"):
        assert f"'{name}' (1)" in failed.stderr.replace("\n", " ")


@pytest.mark.slow  # 4 s
def test_names_of_gpu_work_and_late_instances(tmp_path: Path, run: Callable[..., Any]) -> None:
    """The error lists the matching names, however many other annotations begin earlier."""
    many = [x("user_annotation", f"a{n}", n / 10, 0.05, 5) for n in range(30)]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": [*many, *TRACE, kernel("gemm", 3, 4, 1)]}))
    late = run("critical-path", path, "--annotation", "aten::add", "--instance", "4").stderr
    assert "instance 4:4" in late and "'aten::add' (4)" in late.replace("\n", " ")
    on_gpu = run("critical-path", path, "--annotation", "gemm").stderr
    assert "only names of GPU work or Python functions contain 'gemm'" in on_gpu.replace("\n", " ")


def test_an_instance_needs_an_annotation() -> None:
    with pytest.raises(ValueError, match="instance '1' needs an annotation"):
        parse_instance("1", "")
    assert parse_instance("1:2", "ProfilerStep") == (1, 2)
    assert parse_instance(None, "") == (0, 0)


PHASES = """
    SELECT window_id, bound_by, duration_ns
    FROM critical_path_summary WHERE window_id <> 'full'
    QUALIFY row_number() OVER (PARTITION BY trace_id, window_id ORDER BY duration_ns DESC) = 1
    ORDER BY window_id
"""


@pytest.mark.slow  # a test above checks steps of real traces
def test_which_phase_dominates_each_step_is_one_query(tmp_path: Path, run: Callable[..., Any]) -> None:
    """The three steps have different bounds, and the expected times were computed by hand.

    The bounds are small kernels behind a slow CPU, a collective, and optimizer kernels that the host waits for.
    """
    trace = tmp_path / "rank0.json"
    events = [x("user_annotation", f"ProfilerStep#{n}", 1000 * n, 900) for n in (1, 2, 3)]
    events += [op("aten::small", 1010, 500), call("cudaLaunchKernel", 1200, 5, 1), kernel("small", 1210, 3, 1)]
    events += [op("c10d::allreduce_", 2010, 20), call("cudaLaunchKernel", 2012, 5, 2)]
    events += [kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 2020, 700, 2)]
    events += [call("cudaDeviceSynchronize", 2100, 625, 12), call("cudaDeviceSynchronize", 3100, 525, 13)]
    events += [op("Optimizer.step#Adam.step", 3010, 20), call("cudaLaunchKernel", 3012, 5, 3)]
    events += [kernel("multi_tensor_apply_kernel", 3020, 600, 3)]
    trace.write_text(json.dumps({"traceEvents": events}))
    lake = tmp_path / "lake"
    assert run("ingest", trace, "--lake", lake).exit_code == 0
    answer = run("sql", PHASES, "--lake", lake, "--format", "json")
    assert [tuple(row.values()) for row in json.loads(answer.stdout)] == [
        ("ProfilerStep#1", "cpu_bound", 500_000),
        ("ProfilerStep#2", "gpu_communication_bound", 700_000),
        ("ProfilerStep#3", "gpu_compute_bound", 600_000),
    ]


@pytest.fixture
def run() -> Callable[..., Any]:
    return lambda *arguments: CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.slow  # 5 s
def test_the_edges_of_host_threads_are_those_of_their_window_whatever_else_is_computed() -> None:
    """Edges and indices are the same for a group of windows and for each window alone.

    If alone, the threads are processed in sequence.
    """
    con, trace_id = connect([*steps(240), *(op("b", i * 100, 40, tid=2) for i in range(200))])
    request_windows(con, usual_windows(con, [trace_id]))
    tables = ("_host_edges", "_host_nodes", "_gap_owners", "_left_out", "_early_work")
    run_models(con, load_catalog(), tables)
    together = {name: con.execute(f"FROM {name} ORDER BY ALL").fetchall() for name in tables}
    assert len({window for window, *_ in together["_host_edges"]}) > 15
    with patch.object(host_edges, "EVENTS", 1), patch.object(host_edges, "_PART", 7):
        run_models(con, load_catalog(), tables)
    assert {name: con.execute(f"FROM {name} ORDER BY ALL").fetchall() for name in tables} == together
