"""The rule of the default path applies whatever is wrong with a trace."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings

from tests.critical_path.invariants import check_rule
from tests.critical_path.mutated import broken
from tests.critical_path.test_polls import launched, polls
from tests.effort import LISTS, SLOW, at_once
from tests.harness import call, kernel, rows_of, sync


def asks_and_has_work() -> dict[str, Any]:
    """Return a trace in which calls that only query GPU work have kernels with their correlation ids.

    One such call is in a polling loop, another on a thread that only polls.
    """
    asking = polls(30, 504)
    of_loop = kernel("k", 700, 5, asking[50]["args"]["correlation"])
    alone = polls(40, 504, tid=2)
    of_thread = kernel("k", 800, 5, alone[7]["args"]["correlation"])
    return {"traceEvents": [*launched(), *asking, of_loop, *alone, of_thread]}


RECORDED = {"wait_on_stream": 20, "wait_on_cuda_event_record_corr_id": 3}
SHOWN_TWICE = [
    call("cudaLaunchKernel", 0, 5, 1),
    kernel("first", 81, 5, 1, stream=20),
    call("cudaEventRecord", 17, 1, 3),
    sync("Stream Wait Event", 19, 1, 4, stream=7, **RECORDED),
    call("cudaStreamWaitEvent", 60, 2, 4),
    call("cudaStreamWaitEvent", 63, 2, 4),
    call("cudaLaunchKernel", 69, 1, 5),
    kernel("second", 86, 5, 5),
]
"""The file contains a wait's call twice and its cuda_sync row once. The wait is recorded, and also inferred from the
other call.
"""
KNOWN = (asks_and_has_work(), {"traceEvents": SHOWN_TWICE})
"""Traces that once violated the rule."""


@settings(
    max_examples=LISTS if SLOW else 1,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
@given(at_once(broken(), 32 if SLOW else 16))
def test_the_rule_holds(traces: list[dict[str, Any]]) -> None:
    """No edge claims more time than passed, and every node except the start is bound.

    The path is as long as its window.
    """
    assume(any(trace != traces[0] for trace in traces))  # hypothesis's simplest list repeats one capture
    check_rule(*traces, *KNOWN)


@pytest.mark.slow  # 3 s
def test_a_wait_that_a_row_records_and_a_call_shows_again_has_one_edge() -> None:
    between_kernels = [
        (kind, is_inferred)
        for src, dst, kind, is_inferred in rows_of(
            SHOWN_TWICE, "critical_path_edges", "src_event_id, dst_event_id, edge_type, is_inferred"
        )
        if (src, dst) == (1, 7)
    ]
    assert between_kernels == [("SYNC_DEPENDENCY", False)]
