"""The notebook's answers compared with HTA's own output: its breakdown of a path row by row, and its other analyses."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipelines.faces.notebook import TraceAnalysis

PATHS = ("alexnet__alexfwd_1", "alexnet__alexfwd_0-1", "cuda_event_sync__ProfilerStep_0")
# Times in whole microseconds, every step, and no cuda_sync rows, so HTA counts the same rows as tracelake.
ANALYSES = "sampled_128__incllast__analyses"


def golden(shared: Path, case: str) -> dict[str, Any]:
    return json.loads(gzip.decompress((shared / "golden" / "hta" / f"{case}.json.gz").read_bytes()))


def records(table: dict[str, Any]) -> list[dict[str, Any]]:
    return [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]


@pytest.mark.slow  # test_as_hta.py tests each edge, the path and rows of the breakdown of simple_add
@pytest.mark.parametrize("case", PATHS)
def test_breakdown_and_summary_of_a_path(shared: Path, case: str) -> None:
    expected = golden(shared, case)
    file = shared / "traces" / "critical_path" / f"{case.split('__')[0]}.json.gz"
    with TraceAnalysis({expected["rank"]: file}) as analysis:
        instance = expected["instance_id"]
        cp_graph, success = analysis.critical_path_analysis(
            rank=expected["rank"],
            annotation=expected["annotation"],
            instance_id=tuple(instance) if isinstance(instance, list) else instance,
            profile="hta",
        )
    assert success is expected["success"] is True
    assert cp_graph.answer.length_us == expected["critical_path"]["length"]
    assert (cp_graph.answer.nodes, cp_graph.answer.edges) == (expected["n_nodes"], expected["n_edges"])
    assert dict(cp_graph.summary()) == pytest.approx(expected["summary_pct"], abs=1e-9)
    breakdown = cp_graph.get_critical_path_breakdown()
    assert [name for name in breakdown.column_names if name != "index"] == expected["breakdown_columns"]
    ours = breakdown.to_pylist()
    theirs = records({"columns": expected["breakdown_columns"], "rows": expected["breakdown_rows"]})
    names = {row["event_idx"]: row["s_name"] for row in ours}
    for row in theirs:
        name = names[row["event_idx"]]
        # HTA removes template and argument lists.
        assert row.pop("s_name") == name or "<" in name or "(" in name
        row["pid"], row["tid"] = (value if value is None else str(value) for value in (row["pid"], row["tid"]))
    for row in ours:
        assert row.pop("index") == row["event_idx"]
        del row["s_name"]
    assert Counter(frozenset(row.items()) for row in ours) == Counter(frozenset(row.items()) for row in theirs)


@pytest.fixture(scope="module")
def theirs(shared: Path) -> dict[str, Any]:
    return golden(shared, ANALYSES)


@pytest.fixture(scope="module")
def sampled(shared: Path, theirs: dict[str, Any]) -> Iterator[TraceAnalysis]:
    folder = shared / "traces" / "ranks" / "sampled_128"
    with TraceAnalysis({rank: folder / f"rank{rank}.json.gz" for rank in theirs["ranks"]}) as analysis:
        yield analysis


def test_temporal_breakdown_and_overlap(sampled: TraceAnalysis, theirs: dict[str, Any]) -> None:
    parts = {"idle_ns": "idle_time", "compute_ns": "compute_time", "non_compute_ns": "non_compute_time"}
    ours = sampled.get_temporal_breakdown().to_pyarrow().to_pylist()
    expected = records(theirs["temporal_breakdown"])
    for row, hta in zip(ours, expected, strict=True):
        assert row["rank"] == hta["rank"] and row["span_ns"] == 1000 * hta["kernel_time(us)"]
        for name, hta_name in parts.items():
            assert row[name] == 1000 * hta[f"{hta_name}(us)"]
            assert round(row[name.replace("_ns", "_percent")], 2) == hta[f"{hta_name}_pctg"]
    overlap = sampled.get_comm_comp_overlap().to_pyarrow().to_pylist()
    overlaps = [(row["rank"], round(row["comp_comm_overlap_percent"], 2)) for row in overlap]
    assert overlaps == [tuple(row) for row in theirs["comm_comp_overlap"]["rows"]]


@pytest.mark.slow  # tests/sql/summary/test_hta_analyses.py tests the tables
def test_kernel_breakdown(sampled: TraceAnalysis, theirs: dict[str, Any]) -> None:
    """The kernel breakdown equals HTA's for all names.

    With fewer names HTA computes max, min, mean and deviation of the sums.
    """
    _, kernels = sampled.get_gpu_kernel_breakdown(num_kernels=None)
    columns = ("sum", "max", "min", "mean")
    ours = {
        (row["rank"], row["class"], row["name"]): [row[f"{c}_ns"] / 1000 for c in columns]
        + [(row["std_ns"] or 0) / 1000]
        for row in kernels.to_pyarrow().to_pylist()
        if row["class"] in ("COMPUTATION", "COMMUNICATION", "MEMORY")
    }
    expected = {
        (row["rank"], row["kernel_type"], row["name"]): [row[f"{c} (us)"] for c in columns] + [row["stddev"]]
        for row in records(theirs["gpu_kernel_breakdown_full"]["kernels"])
    }
    assert set(ours) == set(expected)
    for key, times in expected.items():
        assert ours[key] == pytest.approx(times, rel=1e-9, abs=1e-9), key
    _, most = sampled.get_gpu_kernel_breakdown(num_kernels=3, include_memory_kernels=False)
    longest = [times[0] for key, times in ours.items() if key[:2] == (0, "COMPUTATION")]
    shown = [
        row["sum_ns"] / 1000
        for row in most.to_pyarrow().to_pylist()
        if (row["rank"], row["class"]) == (0, "COMPUTATION")
    ]
    assert shown == sorted(longest, reverse=True)[:3]
    assert "MEMORY" not in most.to_pyarrow()["class"].to_pylist()


@pytest.mark.slow  # 2 s
def test_kernel_classes_sum_up_what_hta_divides(sampled: TraceAnalysis, theirs: dict[str, Any]) -> None:
    """HTA lists the combinations of classes, with each interval cut to whole us.

    A class is the sum of the combinations that include it.
    """
    classes, _ = sampled.get_gpu_kernel_breakdown()
    ours: Counter[str] = Counter()
    for row in classes.to_pyarrow().to_pylist():
        ours[row["class"]] += row["busy_ns"] // 1000
    expected: Counter[str] = Counter()
    for row in records(theirs["gpu_kernel_breakdown_full"]["kernel_type"]):
        for name in row["kernel_type"].split(" overlapping "):
            expected[name] += row["sum"]
    assert {name: ours[name] for name in expected} == expected


def test_queue(sampled: TraceAnalysis, theirs: dict[str, Any]) -> None:
    names = {"count": "count", "mean": "mean", "std": "std", "min": "min", "p25": "25%", "p50": "50%", "p75": "75%"}
    ours = sampled.get_queue_length_summary().to_pyarrow().to_pylist()
    expected = records(theirs["queue_length_summary"])
    assert [(row["rank"], row["stream"]) for row in ours] == [(row["rank"], row["stream"]) for row in expected]
    for row, hta in zip(ours, expected, strict=True):
        for name, hta_name in {**names, "max": "max"}.items():
            assert row[name] == pytest.approx(hta[f"queue_length_{hta_name}"], rel=1e-9)
    series = sampled.get_queue_length_time_series(ranks=[1])
    full = sampled.get_time_spent_blocked_on_full_queue(series, max_queue_length=5).to_pyarrow().to_pylist()
    # HTA only keeps the last stream of a rank.
    full_ns = {(row["rank"], row["stream"]): row["full_ns"] for row in full}
    _, hta = records(theirs["time_blocked_on_full_queue_5"])
    assert full_ns[1, hta["stream"]] == 1000 * hta["duration_at_max_queue_length"]
    assert {rank for rank, _ in full_ns} == {1}


@pytest.mark.slow  # 2 s; tests/sql/summary/test_hta_analyses.py tests the tables
def test_launches_and_steps(sampled: TraceAnalysis, theirs: dict[str, Any]) -> None:
    launches = sampled.get_cuda_kernel_launch_stats(ranks=[0])
    events = sampled.table("events").select("event_id", "trace_id", "correlation").to_pyarrow().to_pylist()
    correlation = {(e["trace_id"], e["event_id"]): e["correlation"] for e in events}
    ours = {
        correlation[row["trace_id"], row["event_id"]]: [
            row["duration_ns"] / 1000, row["kernel_duration_ns"] / 1000, max(row["launch_delay_ns"], 0) / 1000
        ]
        for row in launches.to_pyarrow().to_pylist()
    }  # fmt: skip
    for call, *times in theirs["cuda_kernel_launch_stats"]["0"]["rows"]:
        assert ours[call] == times
    assert sampled.get_profiler_steps() == theirs["profiler_steps"]
