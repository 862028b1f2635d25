"""Merged intervals and the temporal breakdown, compared with the source document's examples and brute force."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import LISTS, at_once
from tests.harness import call, each, kernel, op, rows_of


def spans(*intervals: tuple[int, int]) -> list[dict]:
    return [kernel(f"k{i}", a, b - a, i + 1, stream=i) for i, (a, b) in enumerate(intervals)]


def test_overlapping_and_touching_intervals_merge() -> None:
    """TB-9's algorithm yields one interval. The document's flowchart, with [0,180] + [200,300], overlooks [150,250]."""
    events = spans((0, 100), (50, 180), (80, 120), (150, 250), (200, 300))
    rows = rows_of(events, "merged_intervals", "scope, start_ns, end_ns, n_kernels")
    assert rows == [("COMPUTATION", 0, 300_000, 5), ("all", 0, 300_000, 5)]
    touching = rows_of(spans((0, 10), (10, 20), (21, 30)), "merged_intervals", "scope, start_ns, end_ns, n_kernels")
    assert touching[2:] == [("all", 0, 20_000, 2), ("all", 21_000, 30_000, 1)]


def test_breakdown_of_two_streams() -> None:
    """TB-10: span 300, busy 250, idle 50 microseconds."""
    events = spans((0, 100), (50, 150), (200, 300))
    columns = "span_ns, busy_ns, idle_ns, compute_ns, non_compute_ns, idle_percent"
    assert rows_of(events, "temporal_breakdown", columns) == [(300_000, 250_000, 50_000, 250_000, 0, 100 * 50 / 300)]


def test_overlap_counts_as_compute_and_what_is_exposed_stands_beside() -> None:
    events = [
        kernel("gemm", 0, 100, 1),
        kernel("ncclDevKernel_AllReduce", 50, 100, 2, stream=20),
        kernel("Memcpy HtoD", 140, 30, 3, stream=21, cat="gpu_memcpy"),
    ]
    columns = "compute_ns, non_compute_ns, communication_ns, exposed_communication_ns, memory_ns, exposed_memory_ns"
    assert rows_of(events, "temporal_breakdown", columns) == [(100_000, 70_000, 100_000, 50_000, 30_000, 20_000)]


def test_a_trace_without_gpu_work_has_no_times() -> None:
    """The times of a trace without GPU work are NULL.

    There is neither an error nor a value that looks measured. Only the document's format has the six zeros (TB-7).
    """
    columns = "device, compute_ns, non_compute_ns, idle_ns, compute_percent, non_compute_percent, idle_percent"
    assert rows_of([op("a", 0, 5)], "temporal_breakdown", columns) == [(None,) * 7]


@pytest.mark.slow  # 4 s
@settings(max_examples=LISTS, deadline=None)
@given(
    at_once(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 8), st.integers(0, 1)), min_size=1, max_size=25), 25)
)
def test_merging_equals_brute_force(shapes: list[list[tuple[int, int, int]]]) -> None:
    traces = [
        [kernel("k", ts, dur, i + 1, stream=i, device=device) for i, (ts, dur, device) in enumerate(work)]
        for work in shapes
    ]
    for work, con in zip(shapes, each(traces, "merged_intervals"), strict=True):
        rows = con.execute("SELECT device, start_ns, end_ns FROM merged_intervals WHERE scope = 'all' ORDER BY ALL")
        assert [list(row) for row in rows.fetchall()] == merged(work)


def merged(work: list[tuple[int, int, int]]) -> list[list[int]]:
    """Compute the busy intervals in half-microsecond cells.

    A kernel makes all cells that it covers busy, including its ends.
    """
    expected: list[list[int]] = []
    for device in (0, 1):
        cells = sorted({c for ts, dur, d in work if d == device for c in range(2 * ts, 2 * (ts + dur) + 1)})
        for cell in cells:
            if expected and expected[-1][0] == device and expected[-1][2] == 500 * (cell - 1):
                expected[-1][2] = 500 * cell
            else:
                expected.append([device, 500 * cell, 500 * cell])
    return expected


def test_a_kernel_without_a_name_has_the_class_of_kernels_that_no_rule_names() -> None:
    nameless = kernel("", 120, 50, 2)
    del nameless["name"]
    events = [call("cudaLaunchKernel", 0, 5, 1), kernel("k", 10, 100, 1), nameless]
    (con,) = each([events], "kernels", "critical_path")
    query = "SELECT name, class FROM kernels ORDER BY start_ns"
    assert con.execute(query).fetchall() == [("k", "COMPUTATION"), (None, "COMPUTATION")]
    query = "SELECT bound_by FROM critical_path WHERE attributed_event_id = 2 AND duration_ns > 0"
    assert con.execute(query).fetchall() == [("gpu_compute_bound",)]
