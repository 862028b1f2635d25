"""Process groups: separate lanes, one clock from all lanes, bytes and bandwidths of their collectives."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from pipelines.fleet.clocks.alignment import fit_capture
from pipelines.fleet.clocks.capture_fits import create_fits
from pipelines.fleet.collectives.lanes import Kernels
from pipelines.lake import Lake
from pipelines.models.catalog import load_catalog
from pipelines.models.rule_tables import create_rules
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize.run_order import materialize_all
from tests.fleet.lanes_help import simulated

OFFSETS = (0, 50_000, -20_000, 9_000)
Group = tuple[str, str] | None


def kernels_of(groups: dict[Group, tuple[int, ...]], n: int = 30) -> dict[int, Kernels]:
    """Return kernels of four ranks with n collectives in each group, one stream per group.

    The clocks are ahead of true time by OFFSETS.
    """
    kernels = {rank: Kernels(rank) for rank in range(4)}
    rows: dict[int, list[tuple[Any, ...]]] = {rank: [] for rank in range(4)}
    for stream, (group, ranks) in enumerate(groups.items()):
        lanes, _ = simulated(len(ranks), n, tuple(OFFSETS[rank] for rank in ranks), seed=stream)
        for rank, lane in zip(ranks, lanes, strict=True):
            for i in range(n):
                start, end = int(lane.start_ns[i]), int(lane.end_ns[i])
                name, text = group or (None, None)
                rows[rank].append(("t", i, "allreduce", True, 0, stream, start, end, 1, name, text, None, None))
    for rank, own in rows.items():
        for values in sorted(own, key=lambda row: (row[6], row[1])):
            kernels[rank].add(*values)
    return kernels


def test_groups_that_join_all_ranks_have_one_clock() -> None:
    groups: dict[Group, tuple[int, ...]] = {("1", "[0, 1]"): (0, 1), ("1", "[2, 3]"): (2, 3), ("2", "[1, 2]"): (1, 2)}
    lanes, clocks = fit_capture([0, 1, 2, 3], kernels_of(groups))
    assert [(lane.lane.group, lane.refused) for lane in lanes] == [(group, None) for group in groups]
    offsets = [clock.clock.offset_ns if clock.clock else None for clock in clocks]
    assert offsets == [pytest.approx(truth, abs=3_000) for truth in OFFSETS]
    for lane in lanes:
        assert lane.starts is not None and lane.ends is not None
        assert np.ptp(lane.ends, axis=0).max() < 20_000  # all ranks leave together, on one clock


def test_groups_that_join_nobody_outside_are_not_aligned_with_them() -> None:
    groups: dict[Group, tuple[int, ...]] = {("1", "[0, 1]"): (0, 1), ("1", "[2, 3]"): (2, 3)}
    lanes, clocks = fit_capture([0, 1, 2, 3], kernels_of(groups))
    assert [clock.refused for clock in clocks[:2]] == [None, None]
    assert [clock.refused for clock in clocks[2:]] == ["not_joined: with rank 2, but not with rank 0"] * 2
    assert all(clock.clock is None for clock in clocks[2:])
    assert [lane.starts is None for lane in lanes] == [False, True]


def test_streams_without_groups_are_matched_in_the_order_of_their_first_start() -> None:
    kernels = kernels_of({None: (0, 1, 2, 3)})
    lanes, _ = fit_capture([0, 1, 2, 3], kernels)
    assert [(lane.lane.group, lane.match.index.shape, lane.refused) for lane in lanes] == [(None, (4, 30), None)]
    kernels[3].stream[0] = (0, 99)  # a second stream on one rank only
    lanes, clocks = fit_capture([0, 1, 2, 3], kernels)
    reason = "lane_count_mismatch: rank 0 has 1 streams, rank 3 has 2"
    assert {lane.refused for lane in lanes} == {clock.refused for clock in clocks} == {reason}


def pipeline(n_stages: int, n_batches: int, name: str, ranks: str) -> dict[int, Kernels]:
    """Return kernels of stages on one clock.

    Each stage receives a batch, works 100 us and sends it on. Each rank numbers its own calls.
    """
    calls: list[list[tuple[int, int]]] = [[] for _ in range(n_stages)]
    free = [0] * n_stages
    for _ in range(n_batches):
        for stage in range(n_stages):
            sends_ns = free[stage] = free[stage] + 100_000
            if stage + 1 < n_stages:
                ends_ns = max(sends_ns, free[stage + 1]) + 10_000
                calls[stage].append((sends_ns, ends_ns))
                calls[stage + 1].append((free[stage + 1], ends_ns))
                free[stage] = free[stage + 1] = ends_ns
    kernels = {stage: Kernels(stage) for stage in range(n_stages)}
    for stage, own in enumerate(calls):
        for number, (start, end) in enumerate(sorted(own)):
            kernels[stage].add("t", number, "sendrecv", False, 0, 20, start, end, None, name, ranks, None, number)
    return kernels


def test_sends_between_pairs_of_a_larger_group_are_no_collectives_of_it() -> None:
    """Sends between pairs of a larger group are not matched as collectives of the group.

    Their numbers match on all stages, but mean different calls on each.
    """
    lanes, clocks = fit_capture(range(4), pipeline(4, 64, "pp", "[0, 1, 2, 3]"))
    assert [lane.refused for lane in lanes] == [
        "point_to_point: each send and receive is between two ranks, and the group has more"
    ]
    assert all(clock.clock is None for clock in clocks)
    lanes, _ = fit_capture(range(2), {r: k for r, k in pipeline(4, 64, "pp", "[0, 1, 2, 3]").items() if r < 2})
    assert (lanes[0].refused or "").startswith("point_to_point")  # even if ranks are missing
    lanes, clocks = fit_capture(range(2), pipeline(2, 64, "pp", "[0, 1]"))
    assert lanes[0].match.index.shape == (2, 64)
    assert [clock.clock.offset_ns if clock.clock else None for clock in clocks] == [0, 0]


def test_sends_of_a_group_are_numbered_apart_from_its_collectives() -> None:
    groups: dict[Group, tuple[int, ...]] = {("1", "[0, 1]"): (0, 1)}
    collectives, sends = kernels_of(groups), pipeline(2, 30, "1", "[0, 1]")
    for rank, own in sends.items():
        collectives[rank].seq = [*range(30)]
        for column in vars(own):
            if column != "rank":
                getattr(collectives[rank], column).extend(getattr(own, column))
    lanes, _ = fit_capture([0, 1], {rank: collectives[rank] for rank in (0, 1)})
    assert [(lane.lane.group, lane.match.index.shape, lane.match.refused) for lane in lanes] == [
        (("1", "[0, 1]"), (2, 30), None)
    ] * 2


def test_ranks_without_any_collective() -> None:
    _, clocks = fit_capture([0, 1], {})
    assert [clock.refused for clock in clocks] == ["no_collectives"] * 2


# Bus factors by kind for 8 ranks, from nccl-tests' doc/PERFORMANCE.md.
BUS = {"allreduce": 14 / 8, "allgather": 7 / 8, "reducescatter": 7 / 8, "alltoall": 7 / 8, "broadcast": 1, "reduce": 1}


def test_a_kernel_of_negative_duration_is_not_matched() -> None:
    """A kernel of negative duration is not matched.

    It would be the shortest of its collective, so the transfer would be negative. Rank 1 has such a kernel, and one of
    length 0.
    """
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE _staged_capture_ranks AS SELECT 'c' AS capture_id, rank, 't' || rank AS trace_id, "
            "NULL AS left_out_reason FROM range(2) AS v(rank);"
            "CREATE TABLE traces AS SELECT trace_id, trace_id AS path, '{}' AS metadata, 'h' AS host FROM _staged_capture_ranks;"
            "CREATE TABLE collective_kernels AS SELECT trace_id, n AS event_id, 'allreduce' AS kind, true AS waits_for_all, "
            "0 AS device, 7 AS stream, 1000000 * n + 10000 * n * n AS start_ns, CASE WHEN rank = 0 THEN 900 WHEN n = 3 THEN -1 "
            "WHEN n = 5 THEN 0 ELSE 500 END AS duration_ns, start_ns + duration_ns AS end_ns, n AS step, NULL AS group_name, "
            "NULL AS group_ranks, NULL AS group_description, NULL AS seq FROM _staged_capture_ranks, range(9) AS w(n)"
        )
        create_rules(con, load_catalog().models["thresholds"])
        create_fits(con)
        matched = con.execute(
            "SELECT rank, list(event_id ORDER BY event_id) FROM _fitted_kernels GROUP BY rank"
        ).fetchall()
        counts = con.execute("SELECT rank, n_kernels, n_matched FROM _fitted_lanes ORDER BY rank").fetchall()
    assert sorted(matched) == [(rank, [0, 1, 2, 4, 5, 6, 7, 8]) for rank in range(2)]
    assert counts == [(0, 9, 8), (1, 8, 8)]


@pytest.mark.parametrize("kind", BUS)
def test_bandwidths(kind: str) -> None:
    """A published allgather transfers 1632.03125 MiB in 6041.878 us on 8 ranks. Bandwidths are in decimal GB/s."""
    size, transfer = int(1632.03125 * 2**20), 6_041_878
    models = load_catalog().models
    with duckdb.connect() as con:
        create_rules(con, models["collective_kinds"])
        con.execute(
            f"CREATE TABLE collective_ranks AS SELECT 'c' AS capture_id, 0 AS collective_id, rank, 't' || rank AS trace_id, "
            f"1 AS event_id, 0 AS lane, 3 AS step, 0 AS start_ns, {transfer} + 10 * rank AS duration_ns, 10 * rank AS wait_ns, "
            f"100 - 10 * rank AS aligned_start_ns, {transfer} + 100 AS aligned_end_ns, 0 AS wait_clock_ns, 5 AS root_rank, 'step_order' AS matched_by, TRUE AS kept "
            "FROM range(8) AS r(rank)"
        )
        con.execute(
            f"CREATE TABLE collective_kernels AS SELECT trace_id, event_id, '{kind}' AS kind, 'x' AS collective_name, "
            f"{size} AS bytes, 8 AS group_size FROM collective_ranks"
        )
        con.execute(
            "CREATE TABLE collective_groups AS SELECT 'c' AS capture_id, 0 AS lane, rank, 0 AS reference_rank, "
            "'0' AS group_name, NULL AS refused_reason FROM collective_ranks"
        )
        row = con.execute(
            "SELECT algorithm_gigabytes_per_s, bus_gigabytes_per_s, transfer_ns, culprit_rank, culprit_clock_rank, root_rank "
            f"FROM ({models['collectives'].sql})"
        ).fetchall()[0]
    assert row[0] == pytest.approx(1632.03125 / 1024 / 6041.878e-6 * 1.073741824)
    assert row[1] == pytest.approx(row[0] * BUS[kind])
    assert row[2:] == (transfer, 0, 0, 5)


@pytest.mark.slow
def test_a_real_trace_with_metadata_as_two_ranks(shared: Path, tmp_path: Path) -> None:
    """One rank's trace represents both ranks. Bytes and bandwidth match TraceLens' report of one of its all-reduces."""
    source = json.loads(gzip.decompress((shared / "traces" / "single" / "a100_nccl_metadata.json.gz").read_bytes()))
    for rank in (0, 1):
        source["distributedInfo"]["rank"] = rank
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(source))
    lake = Lake(tmp_path / "lake")
    ingest([tmp_path / "rank0.json", tmp_path / "rank1.json"], lake)
    materialize_all(lake, ["collectives", "collective_groups"])
    with lake.connect(["collectives", "collective_groups"]) as con:
        rows = con.execute(
            "SELECT kind, bytes, transfer_ns, algorithm_gigabytes_per_s, bus_gigabytes_per_s, group_size, wait_ns, end_skew_ns FROM collectives "
            "ORDER BY collective_id"
        ).fetchall()
        lanes = con.execute(
            "SELECT DISTINCT group_name, group_ranks, n_matched, refused_reason FROM collective_groups"
        ).fetchall()
    assert lanes == [("0", "[0, 1]", 21, None)]
    assert [row[0] for row in rows].count("allreduce") == 15 and [row[0] for row in rows].count("broadcast") == 6
    (first,) = [row for row in rows if row[2] == pytest.approx(2_636_669, abs=1)]
    assert first[:2] == ("allreduce", pytest.approx(25.3203 * 2**20, rel=1e-5))
    assert first[3] / 1.073741824 == pytest.approx(9.37807, rel=1e-5)
    assert first[4:] == (pytest.approx(first[3]), 2, 0, 0)  # 2 (n - 1) / n is 1 for two ranks
