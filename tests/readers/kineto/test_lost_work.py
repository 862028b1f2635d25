"""Launches without GPU work: lost work, captures without work, a truncated end, or a trace without GPU recording."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipelines.readers.inputs.single_trace import load_trace
from tests.effort import first_of
from tests.harness import call, connect_all, kernel, op, x

Event = dict[str, Any]
LOST, AT_END, UNLINKED = "lost_kernels", "launches_at_end", "unlinked_launches"


def launch(number: int, at: float, tid: int = 1, name: str = "cudaLaunchKernel", cat: str = "cuda_runtime") -> Event:
    return call(name, at, 5, number, tid, cat)


def launched(number: int, at: float, tid: int = 1) -> list[Event]:
    return [launch(number, at, tid), kernel("k", at + 10, 5, number)]


def step(number: int, at: float, length: float = 100) -> Event:
    return x("user_annotation", f"ProfilerStep#{number}", at, length)


WAIT = call("cudaDeviceSynchronize", 900, 5, 99)
BEGIN, END = call("cudaStreamBeginCapture", 90, 5, 90), call("cudaStreamEndCapture", 190, 5, 91)
CASES: dict[str, tuple[list[Event], dict[str, int]]] = {
    "all there": ([*launched(1, 0), *launched(2, 100), WAIT], {}),
    "before work of its thread": ([launch(1, 0), launch(2, 20), *launched(3, 100)], {LOST: 2}),
    "before a wait for the device": ([*launched(1, 0), launch(2, 20), launch(3, 40), WAIT], {LOST: 2}),
    "before a wait of another thread": ([*launched(1, 0), launch(2, 20, tid=2), {**WAIT, "tid": 3}], {LOST: 1}),
    "before a wait of another process": ([*launched(1, 0), launch(2, 20), {**WAIT, "pid": 3}], {AT_END: 1}),
    "a wait that began earlier": ([*launched(1, 0), launch(2, 902), WAIT], {AT_END: 1}),
    "at the end": ([*launched(1, 0), launch(2, 20), launch(3, 40)], {AT_END: 2}),
    "both": ([launch(1, 0), *launched(2, 20), launch(3, 40)], {LOST: 1, AT_END: 1}),
    "another thread goes on": ([launch(1, 0, tid=2), *launched(2, 20)], {AT_END: 1}),
    "nothing of the GPU": ([launch(1, 0), launch(2, 20), WAIT], {}),
    "copies of 0 bytes": ([call("cudaMemcpyAsync", 0, 5, 1), call("cudaMemsetAsync", 10, 5, 2), *launched(3, 20)], {}),
    "a function of the host": ([launch(1, 0, name="cudaLaunchHostFunc"), *launched(3, 20)], {}),
    "an operator of that name": ([op("cudaLaunchKernel", 0, 5), *launched(3, 20)], {}),
    "no correlation": ([{**launch(1, 0), "args": {}}, launch(0, 10), *launched(3, 20)], {}),
    "other calls": (
        [
            launch(1, 0, name="cuLaunchKernelEx", cat="cuda_driver"),
            launch(2, 10, name="hipExtModuleLaunchKernel", cat="hip_runtime"),
            launch(3, 20, name="cudaLaunchKernelExC_v11060"),
            launch(4, 30, name="cudaLaunchKernel_ptsz"),
            launch(5, 40, name="hipGraphLaunch", cat="hip_runtime"),
            *launched(6, 50),
        ],
        {LOST: 5},
    ),
    "calls of SYCL": (
        [
            *(
                launch(i, 10 * i, name=name, cat="xpu_runtime")
                for i, name in enumerate(
                    (
                        *("urEnqueueKernelLaunch", "urEnqueueKernelLaunchCustomExp", "piEnqueueKernelLaunch"),
                        *("urEnqueueKernelLaunchWithArgsExp", "urEnqueueCooperativeKernelLaunchExp"),
                    ),
                    1,
                )
            ),
            launch(6, 60, name="urCommandBufferAppendKernelLaunchExp", cat="xpu_runtime"),
            *launched(7, 70),
        ],
        {LOST: 5},
    ),
    "kernels with correlation 0": (
        [launch(1, 0), kernel("k", 10, 5, 0), launch(2, 20), kernel("k", 30, 5, 0), *launched(3, 40)],
        {UNLINKED: 2},
    ),
    "kernels without correlation": ([launch(1, 0), x("kernel", "k", 10, 5, 7, 0, stream=7), WAIT], {}),
    "one of its own and a neighbour's": (
        [launch(1, 0), launch(2, 20), kernel("k", 30, 5, 2), kernel("k", 36, 5, 2), *launched(3, 40)],
        {UNLINKED: 1},
    ),
    "unlinked and lost": (
        [*(launch(i, 10 * i) for i in range(1, 5)), kernel("k", 60, 5, 0), *launched(5, 70)],
        {LOST: 3, UNLINKED: 1},
    ),
    "more unlinked than launches without work": (
        [launch(1, 0), *(kernel("k", 10 * i, 5, 0) for i in range(1, 4)), *launched(5, 70)],
        {UNLINKED: 1},
    ),
    "copies with correlation 0": ([launch(1, 0), kernel("m", 10, 5, 0, cat="gpu_memcpy"), *launched(3, 40)], {LOST: 1}),
    "kernels of one graph": (
        [
            launch(1, 0),
            launch(2, 20, name="cudaGraphLaunch"),
            *(kernel("k", 30 + 6 * i, 5, 2) for i in range(3)),
            *launched(3, 60),
        ],
        {LOST: 1},
    ),
    "unlinked at the end": ([*launched(1, 0), launch(2, 20), kernel("k", 30, 5, 0)], {AT_END: 1}),
    "in a capture": ([launch(1, 0), BEGIN, launch(2, 100), launch(3, 120, tid=2), END, *launched(4, 200)], {LOST: 1}),
    "after a capture": ([BEGIN, launch(2, 100), END, launch(3, 200), *launched(4, 300)], {LOST: 1}),
    "in another process's capture": ([{**BEGIN, "pid": 7}, launch(2, 100), *launched(4, 200)], {LOST: 1}),
    "in a capture that began earlier": (
        [launch(1, 0), launch(5, 50), END, launch(2, 200), *launched(4, 300)],
        {LOST: 1},
    ),
    "in a capture that does not end": ([*launched(4, 0), BEGIN, launch(2, 100), launch(3, 120)], {}),
    "in one capture of two": (
        [
            BEGIN,
            {**BEGIN, "tid": 2, "ts": 95},
            launch(2, 120),
            END,
            launch(3, 230),
            {**END, "tid": 2, "ts": 250},
            launch(4, 280),
            *launched(5, 300),
        ],
        {LOST: 1},
    ),
}


def findings_of(traces: Iterable[list[Event]]) -> Iterator[dict[str, tuple[int, str, str]]]:
    """Yield count, severity and detail of each trace's findings, by check."""
    con, ids = connect_all(traces)
    with con:
        rows = con.execute(
            "SELECT trace_id, check_name, n, severity, detail FROM findings "
            f"WHERE check_name IN ('{LOST}', '{AT_END}', '{UNLINKED}')"
        ).fetchall()
    for trace_id in ids:
        yield {check: (n, severity, detail) for of, check, n, severity, detail in rows if of == trace_id}


MANY = [event for i in range(100, 220) for event in launched(i, 100.0 * i)]
STEPS = {
    "a step without work": [
        *(step(i, 100.0 * i) for i in range(3)),
        *launched(1, 10),
        *(launch(i, 100 + i) for i in (2, 3, 4)),
        *launched(5, 210),
        launch(6, 230),
        WAIT,
    ],
    "no launches in a step": [
        *(step(i, 100.0 * i) for i in range(3)),
        launch(1, 10),
        *launched(2, 30),
        *launched(5, 210),
    ],
    "twelve steps": [
        *(step(i, 100.0 * i) for i in range(12)),
        *(launch(i + 1, 100.0 * i + 5) for i in range(12)),
        *MANY,
    ],
    "one in twenty": [*(launch(i, i) for i in range(1, 7)), *MANY],
    "1 of 100": [launch(1, 0), *MANY[: 2 * 99]],
    "1 of 101": [launch(1, 0), *MANY[: 2 * 100]],
}

BOUNDARIES = {"lost_work_percent": {"1 of 100": "error", "1 of 101": "warning"}}


FEW = [
    "all there",
    "calls of SYCL",
    *(name for name in CASES if "unlinked" in name or "kernels" in name or "neighbour" in name),
    "before a wait of another thread",
    "both",
    "copies of 0 bytes",
    "in a capture",
]


@pytest.mark.parametrize("names", first_of([FEW, [name for name in CASES if name not in FEW]], 1))
def test_what_is_lost_and_what_is_not(names: Sequence[str]) -> None:
    for name, findings in zip(names, findings_of(CASES[name][0] for name in names), strict=True):
        assert {check: n for check, (n, *_) in findings.items()} == CASES[name][1], name
        assert findings.get(AT_END, (0, "info"))[1] == "info"


def test_steps_without_work_are_named() -> None:
    findings = dict(zip(STEPS, findings_of(STEPS.values()), strict=True))
    n, severity, detail = findings["a step without work"][LOST]
    assert (n, severity) == (4, "error")
    assert detail.startswith("4 of 6 launches have no GPU work: the profiler lost it")
    assert detail.endswith("; steps without any: ProfilerStep#1")
    n, severity, detail = findings["no launches in a step"][LOST]
    assert (n, severity) == (1, "error") and "steps without any" not in detail
    n, severity, detail = findings["twelve steps"][LOST]
    assert (n, severity) == (12, "error")
    assert detail.endswith(f"steps without any: {', '.join(f'ProfilerStep#{i}' for i in range(10))} and 2 more")
    assert findings["one in twenty"][LOST][:2] == (6, "error")
    for name, severity in BOUNDARIES["lost_work_percent"].items():
        assert findings[name][LOST][:2] == (1, severity)


def test_launches_that_are_not_linked_are_told_apart_from_lost_ones() -> None:
    """If launches and kernels are not linked, the finding about lost work names no step.

    The kernels may belong to any step.
    """
    step_without = [*(step(i, 100.0 * i) for i in range(3)), *launched(1, 10), launch(2, 110), launch(3, 120)]
    step_without += [kernel("k", 130, 5, 0), *launched(4, 210)]
    (some,) = findings_of([step_without])
    assert some[UNLINKED] == (
        *(1, "warning"),
        "1 launch and 1 kernel are not linked: the profiler wrote correlation id 0 or that of another launch "
        "(roctracer issue 100), so these kernels depend only on their stream, and launch delays may be of another launch",
    )
    assert some[LOST][:2] == (1, "error") and "steps without any" not in some[LOST][2]


def test_a_file_that_ends_early_says_only_that(tmp_path: Path) -> None:
    """A truncated file has no finding of lost work, because the profiler did not lose the work after the cut."""
    events = [launch(1, 0), *launched(2, 20), op("aten::mm", 50, 5)]
    path = tmp_path / "cut.json"
    path.write_text(json.dumps({"traceEvents": events})[:-40])
    con = duckdb.connect()
    load_trace(con, path)
    checks = {check for (check,) in con.execute("SELECT check_name FROM findings").fetchall()}
    assert "truncated" in checks and LOST not in checks


@pytest.mark.slow
def test_no_real_trace_lost_any(shared: Path) -> None:
    """The traces are all but the largest ones of the reference material.

    Of programs that were recorded twice, only one recording is used.
    """
    paths = [path for path in (shared / "traces").glob("*/*.json.gz") if not path.name.endswith(".B.json.gz")]
    for path in sorted(path for path in paths if path.stat().st_size < 1_500_000):
        con = duckdb.connect()
        load_trace(con, path, lean=True, folder=None)
        assert con.execute(f"SELECT detail FROM findings WHERE check_name = '{LOST}'").fetchall() == [], path
