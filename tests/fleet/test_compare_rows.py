"""The rows of a comparison, by hand: what meets, what is added, and what is the same."""

from __future__ import annotations

from collections import Counter

import pytest

from pipelines.fleet.trends.comparison import totals, usual_by
from tests.fleet.compare_world import KINDS, World, small, times


@pytest.mark.slow
def test_kernels_of_two_vendors_meet_at_their_operator() -> None:
    before, after, _ = small().traces
    unlaunched = "(launch not in the trace)"
    assert times(small().compare(before, after).whole.rows) == {
        "aten::mm": (30, 43.5, "increased"),
        "aten::add": (4, 0, "deleted"),
        unlaunched: (0, 2, "added"),
    }
    assert times(small().compare(before, after, "category").whole.rows) == {
        "gemm": (30, 43.5, "increased"),
        "elementwise": (4, 0, "deleted"),
        "copy": (0, 2, "added"),
    }
    assert times(small().compare(before, after, "shape").whole.rows) == {
        "aten::mm [[4,8],[8,2]]": (30, 33.5, "increased"),
        "aten::mm [[1,8],[8,2]]": (0, 10, "added"),
        "aten::add [[4]]": (4, 0, "deleted"),
        unlaunched: (0, 2, "added"),
    }
    assert times(small().compare(before, after, "kernel").whole.rows) == {
        "gemm": (30, 0, "deleted"),
        "other_gemm": (0, 43.5, "added"),
        "add": (4, 0, "deleted"),
        "Memcpy HtoD (Pinned -> Device)": (0, 2, "added"),
    }
    assert times(small().compare(before, after, "module").whole.rows) == {"(no module)": (34, 45.5, "increased")}


@pytest.mark.slow  # tests/fleet/test_compare_real.py
def test_counts_and_the_order_of_rows() -> None:
    rows = small().compare(small().traces[0], small().traces[1]).whole.rows
    assert [(row.name, row.control_n, row.test_n, row.diff_n, row.diff_ns) for row in rows] == [
        ("aten::mm", 1, 2, 1, 13_500),
        ("aten::add", 1, 0, -1, -4_000),
        ("(launch not in the trace)", 0, 1, 1, 2_000),
    ]
    assert {row.device for row in rows} == {"gpu"}


@pytest.mark.slow  # 10 s
def test_own_time_on_the_host() -> None:
    found = times(small().compare(small().traces[0], small().traces[1]).whole.host)
    assert found == {
        "ProfilerStep": (75, 69, "decreased"),  # 100 less the operators inside
        "aten::mm": (17, 25 - 3 + 6 - 3, "increased"),
        "aten::add": (3, 0, "deleted"),
        "cudaLaunchKernel": (5, 6, "increased"),
    }


def test_python_functions_own_their_time_where_annotations_outlast_the_function_that_opens_them() -> None:
    world = small("crossing")
    found = times(world.compare(world.traces[0], world.traces[0]).whole.host)
    assert {name: us for name, (us, _, _) in found.items()} == {"train": 50, "__enter__": 20, "sleep": 30}


def test_unchanged_is_of_time() -> None:
    """Within 1 % of the longer side, whatever the counts are."""
    world = small("longer")
    a, b, c, twice = world.traces
    changes = [world.compare(a, other).whole.rows[0].change for other in (b, c, twice)]
    assert changes == ["unchanged", "increased", "unchanged"]


def test_kinds_of_kernels_without_operator() -> None:
    """By their names, the first rule that fits."""
    world = small("kinds")
    (only,) = world.traces
    expected: Counter[str] = Counter({"communication": 100})  # that it is, whatever operator launched it
    for n, kind in enumerate(KINDS.values()):
        expected[kind] += n + 1
    found = times(world.compare(only, only, "category").whole.rows)
    assert {kind: us for kind, (us, _, _) in found.items()} == expected


def test_steps_that_overlap_have_no_work_in_common() -> None:
    world = small("overlap")
    (only,) = world.traces
    assert [window.duration_ns for window in only.steps] == [103_000, 87_000]
    assert [one.gpu.control_ns for one in world.compare(only, only, "kernel").pairs] == [3000, 4000]
    assert totals(world.compare(only, only, "kernel", "all").whole.rows) == (7000, 7000)


def test_operators_are_usual_where_most_of_the_time_has_one() -> None:
    before, after, host = small().traces
    assert usual_by([[before], [after]]) == "operator"
    assert (
        usual_by([[before], [host]]) == usual_by([[host], [host]]) == "operator"
    )  # without GPU work nothing speaks against it
    known = small("without_operator").traces
    assert [usual_by([[trace]]) for trace in known] == ["operator", "kernel"]  # 34 us of the others have an operator


@pytest.mark.slow  # 2 s: whose a replay is, is in tests/modelling/test_graph_owners.py
def test_graph_replays_count_for_the_operator_that_was_captured() -> None:
    from tests.modelling.test_graph_owners import ADD, MM as CAPTURED, calls, replay  # noqa: I001

    captured = calls([CAPTURED, ADD], 0, 0, is_captured=True)
    replays = [replay(["gemm", "add"], at, at) for at in (1000, 2000)]
    world = World([[*captured, *(event for one in replays for event in one)]])
    (only,) = world.traces
    found = {row.name: row.control_n for row in world.compare(only, only, steps="all").whole.rows}
    assert found == {"aten::mm": 2, "aten::add": 2}
