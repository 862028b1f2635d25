"""The rows of a comparison, computed by hand: which work is paired, added or unchanged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from pipelines.faces.cli.fleet.compared_rows import as_json
from pipelines.fleet.trends.comparison import (
    Comparison,
    Difference,
    OnePair,
    Pair,
    Part,
    Short,
    Window,
    totals,
    usual_by,
)
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


@pytest.mark.slow  # tests/fleet/test_compare_real.py tests real traces
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
    host_times = times(small().compare(small().traces[0], small().traces[1]).whole.host)
    assert host_times == {
        "ProfilerStep": (75, 69, "decreased"),  # 100 minus the operators inside
        "aten::mm": (17, 25 - 3 + 6 - 3, "increased"),
        "aten::add": (3, 0, "deleted"),
        "cudaLaunchKernel": (5, 6, "increased"),
    }


def test_python_functions_own_their_time_where_annotations_outlast_the_function_that_opens_them() -> None:
    world = small("crossing")
    host_times = times(world.compare(world.traces[0], world.traces[0]).whole.host)
    assert {name: us for name, (us, _, _) in host_times.items()} == {"train": 50, "__enter__": 20, "sleep": 30}


def test_unchanged_is_of_time() -> None:
    """A time is unchanged if it differs by at most 1 % of the longer side, whatever the counts are."""
    world = small("longer")
    a, b, c, twice = world.traces
    changes = [world.compare(a, other).whole.rows[0].change for other in (b, c, twice)]
    assert changes == ["unchanged", "increased", "unchanged"]


def test_kinds_of_kernels_without_operator() -> None:
    """The first rule that matches the name of a kernel without an operator decides its kind."""
    world = small("kinds")
    (only,) = world.traces
    # communication in any case, even if an operator launched it
    expected: Counter[str] = Counter({"communication": 100})
    for n, kind in enumerate(KINDS.values()):
        expected[kind] += n + 1
    times_by_kind = times(world.compare(only, only, "category").whole.rows)
    assert {kind: us for kind, (us, _, _) in times_by_kind.items()} == expected


def test_steps_that_overlap_have_no_work_in_common() -> None:
    world = small("overlap")
    (only,) = world.traces
    assert [window.duration_ns for window in only.steps] == [103_000, 87_000]
    assert [step_pair.gpu.control_ns for step_pair in world.compare(only, only, "kernel").pairs] == [3000, 4000]
    assert totals(world.compare(only, only, "kernel", "all").whole.rows) == (7000, 7000)


def test_operators_are_usual_where_most_of_the_time_has_one() -> None:
    before, after, host = small().traces
    assert usual_by([[before], [after]]) == "operator"
    assert (
        usual_by([[before], [host]]) == usual_by([[host], [host]]) == "operator"
    )  # without GPU work there is no reason for another choice
    known = small("without_operator").traces
    # 34 us of the other traces have an operator
    assert [usual_by([[trace]]) for trace in known] == ["operator", "kernel"]


@pytest.mark.slow  # 2 s; tests/modelling/test_graph_owners.py tests which operator a replay belongs to
def test_graph_replays_count_for_the_operator_that_was_captured() -> None:
    from tests.modelling.test_graph_owners import ADD, MM as CAPTURED, calls, replay  # noqa: I001

    captured = calls([CAPTURED, ADD], 0, 0, is_captured=True)
    replays = [replay(["gemm", "add"], at, at) for at in (1000, 2000)]
    world = World([[*captured, *(event for events in replays for event in events)]])
    (only,) = world.traces
    counts = {row.name: row.control_n for row in world.compare(only, only, steps="all").whole.rows}
    assert counts == {"aten::mm": 2, "aten::add": 2}


def nanoseconds(answer: Any) -> Iterator[tuple[str, Any]]:
    """Yield all values in an answer whose keys end in _ns."""
    entries = answer.items() if isinstance(answer, dict) else enumerate(answer) if isinstance(answer, list) else ()
    for key, value in entries:
        if str(key).endswith("_ns"):
            yield str(key), value
        yield from nanoseconds(value)


def test_times_in_json_are_whole_nanoseconds() -> None:
    """All times in JSON are whole nanoseconds, including means and medians."""
    parts, pairs = [], []
    for rank in (0, 1):
        windows = [Window("t", step, 0, 0, ns, 9, 0, host_ns=ns - 50) for step, ns in enumerate((101, 102, 103, 105))]
        pairs += [Pair(f"rank {rank}", rank, window, window) for window in windows]
        parts.append(Part(pairs[-4:]))
    row = Difference("gpu", None, "k", None, None, 1, 1, 0, 5, 7, 2, "increased")
    for part in (whole := Part(pairs), *parts):
        part.rows.append(row)
        part.host.append(row)
        part.categories.append(row)
    compared = Comparison("kernel", whole, parts, [OnePair(pair, Short(5, 7), Short(), Short()) for pair in pairs])
    answer = as_json(compared, ("a", "b"), ([], []), [])
    times = [*nanoseconds(answer)]
    assert {"duration_ns", "median_ns", "host_ns", "gpu_ns", "diff_ns", "control_ns"} <= {key for key, _ in times}
    assert {type(value) for _, value in times} <= {int, type(None)}
    (control, _) = answer["windows"]
    assert (control["duration_ns"], control["median_ns"], control["host_ns"]) == (103, 102, 53)
    assert (control["n_windows"], control["idle_ns"]) == (8, 8 * 9)
