"""Causes of a rank's GPU time, compared with a computation per microsecond and with the reference."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from pipelines.faces.cli.refresh_tables import open_analyst
from pipelines.lake import Lake
from pipelines.lake.publish.prices import read_prices
from pipelines.lake.read.query_tables import tables_read
from pipelines.models.catalog import load_catalog
from pipelines.models.errors import CatalogError
from pipelines.models.run import run_models
from pipelines.readers.ingest import ingest
from tests.fleet.fleet_world import write_capture
from tests.harness import call, connect_all, kernel, op
from tests.modelling.test_span_rules import arrow, backward, launch, module, numbered

COMM, GEMM, COPY = "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "gemm", "Memcpy HtoD (Pinned -> Device)"


Owners = list[tuple[int, int, str]]


def losses_and_owners(traces: list[tuple[list[dict], dict[int, int]]]) -> Iterator[tuple[dict[str, int], Owners]]:
    """Yield the us of each cause in gpu_time_by_cause, and the idle intervals, for each trace as a capture.

    An interval of idle_causes is (start, end, cause). Each trace comes with the wait in us of its collective kernels,
    by event_id.
    """
    con, trace_ids = connect_all(trace for trace, _ in traces)
    run_models(con, load_catalog(), ["merged_intervals", "kernels"])
    con.execute(
        "CREATE TABLE capture_ranks (capture_id VARCHAR, rank INTEGER, trace_id VARCHAR, left_out_reason VARCHAR)"
    )
    con.execute(
        "CREATE TABLE collective_ranks (capture_id VARCHAR, collective_id BIGINT, lane BIGINT, rank BIGINT, trace_id VARCHAR, "
        "event_id BIGINT, start_ns BIGINT, duration_ns BIGINT, wait_ns BIGINT)"
    )
    con.execute(
        "CREATE TABLE collective_groups (capture_id VARCHAR, lane BIGINT, rank BIGINT, group_name VARCHAR, group_ranks VARCHAR, "
        "refused_reason VARCHAR)"
    )
    for trace_id, (trace, waits) in zip(trace_ids, traces, strict=True):
        con.execute(f"INSERT INTO capture_ranks VALUES ('{trace_id}', 0, '{trace_id}', NULL)")
        for event_id, wait in waits.items():
            ts, dur = (1000 * trace[event_id][key] for key in ("ts", "dur"))
            con.execute(
                f"INSERT INTO collective_ranks VALUES ('{trace_id}', {event_id}, 0, 0, '{trace_id}', {event_id}, {ts}, {dur}, "
                f"{1000 * wait})"
            )
    have = frozenset(("capture_ranks", "collective_ranks", "collective_groups", "merged_intervals", "kernels"))
    run_models(con, load_catalog(), ["gpu_time_by_cause", "idle_causes"], have)
    for trace_id in trace_ids:
        query = f"SELECT cause, gpu_ns, hidden_ns FROM gpu_time_by_cause WHERE capture_id = '{trace_id}'"
        rows = con.execute(query).fetchall()
        assert all(ns % 1000 == 0 for _, ns, _ in rows)
        hidden = sum(ns for _, _, ns in rows) // 1000
        owners = con.execute(
            f"SELECT start_ns, end_ns, cause FROM idle_causes WHERE trace_id = '{trace_id}'"
        ).fetchall()
        yield {**{cause: ns // 1000 for cause, ns, _ in rows}, **({"hidden": hidden} if hidden else {})}, owners


WAITS = [
    op("start", 0, 1), call("cudaLaunchKernel", 5, 2, 1), kernel(GEMM, 10, 10, 1),
    call("cudaLaunchKernel", 42, 2, 2), kernel(COMM, 50, 40, 2, stream=9),
    call("cudaLaunchKernel", 60, 2, 3), kernel(GEMM, 70, 15, 3),
    call("cudaLaunchKernel", 61, 2, 4), kernel(COPY, 95, 3, 4, cat="gpu_memcpy"), op("end", 100, 10),
]  # fmt: skip
AGAIN = [
    module("Block_0", 0, 50), numbered("aten::mul", 5, 10, 7), *launch(1, 6, at=10, dur=20), *backward(100, 100, 7),
    module("Block_0", 102, 50, tid=2), *launch(2, 103, tid=2, at=110, dur=30),
    call("cudaLaunchKernel", 160, 1, 3, 2), kernel("backward", 130, 60, 3, stream=8), *arrow(1, 5, 1, 100, 2),
]  # fmt: skip


@cache
def by_hand() -> list[dict[str, int]]:
    """Return the losses of WAITS, whose AllReduce waits for 30 us, and of AGAIN. The models run once."""
    return [losses for losses, _ in losses_and_owners([(WAITS, {4: 30}), (AGAIN, {})])]


def test_by_hand() -> None:
    """The gemm is launched at 5 and runs from 10 to 20.

    The AllReduce is launched at 42 and runs from 50 to 90. It waits during the first 30 of these 40 us. Another gemm
    runs from 70 to 85.
    """
    assert by_hand()[0] == {
        "idle_host": 10
        + 22
        + 6
        + 5
        + 12,  # 0 to 10, 20 to 42, 44 to 50, 90 to 95, 98 to 110: the end waits for the host
        "launch_overhead": 2,  # 42 to 44
        "compute": 10 + 5,  # 10 to 20, and 80 to 85 during the transfer
        "straggler_wait": 30,  # 50 to 80
        "hidden": 10,  # 70 to 80: the gemm ran
        "exposed_communication": 5,  # 85 to 90
        "exposed_memory": 3,
    }


def test_recomputation_by_hand() -> None:
    """A module runs forward at 10.

    During backward it runs again from 110 to 140, of which the last 10 overlap the backward's work.
    """
    losses = by_hand()[1]
    assert (losses["compute"], losses["recompute"]) == (20 + 60, 20)


def painted(trace: list[dict], waits: dict[int, int], owners: Owners) -> dict[str, int]:
    """Compute the sums of gpu_time_by_cause microsecond by microsecond."""
    kinds = {
        **dict.fromkeys(("launching", "gpu_waiting"), "launch_overhead"),
        "earlier_work": "not_in_trace",
        "unknown": "unattributed",
    }
    timed = [e for e in trace if e["ph"] == "X"]
    first, last = min(e["ts"] for e in timed), max(e["ts"] + e["dur"] for e in timed)
    gpu = [e for e in timed if e["cat"] in ("kernel", "gpu_memcpy")]
    us_by_cause: Counter[str] = Counter()
    for at in range(first, last):

        def runs(name: str, at: int = at) -> bool:
            return any(e["name"] == name and e["ts"] <= at < e["ts"] + e["dur"] for e in gpu)

        waiting = any(trace[i]["ts"] <= at < trace[i]["ts"] + wait for i, wait in waits.items())
        computes, busy = runs(GEMM), runs(GEMM) or runs(COMM) or runs(COPY)
        owner = next((cause for start, end, cause in owners if start <= 1000 * at < end), None)
        if waiting:
            us_by_cause["straggler_wait"] += 1
            us_by_cause["hidden"] += computes
        elif runs(COMM) and not computes:
            us_by_cause["exposed_communication"] += 1
        elif not busy:
            us_by_cause[kinds.get(owner or "unknown", "idle_host")] += 1
        else:
            us_by_cause["compute" if computes else "exposed_memory" if runs(COPY) else "unattributed"] += 1
    return {cause: us for cause, us in us_by_cause.items() if us}


def random_trace(seed: int) -> tuple[list[dict], dict[int, int]]:
    """Return a trace of three streams, and the wait of each collective by event.

    Some launches are missing, and some are after their kernel.
    """
    rng = random.Random(seed)
    trace, waits, free = [op("start", 0, 3)], {}, {7: 5, 8: 5, 9: 5}
    for number in range(1, 25):
        name, stream = rng.choice([(GEMM, 7), (COPY, 8), (COMM, 9)])
        start, length = free[stream] + rng.randint(0, 25), rng.randint(1, 20)
        free[stream] = start + length
        if rng.random() < 0.85:
            trace.append(call("cudaLaunchKernel", max(0, start - rng.randint(-2, 15)), 1, number))
        if name == COMM:
            waits[len(trace)] = rng.randint(0, length)
        trace.append(kernel(name, start, length, number, stream, cat="gpu_memcpy" if name == COPY else "kernel"))
    return [*trace, op("end", max(free.values()) + rng.randint(-20, 20), 10)], waits


@pytest.mark.slow
def test_random_traces_painted() -> None:
    """The causes cover the whole trace without overlap."""
    traces = [random_trace(seed) for seed in range(12)]
    for (trace, waits), (ours, owners) in zip(traces, losses_and_owners(traces), strict=True):
        assert ours == painted(trace, waits, owners)
        assert sum(us for cause, us in ours.items() if cause != "hidden") == max(e["ts"] + e["dur"] for e in trace)


@pytest.mark.parametrize(
    ("folder", "wait_us"),
    [
        pytest.param("dlrm_8", 46_806, marks=pytest.mark.slow),
        pytest.param("torchrec_unequal", 509_917, marks=pytest.mark.slow),
    ],
)
def test_real_captures_add_up_and_their_waiting_is_the_references(
    shared: Path, tmp_path: Path, folder: str, wait_us: int
) -> None:
    lake = Lake(tmp_path / "lake")
    files = [f for f in (shared / "traces" / "ranks" / folder).iterdir() if "execution" not in f.name]
    ingest(sorted(files), lake, job=folder)
    con = open_analyst(lake.root, tables_read("SELECT * FROM capture_costs"))
    costs = dict(con.execute("SELECT cause, gpu_ns FROM capture_costs").fetchall())
    span = con.execute("SELECT max(trace_end_ns - trace_start_ns) * count(*) FROM traces").fetchall()[0][0]
    assert sum(ns for ns in costs.values() if ns is not None) == span
    assert costs["straggler_wait"] == pytest.approx(1000 * wait_us, abs=1000)
    assert costs["recompute"] is None
    per_rank = con.execute("SELECT rank, sum(gpu_ns) FROM gpu_time_by_cause GROUP BY rank").fetchall()
    assert {ns for _, ns in per_rank} == {span // len(files)}


@pytest.mark.slow
def test_recomputation_of_a_real_trace(shared: Path, tmp_path: Path) -> None:
    """Recomputation takes 90 to 100 % of the sum of the kernels that run again.

    The reference has 615 such kernels of 4,209.958 us. During some of that time other kernels compute.
    """
    lake = Lake(tmp_path / "lake")
    ingest([shared / "traces" / "single" / "mi300_rccl_metadata.json.gz"], lake)
    con = open_analyst(lake.root, tables_read("SELECT * FROM capture_costs"))
    costs = dict(con.execute("SELECT cause, gpu_ns FROM capture_costs").fetchall())
    assert 0.9 * 4_209_958 < costs["recompute"] <= 4_209_958


@pytest.mark.slow  # 2 s; runs/store/test_user_tables.py tests prices of a lake
def test_prices(tmp_path: Path) -> None:
    """A trace of 1 s on two ranks at 36 per hour costs 0.02.

    A job without a price has no cost, but still its causes.
    """
    lake = Lake(tmp_path / "lake")
    for job in ("train", "free"):
        ingest([write_capture(tmp_path / job, 1 if job == "train" else 2, [200_000] * 5)], lake, job)
    (lake.root / "prices.csv").write_text("job,team,price_per_gpu_hour,currency\ntrain,ads,36,EUR\nother,x,,\n")
    con = open_analyst(lake.root, tables_read("SELECT * FROM capture_costs"))
    query = "SELECT job, min(team), sum(price), min(currency), sum(gpu_ns) FROM capture_costs GROUP BY job ORDER BY job"
    assert con.execute(query).fetchall() == [
        ("free", None, None, None, 2_000_000_000),
        ("train", "ads", pytest.approx(0.02), "EUR", 2_000_000_000),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("team\nads\n", r"prices.csv:1: no column 'job'"),
        ("job,team\n,ads\n", r"prices.csv:2: 'job' is empty"),
        ("job,price_per_gpu_hour,currency\na,1,EUR\nb,dear,EUR\n", r"prices.csv:3: price 'dear' is not a number"),
        ("job,price_per_gpu_hour,currency\na,-1,EUR\n", r"prices.csv:2: price '-1' is not a number"),
        ("job,price_per_gpu_hour\na,1\n", r"prices.csv:2: a price without currency"),
        ("job\na\na\n", r"prices.csv:3: job 'a' appears twice"),
    ],
)
def test_bad_prices_are_refused_with_their_place(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "prices.csv"
    path.write_text(text)
    with pytest.raises(CatalogError, match=message):
        read_prices(path)
