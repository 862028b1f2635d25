"""Targets that include everything inside the named event, and removed waits, on small hand-made traces in us."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pipelines.critical_path.whatif.before_after import Weights, what_if
from pipelines.critical_path.whatif.change import Selection, changed, union
from pipelines.critical_path.whatif.scenario import ScenarioError, of_options
from pipelines.critical_path.whatif.targets import NothingMatches
from pipelines.critical_path.whatif.window import Window
from pipelines.faces.cli.trace.whatif import comparison_tables
from pipelines.fleet.path.retimed import RankedWindow, retimed
from tests.harness import call, kernel, op, sync, x

from .windows import MADE, window_of

Trace = list[dict[str, Any]]
Windows = dict[str, Window]


def launched(start: float, gpu: tuple[float, float], number: int, name: str) -> Trace:
    """Return an operator of 20 us that launches a kernel of the same name; `gpu` is the kernel's start and duration."""
    return [
        op(name, start, 20),
        call("cudaLaunchKernel", start + 5, 10, number),
        kernel(f"{name}_kernel", *gpu, number),
    ]


def copied(name: str) -> Trace:
    """Return a trace in which the host waits in a copy call behind a long kernel, and then runs another operator."""
    return [
        *launched(0, (30, 500), 1, "long"),
        op("aten::to", 20, 540),
        call("cudaMemcpyAsync", 25, 530, 2),
        kernel(name, 531, 10, 2, cat="gpu_memcpy"),
        op("after", 560, 300),
    ]


def step(at: float, number: int) -> Trace:
    """Return a step of a loop with .item().

    It has a kernel of 100 us, an operator that copies and awaits its result, and 60 us of host work.
    """
    return [
        op("forward", at, 20),
        call("cudaLaunchKernel", at + 5, 10, number),
        kernel("gemm", at + 20, 100, number),
        op("aten::item", at + 20, 110),
        call("cudaMemcpyAsync", at + 25, 5, number + 1),
        kernel("Memcpy DtoH (Device -> Pinned)", at + 121, 2, number + 1, cat="gpu_memcpy"),
        call("cudaStreamSynchronize", at + 30, 98, number + 2),
        sync("Stream Sync", at + 30, 98, number + 2, stream=7),
        op("host", at + 130, 60),
    ]


def behind_another(begins: float) -> Trace:
    """Return a kernel that waits until 530 for a kernel on another stream, and a third kernel after it."""
    return [
        *launched(0, (30, 500), 1, "long"),
        *(call("cudaEventRecord", 20, 2, 2), call("cudaStreamWaitEvent", 24, 2, 3)),
        sync("Stream Wait Event", 26, 505, 3, 20, wait_on_stream=7, wait_on_cuda_event_record_corr_id=2),
        op("second", 30, 20),
        *(call("cudaLaunchKernel", 35, 10, 4), kernel("second_kernel", begins, 100, 4, stream=20)),
        op("third", 50, 20),
        *(call("cudaLaunchKernel", 55, 10, 5), kernel("third_kernel", begins + 101, 100, 5, stream=20)),
    ]


def launched_at(begins: float) -> Trace:
    """Return a kernel of 500 us, launched at 105, and a call that waits for it."""
    return [
        *launched(0, (15, 10), 1, "first"),
        *launched(100, (begins, 500), 2, "second"),
        call("cudaDeviceSynchronize", 140, begins + 510 - 140, 3),
    ]


TRACES = {
    # host only: two operators of the same name, one inside the other, a gap of 100 us and another operator
    "nested": [op("layer", 100, 200), op("part", 120, 60), op("layer", 200, 80), op("inner", 220, 40), op("next", 400, 100)],
    # the GPU binds, and kernels start 1 us after each other
    "queued": [
        *launched(0, (30, 100), 1, "first"),
        *launched(20, (131, 200), 2, "middle"),
        *launched(40, (332, 100), 3, "last"),
    ],
    "late": [*launched(0, (100, 50), 1, "first"), *launched(300, (400, 50), 2, "late"), op("after", 320, 10)],
    # four steps, 200 us apart: 103 us of GPU work, then 60 us of host work, then 10 us until the next step
    "items": [event for i in range(4) for event in step(200 * i, 10 * i + 1)],
    "pageable": copied("Memcpy HtoD (Pageable -> Device)"),
    "synchronized": [
        *launched(0, (30, 500), 1, "long"),
        *launched(20, (531, 100), 2, "short"),
        op("sync", 50, 590),
        call("cudaDeviceSynchronize", 55, 580, 3),
        sync("Context Sync", 55, 580, 3),
        op("after", 640, 300),
    ],
    "partly": [op("a", 0, 100), op("b", 200, 100), x("user_annotation", "part", 150, 120)],
    "loading": [op("load", 0, 200), op("train", 200, 500)],
    "loading and copying": [op("load", 0, 200), op("copy", 200, 250), op("train", 450, 100)],
    # an operator with a copy and a synchronization for it, and an operator that waits for another operator's kernel
    "own wait": [
        *(op("before", 0, 20), call("cudaLaunchKernel", 5, 5, 1), kernel("long", 30, 300, 1)),
        *(op("load", 20, 340), call("cudaMemcpyAsync", 25, 5, 2), kernel("Memcpy HtoD", 331, 20, 2, cat="gpu_memcpy")),
        *(call("cudaStreamSynchronize", 35, 320, 3), sync("Stream Sync", 35, 320, 3, stream=7)),
        op("after", 360, 400),
    ],
    "another's wait": [
        *(op("before", 0, 20), call("cudaLaunchKernel", 5, 5, 1), kernel("long", 30, 300, 1)),
        *(op("load", 20, 14), call("cudaMemcpyAsync", 25, 5, 2), kernel("Memcpy HtoD", 331, 20, 2, cat="gpu_memcpy")),
        *(op("wait", 34, 326), call("cudaStreamSynchronize", 35, 320, 3), sync("Stream Sync", 35, 320, 3, stream=7)),
        op("after", 360, 400),
    ],
    # a kernel waits for a kernel on another stream, and a third kernel follows it
    "other stream": behind_another(532),
    # by the GPU's clock, the kernel begins 0.5 us before the end of the awaited kernel
    "other stream, by its clock before the end": behind_another(529.5),
    "two streams": [
        *launched(0, (30, 400), 1, "left"),
        *(op("right", 20, 20), call("cudaLaunchKernel", 25, 10, 2), kernel("right_kernel", 50, 400, 2, stream=20)),
    ],
    # an event of a category that no rule lists, inside an operator
    "own category": [op("a", 0, 100), x("my recorder", "mine", 20, 30), op("b", 100, 50)],
    # the stream is busy with work from before the trace until 400000
    "behind earlier work": [*launched(0, (400_000, 50), 1, "first"), *launched(20, (400_051, 500), 2, "second")],
    # by the GPU's clock, a kernel begins after its launch at 105, before the launch but in its operator, or before its
    # operator
    "launched": launched_at(110),
    "launched, by its clock later": launched_at(103),
    "launched, by its clock in another operator": launched_at(95),
}  # fmt: skip
MADE |= TRACES


@pytest.fixture(scope="module")
def windows() -> Windows:
    return {name: window_of(name) for name in TRACES}


def length(window: Window, *remove: str, scale: tuple[str, ...] = (), ahead: tuple[str, ...] = ()) -> float:
    (answer,) = what_if(window, [of_options(scale, remove, False, ahead)])
    return answer.after.length_us


def test_an_operator_goes_with_all_that_is_inside(windows: Windows) -> None:
    window = windows["nested"]
    assert length(window) == 400
    assert length(window, "layer") == 200
    assert length(window, "part") == 340
    assert length(window, "next") == 300


def test_self_leaves_what_is_inside(windows: Windows) -> None:
    window = windows["nested"]
    assert length(window, "self:layer") == 400 - (200 - 60 - 80) - (80 - 40)
    assert length(window, "self:inner") == 360


def test_what_is_in_two_matches_is_scaled_once(windows: Windows) -> None:
    window = windows["nested"]
    assert length(window, scale=("layer=0.5",)) == 300
    assert length(window, scale=("*=0.5",)) == 200
    assert length(window, scale=("layer=0.5", "layer=0.5")) == 250  # two changes in sequence


def test_the_gpu_work_of_an_operator_goes_with_the_gap_before_it(windows: Windows) -> None:
    window = windows["queued"]
    assert length(window) == 432
    assert length(window, "middle") == 432 - 201
    assert length(window, "kernel:middle*") == 432 - 201
    assert length(window, "self:middle") == 432  # the host is ahead of the GPU, so its time does not matter
    assert length(window, scale=("middle=0.5",)) == 432 - 100


def test_the_gpu_work_alone_of_what_launches_it(windows: Windows) -> None:
    queued, late, nested = windows["queued"], windows["late"], windows["nested"]
    assert length(queued, "gpu:middle") == length(queued, "kernel:middle*")
    assert length(queued, scale=("gpu:middle=0.5",)) == 432 - 100
    assert length(late, "gpu:late") == length(late, "kernel:late*") == 330
    assert length(late, "gpu:cudaLaunchKernel") == length(late, "kernel:*")
    with pytest.raises(NothingMatches):
        length(nested, "gpu:layer")  # the operator launches nothing


def test_the_delay_of_a_launch_goes_with_the_operator(windows: Windows) -> None:
    window = windows["late"]
    assert length(window) == 450
    assert length(window, "late") == 310
    assert length(window, "kernel:late*") == 330
    assert length(window, "self:late") == 445


def test_a_call_goes_with_the_work_that_it_launched(windows: Windows) -> None:
    assert length(windows["late"], "cudaLaunchKernel") == 330 - 2 * 10
    assert length(windows["queued"], "cudaLaunchKernel") == 60 - 3 * 10


def test_without_a_wait_the_host_and_the_gpu_work_beside_each_other(windows: Windows) -> None:
    window = windows["items"]
    assert length(window) == 790
    assert 4 * 103 <= length(window, "wait:aten::item") <= 4 * 103 + 90
    assert length(window, "wait:cudaStreamSynchronize") == length(window, "wait:aten::item")
    assert length(window, "wait:*") == length(window, "wait:aten::item")
    assert length(window, "self:cudaStreamSynchronize") > 790 - 4 * 30


def test_a_wait_can_only_go(windows: Windows) -> None:
    with pytest.raises(ScenarioError, match="can only be removed"):
        length(windows["items"], scale=("wait:aten::item=0.5",))


def test_weights_are_never_negative_but_of_what_is_gone(windows: Windows) -> None:
    window = windows["items"]
    waits = window.timeline.is_host_wait
    for target in ("wait:*", "aten::item", "forward", "*", "kernel:*", "self:*", "host"):
        path = Weights.of(window, of_options((), (target,), False)).path
        assert (path[~waits] >= 0).all(), target
    gone = Weights.of(window, of_options((), ("wait:*",), False)).path
    assert (gone[waits] < 0).any() and gone[gone < 0].max() <= -int(gone[gone > 0].sum())


def test_a_pageable_copy_takes_the_wait_of_its_call_away(windows: Windows) -> None:
    window = windows["pageable"]
    assert length(window) == 860
    assert length(window, "kernel:Memcpy*") == 530  # the end of the long kernel, which now overlaps the following work
    assert length(window, "kernel:long*") == 860 - 501


def test_without_a_kernel_a_later_synchronization_waits_for_the_work_before_it(windows: Windows) -> None:
    window = windows["synchronized"]
    assert length(window) == 940
    assert length(window, "kernel:short*") == 940 - 101
    assert length(window, "wait:sync") == 631  # the duration of the GPU work


def test_work_takes_only_the_waits_of_its_own_operator_away(windows: Windows) -> None:
    assert length(windows["own wait"]) == length(windows["another's wait"]) == 760
    assert length(windows["own wait"], "kernel:Memcpy*") < 500
    assert length(windows["another's wait"], "kernel:Memcpy*") == 760 - 21


def test_without_a_kernel_those_behind_it_wait_for_what_it_waited_for(windows: Windows) -> None:
    window = windows["other stream"]
    assert length(window) == 733
    assert length(window, "kernel:second*") == 633  # gaps of 2 us after the first and 1 before the third stay
    assert length(window, "kernel:long*") < 300


def test_without_a_kernel_that_began_before_the_end_of_what_it_waited_for_those_behind_it_wait_as_well(
    windows: Windows,
) -> None:
    window = windows["other stream, by its clock before the end"]
    assert length(window) == 730.5
    assert length(window, "kernel:second*") == length(window, ahead=("kernel:second*",)) == 630.5
    assert length(window, "kernel:long*") < 300


@pytest.mark.parametrize("how", ["", ", by its clock later", ", by its clock in another operator"])
def test_work_goes_with_the_operator_that_launched_it_whenever_it_began(windows: Windows, how: str) -> None:
    window = windows[f"launched{how}"]
    assert length(window, "second") < length(window) - 480
    assert length(window, "first") > length(window) - 40


def test_work_behind_earlier_work_goes_with_the_operator_that_launched_it(windows: Windows) -> None:
    """Removing an operator also removes its kernel that is queued behind earlier work.

    The wait for the earlier work remains, because it began with the launch, 5 us after the operator.
    """
    assert length(windows["behind earlier work"], "first") == 400_551 - 50 - 5


def test_without_the_first_work_of_a_stream_those_behind_it_wait_for_the_work_before_the_window(
    windows: Windows,
) -> None:
    window = windows["behind earlier work"]
    assert length(window) == 400_551
    assert length(window, "kernel:first*") == length(window, ahead=("kernel:first*",)) == 400_501
    assert length(window, "kernel:second*") == 400_050
    assert length(window, "edge:EARLIER_WORK") < 1000


def test_events_of_a_category_of_ones_own_are_named_as_annotations_are(windows: Windows) -> None:
    assert length(windows["own category"]) == 150
    assert length(windows["own category"], "mine") == 120


def test_the_only_edge_to_a_node_stays() -> None:
    weight, gone = np.array([5, 7, 9]), np.array([True, True, False])
    weights = changed(weight, np.array([1, 2, 2]), np.ones(3), gone).tolist()
    assert weights[0] == 5 and weights[1] < -5 and weights[2] == 9


def test_what_two_parts_of_a_target_select_counts_once() -> None:
    parts = [Selection(np.array([0.5, 1, 0])), Selection(np.array([1, 1, 0])), Selection(work=np.array([True]))]
    both = union(parts)
    assert both.share is not None and both.share.tolist() == [1, 1, 0]
    assert both.work is not None and both.work.tolist() == [True]
    assert both.waits is None


def test_of_a_gap_that_lies_partly_in_an_annotation_that_part_goes(windows: Windows) -> None:
    window = windows["partly"]
    assert length(window) == 300
    assert length(window, "part") == 300 - 120
    assert length(window, scale=("part=0.5",)) == 300 - 60


def test_what_is_done_ahead_takes_the_longer_of_both(windows: Windows) -> None:
    assert length(windows["loading"], ahead=("load",)) == 500
    assert length(windows["loading"], ahead=("train",)) == 500


def test_what_is_done_ahead_and_faster_takes_less(windows: Windows) -> None:
    assert length(windows["loading"], scale=("train=0.6",), ahead=("train",)) == 300


def test_a_path_beside_longer_work_keeps_its_times(windows: Windows) -> None:
    (answer,) = what_if(windows["loading"], [of_options((), (), False, ("train",))])
    table, *_ = comparison_tables("trace.json", answer)
    assert [*table.columns[4].cells] == ["200.0 us"] and answer.after.length_us == 500
    assert table.caption == "what is done ahead takes longer than this path of 200.0 us"


def test_kernels_ahead_take_as_long_as_they_do(windows: Windows) -> None:
    assert length(windows["queued"], ahead=("kernel:middle*",)) == 231
    assert length(windows["queued"], ahead=("kernel:*",)) == 400


def test_work_of_one_stream_ahead_stays_one_after_another_whatever_names_it(windows: Windows) -> None:
    window = windows["queued"]
    for targets in (("kernel:first*", "kernel:middle*"), ("first", "middle"), ("kernel:first*", "middle")):
        assert length(window, ahead=targets) == 300, targets
        assert length(window, ahead=(*targets, "last")) == 400, targets
    assert length(windows["two streams"], ahead=("kernel:left*", "kernel:right*")) == 400


def test_in_a_capture_too_work_of_one_stream_stays_one_after_another(windows: Windows) -> None:
    capture = retimed([RankedWindow(rank, windows["queued"], 0) for rank in (0, 1)], [])
    gain = capture.gain(of_options((), (), False, ("kernel:first*", "kernel:middle*")))
    assert (gain.before_us, gain.after_us) == (432, 300)


def test_work_of_two_streams_ahead_runs_beside_each_other(windows: Windows) -> None:
    assert length(windows["two streams"]) == 450
    assert length(windows["two streams"], ahead=("kernel:*",)) == 400


def test_all_that_is_done_ahead_is_done_at_once(windows: Windows) -> None:
    window = windows["loading and copying"]
    assert length(window, ahead=("load", "copy")) == 250
    assert length(window, "copy", ahead=("load",)) == 200
