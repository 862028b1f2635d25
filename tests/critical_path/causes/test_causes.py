"""Invariants of the causes of every trace, and the cause of each kind of time."""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipelines.base.datafiles import rule_rows
from pipelines.critical_path.causes.edge_causes import stream_name
from pipelines.critical_path.causes.window_rows import rows_by_window
from pipelines.faces.why import Why
from pipelines.models.catalog import load_catalog
from tests.critical_path import invariants
from tests.critical_path.test_invariants import _shared_traces
from tests.critical_path.whatif.test_bounds import check as check_predictions
from tests.critical_path.whatif.test_bounds import check_fixes
from tests.effort import LARGE
from tests.harness import call, kernel, op, rows_of, step_table, sync, x

from .answered import answer, answers, answers_of_all
from .commands import asked_all

VOCABULARY = {row["cause"] for row in rule_rows("cause_kinds")}


def check(why: Why) -> None:
    window, rows = why.window, why.rows
    assert sum(row["duration_ns"] for row in rows) == window["length_ns"]
    assert sum(row["share_percent"] for row in rows) == pytest.approx(100, abs=0.1)
    assert sum(row["gpu_idle_ns"] for row in rows) == window["length_ns"] - window["busy_ns"]
    assert sum(row["exposed_ns"] for row in rows) == window["length_ns"] - window["computing_ns"]
    assert window["computing_ns"] <= window["busy_ns"] <= window["length_ns"]
    assert len({(row["cause"], row["name"]) for row in rows}) == len(rows)
    assert [cause.kind["cause"] for cause in why.causes] == list(
        dict.fromkeys(cause.kind["cause"] for cause in why.causes)
    )
    for row in rows:
        assert row["cause"] in VOCABULARY
        assert 0 <= row["gpu_idle_ns"] <= row["exposed_ns"] <= row["duration_ns"]
        assert row["times"] >= 1
        if row["saves_ns"] is not None:
            assert 0 <= row["saves_ns"] <= row["cause_saves_ns"] <= window["length_ns"]
        if row["halved_saves_ns"] is not None:
            assert row["halved_saves_ns"] <= row["saves_ns"]
            assert row["halved_saves_ns"] <= (row["duration_ns"] + 1) // 2 + row["saves_ns"]
    assert why.sentence.endswith(".")


def _raw(path: Path) -> list[dict[str, Any]]:
    packed = path.read_bytes()
    document = json.loads((gzip.decompress(packed) if path.suffix == ".gz" else packed).decode(errors="replace"))
    return document if isinstance(document, list) else document["traceEvents"]


def _union(spans: Iterable[tuple[int, int]]) -> int:
    total, until = 0, -(10**30)
    for start, end in sorted(spans):
        total += max(end - max(start, until), 0)
        until = max(until, end)
    return total


def _ns(value: Any) -> int:
    whole, _, part = f"{value:.3f}".partition(".")
    return int(whole) * 1000 + int(part)


def check_raw(path: Path, why: Why) -> None:
    """Check the numbers of the sentence against the file alone."""
    events = _raw(path)
    work = [
        e
        for e in events
        if e.get("ph") == "X" and e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset")
    ]
    spans = defaultdict(list)
    for event in work:
        start = _ns(event["ts"])
        kind = (
            "copy"
            if "mem" in event["cat"].lower()
            else "comm"
            if re.search("(?i)nccl|rccl|multimem_all_reduce|cross_device_reduce", event["name"])
            else "kernel"
        )
        spans[kind].append((start, start + _ns(event["dur"])))
    assert abs(_union(spans["kernel"]) - why.window["computing_ns"]) <= 1000
    assert abs(_union([span for of in spans.values() for span in of]) - why.window["busy_ns"]) <= 1000
    for cause, kind in (("communication", "comm"), ("copies", "copy")):
        alone = _union(spans[kind] + spans["kernel"]) - _union(spans["kernel"])
        exposed_ns = sum(row["exposed_ns"] - row["gpu_idle_ns"] for row in why.rows if row["cause"] == cause)
        assert exposed_ns <= alone + 1000  # excludes the time of host calls
    for row in why.rows:
        event = events[row["event_id"]]
        if row["name"] == event.get("name"):
            assert event["ph"] in ("X", "B")
        if (
            row["cause"] in ("communication", "copies")
            and row["event_id"] < len(events)
            and event.get("cat") != "cuda_runtime"
        ):
            assert event["name"] == row["name"]
            assert row["duration_ns"] <= sum(_ns(e["dur"]) for e in work if e["name"] == row["name"]) + 1000


def _small() -> list[Path]:
    return [path for path in _shared_traces() if path.stat().st_size <= LARGE and "begin_end" not in path.name]


def _some() -> list[Path]:
    """Return a tenth of the small shared traces."""
    return _small()[1::10]


TRACES: dict[str, list[dict[str, Any]]] = {}
"""Hand-made traces; each is defined next to its test."""
MORE: dict[str, list[dict[str, Any]]] = {}
"""Hand-made traces of slow tests."""


def answered_by_trace(traces: Mapping[str, Path | list[dict[str, Any]]]) -> dict[str, list[Why]]:
    """Return the answers for each whole trace and for each of its steps, by trace."""
    by_trace = defaultdict(list)
    for answer_of_window in answers_of_all(traces.values(), steps=True):
        by_trace[answer_of_window.title].append(answer_of_window)
    return dict(zip(traces, by_trace.values(), strict=True))


@pytest.fixture(scope="module")
def answered() -> dict[str, list[Why]]:
    """Return the answers for some shared traces and for all of TRACES."""
    return answered_by_trace({str(path): path for path in _some()} | TRACES)


@pytest.fixture(scope="module")
def whole(answered: dict[str, list[Why]]) -> dict[str, Why]:
    """Return the answer for each whole trace."""
    return {name: answers_of_trace[0] for name, answers_of_trace in answered.items()}


@pytest.fixture(scope="module")
def more() -> dict[str, Why]:
    """Return the answer for each whole trace of MORE."""
    return dict(zip(MORE, answers_of_all(MORE.values()), strict=True))


def test_small_shared_traces(shared: Path, answered: dict[str, list[Why]]) -> None:
    windows = [answered[str(path)] for path in _some()]
    assert any(len(answers_of_trace) > 1 for answers_of_trace in windows)
    for answer_of_window in chain.from_iterable(windows):
        check(answer_of_window)


RAW = (
    "critical_path/alexnet", "critical_path/simple_add", "critical_path/cuda_event_sync", "single/h100_qwen",
    "single/mi300_qwen", "single/mi250_minitoy", "single/mi300_rccl_metadata", "single/a100_nccl_metadata",
    "single/b200_eager_71_process_groups", "single/v100_54mb_rank1",
)  # fmt: skip
"""Traces whose sentence also agrees with the raw events."""


def check_all(path: Path, whole: Why, *steps: Why) -> None:
    for why in (whole, *steps):
        check(why)
    if str(path).removesuffix(".json.gz").endswith(RAW):
        check_raw(path, whole)


@pytest.mark.slow  # a quicker test above checks a tenth of them
def test_all_small_shared_traces(shared: Path) -> None:
    for path, whys in answered_by_trace({str(path): path for path in _small()}).items():
        check_all(Path(path), *whys)


@pytest.mark.slow
def test_a_large_shared_trace(trace: Path) -> None:
    """The invariants of the causes, the path and every prediction hold; the models run once for all of them."""
    of_path = {*invariants.TABLES, *load_catalog().models["_gpu_claims"].dependencies}
    (subject,) = asked_all([trace], steps=True, tables=of_path)
    with subject.con:
        step_table(subject.con, "_gpu_claims", "device_floors")
        check_all(trace, *subject.whys())
        invariants.check_in(subject.con, trace)
        check_predictions(subject.window)
        check_fixes(subject)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "trace" in metafunc.fixturenames:
        paths = [path for path in _shared_traces() if path.stat().st_size > LARGE]
        metafunc.parametrize("trace", paths, ids=["/".join(p.parts[-2:]).removesuffix(".gz") for p in paths])


LAUNCHED = [op("aten::mm", 0, 40), call("cudaLaunchKernel", 10, 10, 1)]
AGAIN = [op("aten::mm", 360, 40), call("cudaLaunchKernel", 370, 10, 2), kernel("gemm", 390, 100, 2)]
THREAD = "outside operators, thread 1"


Causes = dict[tuple[str, str], int]
"""Time in us by cause and name."""


def checked(why: Why) -> Causes:
    """Check the invariants, and return the causes except those of the start."""
    check(why)
    return {cause: us for cause, us in by_cause(why).items() if cause[0] != "start"}


def by_cause(why: Why) -> Causes:
    return {(row["cause"], row["name"]): row["duration_ns"] // 1000 for row in why.rows}


OWNERS: dict[str, tuple[list[dict[str, Any]], Causes]] = {
    "a loader owns what runs inside it, and calls with a cause are their own": (
        [
            kernel("gemm", 30, 20, 1),
            x("user_annotation", "enumerate(DataLoader)#_Iter.__next__", 60, 500),
            op("aten::stack", 100, 300),
            op("aten::add", 570, 100),
            call("cudaMalloc", 580, 30, 90),
            call("cudaLaunchKernel", 620, 10, 2),
            kernel("add", 640, 50, 2),
        ],
        {
            ("data_loading", "enumerate(DataLoader)#_Iter.__next__"): 500,
            ("gpu_computing", "aten::add"): 50,
            ("allocation", "cudaMalloc"): 30,
            ("host_operators", "aten::mm"): 20,
            ("host_operators", "aten::add"): 20,
            ("host_between_operators", THREAD): 30,
            ("launching", "cudaLaunchKernel"): 20,
        },
    ),
    "the optimizer's kernels are its own": (
        [
            kernel("gemm", 30, 30, 1),
            x("user_annotation", "Optimizer.step#Adam.step", 70, 100),
            op("aten::add_", 80, 50),
            call("cudaLaunchKernel", 90, 10, 2),
            kernel("adam", 110, 300, 2),
        ],
        {
            ("optimizer", "Optimizer.step#Adam.step"): 320,
            ("host_operators", "aten::mm"): 20,
            ("host_between_operators", THREAD): 30,
            ("launching", "cudaLaunchKernel"): 20,
        },
    ),
    "Python is told by its function, and garbage collection is none of it": (
        [
            kernel("gemm", 30, 30, 1),
            x("python_function", "train.py(5): step", 45, 400),
            x("python_function", "<built-in function collect>", 60, 200),
            op("aten::mm", 300, 50),
            call("cudaLaunchKernel", 310, 10, 2),
            kernel("gemm", 330, 200, 2),
        ],
        {
            ("garbage_collection", "<built-in function collect>"): 200,
            ("gpu_computing", "aten::mm"): 200,
            ("host_between_operators", "train.py(5): step"): 55,
            ("host_between_operators", THREAD): 5,
            ("host_operators", "aten::mm"): 30,
            ("launching", "cudaLaunchKernel"): 20,
        },
    ),
    "host time after the last GPU work is the end": (
        [kernel("gemm", 30, 30, 1), op("aten::cat", 100, 50)],
        {
            ("end", "aten::cat"): 50,
            ("host_operators", "aten::mm"): 20,
            ("host_between_operators", THREAD): 60,
        },
    ),
}


MORE |= {rule: [*LAUNCHED, *events] for rule, (events, _) in OWNERS.items()}


@pytest.mark.slow  # 4 s
def test_whose_time_it_is(more: dict[str, Why]) -> None:
    assert {rule: checked(more[rule]) for rule in OWNERS} == {rule: causes for rule, (_, causes) in OWNERS.items()}


SYNCED = [kernel("gemm", 30, 300, 1), call("cudaDeviceSynchronize", 50, 285, 9), sync("Context Sync", 51, 280, 9)]
TRACES["unneeded synchronization"] = [*LAUNCHED, *SYNCED, *AGAIN]


def test_after_a_synchronization_that_nothing_needed_the_idle_time_is_its_own(whole: dict[str, Why]) -> None:
    why = whole["unneeded synchronization"]
    assert checked(why) == {
        ("gpu_computing", "aten::mm"): 400,
        # The 5 us until it returns, and the time until the next kernel starts.
        ("synchronization", "cudaDeviceSynchronize"): 60,
    }
    # Without the synchronization, the host launches while the GPU works, so the kernels run back to back.
    (row,) = [row for row in why.rows if row["cause"] == "synchronization"]
    assert 55_000 <= row["saves_ns"] <= 60_000
    assert row["halved_saves_ns"] is None


MORE["wait in an operator"] = [
    *(*LAUNCHED, kernel("gemm", 30, 300, 1)),
    op("aten::item", 50, 300),
    call("cudaMemcpyAsync", 55, 5, 3),
    kernel("Memcpy DtoH (Device -> Pageable)", 331, 2, 3, cat="gpu_memcpy"),
    call("cudaStreamSynchronize", 62, 280, 9),
    sync("Stream Sync", 63, 270, 9, stream=7),
    *AGAIN,
]
MORE["wait outside of operators"] = [
    *(*LAUNCHED, kernel("gemm", 30, 300, 1)),
    op("aten::to", 45, 12),
    call("cudaMemcpyAsync", 46, 5, 3),
    kernel("Memcpy DtoH (Device -> Pinned)", 331, 2, 3, cat="gpu_memcpy"),
    call("cudaStreamSynchronize", 62, 280, 9),
    sync("Stream Sync", 63, 270, 9, stream=7),
    *AGAIN,
]


@pytest.mark.slow  # 4 s
def test_a_synchronization_that_a_copy_needs_is_its_operators_own(more: dict[str, Why]) -> None:
    """A wait for a copy to the host is not a cause if the host needs the copied data.

    Inside an operator, the wait's time belongs to the operator. Outside operators, only the return of the call counts
    as synchronization.
    """
    of_item, copied = (checked(more[f"wait {where}"]) for where in ("in an operator", "outside of operators"))
    assert of_item[("host_operators", "aten::item")] == 17
    assert not [cause for cause, _ in of_item if cause == "synchronization"]
    assert copied[("synchronization", "cudaStreamSynchronize")] == 9  # the return of the call after the copy
    assert copied[("host_operators", "aten::mm")] == 10


def copied(name: str, *around: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a copy of 100 us after a kernel, a synchronization with the copy, and then a kernel of 300 us."""
    return [
        *LAUNCHED,
        kernel("gemm", 30, 300, 1),
        *around,
        call("cudaMemcpyAsync", 55, 5, 3),
        kernel(name, 331, 100, 3, cat="gpu_memcpy"),
        call("cudaStreamSynchronize", 62, 374, 9),
        sync("Stream Sync", 63, 370, 9, stream=7),
        op("aten::mm", 445, 40),
        call("cudaLaunchKernel", 455, 10, 2),
        kernel("gemm", 475, 300, 2),
    ]


COPIED = ("Memcpy HtoD (Pageable -> Device)", "Memcpy DtoH (Device -> Pageable)")
MORE |= {name: copied(name, op("aten::to", 50, 390)) for name in COPIED}


@pytest.mark.slow  # 3 s
@pytest.mark.parametrize("name", COPIED)
def test_without_a_blocking_copy_to_the_gpu_nobody_waits_for_what_is_before_it(name: str, more: dict[str, Why]) -> None:
    why = more[name]
    check(why)
    (row,) = [row for row in why.rows if row["cause"] == "copies"]
    assert row["duration_ns"] == 100_000
    if "HtoD" in name:  # the host launches while the first kernel runs, so both run back to back
        assert row["saves_ns"] == pytest.approx(145_000, abs=6000)
    else:  # the host needs the data that it reads
        assert row["saves_ns"] <= 102_000


TRACES["copy of another operator"] = copied(
    "Memcpy HtoD (Pageable -> Device)", op("aten::to", 50, 11), op("aten::item", 61, 380)
)


def test_an_operator_that_waits_for_the_copy_of_another_one_waits_without_it_for_what_is_before(
    whole: dict[str, Why],
) -> None:
    (row,) = [row for row in whole["copy of another operator"].rows if row["cause"] == "copies"]
    assert row["duration_ns"] == 100_000 and row["saves_ns"] <= 102_000


TRACES["queue"] = [
    *LAUNCHED,
    kernel("gemm", 30, 30, 1),
    x("python_function", "train.py(90): main", 45, 400),
    x("python_function", "queue.py(154): get", 60, 200),
    x("python_function", "threading.py(331): wait", 70, 180),
    *AGAIN,
]


def test_a_wait_for_a_queue_is_named_after_it_and_not_after_who_calls_it(whole: dict[str, Why]) -> None:
    causes = checked(whole["queue"])
    assert causes["host_between_operators", "queue.py(154): get"] == 200
    assert ("host_between_operators", "threading.py(331): wait") not in causes


TRACES["long first wait"] = [
    *(*LAUNCHED, kernel("gemm", 30, 30, 1)),
    *(op("aten::to", 100, 9000), call("cudaStreamSynchronize", 110, 8900, 9)),
    *(op("aten::item", 9220, 10), call("cudaStreamSynchronize", 9221, 5, 11)),
    *(op("aten::item", 9240, 10), call("cudaStreamSynchronize", 9241, 5, 12)),
    *(op("aten::mm", 9300, 40), call("cudaLaunchKernel", 9310, 10, 2), kernel("gemm", 9330, 100, 2)),
]


def test_a_first_wait_that_takes_long_is_no_initialization(whole: dict[str, Why]) -> None:
    """A long first wait is not initialization, even if the trace lacks the GPU activity that it waits for."""
    causes = checked(whole["long first wait"])
    assert causes["host_operators", "aten::to"] >= 8900
    assert not [cause for cause, _ in causes if cause == "initialization"]


TRACES["communication"] = [
    *LAUNCHED,
    kernel("gemm", 30, 470, 1),
    op("nccl:all_reduce", 60, 40),
    call("cudaLaunchKernel", 70, 10, 2),
    kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 200, 800, 2, stream=20),
]


def test_communication_beside_which_something_computes_is_not_said_to_have_nothing_that_hides_it(
    whole: dict[str, Why],
) -> None:
    why = whole["communication"]
    check(why)
    (row,) = [row for row in why.rows if row["cause"] == "communication"]
    assert row["duration_ns"] > row["exposed_ns"] == 500_000
    assert "500.0 us it communicates, with no computing to hide it" in why.sentence
    (of,) = [cause for cause in why.causes if cause.kind["cause"] == "communication"]
    assert "(500.0 us not overlapped with compute); removing it saves" in of.description(1)
    bare = replace(of, rows=[{**row, "exposed_ns": row["duration_ns"]}])  # all of it is exposed
    assert "; removing it saves" in bare.description(1) and "(" not in bare.description(1)
    # Half of one row is not half of all.
    single, double = (replace(of, rows=[{**row, "halved_saves_ns": 5000}] * n) for n in (1, 2))
    assert ", halving it 5.0 us" in single.description(1) and "halving" not in double.description(1)


RUNTIMES = [f"{kind}_runtime" for kind in ("cuda", "xpu", "mtia", "privateuse1")]
MORE |= {
    kind: [
        *({**event, "cat": kind} if event["cat"] == "cuda_runtime" else event for event in LAUNCHED),
        kernel("gemm", 50, 300, 1),
    ]
    for kind in RUNTIMES
}


@pytest.mark.slow  # 4 s
def test_calls_of_other_vendors_launch(more: dict[str, Why]) -> None:
    cuda, *others = (by_cause(more[kind]) for kind in RUNTIMES)
    assert others == [cuda] * 3
    assert cuda["gpu_computing", "aten::mm"] == 300


TRACES["long first call"] = [
    *LAUNCHED,
    kernel("gemm", 30, 30, 1),
    op("aten::conv", 50, 9000),
    *[op("aten::conv", 9100 + 100 * i, 90) for i in range(3)],
    op("aten::mm", 9400, 40),
    call("cudaLaunchKernel", 9410, 10, 2),
    kernel("gemm", 9430, 20, 2),
]
TRACES["step"] = [*LAUNCHED, x("user_annotation", "ProfilerStep#3", 0, 600), kernel("gemm", 30, 30, 1), *AGAIN]


def test_a_first_call_that_takes_long_is_initialization_and_others_of_its_name_are_not(whole: dict[str, Why]) -> None:
    """Step annotations of the profiler are not the cause of the time between operators."""
    of_call, of_step = checked(whole["long first call"]), checked(whole["step"])
    assert of_call[("initialization", "aten::conv")] == 9000
    assert of_call[("host_operators", "aten::conv")] == 270
    assert of_step[("host_between_operators", THREAD)] == 320 + 200
    assert not [name for _, name in of_step if name.startswith("ProfilerStep")]


PROFILERS = (
    "profiler.py(101): start_trace",  # JAX writes no folder in XSpace files
    "/env/lib/python3.12/site-packages/jax/_src/profiler.py(213): stop_trace",
    "torch/autograd/profiler.py(330): _start_trace",
    "<built-in method _disable_profiler of PyCapsule object at 0x7f1>",
)
NO_PROFILERS = ("train.py(101): start_trace", "myjob/profiler.py(9): start_trace", "profiler.py(356): wrapper")


def around(frame: str) -> list[dict[str, Any]]:
    return [
        *(x("python_function", frame, 0, 9000), op("aten::mm", 9100, 40)),
        *(call("cudaLaunchKernel", 9110, 10, 1), kernel("gemm", 9125, 30, 1)),
        *(x("python_function", frame, 9200, 700), x("python_function", "threading.py(1): run", 9300, 400)),
        *(op("aten::mm", 9950, 40), call("cudaLaunchKernel", 9960, 10, 2), kernel("gemm", 9975, 30, 2)),
    ]


@pytest.mark.slow  # 4 s
def test_starting_and_stopping_the_profiler_is_the_profiler_itself(more: dict[str, Why]) -> None:
    """Functions of PyTorch and JAX that start or stop the profiler have the cause profiler.

    They run before the first kernel and between kernels. Other functions whose names contain a word of the profiler
    count as host time.
    """
    for frame in (*PROFILERS, *NO_PROFILERS):
        causes = checked(more[frame])
        of_profiler = sum(us for (cause, _), us in causes.items() if cause == "profiler")
        assert of_profiler == (9700 if frame in PROFILERS else 0), (frame, causes)
    together = more["profilers one after another"]
    assert together.rows[0]["cause"] == "profiler" and "it waits for the profiler itself" in together.sentence


def moved(events: list[dict[str, Any]], by_us: float) -> list[dict[str, Any]]:
    """Return the events shifted by `by_us`, with their own correlations."""

    def args(event: dict[str, Any]) -> dict[str, Any]:
        correlation = event["args"].get("correlation")
        return event["args"] if correlation is None else {**event["args"], "correlation": correlation + int(by_us)}

    return [{**event, "ts": event["ts"] + by_us, "args": args(event)} for event in events]


MORE |= {frame: [*LAUNCHED, *around(frame)] for frame in (*PROFILERS, *NO_PROFILERS)}
MORE["profilers one after another"] = [
    event for place, frame in enumerate(PROFILERS[:2]) for event in moved(around(frame), 10_050 * place)
]


@pytest.mark.slow  # 5 s
def test_a_jax_trace_names_its_profiler(shared: Path) -> None:
    path = shared / "traces" / "xplane" / "jax_conv_mi300_08.xplane.pb"
    if not path.is_file():
        pytest.skip(f"not there: {path}")
    why = answer(path)
    named = {row["name"]: row["duration_ns"] for row in why.rows if row["cause"] == "profiler"}
    assert named == {"profiler.py(213): stop_trace": 5_963_208, "profiler.py(101): start_trace": 892_971}
    assert not [row for row in why.rows if row["cause"] != "profiler" and "_trace" in row["name"]]


def loading_step(number: int, at: float) -> list[dict[str, Any]]:
    return [
        op(f"ProfilerStep#{number}", at, 1000),
        op("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, 600),
        *(op("aten::mm", at + 600, 100), call("cudaLaunchKernel", at + 650, 10, number)),
        kernel("gemm", at + 665, 30, number),
        op("autograd::engine::evaluate_function: MmBackward", at + 705, 200, tid=2),
        call("cudaLaunchKernel", at + 750, 10, number + 100, tid=2),
        kernel("gemm", at + 765, 30, number + 100),
        op("Optimizer.step#SGD.step", at + 910, 80),
    ]


TRACES["loader"] = [event for n in range(3) for event in loading_step(n + 1, 1000 * n)]


def test_annotations_that_pytorch_wrote_as_operators_own_no_hand_over(whole: dict[str, Why]) -> None:
    """Profiler steps written as operators are not causes, so removing the data loader saves nearly all of its time.

    In each step, the autograd thread starts 5 us after the calling thread stops.
    """
    why = whole["loader"]
    first = why.causes[0]
    assert (first.kind["cause"], first.duration) == ("data_loading", 1_800_000)
    assert first.saves is not None and first.saves >= 1_790_000
    assert not [row for row in why.rows if row["name"].startswith("ProfilerStep")]


def round_of(at: float, tid: int) -> list[dict[str, Any]]:
    return [
        op("aten::mm", at, 100),
        op("c10d::allreduce_", at + 100, 50),
        x("user_annotation", "gloo:all_reduce", at + 120, 800, tid),
        op("aten::add_", at + 925, 75),
    ]


TRACES["gloo"] = [*round_of(0, 2), *round_of(1000, 3), *round_of(2000, 2)]


def test_collectives_of_the_host_own_the_time_in_which_their_caller_waits(whole: dict[str, Why]) -> None:
    """While a thread waits for a collective of Gloo, the time belongs to the collective.

    Gloo's threads take turns, and each starts a collective that an operator requested. The caller resumes when the
    collective ends.
    """
    why = whole["gloo"]
    check(why)
    assert why.rows[0]["cause"] == "communication" and why.rows[0]["name"] == "gloo:all_reduce"
    assert (why.rows[0]["duration_ns"], why.rows[0]["saves_ns"]) == (2_400_000, 2_325_000)
    assert why.causes[0].command("t.json") == "tracelake what-if t.json --remove cause:communication"


TRACES["gpu only"] = [kernel("gemm", at, 50, n) for n, at in enumerate((0, 55, 5_000))]


def test_without_the_host_longer_gaps_are_nobodys(whole: dict[str, Why]) -> None:
    why = whole["gpu only"]
    assert {(row["cause"], row["name"]): row["duration_ns"] // 1000 for row in why.rows} == {
        ("gpu_computing", "gemm"): 150,
        ("gpu_waiting", "stream 7"): 5,
        ("unknown", "stream 7"): 4895,
    }
    assert [caveat for caveat in why.caveats if "no launches, so nothing tells" in caveat["detail"]]


TRACES["host only"] = [
    x("user_annotation", "ProfilerStep#1", 0, 1000),
    op("aten::mm", 0, 700),
    op("aten::add", 800, 100),
]


def test_without_gpu_work_the_host_is_told(whole: dict[str, Why]) -> None:
    why = whole["host only"]
    check(why)
    assert (
        why.sentence
        == "In 1.00 ms the trace shows no GPU work: 800.0 us operators on the host (aten::mm), 200.0 us host between operators."
    )


AROUND_A_CALL = ("Optimizer.step#Adam.step", "load_batch")
TRACES |= {
    annotation: [
        *LAUNCHED,
        kernel("gemm", 30, 20, 1),
        x("user_annotation", annotation, 60, 500),
        call("cudaMalloc", 100, 300, 90),
        op("aten::mm", 600, 40),
        call("cudaLaunchKernel", 610, 10, 2),
        kernel("gemm", 630, 100, 2),
    ]
    for annotation in AROUND_A_CALL
}


def test_of_a_call_and_what_is_around_it_the_lower_rank_wins(whole: dict[str, Why]) -> None:
    optimizer, loader = (checked(whole[annotation]) for annotation in AROUND_A_CALL)
    assert (optimizer["allocation", "cudaMalloc"], optimizer["optimizer", "Optimizer.step#Adam.step"]) == (300, 200)
    assert loader["data_loading", "load_batch"] == 500 and ("allocation", "cudaMalloc") not in loader


TRACES["three of a name"] = [
    *LAUNCHED,
    kernel("gemm", 30, 20, 1),
    op("aten::cat", 60, 100),
    op("aten::cat", 200, 300),
    op("aten::cat", 600, 50),
    op("aten::mm", 700, 40),
    call("cudaLaunchKernel", 710, 10, 3),
    kernel("gemm", 730, 100, 3),
]


def test_the_event_of_a_cause_is_its_longest(whole: dict[str, Why]) -> None:
    rows, events = whole["three of a name"].rows, TRACES["three of a name"]
    (row,) = [row for row in rows if (row["cause"], row["name"]) == ("host_operators", "aten::cat")]
    assert (row["times"], events[row["event_id"]]["ts"], row["duration_ns"]) == (3, 200, 450_000)


# If the host is ahead of the GPU, the steps last until their GPU work has ended.
PER_STEP = {(500, 900): "Of each 500.0 us step", (200, 300): "Of 1.00 ms ", (20, 900): "Of each 500.0 us step"}
TRACES |= {
    f"two steps of {length} us, {busy} us busy": [
        op("aten::mm", 0, 1000),
        x("user_annotation", "ProfilerStep#1", 0, length),
        x("user_annotation", "ProfilerStep#2", length, length),
        call("cudaLaunchKernel", 10, 10, 1),
        kernel("gemm", 30, busy, 1),
    ]
    for length, busy in PER_STEP
}


@pytest.mark.parametrize(("length", "busy"), PER_STEP)
def test_a_window_is_told_per_step_where_steps_are_most_of_it(length: int, busy: int, whole: dict[str, Why]) -> None:
    why = whole[f"two steps of {length} us, {busy} us busy"]
    assert why.window["n_steps"] == 2 and why.sentence.startswith(PER_STEP[length, busy])
    assert why.as_json()["window"]["steps"] == 2


# The second step is longer than the other three, or as long.
UNEVEN = {
    700: "Of 325.0 us a step on average (the median 200.0 us) the GPU",
    200: "Of each 200.0 us step the GPU",
}
TRACES |= {
    f"four steps, the second of {length} us": [
        op("aten::mm", 0, 600 + length),
        *(
            x("user_annotation", f"ProfilerStep#{step}", at, length if step == 2 else 200)
            for step, at in enumerate((0, 200, 200 + length, 400 + length), 1)
        ),
        call("cudaLaunchKernel", 10, 10, 1),
        kernel("gemm", 30, 50, 1),
    ]
    for length in UNEVEN
}


@pytest.mark.parametrize("length", UNEVEN)
def test_the_median_is_told_where_few_steps_take_as_long_as_their_mean(length: int, whole: dict[str, Why]) -> None:
    uneven = whole[f"four steps, the second of {length} us"]
    assert (uneven.window["n_steps"], uneven.window["median_step_ns"]) == (4, 200_000)
    assert uneven.sentence.startswith(UNEVEN[length])


def test_the_median_stands_beside_the_length_without_the_profiler() -> None:
    window = {"length_ns": 60_000_000, "n_steps": 4, "steps_ns": 60_000_000, "median_step_ns": 3_000_000}
    with_it = Why("t", window, [], [], without_profiler_ns=40_000_000)
    assert with_it._whole == "15.00 ms a step on average (about 10 ms without the profiler, the median 3.00 ms)"
    without = replace(with_it, is_without_profiler=True)
    assert without._whole == "about 10 ms a step on average without the profiler (15.00 ms with it, the median 3.00 ms)"
    # A digest of an earlier version does not contain the median.
    del window["median_step_ns"]
    assert without._whole == "each step of about 10 ms without the profiler (15.00 ms with it)"


@pytest.mark.slow  # 6 s
def test_how_many_steps_a_window_has_is_told_unless_the_trace_has_none() -> None:
    """The answer for a step counts one step, however far the GPU lags behind.

    The number of steps is None if the trace has no steps.
    """
    steps = [x("user_annotation", f"ProfilerStep#{number}", 20 * number, 20) for number in (1, 2, 3)]
    steps += [op("aten::add", 45, 5), op("aten::add", 65, 5)]
    launched = [op("aten::mm", 22, 5), call("cudaLaunchKernel", 23, 2, 1), kernel("gemm", 30, 900, 1)]
    whys = answers(steps + launched, steps=True)
    assert [why.as_json()["window"]["steps"] for why in whys] == [3, 1, 1, 1]
    assert answer(launched).as_json()["window"]["steps"] is None


@pytest.mark.slow  # 4 s
def test_computing_is_what_the_breakdown_counts() -> None:
    """Stages of MTIA jobs, such as event waits, do not count as computing.

    A CUDA graph recorded as a whole counts as computing, because its kernels are unknown.
    """
    names = {"permute_2d": 400, "job_exe - event wait": 200, "pe_exe": 100, "hccl_all_reduce": 50, "dma_request": 25}
    events, at = [call("runFunction - job_prep", 0, 10, 1, cat="mtia_runtime")], 20.0
    for name, duration in names.items():
        events.append(kernel(name, at, duration, 1, stream=101, cat="mtia_ccp_events"))
        at += duration
    waits, whole = answers_of_all(
        [
            [op("aten::permute", 0, 15), *events],
            [op("replay", 0, 15), call("cudaGraphLaunch", 2, 8, 1), kernel("CUDA graph 7 as a whole", 20, 300, 1)],
        ]
    )
    check(waits)
    assert waits.window["computing_ns"] == 400_000
    assert waits.window["busy_ns"] == 775_000
    duration_ns = {(row["cause"], row["name"]): row["duration_ns"] for row in waits.rows}
    assert duration_ns["gpu_computing", "aten::permute"] == 400_000
    assert duration_ns["gpu_waiting", "job_exe - event wait"] == 200_000
    assert duration_ns["gpu_waiting", "pe_exe"] == 100_000
    assert duration_ns["communication", "hccl_all_reduce"] == 50_000
    assert whole.window["computing_ns"] == 300_000
    (compute_ns,) = rows_of([op("aten::permute", 0, 15), *events], "temporal_breakdown", "compute_ns")[0]
    assert compute_ns == waits.window["computing_ns"]


TRACES["mtia"] = [
    *(op("aten::permute", 0, 15), call("runFunction - job_prep", 0, 10, 1, cat="mtia_runtime")),
    *(
        kernel(name, start, end - start, 1, stream=stream, cat="mtia_ccp_events")
        for name, start, end, stream in (
            ("job_exe - event wait", 20, 620, 101),
            ("permute_2d", 20, 420, 102),
            ("pe_exe", 320, 520, 103),
            ("fused_linear_relu", 600, 800, 102),
            ("hccl_all_reduce", 700, 900, 104),
        )
    ),
]


def test_stages_that_overlap_add_nothing_to_computing(whole: dict[str, Why]) -> None:
    """Only two kernels count as computing, although stages of MTIA jobs and a collective overlap them."""
    why = whole["mtia"]
    check(why)
    ((compute_ns, other_ns, idle_ns),) = rows_of(
        TRACES["mtia"], "temporal_breakdown", "compute_ns, non_compute_ns, idle_ns"
    )
    assert (compute_ns, other_ns, idle_ns) == (600_000, 280_000, 0)
    assert (why.window["computing_ns"], why.window["busy_ns"]) == (compute_ns, compute_ns + other_ns)
    assert "the GPU computes 600.0 us" in why.sentence


TRACES["no stream"] = [
    *(call("hipMemcpyAsync", 0, 5, 1), call("hipMemcpyAsync", 6, 5, 2)),
    *(x("gpu_memcpy", "CopyHostToDevice", at, 50, 7, 0, correlation=i, device=0) for i, at in ((1, 20), (2, 2330))),
    call("hipDeviceSynchronize", 18, 2370, 3),
]


def test_gpu_work_without_a_stream_waits_on_no_stream(whole: dict[str, Why]) -> None:
    """The time before copies without a queue, as AMD records them, is a wait on `no stream`.

    The second copy was launched 2.3 ms before it starts.
    """
    assert ("gpu_waiting", "no stream") in by_cause(whole["no stream"])
    assert stream_name(-1) == "no stream"


def test_rows_by_window_are_in_order_and_of_no_window_if_there_are_none() -> None:
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE steps AS FROM (VALUES (2, 1, 10), (1, 2, 20), (1, 1, NULL)) AS rows(window_no, seq, edge)"
        )
        by_window = rows_by_window(con, "steps", "seq")
        assert {number: columns["edge"].tolist() for number, columns in by_window.items()} == {1: [-1, 20], 2: [10]}
        assert rows_by_window(con, "steps WHERE window_no > 2", "seq") == {}
