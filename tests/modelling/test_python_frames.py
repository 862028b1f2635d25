"""GPU time by Python frame: a small stack, the backward pass, and a walk over the frames of real traces."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from tests.effort import named
from tests.harness import call, connect, kernel, op, rows_of, x

US = 1000
COLUMNS = "frame, user_frame, phase, n_kernels, gpu_ns"


def frame(name: str, ts: float, dur: float, tid: int = 1) -> dict[str, Any]:
    return x("python_function", name, ts, dur, tid)


def test_the_innermost_frames_around_the_launch_have_its_work() -> None:
    events = [
        frame("train.py(3): <module>", 0, 100),
        frame("contextlib.py(78): inner", 1, 98),
        frame("nn.Module: Linear_0", 10, 50),
        frame("torch/nn/modules/linear.py(124): forward", 12, 40),
        frame("<built-in function linear>", 15, 30),
        op("aten::linear", 16, 20),
        call("cudaLaunchKernel", 20, 2, 1), kernel("gemm", 30, 10, 1),
        frame("<built-in function relu>", 46, 2),  # ends before the next launch
        call("cudaLaunchKernel", 50, 2, 2), kernel("bias", 60, 5, 2),
        frame("<built-in function add>", 64, 10),
        call("cudaLaunchKernel", 73, 1, 4), kernel("add", 85, 2, 4),
        call("cudaLaunchKernel", 70, 2, 3, tid=2), kernel("other thread", 80, 3, 3),
        kernel("orphan", 90, 1, 9),
    ]  # fmt: skip
    assert rows_of(events, "python_frame_gpu_time", COLUMNS) == [
        ("<built-in function add>", "train.py(3): <module>", "launch", 1, 2 * US),
        ("<built-in function linear>", "train.py(3): <module>", "launch", 1, 10 * US),
        ("torch/nn/modules/linear.py(124): forward", "train.py(3): <module>", "launch", 1, 5 * US),
        (None, None, "no_frame", 1, 3 * US),
        (None, None, "no_launch", 1, 1 * US),
    ]


def test_work_of_the_backward_pass_belongs_to_the_frames_of_its_forward() -> None:
    """Work of the backward pass belongs to the frames of its forward.

    The autograd thread has no frames. The operator's sequence number leads to its forward.
    """
    forward = x("cpu_op", "aten::mm", 10, 5, 1, **{"Sequence number": 7, "Fwd thread id": 0})
    backward = x(
        "cpu_op",
        "autograd::engine::evaluate_function: MmBackward0",
        50,
        9,
        2,
        **{"Sequence number": 7, "Fwd thread id": 1},
    )
    events = [
        frame("model.py(9): forward", 5, 20), forward, call("cudaLaunchKernel", 11, 1, 1), kernel("mm", 20, 10, 1),
        backward, call("cudaLaunchKernel", 52, 1, 2, tid=2), kernel("mm backward", 60, 20, 2),
    ]  # fmt: skip
    model = "model.py(9): forward"
    assert rows_of(events, "python_frame_gpu_time", COLUMNS) == [
        (model, model, "backward", 1, 20 * US),
        (model, model, "launch", 1, 10 * US),
    ]


def test_cells_of_a_notebook_are_the_user_s() -> None:
    cell = "<ipython-input-7-1f>(3): train"
    events = [
        *(frame(cell, 0, 100), frame("<frozen importlib._bootstrap>(9): _call", 5, 90), frame("<string>(1): f", 6, 80)),
        *(frame("torch\\optim\\adam.py(3): step", 7, 70), call("cudaLaunchKernel", 20, 2, 1), kernel("k", 30, 10, 1)),
    ]
    assert rows_of(events, "python_frame_gpu_time", "user_frame, gpu_ns") == [(cell, 10 * US)]


def test_a_trace_without_frames_has_no_rows() -> None:
    assert rows_of([call("cudaLaunchKernel", 2, 2, 1), kernel("k", 5, 5, 1)], "python_frame_gpu_time", "frame") == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mi300_sglang_decode_graph", "h100_qwen", *named(["b200_eager_71_process_groups"])])
def test_frames_are_those_of_a_walk(shared: Path, name: str) -> None:
    """For each launch, the frame is the open one on its thread that began last, and the shortest of equal ones."""
    con, _ = connect(shared / "traces" / "single" / f"{name}.json.gz")
    run_models(con, load_catalog(), ["python_frame_gpu_time", "kernels"])
    launches = "SELECT l.pid, l.tid, l.start_ns, k.duration_ns FROM kernels AS k JOIN events AS l ON l.event_id = k.launch_event_id"
    frames = "SELECT pid, tid, start_ns, start_ns + duration_ns, name FROM events WHERE cat = 'python_function' AND duration_ns > 0 ORDER BY start_ns, duration_ns DESC, event_id"
    stacks: dict[tuple[str, str], list[tuple[int, int, str]]] = {}
    for pid, tid, start, end, text in con.execute(frames).fetchall():
        stacks.setdefault((pid, tid), []).append((start, end, text))
    expected: Counter[str | None] = Counter()
    for pid, tid, at, duration in con.execute(launches).fetchall():
        around = [text for start, end, text in stacks.get((pid, tid), []) if start <= at < end]
        expected[around[-1] if around else None] += duration
    rows = con.execute(
        "SELECT frame, sum(gpu_ns) FROM python_frame_gpu_time WHERE phase IN ('launch', 'no_frame') GROUP BY frame"
    ).fetchall()
    assert dict(rows) == {text: ns for text, ns in expected.items() if ns}
    assert expected
