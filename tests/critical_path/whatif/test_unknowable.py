"""Facts that no rule can infer without cuda_sync events.

The traces of two programs are then equal although their truths differ. A prediction for one of them is wrong, so it
carries a caveat.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from pipelines.critical_path.whatif.before_after import Comparison, what_if
from pipelines.critical_path.whatif.scenario import Scenario
from pipelines.synthetic.changes import Changes
from pipelines.synthetic.kineto import Clock, Rows, head, tail
from pipelines.synthetic.machine import Machine
from pipelines.synthetic.programs.program import GEMM, POINTWISE
from tests.critical_path.truth import WORST, length_ns

from .windows import opened

US = 1000
FIRST, SECOND, THIRD = 7, 30, 31


def _call_for_one_of_two_streams(m: Machine, stream: int) -> None:
    """Run two kernels that end at the same time, and a call that waits for the stream of one kernel."""
    with m.enter("aten::linear"):
        m.launch(GEMM, FIRST, 400 * US, call_ns=5 * US)
        m.launch(POINTWISE, SECOND, 395 * US - m.grid)
        m.stream_sync(stream)
        m.advance(300 * US)
    m.device_sync()


def _stream_that_waits_for_one_of_two_events(m: Machine, stream: int) -> None:
    """Run work that waits for an event of one of two streams; both events were recorded long before its launch."""
    with m.enter("aten::linear"):
        m.launch(GEMM, FIRST, 100 * US)
        first = m.record(FIRST)
        m.launch(POINTWISE, SECOND, 10 * US)
        second = m.record(SECOND)
        m.advance(500 * US)
        m.wait(THIRD, {FIRST: first, SECOND: second}[stream])
        m.launch(POINTWISE, THIRD, 200 * US)
    m.device_sync()


def _trace(program: Callable[[Machine, int], None], stream: int, change: dict[str, float]) -> list[dict[str, Any]]:
    rows = Rows(Clock(True), pid=1000, device=0)
    machine = Machine(rows, changes=Changes(change))
    machine.now = 10 * US
    program(machine, stream)
    rows.closing(machine.now)
    return json.loads(head(0, 1, 0) + ",\n".join(rows.take()) + tail(0, rows.clock))["traceEvents"]


def _predicted(trace: list[dict[str, Any]], change: dict[str, float]) -> Comparison:
    with opened({"traceEvents": trace}) as (_, window):
        return next(what_if(window, [Scenario(tuple(change.items()))]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "change", "other"),
    [
        (_call_for_one_of_two_streams, {"*gemm*": 2.0}, ["overlapping_streams"]),
        (_stream_that_waits_for_one_of_two_events, {"host": 0.0}, []),
    ],
)
def test_alike_without_sync_events_and_not_alike_in_truth(
    program: Callable[[Machine, int], None], change: dict[str, float], other: list[str]
) -> None:
    """Two programs have equal traces without sync events, but react differently to a change.

    So a prediction without sync events carries the caveat unseen_waits. `other` lists caveats that are unrelated to
    waits.
    """
    with_sync = [_trace(program, stream, {}) for stream in (FIRST, SECOND)]
    without_sync = [[event for event in trace if event.get("cat") != "cuda_sync"] for trace in with_sync]
    assert without_sync[0] == without_sync[1] and with_sync[0] != with_sync[1]
    window = length_ns(with_sync[0])
    truths = [length_ns(_trace(program, stream, change)) for stream in (FIRST, SECOND)]
    assert (
        100 * abs(truths[0] - truths[1]) > 2 * WORST * window
    )  # any prediction is off by more than the limit for one of the two
    for trace, truth in zip(with_sync, truths, strict=True):
        answer = _predicted(trace, change)
        assert abs(1000 * answer.after.length_us - truth) <= WORST / 100 * window
        assert [caveat["caveat"] for caveat in answer.caveats] == other
    guess = _predicted(without_sync[0], change)
    assert [caveat["caveat"] for caveat in guess.caveats] == ["unseen_waits", *other]
    assert min(abs(1000 * guess.after.length_us - truth) for truth in truths) <= WORST / 100 * window
