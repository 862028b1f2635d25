"""HTA's analyses other than the critical path: breakdowns, overlap, queue, launches, idle time.

Over the rows that HTA counts, our models give its numbers. The tests also assert which rows HTA counts differently
(docs/differences-from-hta.md, "The other analyses"). Memory bandwidth and annotations are not compared, because we have
no model of them.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipelines.readers.inputs.single_trace import load_trace
from tests.conftest import SHARED
from tests.effort import slow_if
from tests.sql.summary.hta_rows import count_like_hta, round_like_hta

GOLDEN = SHARED / "golden" / "hta"
FRACTIONAL = ("a100_nccl_metadata", "mi250_minitoy", "v100_ns_absolute")
GRID = "v100_ns_absolute__nsoff"  # absolute microseconds with three decimals: HTA's doubles have a grid of 0.25 µs
# By trace and rank: rows of GPU work that HTA drops with the last profiler step, or (cuda_sync) that only HTA counts.
OTHER_ROWS = {
    ("a100_cuda_graphs_rank0_of_16", 0): {"last step": 2247},  # 872 rows because their launch is not in the trace
    ("a100_nccl_metadata", 0): {"last step": 1258},
    ("alexnet", 0): {"cuda_sync": 41},
    ("cuda_event_sync", 0): {"cuda_sync": 1},
    ("sampled_128", 0): {"last step": 602},
    ("sampled_128", 1): {"last step": 577},
    ("simple_add", 0): {"cuda_sync": 41},
    ("v100_54mb_rank1", 1): {"last step": 4458},
    ("v100_ns_absolute", 0): {"last step": 1219},
}
# The effect of counting waits as GPU work: HTA's number minus ours, in the order of PARTS, in microseconds.
WAITS_US = {
    "alexnet": (75_581, 0, 186, 75_767),
    "cuda_event_sync": (-5, 0, 5, 0),
    "simple_add": (438_559, 0, 205, 438_764),
}
# Waits on events; AMD with exact times; two ranks with communication and a last step that HTA drops.
QUICK = ("cuda_event_sync", "mi250_minitoy__nsoff", "sampled_128")
TWINS = ("a100_nccl_metadata", "v100_ns_absolute", "sampled_128__incllast")
"""Traces that another case compares with exact times or without the last step.

mi250_minitoy has rounded times and all steps.
"""
PARTS = "idle_ns, compute_ns, non_compute_ns, span_ns"
TIMES = ("idle_time", "compute_time", "non_compute_time", "kernel_time")


@dataclass(frozen=True)
class Rank:
    """A rank of a golden case, with a connection in which `kernels` contains the rows that HTA counts.

    `near`: the tolerance in µs for one of HTA's doubles. `near_sum`: the tolerance for a sum of thousands of them.
    """

    con: duckdb.DuckDBPyConnection
    golden: dict[str, Any]
    rank: int
    near: float
    near_sum: float

    def rows(self, *keys: str) -> list[dict[str, Any]]:
        """Return this rank's rows of a golden table."""
        table = self.golden
        for key in keys:
            table = table[key]
        rows = [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]
        return [row for row in rows if row.get("rank", self.rank) == self.rank]

    def ours(self, query: str) -> list[tuple]:
        return self.con.execute(query).fetchall()


def _cases() -> list[str]:
    names = sorted(p.name.removesuffix("__analyses.json.gz") for p in GOLDEN.glob("*__analyses.json.gz"))
    return [name for name in names if name not in TWINS] or ["reference material is not there"]


def _golden(case: str) -> dict[str, Any]:
    if not GOLDEN.is_dir():
        pytest.skip(f"reference output is not there: {GOLDEN}")
    return json.loads(gzip.decompress((GOLDEN / f"{case}__analyses.json.gz").read_bytes()))


@lru_cache(maxsize=1)
def _loaded(path: Path) -> tuple[duckdb.DuckDBPyConnection, str]:
    con = duckdb.connect()
    trace_id = load_trace(con, path).trace_id
    con.execute("CREATE TABLE exact_events AS FROM events")
    return con, trace_id


def _open(case: str, rank: int, golden: dict[str, Any]) -> tuple[Rank, Counter[str], list[float]]:
    """Return the rank with HTA's rows, its rows that HTA counts differently, and our own breakdown (PARTS, µs)."""
    base = case.split("__")[0]
    names = (f"{base}.json.gz", f"{base}/rank{rank}.json.gz")
    con, trace_id = _loaded(next(p for name in names for p in (SHARED / "traces").rglob(name)))
    con.execute("CREATE OR REPLACE TABLE events AS FROM exact_events")
    if base in FRACTIONAL and "__nsoff" not in case:
        round_like_hta(con)
    reasons, own = count_like_hta(con, trace_id, drop_last_step="__incllast" not in case, own=PARTS)
    near, near_sum = (0.5, 0.25) if case == GRID else (0.002, 0.02) if "__nsoff" in case else (0, 0)
    return Rank(con, golden, rank, near, near_sum), reasons, [ns / 1000 for ns in own]


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=slow_if(case not in QUICK)) for case in _cases()],
)
def test_analyses_equal_hta(case: str) -> None:
    """Compare every analysis of each rank. Traces in whole or rounded microseconds must agree exactly."""
    golden = _golden(case)
    types: Counter[str] = Counter()
    for number in golden["ranks"]:
        rank, reasons, own = _open(case, number, golden)
        trace = case.split("__")[0]
        assert reasons == ({} if "__incllast" in case else OTHER_ROWS.get((trace, number), {}))
        if "last step" not in reasons:
            own_breakdown(rank, own, WAITS_US.get(trace, (0, 0, 0, 0)))
        temporal_breakdown(rank)
        overlap(rank)
        kernel_statistics(rank)
        queue(rank, may_differ=30 if case == GRID else 0)
        full_queue(rank)
        launch_statistics(rank)
        idle_time(rank, in_all=case == GRID)
        types.update(kernel_types(rank))
    theirs = golden["gpu_kernel_breakdown_full"]["kernel_type"]["rows"]
    assert +types == +Counter({name: total for name, total, _ in theirs})


def own_breakdown(rank: Rank, own: list[float], waits_us: tuple[int, ...]) -> None:
    """Compare `tracelake breakdown` itself with HTA's times without its waits, if both cover the whole trace."""
    theirs = [row[f"{name}(us)"] for row in rank.rows("temporal_breakdown") for name in TIMES]
    assert own == pytest.approx([us - wait for us, wait in zip(theirs, waits_us, strict=True)], abs=rank.near_sum)


def temporal_breakdown(rank: Rank) -> None:
    """Compare the four times, and the percentages as HTA rounds them."""
    (theirs,) = rank.rows("temporal_breakdown")
    (ours,) = rank.ours(f"SELECT {PARTS} FROM temporal_breakdown")
    assert [ns / 1000 for ns in ours] == pytest.approx([theirs[f"{name}(us)"] for name in TIMES], abs=rank.near_sum)
    (percent,) = rank.ours("SELECT idle_percent, compute_percent, non_compute_percent FROM temporal_breakdown")
    assert [round(value, 2) for value in percent] == [theirs[f"{name}_pctg"] for name in TIMES[:3]]


def overlap(rank: Rank) -> None:
    """Compare the percentage of communication that computation hides. It is NULL without communication."""
    ((ours,),) = rank.ours(
        "SELECT round(100 * sum(CASE WHEN n_compute > 0 THEN end_ns - start_ns ELSE 0 END) / sum(end_ns - start_ns), 2) "
        "FROM _class_overlap WHERE n_communication > 0"
    )
    assert ours == rank.rows("comm_comp_overlap")[0]["comp_comm_overlap_pctg"]


def kernel_types(rank: Rank) -> dict[str, int]:
    """Return the time of every combination of classes.

    HTA truncates each interval to whole microseconds and adds up the ranks.
    """
    classes = ", ".join(
        f"CASE WHEN n_{column} > 0 THEN '{column.upper().replace('COMPUTE', 'COMPUTATION')}' END"
        for column in ("compute", "communication", "memory")
    )
    query = (
        f"SELECT concat_ws(' overlapping ', {classes}) AS type, sum((end_ns - start_ns) // 1000) FROM _class_overlap"
    )
    return {name: int(us) for name, us in rank.ours(f"{query} WHERE end_ns IS NOT NULL GROUP BY type") if name}


def kernel_statistics(rank: Rank) -> None:
    """Compare sum, longest, shortest, deviation and mean of every kernel name.

    With HTA's default of 10 names, all but the sum are wrong, because HTA takes them of the sums. So this compares with
    its output for all names.
    """
    statistics = (
        "sum(duration_ns), max(duration_ns), min(duration_ns), coalesce(stddev_samp(duration_ns), 0), avg(duration_ns)"
    )
    classes = "'COMPUTATION', 'COMMUNICATION', 'MEMORY'"
    query = f"SELECT class, name, {statistics} FROM kernels WHERE class IN ({classes}) GROUP BY class, name"
    ours = {(class_, name): [ns / 1000 for ns in times] for class_, name, *times in rank.ours(query)}
    columns = ("sum (us)", "max (us)", "min (us)", "stddev", "mean (us)")
    theirs = {
        (row["kernel_type"], row["name"]): [row[column] for column in columns]
        for row in rank.rows("gpu_kernel_breakdown_full", "kernels")
    }
    assert set(ours) == set(theirs)
    for name, times in theirs.items():
        assert ours[name] == pytest.approx(times, rel=1e-9, abs=rank.near), name


def queue(rank: Rank, may_differ: int) -> None:
    """Compare the length of the queue after each launch and each start of GPU work."""
    theirs = rank.golden["queue_length_time_series"][str(rank.rank)]
    at = [theirs["columns"].index(column) for column in ("event_idx", "stream", "queue_length")]
    query = "SELECT event_id, stream_key, queue_length FROM _queue"
    differing = Counter(rank.ours(query)) - Counter(tuple(row[i] for i in at) for row in theirs["rows"])
    assert differing.total() <= may_differ


def full_queue(rank: Rank) -> None:
    """Compare the time with five or more waiting launches. HTA keeps only the last stream of a rank, ours has all."""
    ours = dict(
        rank.ours(
            "SELECT stream_key, sum(until_ns - at_ns) / 1000 FROM (SELECT *, lead(at_ns) OVER "
            "(PARTITION BY stream_key ORDER BY at_ns, change DESC, event_id) AS until_ns FROM _queue) "
            "WHERE queue_length >= 5 GROUP BY stream_key"
        )
    )
    theirs = rank.rows("time_blocked_on_full_queue_5")
    assert len(theirs) == min(len(ours), 1)
    for row in theirs:
        assert ours[row["stream"]] == pytest.approx(
            row["duration_at_max_queue_length"], abs=max(rank.near, rank.near_sum)
        )


def launch_statistics(rank: Rank) -> None:
    """Compare the durations of call and kernel and the delay between them, for calls that HTA knows.

    HTA knows no calls of HIP or the driver.
    """
    query = "correlation, l.duration_ns, l.kernel_duration_ns, greatest(l.launch_delay_ns, 0) FROM launches AS l"
    ours = {c: [ns / 1000 for ns in times] for c, *times in rank.ours(f"SELECT {query} JOIN events USING (event_id)")}
    for correlation, *times in rank.golden["cuda_kernel_launch_stats"][str(rank.rank)]["rows"]:
        assert ours[correlation] == pytest.approx(times, abs=rank.near), correlation


def idle_time(rank: Rank, in_all: bool) -> None:
    """Compare the gaps of a stream: waiting for the host, a short gap, another.

    `in_all`: compare only their sum, because a start that moves by HTA's grid can change a gap's kind.
    """
    kind = (
        "CASE WHEN call_ns > end_ns THEN 'host_wait' WHEN start_ns - end_ns < 30000 THEN 'kernel_wait' ELSE 'other' END"
    )
    ours = Counter()
    for stream, name, us in rank.ours(
        f"SELECT stream, {kind} AS kind, sum(start_ns - end_ns) / 1000 FROM (SELECT k.stream, k.start_ns, c.start_ns AS call_ns, "
        "lag(k.end_ns) OVER (PARTITION BY k.stream ORDER BY k.start_ns, k.event_id) AS end_ns FROM kernels AS k "
        "LEFT JOIN events AS c ON c.event_id = k.launch_event_id WHERE k.cat IN ('kernel', 'gpu_memcpy', 'gpu_memset')) "
        "WHERE end_ns IS NOT NULL GROUP BY stream, kind"
    ):
        ours[stream, "" if in_all else name] += us
    theirs = Counter()
    for row in rank.rows("idle_time_breakdown", "breakdown"):
        theirs[row["stream"], "" if in_all else row["idle_category"]] += row["idle_time"]
    for key in set(ours) | set(theirs):
        assert ours[key] == pytest.approx(theirs[key], abs=max(rank.near_sum, 0.005)), key
