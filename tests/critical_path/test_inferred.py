"""Waits without a cuda_sync row, inferred from calls and times.

If a trace has such rows, the inferred waits are compared with them.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipelines.critical_path.answer.answer import critical_path
from pipelines.critical_path.answer.path_answer import PathAnswer
from pipelines.critical_path.graph.skippable_models import unneeded
from pipelines.critical_path.graph.windows import WindowRequest, request_windows
from pipelines.critical_path.whatif.before_after import what_if
from pipelines.critical_path.whatif.scenario import Scenario
from pipelines.critical_path.whatif.window import Window, load
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from pipelines.synthetic import CaptureSpec, write_capture
from tests.batch import Batch
from tests.critical_path.test_full_queue import FULL
from tests.critical_path.test_invariants import without_sync_rows
from tests.critical_path.test_polls import LOOPS
from tests.critical_path.whatif.windows import OF_WINDOW, all_made, loaded
from tests.effort import SLOW
from tests.harness import ANSWERED, answer_in, answers, call, connect, connect_all, each, kernel, only, op, sync, x
from tests.synthetic.random_capture import random_capture
from tests.synthetic.textbook import TEXTBOOK, textbook

Waits = dict[int, tuple[int, str]]
"""Waiting event → awaited event and the basis of the inference."""


_WAITS = """
    SELECT trace_profile_id, event_id, source_event_id, basis FROM _inferred_waits
    WHERE basis <> 'call_order'
    UNION ALL
    SELECT trace_profile_id, waiting_kernel_id, source_kernel_id, 'wait_call' FROM _event_waits
    WHERE evidence IN ('record', 'calls', 'none') AND source_kernel_id IS NOT NULL AND waiting_kernel_id IS NOT NULL
"""

_LIKELY = "FROM _inferred_waits WHERE basis = 'call_order'"


BATCH = Batch(
    *("category_sides", "_inferred_waits", "_event_waits", "event_waits", "_window_waits"),
    *("critical_path", "critical_path_summary", "critical_path_caveats", *OF_WINDOW),
)


def waits_of(number: int) -> Waits:
    """Return the inferred waits of a trace of the batch."""
    rows = BATCH.rows(number, f"SELECT event_id, source_event_id, basis FROM ({_WAITS})")
    return {event: (source, basis) for event, source, basis in rows}


def path_of(number: int) -> list[tuple[str, float, str]]:
    """Return name, duration (us) and bound of each step of the path."""
    return BATCH.rows(number, "SELECT name, duration_ns / 1000.0, bound_by FROM critical_path ORDER BY seq")


def summary_of(number: int) -> dict[str, float]:
    return dict(BATCH.rows(number, "SELECT bound_by, percent FROM critical_path_summary"))


def window_of(number: int) -> Window:
    return load(BATCH.show(number), all_made(), BATCH.window(number))


LATER = Batch("_inferred_waits", "_event_waits", "critical_path_edges", steps_of="_call_claims")
"""Traces of slow tests."""


def later(*traces: list[dict[str, Any]]) -> list[int]:
    return [LATER.append(trace) for trace in traces]


def waits_in(numbers: list[int]) -> list[Waits]:
    """Return the inferred waits of traces of slow tests."""
    query = f"SELECT event_id, source_event_id, basis FROM ({_WAITS})"
    all_rows = [LATER.rows(number, query) for number in numbers]
    return [{event: (source, basis) for event, source, basis in rows} for rows in all_rows]


def inferred_in(traces: list[Any]) -> list[Waits]:
    """Return the inferred waits of each trace."""
    query = f"SELECT event_id, source_event_id, basis FROM ({_WAITS})"
    connections = each(traces, "_profiles", "_inferred_waits", "_event_waits")
    return [{event: (source, basis) for event, source, basis in con.execute(query).fetchall()} for con in connections]


def inferred_and_answered(traces: Iterable[Any]) -> list[tuple[Waits, PathAnswer]]:
    """Return the inferred waits and the answer for each whole trace; the models run once."""
    con, trace_ids = connect_all(traces)
    run_models(con, load_catalog(), [*ANSWERED, "_profiles", "_inferred_waits", "_event_waits"])
    solved = []
    for trace_id in trace_ids:
        only(con, trace_id, ["_inferred_waits", "_event_waits"])
        rows = con.execute(f"SELECT event_id, source_event_id, basis FROM ({_WAITS})").fetchall()
        waits = {event: (source, basis) for event, source, basis in rows}
        solved.append((waits, answer_in(con, WindowRequest(trace_id))))
    return solved


def document_of(path: Path) -> dict[str, Any]:
    raw = path.read_bytes()
    return json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)


LATE = [
    *(call("cudaLaunchKernel", 0, 2, 1), kernel("before", 5, 5, 1, 7)),
    *(call("cudaLaunchKernel", 10, 2, 2), kernel("other", 15, 300, 2, 20)),
    *(call("cudaLaunchKernel", 20, 2, 3), kernel("late", 316, 9, 3, 7)),
]
ROW = [call("cudaDeviceSynchronize", 400, 20, 4), sync("Context Sync", 400, 20, 4, -1)]
WITHOUT_ROW, WITH_ROW = BATCH.append(LATE), BATCH.append([*LATE, *ROW])


def test_times_alone_tell_of_no_wait_of_a_stream_where_rows_show_waits() -> None:
    """If the trace has a row of any wait, times alone do not indicate a wait.

    Work starts 300 us after its launch, when work on another stream ends. This then counts as chance.
    """
    assert waits_of(WITHOUT_ROW) == {5: (3, "timing")}
    assert waits_of(WITH_ROW) == {}


def late(start: float, *source: float, before: float = 10) -> list[dict[str, Any]]:
    """Return work on stream 7 that starts at `start` although the stream is free from `before` on.

    `source` is the start and the end of work on stream 20.
    """
    return [
        *(call("cudaLaunchKernel", 0, 2, 1), kernel("before", 1, before - 1, 1, 7)),
        *(call("cudaLaunchKernel", 3, 2, 2), kernel("other", source[0], source[1] - source[0], 2, 20)),
        *(call("cudaLaunchKernel", 6, 2, 3), kernel("late", start, 9, 3, 7)),
    ]


def blocking(us: float, early: float = 0, cat: str = "kernel") -> list[dict[str, Any]]:
    """Return a call for the whole device that returns `early` us before the work ends.

    With `cat` gpu_memcpy, the call is that of a copy.
    """
    if cat == "kernel":
        waiting = [call("cudaLaunchKernel", 0, 2, 1), call("cudaDeviceSynchronize", 20, us, 2)]
        return [*waiting, kernel("work", 5, 15 + us + early, 1, 7)]
    return [
        call("cudaMemcpyAsync", 20, us, 1),
        kernel("Memcpy DtoH (Device -> Pageable)", 25, us - 5 + early, 1, 7, cat=cat),
    ]


def unexplained(after: float) -> list[dict[str, Any]]:
    """Return a stream's first work, which starts `after` us after its launch returned."""
    return [call("cudaLaunchKernel", 0, 2, 1), kernel("first", 2 + after, 9, 1, 7)]


# threshold's name[/use]: the basis of an inferred wait at the threshold, and None 1 ns beyond
BOUNDARIES = {
    "wait_gap_ns": ("timing", late(400.001, 345, 398, before=350), late(400, 345, 398, before=350)),
    "wait_near_ns/times alone": ("timing", late(316, 220, 266), late(316, 220, 265.999)),
    "wait_fills_gap/times alone": ("timing", late(316, 50, 203), late(316, 50, 202.999)),
    "clock_disagrees_ns/times alone": ("timing", late(316, 50, 318), late(316, 50, 318.001)),
    "call_disagrees_ns/times alone": ("blocking_call", blocking(500, 10), blocking(500, 10.001)),
    "call_disagrees_percent/times alone": ("blocking_call", blocking(2000, 20), blocking(2000, 20.001)),
    "call_disagrees_most_ns/times alone": ("blocking_call", blocking(9000, 50), blocking(9000, 50.001)),
    "call_disagrees_ns/its copy": ("own_copy", blocking(500, 10, "gpu_memcpy"), blocking(500, 10.001, "gpu_memcpy")),
    "blocking_call_ns": ("blocking_call", blocking(10.001), blocking(10)),
    "before_trace_ns": ("before_trace", unexplained(1000.001), unexplained(1000)),
}


ON_BOTH_SIDES = later(*(trace for _, *pair in BOUNDARIES.values() for trace in pair))


@pytest.mark.slow  # 6 s
def test_waits_on_both_sides_of_each_threshold() -> None:
    waits = waits_in(ON_BOTH_SIDES)
    bases = [{basis for _, basis in of.values()} for of in waits]
    expected = [basis for basis, *_ in BOUNDARIES.values()]
    assert dict(zip(BOUNDARIES, zip(bases[::2], bases[1::2], strict=True), strict=True)) == {
        name: ({basis}, set()) for name, basis in zip(BOUNDARIES, expected, strict=True)
    }


@pytest.mark.slow  # a test below checks that the waits are the real ones
def test_without_its_rows_a_capture_has_nearly_the_same_path(tmp_path: Path) -> None:
    """Without rows of waits, the shares of the path by bound differ by at most some percentage points.

    Without inference they are far off, with one stream and with several.
    """
    spec = CaptureSpec(ranks=2, steps=3, straggler=1, seed=7, layers=6)
    far = set()
    ranks = [
        rank
        for n in (1, 3)
        for rank in write_capture(replace(spec, compute_streams=n), tmp_path / f"{n} streams").ranks
    ]
    with_rows = [document_of(rank.path) for rank in ranks]
    without = [without_sync_rows(document) for document in with_rows]
    sighted = [answer for _, answer in answers([*with_rows, *without])]
    unsighted = [answer for _, answer in answers(without, infer_waits="never")]
    for rank, of_rows, guessed, of_none in zip(
        ranks, sighted[: len(ranks)], sighted[len(ranks) :], unsighted, strict=True
    ):
        seen, blind = of_rows.summary, of_none.summary
        labels = {*seen, *guessed.summary, *blind}
        assert max(abs((seen.get(k) or 0) - (guessed.summary.get(k) or 0)) for k in labels) < 4
        if max(abs((seen.get(k) or 0) - (blind.get(k) or 0)) for k in labels) > 10:
            far.add(rank.path.parent.name)
        assert abs(guessed.length_us - rank.truth.full.length_ns / 1000) < 0.05 * guessed.length_us
    assert len(far) == 2


@pytest.mark.slow
def test_the_inferred_waits_are_the_real_ones(tmp_path: Path) -> None:
    """Nearly all waits for an event that held work up are inferred, and waits inferred from a call are right."""
    spec = CaptureSpec(ranks=2, steps=2, straggler=1, seed=7, compute_streams=3, layers=6)
    documents = [document_of(path) for path in write_capture(spec, tmp_path).paths]
    guessed = right = held_up = 0
    documents += [random_capture(seed) for seed in range(8)]
    of_all = zip(documents, real_waits(documents), inferred_in([*map(without_sync_rows, documents)]), strict=True)
    for document, waits, inferred in of_all:
        moved = [i for i, e in enumerate(document["traceEvents"]) if e.get("cat") != "cuda_sync"]
        guesses = {moved[k]: moved[s] for k, (s, basis) in inferred.items() if s is not None and basis == "wait_call"}
        held_up += len(waits)
        guessed += sum(k in guesses for k in waits)
        right += sum(guesses[k] in sources for k, sources in waits.items() if k in guesses)
    assert held_up > 30
    assert guessed >= 0.9 * held_up and right >= 0.9 * guessed, (held_up, guessed, right)


def real_waits(documents: list[dict[str, Any]]) -> list[dict[int, set[int]]]:
    """Return, for each GPU activity that waited through an event, the activities that it really waited for.

    An awaited activity ended after the stream was free and after the launch.
    """
    all_sources = []
    for con in each(documents, "_profiles", "_event_waits", "_gpu_history"):
        rows = con.execute(
            "SELECT w.waiting_kernel_id, w.source_kernel_id, s.end_ns FROM _event_waits AS w "
            "JOIN _gpu_history AS k ON k.event_id = w.waiting_kernel_id "
            "JOIN _gpu_history AS s ON s.event_id = w.source_kernel_id "
            "WHERE s.stream_key <> k.stream_key AND s.end_ns > greatest(k.busy_until_ns, k.launch_ts_ns)"
        ).fetchall()
        latest: dict[int, int] = {}
        sources: dict[int, set[int]] = {}
        for work, source, end in rows:
            if end >= latest.get(work, 0):
                sources[work] = {source} if end > latest.get(work, 0) else sources[work] | {source}
                latest[work] = end
        all_sources.append(sources)
    return all_sources


@pytest.mark.slow  # 4 s
def test_textbook_cases_without_their_rows() -> None:
    query, batch = "SELECT sum(path_weight_ns) / 1000.0 FROM _path_bounds", Batch("_path_bounds")
    documents = {name: json.loads(textbook(name).text) for name in TEXTBOOK}
    pairs = {
        name: [batch.append(document), batch.append(without_sync_rows(document))]
        for name, document in documents.items()
    }
    for name, pair in pairs.items():
        ((stated,),), ((guessed,),) = (batch.rows(number, query) for number in pair)
        # Time after a wait weighs nothing if a row records the wait, and is kept if the wait is inferred.
        assert stated <= guessed <= stated * 1.05, name


STREAMS = [
    call("cudaLaunchKernel", 0, 5, 1),
    kernel("gemm", 10, 500, 1),
    call("cudaStreamWaitEvent", 10, 2, 2),
    call("cudaLaunchKernel", 15, 5, 3),
    kernel("ncclDevKernel_AllReduce", 512, 300, 3, stream=20),
    call("cudaStreamWaitEvent", 25, 2, 4),
    call("cudaLaunchKernel", 30, 5, 5),
    kernel("gemm", 815, 100, 5),
]


@pytest.mark.slow  # 5 s
def test_a_stream_that_was_told_to_wait_waited_for_what_ended_last() -> None:
    ((waits, answer),) = inferred_and_answered([STREAMS])
    assert waits == {4: (1, "wait_call"), 7: (4, "wait_call")}
    # 10 to the first start, 500 + 300 + 100, and 2 + 3 between. Without inference, the path does not contain the
    # collective.
    assert (answer.length_us, answer.summary["gpu_communication_bound"]) == (915, pytest.approx(100 * 300 / 915))
    assert [answer.path[place]["name"] for place in answer.inferred] == ["ncclDevKernel_AllReduce", "gemm"]
    ((_, never),) = answers([STREAMS], infer_waits="never")
    assert "gpu_communication_bound" not in never.summary


OF_STREAMS = BATCH.append(STREAMS)


def test_what_waited_still_follows_the_work_before_it_on_its_stream() -> None:
    """Work with an inferred wait keeps the edge from the work before it on its stream.

    The edge keeps their order when a what-if removes the wait.
    """
    edges = BATCH.rows(OF_STREAMS, "SELECT src_event_id, dst_event_id, edge_type FROM critical_path_edges")
    assert (1, 7, "KERNEL_KERNEL_DELAY") in edges and (4, 7, "KERNEL_KERNEL_DELAY") in edges


def blocked(name: str) -> list[dict[str, Any]]:
    """Return a call that blocks from 50 to 1050 us, and a kernel that ends at 1000 us."""
    return [
        op("step", 0, 2000),
        *(call("cudaLaunchKernel", 10, 5, 1), kernel("gemm", 20, 980, 1)),
        call(name, 50, 1000, 2),
    ]


# Calls that do not block, or that only query whether work has ended, as NCCL's watchdog and allocators do. Their return
# times do not matter.
NOT_BLOCKING = ("cudaLaunchKernel", "cudaEventRecord", "aten::linear", "cudaEventQuery", "hipEventQuery")
NOT_WAITED_FOR = later(
    # Rows of another kind of wait do not affect these waits.
    [*STREAMS, call("cudaDeviceSynchronize", 40, 880, 6), sync("Context Sync", 41, 879, 6)],
    # Stream 24's work was launched after the waiting call and ended in between; the awaited work is the collective.
    [*STREAMS, call("cudaLaunchKernel", 40, 5, 9), kernel("copy", 600, 214, 9, stream=24)],
    # The copy ends after the waiting gemm begins at 815, in the last case by only 1 us. Clocks of streams differ by up
    # to 2 us.
    *([*STREAMS, call("cudaLaunchKernel", 20, 2, 9), kernel("copy", 600, us, 9, stream=24)] for us in (300, 218, 216)),
    # Another thread launched the copy after the call began.
    [
        *blocked("cudaStreamSynchronize"),
        call("cudaLaunchKernel", 500, 5, 7, tid=2),
        kernel("copy", 600, 445, 7, stream=9),
    ],
    *map(blocked, NOT_BLOCKING),
)


@pytest.mark.slow  # 5 s
def test_what_was_not_waited_for() -> None:
    of_others, of_later, *of_beside, blocking = (all_waits := waits_in(NOT_WAITED_FOR))[:6]
    assert of_others == {4: (1, "wait_call"), 7: (4, "wait_call")} and of_later[7] == (4, "wait_call")
    assert [waits[7] for waits in of_beside] == [(4, "wait_call"), (4, "wait_call"), (9, "wait_call")]
    assert blocking[3] == (2, "blocking_call")
    assert all_waits[6:] == [{}] * len(NOT_BLOCKING)


GAPS = (  # gap, part covered by other work, how long before the gap's end that work ended (us), whether it was awaited
    (400, 400, 0, True),  # the other work ended when the gap was over
    (400, 390, 40, True),  # ended within 50 us, and covers almost all of the gap
    (400, 20, 0, True),  # covers little, but ended just before
    (400, 300, 100, True),  # most of the gap
    (400, 20, 100, False),  # neither near the end nor most of the gap
    (45, 45, 0, False),  # the gap is too short
)


def after_a_gap(gap_us: int, covered_us: int, late_us: int) -> list[dict[str, Any]]:
    start = 600 + gap_us
    return [
        *(call("cudaLaunchKernel", 10, 5, 1), kernel("gemm", 100, 500, 1)),
        *(call("cudaLaunchKernel", 20, 5, 2), kernel("gemm", start, 100, 2)),
        *(call("cudaLaunchKernel", 30, 5, 3), kernel("nccl", start - late_us - covered_us, covered_us, 3, stream=20)),
    ]


AFTER_GAPS = later(*(after_a_gap(*gap) for *gap, _ in GAPS))
# If the trace records wait calls, both conditions must hold, because no such call precedes this work.
AFTER_GAPS += later(*([*after_a_gap(*gap), call("cudaStreamWaitEvent", 5000, 2, 9)] for *gap, _ in GAPS))


@pytest.mark.slow  # 7 s
def test_where_no_calls_are_shown_times_must_tell() -> None:
    is_inferred = [3 in waits for waits in waits_in(AFTER_GAPS)]
    assert is_inferred[: len(GAPS)] == [waited for *_, waited in GAPS]
    both = [waited and late <= 50 and covered >= gap / 2 for gap, covered, late, waited in GAPS]
    assert is_inferred[len(GAPS) :] == both


@pytest.mark.slow  # 5 s
def test_a_blocking_call_waited_for_what_ended_in_it() -> None:
    names = ("cudaStreamSynchronize", "hipDeviceSynchronize", "cudaFree", "cuStreamSynchronize")
    for name, (waits, answer) in zip(names, inferred_and_answered(map(blocked, names)), strict=True):
        assert waits == {3: (2, "blocking_call")}
        by_name = {row["name"]: row["duration_us"] for row in answer.path}
        assert (by_name["gemm"], by_name[name]) == (980, 50)  # the 50 us after the kernel's end remain the call's own
        assert answer.length_us == pytest.approx(2000)


def two_streams(second_ends: float, name: str = "cudaStreamSynchronize") -> list[dict[str, Any]]:
    """Return two calls that return 2 us after their only work has ended, and a third call after work on two streams.

    Stream 7's work (event 7) ends 2 us before the third return. Stream 30's work (event 9) was launched last and ends
    at `second_ends`.
    """
    alone = [
        event
        for k in (0, 1)
        for event in (
            *(call("cudaLaunchKernel", 200 * k, 5, 2 * k + 1), kernel("gemm", 200 * k + 10, 90, 2 * k + 1)),
            call(name, 200 * k + 20, 82, 2 * k + 2),
        )
    ]
    return [
        *alone,
        *(call("cudaLaunchKernel", 400, 5, 5), kernel("gemm", 410, 190, 5)),
        *(call("cudaLaunchKernel", 420, 5, 6), kernel("copy", 430, second_ends - 430, 6, stream=30)),
        call(name, 430, 172, 7),
    ]


ONE_OF_TWO = (
    (601.5, "cudaStreamSynchronize", 7),
    (600.8, "cudaStreamSynchronize", 9),
    (601.5, "cudaDeviceSynchronize", 9),
)
TWO_STREAMS = later(*(two_streams(end, name) for end, name, _ in ONE_OF_TWO))


@pytest.mark.slow  # 4 s
def test_a_call_for_one_stream_waited_for_what_ended_as_long_before_its_return_as_it_does_before_others() -> None:
    """If the ends of the work on two streams fit about equally well, the call waited for the work launched last.

    A call for the device waited for the work that ended last.
    """
    all_waits = waits_in(TWO_STREAMS)
    assert [waits[10] for waits in all_waits] == [(source, "blocking_call") for *_, source in ONE_OF_TWO]
    sources = "SELECT src_event_id FROM critical_path_edges WHERE dst_event_id = 10 AND NOT dst_is_start AND src_event_id <> 10"
    assert LATER.rows(TWO_STREAMS[0], sources) == [(7,)]  # not also for the work launched last


STILL_RUNNING = BATCH.append(
    [*two_streams(600), call("cudaLaunchKernel", 425, 2, 9), kernel("copy", 602, 400, 9, stream=30)]
)


def test_a_stream_with_work_still_running_was_not_waited_for() -> None:
    assert waits_of(STILL_RUNNING)[10] == (7, "blocking_call")


LONG_AND_SHORT = later(
    *(
        [
            *(call("cudaLaunchKernel", 0, 5, 1), kernel("other", 20, took / 2, 1, stream=44)),
            *(call("cudaLaunchKernel", 10, 5, 2), kernel("gemm", 30, 70 + took - 40, 2)),
            *(call("cudaLaunchKernel", 20, 5, 3), kernel("last", 70 + took - 8, 20, 3)),
            call("cudaStreamSynchronize", 70, took, 4),
        ]
        for took in (35_000, 700)
    )
)


@pytest.mark.slow  # 4 s
def test_clocks_may_disagree_by_more_in_a_long_call() -> None:
    """A long call may return before the awaited work ends by the GPU's clock.

    In a job with torchrec, a copy ended 12 us after the call that waited 35 ms for it.
    """
    assert [waits[6] for waits in waits_in(LONG_AND_SHORT)] == [(5, "blocking_call"), (1, "blocking_call")]
    query = "SELECT source_event_id FROM call_waits WHERE event_id = 6"
    shown = (LATER.show_step("call_waits", number) for number in LONG_AND_SHORT)
    assert [con.execute(query).fetchall() for con in shown] == [[(5,)], [(1,)]]


NOT_HELD_UP = BATCH.append([
    call("cudaStreamSynchronize", 0, 4, 1),
    *(call("cudaLaunchKernel", 10, 5, 2), kernel("gemm", 20, 80.1, 2)),
    *(call("cudaStreamSynchronize", 100, 4, 3), sync("Stream Sync", 101, 2, 3, 7)),
])  # fmt: skip


def test_a_call_that_takes_no_longer_than_without_a_wait_was_not_held_up() -> None:
    """A call that returns as fast as a call without a wait was not held up by work.

    Work ends just after the second call began, and the first call waited for nothing.
    """
    edges = "SELECT src_event_id, path_weight_ns FROM critical_path_edges WHERE dst_event_id = 3 AND NOT dst_is_start ORDER BY 1"
    assert BATCH.rows(NOT_HELD_UP, edges) == [(2, 2000), (3, 4000)]


COPIES = [
    BATCH.append([call("cudaMemcpyAsync", 10, 10, 1), kernel(f"Memcpy {name}", 12, 7, 1, cat="gpu_memcpy")])
    for name in ("PtoP (Device -> Device)", "DtoD", "HtoD (Pageable -> Device)")
]


def test_a_call_does_not_wait_for_its_copy_between_devices() -> None:
    assert [len(waits_of(number)) for number in COPIES] == [0, 0, 1]


def waited_for(name: str) -> list[dict[str, Any]]:
    """Return a call of 3 us after all work has ended.

    The work is on stream 20, on stream 7 (the last of the call's thread), and in another process.
    """
    return [
        op("step", 0, 2000),
        *(call("cudaLaunchKernel", 10, 5, 1), kernel("comm", 20, 800, 1, stream=20)),
        *(call("cudaLaunchKernel", 30, 5, 2), kernel("gemm", 40, 100, 2)),
        call(name, 900, 3, 3),
        {**call("cudaLaunchKernel", 10, 5, 4), "pid": 200},
        kernel("comm", 20, 700, 4, stream=30, device=1),
    ]


FOR_THE_DEVICE = ("cudaDeviceSynchronize", "cuCtxSynchronize", "hipDeviceSynchronize", "cudaFree", "hipFree")
FOR_A_STREAM = ("cudaStreamSynchronize", "cuStreamSynchronize", "hipStreamSynchronize")
FOUND_DONE = later(*map(waited_for, (*FOR_THE_DEVICE, *FOR_A_STREAM)))


@pytest.mark.slow  # 4 s
def test_a_call_for_the_whole_device_waits_for_every_stream_of_its_process() -> None:
    """A short call for the whole device waits for all streams of its process, although no work ends near it.

    The waits follow from the call's role alone. If the work took longer, the call would wait for it.
    """
    query = (
        "SELECT src_event_id, src_is_start, path_weight_ns, is_inferred FROM critical_path_edges "
        "WHERE dst_event_id = 5 AND NOT dst_is_start AND src_event_id <> 5"
    )
    all_sources = [*[{2, 4}] * len(FOR_THE_DEVICE), *[{4}] * len(FOR_A_STREAM)]
    for number, sources in zip(FOUND_DONE, all_sources, strict=True):
        assert LATER.rows(number, "FROM _inferred_waits WHERE basis <> 'call_order'") == []
        edges = LATER.rows(number, query)
        # All work had ended before the call, so no edge claims more than the time of a return.
        assert {source for source, *_ in edges} == sources
        assert {tuple(rest) for _, *rest in edges} == {(False, 2000, True)}


FREED = BATCH.append([
    op("step", 0, 2000),
    *(call("cudaLaunchKernel", 10, 5, 1), kernel("comm", 20, 800, 1, stream=20)),
    *(call("cudaLaunchKernel", 30, 5, 2), kernel("gemm", 40, 980, 2)),
    call("cudaFree", 50, 1070, 3),
    *(call("cudaStreamSynchronize", 1130, 5, 4), sync("Stream Sync", 1131, 2, 4, 7)),
])  # fmt: skip


def test_a_call_of_which_no_row_tells_waits_among_those_of_which_rows_do() -> None:
    """cudaFree takes from 50 to 1120 and waits for kernels that end at 820 and 1020.

    A stream synchronization with a row runs concurrently. The 100 us after both kernels are cudaFree's own time, which
    it also takes without a wait.
    """
    window = window_of(FREED)
    assert window.n_inferred == 2
    kernels, host = (
        compared.after.length_us
        for compared in what_if(window, [Scenario((("class:COMPUTATION", 0.0),)), Scenario((("self:cudaFree", 0.0),))])
    )
    assert kernels == pytest.approx(50 + 100 + 880) and host == pytest.approx(1020 + 880)


def ends_late(us: float) -> list[dict[str, Any]]:
    """Return kernels 1 and 4 of stream 20, each with an event, and kernel 8 on stream 7.

    Kernel 8 starts `us` before kernel 4 ends.
    """
    return [
        *(call("cudaLaunchKernel", 0, 5, 1), kernel("comm", 10, 20, 1, stream=20)),
        call("cudaEventRecord", 8, 2, 2),
        *(call("cudaLaunchKernel", 12, 5, 3), kernel("comm", 30, 70 + us, 3, stream=20)),
        *(call("cudaEventRecord", 18, 2, 4), call("cudaStreamWaitEvent", 22, 2, 5)),
        *(call("cudaLaunchKernel", 26, 5, 6), kernel("gemm", 100, 50, 6)),
    ]


ENDS_LATE = [BATCH.append(ends_late(us)) for us in (2, 2.001)]


def test_a_stream_waits_for_an_older_event_where_the_newest_ended_over_2_us_too_late() -> None:
    query = "SELECT waiting_kernel_id, source_kernel_id, record_event_id FROM event_waits"
    assert [BATCH.rows(number, query) for number in ENDS_LATE] == [[(8, 4, 5)], [(8, 1, 2)]]


ON_BOTH_STREAMS = BATCH.append([
    op("step", 0, 400),
    *(call("cudaLaunchKernel", 10, 5, 1), kernel("gemm", 40, 160, 1)),
    *(call("cudaLaunchKernel", 20, 5, 2), kernel("comm", 45, 255, 2, stream=20)),
    call("cudaDeviceSynchronize", 50, 253, 3),
])  # fmt: skip


def test_a_sync_that_waited_for_the_last_stream_waits_for_the_others_without_it() -> None:
    """Without the work on the last stream, a device's sync waits for the work on other streams.

    Kernels end at 200 and 300, and the sync returns at 303. Without the second kernel it returns at 203.
    """
    (compared,) = what_if(window_of(ON_BOTH_STREAMS), [Scenario((("comm", 0.0),))])
    assert (compared.before.length_us, compared.after.length_us) == (400, 300)


@pytest.mark.slow  # 4 s
def test_a_device_that_works_longer_is_waited_for_by_its_sync() -> None:
    """Collectives of 800 us that take twice as long end at 1620 us.

    The device's sync then returns when they end, and 1097 us of other time follow. A sync of another stream does not
    change.
    """
    names = ("cudaDeviceSynchronize", "cudaStreamSynchronize")
    for name, window in zip(names, loaded(waited_for(name)[:6] for name in names), strict=True):
        (compared,) = what_if(window, [Scenario((("comm", 2.0),))])
        expected = pytest.approx(1620 + 1097, abs=5) if name == "cudaDeviceSynchronize" else pytest.approx(2000)
        assert compared.after.length_us == expected


def copied(at: float, kind: str) -> int:
    copy = kernel(f"Memcpy DtoH (Device -> {kind})", at, 20, 2, cat="gpu_memcpy")
    return BATCH.append([*blocked("cudaMemcpyAsync"), copy])


COPIED, COPIED_LATER = copied(1002, "Pageable"), copied(1202, "Pinned")


def test_a_copying_call_waited_for_its_copy() -> None:
    assert waits_of(COPIED)[3] == (4, "own_copy") and 3 not in waits_of(COPIED_LATER)


def short_copy(kind: str) -> list[dict[str, Any]]:
    return [
        op("step", 0, 1100),
        *(call("cudaLaunchKernel", 10, 5, 1), kernel("nccl", 20, 980, 1, stream=20)),
        call("cudaStreamWaitEvent", 20, 2, 2),
        call("cudaMemcpyAsync", 30, 990, 3),
        kernel(f"Memcpy DtoH (Device -> {kind})", 1004, 1, 3, cat="gpu_memcpy"),
    ]


TO_PAGEABLE, TO_PINNED = BATCH.append(short_copy("Pageable")), BATCH.append(short_copy("Pinned"))


def test_a_copy_to_pageable_memory_ends_before_its_call_returns() -> None:
    """CUDA documents that the call of a copy to pageable memory returns after the copy, however short it is.

    A call that copies to pinned memory and lasts as long may do anything else.
    """
    for number, own, cpu_us in ((TO_PAGEABLE, {4: (5, "own_copy")}, 105), (TO_PINNED, {}, 1100)):
        assert waits_of(number) == {5: (2, "wait_call")} | own
        assert sum(us for _, us, bound_by in path_of(number) if bound_by == "cpu_bound") == cpu_us


FIRST_WORK = BATCH.append([call("hipLaunchKernel", 10, 5, 1), kernel("decode", 400_000, 100, 1)])


def test_the_first_work_of_a_stream_may_wait_for_work_of_before_the_trace() -> None:
    assert waits_of(FIRST_WORK) == {1: (None, "before_trace")}
    summary = summary_of(FIRST_WORK)
    assert summary["gpu_earlier_work"] > 99 and "gpu_kernel_launch_overhead" not in summary


def slow_call(cat: str) -> list[dict[str, Any]]:
    """Return a call of 5 ms into an idle stream, whose work begins late in the call and ends 12 us after it."""
    return [
        *(call("cudaLaunchKernel", 0, 5, 1), kernel("earlier", 10, 10, 1)),
        *(call("cudaLaunchKernel", 100, 5000, 2), kernel("late", 5092, 20, 2, cat=cat)),
    ]


SLOW_LAUNCH, SLOW_COPY = BATCH.append(slow_call("kernel")), BATCH.append(slow_call("gpu_memcpy"))


def test_a_launch_that_was_slow_itself_waited_for_nothing_of_before_the_trace() -> None:
    """A slow launch may load the kernel's module, so its duration does not indicate a wait.

    The call of a copy does not return before the copy has ended.
    """
    assert waits_of(SLOW_LAUNCH) == {} and waits_of(SLOW_COPY) == {3: (None, "before_trace")}
    assert summary_of(SLOW_LAUNCH)["gpu_kernel_launch_overhead"] > 95 and summary_of(SLOW_COPY)["gpu_earlier_work"] > 95


def side_stream(after: float) -> list[dict[str, Any]]:
    """Return a graph of two streams in a trace with stream waits.

    The second stream's work begins `after` us after the first's.
    """
    return [
        *(call("cudaStreamWaitEvent", 1, 1, 1), call("cudaGraphLaunch", 10, 15, 2)),
        *(kernel("first", 1500, 1800, 2, 7), kernel("side", 1500 + after, 1400, 2, 9)),
    ]


IN_GRAPH, WITH_GRAPH = BATCH.append(side_stream(2100)), BATCH.append(side_stream(0))


def test_a_graph_that_has_begun_waits_for_nothing_of_before_the_trace() -> None:
    assert waits_of(IN_GRAPH) == {2: (None, "before_trace")}
    assert waits_of(WITH_GRAPH) == {event: (None, "before_trace") for event in (2, 3)}


@pytest.mark.slow
def test_communication_is_the_largest_share_where_a_rank_waits(shared: Path) -> None:
    """Rank 2 of torchrec_4 is the straggler.

    The other ranks wait for it in every step except the first, which allocates memory.
    """
    ranks = [shared / "traces" / "ranks" / "torchrec_4" / f"{rank}.json.gz" for rank in range(4)]
    con, trace_ids = connect_all(ranks)
    windows = {
        (rank, step): WindowRequest(trace_id, str(step), annotation=f"ProfilerStep#{step}")
        for rank, trace_id in enumerate(trace_ids)
        for step in (5, 6)
    }
    request_windows(con, [*windows.values()])
    run_models(con, load_catalog(), ANSWERED)
    largest = {key: next(iter(answer_in(con, window).summary)) for key, window in windows.items()}
    assert {key for key, label in largest.items() if label == "gpu_communication_bound"} == {
        (rank, step) for rank in (0, 1, 3) for step in (5, 6)
    }


@pytest.mark.slow  # a test above covers the textbook cases without rows
def test_path_and_breakdown_agree_on_collectives(shared: Path) -> None:
    """In mi300_rccl, two thirds of the GPU's time are exposed communication, and the path shows as much."""
    trace = shared / "traces" / "single" / "mi300_rccl_metadata.json.gz"
    con, trace_id = connect(trace)
    summary = critical_path(con, load_catalog(), WindowRequest(trace_id), with_path=False).summary
    run_models(con, load_catalog(), ["temporal_breakdown"])
    exposed = con.execute("SELECT 100.0 * exposed_communication_ns / span_ns FROM temporal_breakdown").fetchall()[0][0]
    assert exposed > 60 and summary["gpu_communication_bound"] > exposed and summary["gpu_kernel_kernel_overhead"] < 5


@pytest.mark.slow  # 4 s
def test_where_there_are_rows_only_calls_without_one_are_inferred(shared: Path) -> None:
    """In cuda_event_sync, the only wait without a row is the cudaMemcpyAsync to pageable memory.

    The call returns 9 us after its copy of 2 us.
    """
    names = ("alexnet", "simple_add", "cuda_event_sync") if SLOW else ("cuda_event_sync",)
    traces = [shared / "traces" / "critical_path" / f"{name}.json.gz" for name in names]
    waits, inferred = zip(*inferred_and_answered(traces), strict=True)
    assert [*waits] == [{25: (23, "own_copy")} if name == "cuda_event_sync" else {} for name in names]
    plain = [answer for _, answer in answers(traces, infer_waits="never", forward_thread="by_name")]
    for name, with_waits, without in zip(names, inferred, plain, strict=True):
        steps, before = (
            [(row["event_id"], row["duration_us"]) for row in answer.path] for answer in (with_waits, without)
        )
        if name == "cuda_event_sync":
            place = before.index((25, 29))
            before[place : place + 1] = [(23, 18), (23, 2), (25, 9)]
        assert steps == before and steps and with_waits.length_us == without.length_us


@pytest.mark.slow
def test_a_window_is_not_charged_for_the_steps_before_it(shared: Path) -> None:
    """The second step of v100_ns_absolute begins with 65 ms of GPU work outstanding.

    HTA's path of this step is 95.7 ms long.
    """
    con, trace_id = connect(shared / "traces" / "single" / "v100_ns_absolute.json.gz")
    request_windows(con, [WindowRequest(trace_id)])
    answer = critical_path(
        con, load_catalog(), WindowRequest(trace_id, "w", annotation="ProfilerStep", first=1, last=1)
    )
    assert answer.summary.get("gpu_kernel_launch_overhead", 0) < 0.1
    earlier = answer.length_us * answer.summary["gpu_earlier_work"] / 100
    assert answer.length_us - earlier == pytest.approx(95_735, rel=0.02)  # tolerance for other time on the path
    said = {caveat["caveat"]: caveat for caveat in answer.caveats}
    assert (
        said["earlier_work"]["time_us"] == pytest.approx(earlier)
        and "before the window" in said["earlier_work"]["detail"]
    )


def after_a_step(*events: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a step of 100 us whose work runs until 1015 us, and then the events of the next step."""
    return [
        *(x("user_annotation", "ProfilerStep#1", 0, 100), x("user_annotation", "ProfilerStep#2", 100, 1200)),
        *(call("cudaLaunchKernel", 5, 5, 1), kernel("earlier", 15, 1000, 1), op("step", 110, 1100)),
        *events,
    ]


CALL = (call("cudaStreamSynchronize", 120, 903, 9), call("cudaLaunchKernel", 1100, 5, 2), kernel("next", 1110, 30, 2))
OTHER_STREAM = (call("cudaLaunchKernel", 150, 5, 2), kernel("next", 1020, 300, 2, 9))
# events of the second step; whether its wait for the first step's work is inferred
FOR_EARLIER_WORK = {
    "a call": (CALL, True),
    "a recorded call": ((*CALL, sync("Stream Sync", 121, 900, 9, 7)), False),
    "another stream": (OTHER_STREAM, True),
    "the same stream": ((call("cudaLaunchKernel", 150, 5, 2), kernel("next", 1020, 300, 2)), False),
    # Work of the same stream ends later than the source of the inferred wait.
    "both": ((*OTHER_STREAM, call("cudaLaunchKernel", 15, 5, 3), kernel("latest", 1016, 3, 3, 9)), False),
}
EARLIER = {
    name: BATCH.append(after_a_step(*events), "ProfilerStep#2") for name, (events, _) in FOR_EARLIER_WORK.items()
}
OF_EARLIER_WORK = "SELECT DISTINCT is_inferred FROM critical_path WHERE bound_by = 'gpu_earlier_work'"


def test_an_inferred_wait_for_earlier_work_is_marked_so() -> None:
    assert {name: BATCH.rows(number, OF_EARLIER_WORK) for name, number in EARLIER.items()} == {
        name: [(is_inferred,)] for name, (_, is_inferred) in FOR_EARLIER_WORK.items()
    }
    assert BATCH.rows(FIRST_WORK, OF_EARLIER_WORK) == [(True,)]


@pytest.mark.slow  # 2 s; a test above checks the path that covers its window
def test_an_inferred_wait_for_earlier_work_is_marked_so_on_a_path_of_parts() -> None:
    con, trace_ids = connect_all([after_a_step(*events) for events, _ in FOR_EARLIER_WORK.values()])
    windows = [WindowRequest(trace_id, annotation="ProfilerStep#2") for trace_id in trace_ids]
    request_windows(con, windows, {("default", "covers_window"): "false"})
    run_models(con, load_catalog(), ANSWERED)
    query = "SELECT DISTINCT is_inferred FROM critical_path_edges WHERE waits_for_earlier_work AND weight_ns > 0"
    for window, (name, (_, is_inferred)) in zip(windows, FOR_EARLIER_WORK.items(), strict=True):
        answer_in(con, window)
        assert con.execute(query).fetchall() == [(is_inferred,)], name


def test_nothing_is_inferred_if_inference_is_off() -> None:
    """Neither polling loops nor full queues lead to waits, with or without rows of other waits."""
    rowless = [LOOPS["cuda"], FULL["cuda"]]
    recorded = [call("cudaDeviceSynchronize", 100_000, 20, 9999), sync("Context Sync", 100_001, 18, 9999)]
    traces = [*rowless, *([*trace, *recorded] for trace in rowless)]
    for con, answer in answers(traces, infer_waits="never"):
        assert con.execute("SELECT count(*) FROM critical_path_edges WHERE is_inferred").fetchall() == [(0,)]
        assert not answer.inferred
    con, trace_id = connect(FULL["cuda"])
    loops = {"_poll_loops", "_queue_waits"}
    assert loops <= unneeded(con, WindowRequest(trace_id), {("default", "infer_waits"): "never"})
    assert "_queue_waits" not in unneeded(con, WindowRequest(trace_id), {})


POLLING = BATCH.append(LOOPS["cuda"])


def test_a_loop_of_queries_is_no_call_of_which_no_wait_could_be_inferred() -> None:
    details = dict(BATCH.rows(POLLING, "SELECT caveat, detail FROM critical_path_caveats"))
    assert details["inferred_waits"] == "1 of the inferred waits is on the path"
    assert details["no_sync_events"].endswith(
        "and no wait for GPU work by a stream or a blocking call could be inferred"
    )


def two_devices(*other: tuple[float, float, int]) -> list[dict[str, Any]]:
    """Return a call for a device that returns when `long` ends on device 0, and work on device 1.

    `other` are start, end and stream of the work on device 1.
    """
    events = [op("a", 0, 200), call("cudaLaunchKernel", 5, 5, 1), kernel("long", 15, 1000, 1)]
    for number, (start, end, stream) in enumerate(other, 10):
        events += [
            call("cudaLaunchKernel", 10 + number, 1, number),
            kernel("other", start, end - start, number, stream, 1),
        ]
    return [*events, call("cudaDeviceSynchronize", 250, 775, 2), op("b", 1030, 2000)]


# work on device 1; the work for which the call waited
FOR_A_DEVICE = {
    "its work goes on": (((900, 1018, 7), (1018, 2300, 7)), "long"),
    "another stream's work goes on": (((900, 1018, 7), (900, 2300, 9)), "long"),
    "its work ended first": (((900, 1010, 7),), "long"),
    "its work ended last": (((900, 1018, 7),), "other"),
    "it ended last, by clocks that disagree": (((900, 1018, 7), (900, 1035, 9)), "other"),
}
DEVICES = {name: BATCH.append(two_devices(*work)) for name, (work, _) in FOR_A_DEVICE.items()}
SYNCED_DEVICE = BATCH.append([
    *(call("cudaLaunchKernel", 5, 5, 1), kernel("first", 15, 1000, 1)),
    *(call("cudaLaunchKernel", 15, 5, 2), kernel("second", 20, 3000, 2, 9)),
    *(call("cudaFree", 30, 990, 3), op("b", 1030, 3000)),
])  # fmt: skip
"""A call for which no other device has work that ended."""


def test_a_call_for_a_device_waited_for_none_that_goes_on() -> None:
    path = "SELECT DISTINCT name FROM critical_path WHERE cat = 'kernel' AND duration_ns > 50_000"
    assert {name: BATCH.rows(number, path) for name, number in DEVICES.items()} == {
        name: [(waited_for,)] for name, (_, waited_for) in FOR_A_DEVICE.items()
    }
    assert waits_of(SYNCED_DEVICE) == {4: (1, "blocking_call")}


def delays_of_devices(n_devices: int) -> list[dict[str, Any]]:
    """Return launches on stream 7 of each device in turn, each followed by a synchronization."""
    events = [op("a", 0, 500)]
    for number in range(4):
        at = 100 * number
        events += [call("cudaLaunchKernel", at + 10, 5, number + 1)]
        events += [kernel("k", at + 30, 60, number + 1, 7, number % n_devices)]
        events += [call("cudaDeviceSynchronize", at + 16, 76, number + 10)]
    return events


DELAYS = {n_devices: BATCH.append(delays_of_devices(n_devices)) for n_devices in (1, 2)}


def test_delays_of_two_devices_have_two_owners() -> None:
    query = (
        "SELECT owner, sum(duration_ns) FROM critical_path WHERE owner LIKE 'launch delay%' GROUP BY owner ORDER BY 1"
    )
    owners = {n_devices: BATCH.rows(number, query) for n_devices, number in DELAYS.items()}
    assert owners == {
        1: [("launch delay, stream 7", 80_000)],
        2: [(f"launch delay, device {device}, stream 7", 40_000) for device in (0, 1)],
    }


def stated_wait(name: str, kernel_us: float = 1000, *, has_row: bool = True) -> list[dict[str, Any]]:
    """Return a call of 990 us, and with `has_row` the row of its wait for the device."""
    row = [sync("Context Sync", 31, 986, 2)] if has_row else []
    launch = [call("cudaLaunchKernel", 5, 5, 1), kernel("gemm", 15, kernel_us, 1)]
    return [op("a", 0, 20), *launch, call(name, 30, 990, 2), *row, op("b", 1030, 20)]


STATED = {
    "a call that blocks": (BATCH.append(stated_wait("cudaFree")), 1000),
    "any other": (BATCH.append(stated_wait("cudaFreeHost")), 1000),
    "without a row": (BATCH.append(stated_wait("cudaFreeHost", has_row=False)), 0),
    "after the work": (BATCH.append(stated_wait("cudaFreeHost", 10)), 0),
}


def test_a_stated_wait_counts_whatever_the_name_of_the_call() -> None:
    query = "SELECT coalesce(sum(duration_ns), 0) / 1000 FROM critical_path WHERE owner = 'gemm'"
    for name, (number, gemm_us) in STATED.items():
        assert BATCH.rows(number, query) == [(gemm_us,)], name


ORPHAN = BATCH.append([
    x("user_annotation", "ProfilerStep#0", 0, 100),
    *(call("cudaLaunchKernel", 5, 5, 1), kernel("gemm", 10, 30, 1)),
    *(call("cudaLaunchKernel", 50, 5, 2), kernel("gemm", 300, 10, 2)),
    kernel("orphan", 200, 90, 77),
], "ProfilerStep")  # fmt: skip


def test_work_of_nobody_that_ran_after_the_window_is_no_launch_delay() -> None:
    """Work without a launch that begins after the window is not part of the window.

    Its stream was busy with it, so the time before the last kernel of the window is earlier work rather than launch
    delay.
    """
    summary = summary_of(ORPHAN)
    assert "gpu_earlier_work" in summary and summary["gpu_kernel_launch_overhead"] == pytest.approx(100 * 5 / 310)


def with_a_gap(end: float) -> list[dict[str, Any]]:
    return [
        *(call("cudaLaunchKernel", 0, 2, 1), kernel("earlier", 5, end - 5, 1)),
        x("user_annotation", "ProfilerStep#1", 10, 100),
        *(op("aten::mm", 12, 12), call("cudaLaunchKernel", 20, 2, 2), kernel("gemm", 100, 300, 2)),
    ]


GAP_UNTIL = {end: BATCH.append(with_a_gap(end), "ProfilerStep") for end in (80, 40)}


def test_a_gap_is_named_after_what_fills_half_of_it() -> None:
    """A gap before a kernel is named after work of the previous step that fills at least half of it.

    The launch returns at 20 and its kernel begins at 100. The work occupies the stream for all or less of the gap.
    """
    for end, label in {80: "gpu_earlier_work", 40: "gpu_kernel_kernel_overhead"}.items():
        bounds = [bound_by for _, us, bound_by in path_of(GAP_UNTIL[end]) if us == pytest.approx(80, abs=3)]
        assert bounds == [label]


def with_a_call(end: float) -> list[dict[str, Any]]:
    return [
        *(call("cudaLaunchKernel", 0, 2, 1), kernel("earlier", 5, end - 5, 1)),
        *(x("user_annotation", "ProfilerStep#1", 50, 400), op("step", 60, 360)),
        *(call("cudaDeviceSynchronize", 100, 300, 2), sync("Context Sync", 101, 298, 2)),
    ]


CALL_UNTIL = {end: BATCH.append(with_a_call(end), "ProfilerStep") for end in (380, 250, 249)}


def test_a_call_is_named_after_the_earlier_work_that_half_of_it_waited_for() -> None:
    """A call is named after work of the previous step if it waited for it for at least half of its time.

    The call lasts from 100 to 400 us, and the work ends within it. Rows record the wait.
    """
    for end, label in {380: "gpu_earlier_work", 250: "gpu_earlier_work", 249: "cpu_bound"}.items():
        steps = {name: bound_by for name, us, bound_by in path_of(CALL_UNTIL[end]) if us == 300}
        assert steps == {"cudaDeviceSynchronize": label}


HOST_EVENT = BATCH.append([
    *(call("cudaLaunchKernel", 10, 5, 1), kernel("first", 20, 300, 1), call("cudaEventRecord", 30, 2, 8)),
    *(call("cudaLaunchKernel", 40, 5, 2), kernel("second", 330, 300, 2), call("cudaEventSynchronize", 900, 3, 9)),
])  # fmt: skip
BACKWARD = BATCH.append([
    *(op("aten::linear", 0, 30), call("cudaLaunchKernel", 10, 5, 1), kernel("forward", 20, 10, 1)),
    *(op("autograd::engine::evaluate_function: X", 50, 50, tid=2), call("cudaLaunchKernel", 60, 5, 2, tid=2)),
    *(kernel("backward", 70, 100, 2), call("cudaEventRecord", 120, 2, 8), call("cudaStreamWaitEvent", 125, 2, 9)),
    *(call("cudaLaunchKernel", 130, 5, 3), kernel("reduce", 172, 50, 3, stream=20)),
])  # fmt: skip


def test_events_of_calls_and_of_autograds_threads() -> None:
    """A call for an event waits for the work before that event.

    If the thread that called backward records an event, the event follows the work that autograd's thread has launched.
    """
    assert BATCH.rows(HOST_EVENT, f"SELECT event_id, source_event_id {_LIKELY}") == [(5, 1)]
    assert BATCH.rows(BACKWARD, "SELECT waiting_kernel_id, source_kernel_id FROM _event_waits") == [(9, 5)]


NO_GPU_WORK_BEFORE = BATCH.append([
    *(call("cudaEventRecord", 1, 1, 1), call("cudaEventRecord", 3, 1, 2), call("cudaDeviceSynchronize", 5, 2, 3)),
    *(call("cudaLaunchKernel", 10, 5, 4), kernel("gemm", 20, 50, 4, 7)),
    *(call("cudaLaunchKernel", 20, 5, 8), kernel("gemm", 75, 5, 8, 7)),
    *(call("cudaDeviceSynchronize", 30 + 20 * i, 15, 9 + i) for i in range(3)),
])  # fmt: skip


def test_calls_may_have_waited_for_gpu_work_alone() -> None:
    """Calls wait neither for another call nor for an event that was recorded before any launch."""
    waits = BATCH.rows(NO_GPU_WORK_BEFORE, f"SELECT event_id, source_event_id {_LIKELY} ORDER BY 1")
    assert waits == [(7, 6), (8, 6), (9, 6)]  # event 6 is the last activity on the stream


BARRIER = BATCH.append([
    *(call("hipLaunchKernel", 1, 5, 1), kernel("gemm", 10, 50, 1, 7), call("hipEventRecord", 7, 1, 2)),
    *(call("hipStreamWaitEvent", 9, 1, 3), kernel("barrier", 70, 1, 3, 8)),
    *(call("hipLaunchKernel", 12, 5, 4), kernel("gemm", 80, 50, 4, 8)),
])  # fmt: skip


def test_what_a_call_that_waits_launches_itself_is_what_waits() -> None:
    """If a waiting call launches work itself, such as a barrier on AMD, this work waits instead of the next launch."""
    assert BATCH.rows(BARRIER, "SELECT waiting_kernel_id, source_kernel_id FROM event_waits") == [(4, 1)]


def with_a_copy(name: str, node: int) -> int:
    copy = kernel("Memcpy DtoH (Device -> Pageable)", 400, 10, 2, cat="gpu_memcpy")
    copy["args"]["graph node id"] = node
    return BATCH.append([call("cudaLaunchKernel", 0, 5, 1), kernel("k", 10, 100, 1, 9), call(name, 20, 150, 2), copy])


COPY_ALONE, COPY_IN_GRAPH = with_a_copy("cudaMemcpyAsync", 0), with_a_copy("cudaGraphLaunch", 3)
CALLS_WAITS = "SELECT event_id, source_event_id FROM _inferred_waits WHERE is_call AND basis <> 'call_order'"


def test_a_graph_with_a_copy_to_the_host_does_not_block_its_launch() -> None:
    """A copy to the host blocks its call, but not the launch of a graph that contains the copy.

    The graph's launch takes long, and work of another stream ends during it.
    """
    assert BATCH.rows(COPY_ALONE, CALLS_WAITS) == [(2, 1)]
    assert BATCH.rows(COPY_IN_GRAPH, CALLS_WAITS) == []


def launched_by_another_thread(at: float) -> int:
    return BATCH.append([
        *(call("cudaLaunchKernel", 0, 5, 1), kernel("k", 10, 100, 1), call("cudaStreamSynchronize", 200, 100, 2)),
        *(call("cudaLaunchKernel", at, 5, 3, tid=2), kernel("other", 210, 80, 3, stream=20)),
    ])  # fmt: skip


AS_IT_BEGINS, RIGHT_BEFORE = launched_by_another_thread(200), launched_by_another_thread(199)


def test_a_call_waits_for_nothing_that_another_thread_launches_when_it_begins() -> None:
    query = "SELECT event_id, source_event_id FROM _inferred_waits WHERE basis <> 'call_order'"
    assert BATCH.rows(AS_IT_BEGINS, query) == []
    assert BATCH.rows(RIGHT_BEFORE, query) == [(2, 4)]


SHARED_STREAM = [
    *(call("cudaLaunchKernel", 0, 5, 1), kernel("own", 10, 100, 1), call("cudaStreamSynchronize", 20, 94, 2)),
    *(sync("Stream Sync", 21, 92, 2, stream=7), call("cudaLaunchKernel", 30, 5, 3, tid=2)),
    kernel("other", 111, 400, 3),
]
OWN_AND_OTHER, OTHER_ALONE = BATCH.append(SHARED_STREAM), BATCH.append(SHARED_STREAM[2:])


def test_nor_if_a_row_records_the_wait() -> None:
    """A recorded wait does not include work that another thread launches on the same stream during the call."""
    query = "SELECT source_event_id, event_id, explains_wait FROM _window_waits WHERE is_recorded"
    assert BATCH.rows(OWN_AND_OTHER, query) == [(1, 2, True)]
    assert BATCH.rows(OTHER_ALONE, query) == []


def copy(at: float, dur: float, correlation: int) -> dict[str, Any]:
    """Return a copy without a stream, so a copy that was launched later may begin earlier."""
    args = {"correlation": correlation, "device": 0}
    return {"ph": "X", "cat": "gpu_memcpy", "name": "CopyDeviceToDevice", "ts": at, "dur": dur, "args": args}


EARLIER_COPY = BATCH.append([
    *(call("hipLaunchKernel", 0, 4, 1), kernel("k", 10, 107, 1, stream=0), call("hipEventRecord", 5, 1, 9)),
    *(call("hipMemcpyAsync", 7, 4, 2), copy(300, 100, 2), call("hipEventSynchronize", 20, 100, 3)),
    *(call("hipMemcpyAsync", 30, 4, 4, tid=2), copy(40, 78, 4)),
])  # fmt: skip


def test_a_call_waits_for_no_copy_that_is_launched_later_and_begins_earlier_than_another() -> None:
    assert BATCH.rows(EARLIER_COPY, CALLS_WAITS) == [(5, 1)]


BEFORE_ITS_LAUNCH = BATCH.append([
    *(call("hipMemcpyAsync", 83, 4, 1), copy(270, 1, 1), call("hipStreamSynchronize", 145, 60, 2)),
    *(call("hipMemcpyAsync", 208, 5, 3), copy(205, 5, 3)),
])  # fmt: skip


def test_a_copy_that_began_before_its_launch_makes_no_cycle_with_the_call_before() -> None:
    assert BATCH.rows(BEFORE_ITS_LAUNCH, "SELECT sum(duration_ns) FROM critical_path") == [(271_000 - 83_000,)]


TWO_EVENTS = BATCH.append([
    *(call("cudaLaunchKernel", 0, 5, 1), kernel("a", 10, 10, 1), call("cudaEventRecord", 6, 1, 2)),
    *(call("cudaLaunchKernel", 10, 5, 3), kernel("b", 30, 60, 3), call("cudaEventRecord", 16, 1, 4)),
    call("cudaEventSynchronize", 26, 66, 6),
])  # fmt: skip


def test_a_call_for_an_event_waits_for_what_was_recorded_right_before_it() -> None:
    assert BATCH.rows(TWO_EVENTS, f"SELECT event_id, source_event_id {_LIKELY}") == [(6, 4)]
