"""Clocks of ranks in nested groups: the ranks of a node meet often, all ranks seldom."""

from __future__ import annotations

import duckdb
import numpy as np
import pytest

from pipelines.fleet.clocks.alignment import fit_capture
from pipelines.fleet.collectives.lanes import Kernels
from pipelines.models.catalog import load_catalog
from tests.effort import first_of

NODE = 8
NOISE_NS = 500


def nested(
    n_nodes: int, skew_ns: int, seed: int, world: int = 6, inner: int = 24
) -> tuple[dict[int, Kernels], list[int]]:
    """Return kernels of nodes of 8 ranks, and the clocks' offsets.

    Each node has `inner` collectives, and all ranks together have `world`.
    """
    draw = np.random.default_rng(seed)
    n = n_nodes * NODE
    offsets = draw.integers(-skew_ns, skew_ns, n)
    kernels = {rank: Kernels(rank) for rank in range(n)}
    every = inner // world
    for number in range(inner):
        at = 10_000_000 * number
        groups = [range(first, first + NODE) for first in range(0, n, NODE)]
        for name, ranks in [
            *((f"node{g[0]}", g) for g in groups),
            *([("world", range(n))] if number % every == 0 else []),
        ]:
            begin = at if name != "world" else at + 5_000_000
            arrive = begin + draw.integers(0, 1_000_000, len(ranks))
            leave = arrive.max() + 100_000 + draw.integers(0, NOISE_NS, len(ranks))
            for rank, start, end in zip(ranks, arrive, leave, strict=True):
                _add(kernels[rank], name, int(start + offsets[rank]), int(end + offsets[rank]), number)
    return kernels, offsets.tolist()


def _add(kernels: Kernels, group: str, start: int, end: int, seq: int) -> None:
    trace = f"trace{kernels.rank}"
    kernels.add(trace, len(kernels), "allreduce", True, 0, 7, start, end, seq // 8, group, f"[{group}]", None, seq)


@pytest.mark.parametrize(
    ("n_nodes", "skew_ns"),
    first_of([(2, 0), (2, 2_000_000), (2, 10**12), (12, 100_000), (12, 10**12)], 3),
)
def test_offsets_are_right_however_far_the_clocks_are_apart(n_nodes: int, skew_ns: int) -> None:
    kernels, offsets = nested(n_nodes, max(skew_ns, 1), seed=n_nodes)
    lanes, clocks = fit_capture(sorted(kernels), kernels)
    assert [lane.refused for lane in lanes] == [None] * (n_nodes + 1)
    for clock, truth in zip(clocks, offsets, strict=True):
        assert clock.refused is None and clock.clock is not None
        assert abs(clock.clock.offset_ns - (truth - offsets[0])) < NOISE_NS
        assert clock.clock.error_ns < 2 * NOISE_NS
    for lane in lanes:
        assert lane.starts is not None and lane.ends is not None
        assert (np.ptp(lane.ends, axis=0) < 3 * NOISE_NS).all()


def test_nodes_that_never_meet_are_not_joined() -> None:
    kernels, _ = nested(3, 1_000, seed=4)
    apart = {
        rank: own.part([i for i, g in enumerate(own.group) if g and g[0] != "world"]) for rank, own in kernels.items()
    }
    lanes, clocks = fit_capture(sorted(apart), apart)
    assert [clock.refused for clock in clocks[:NODE]] == [None] * NODE
    assert {clock.refused for clock in clocks[NODE : 2 * NODE]} == {"not_joined: with rank 8, but not with rank 0"}
    assert [lane.starts is not None for lane in lanes] == [True, False, False]


def test_lanes_joined_only_through_others() -> None:
    """All clocks are related although no group has all ranks. The groups are a chain of pairs of neighbours."""
    draw = np.random.default_rng(7)
    n = 9
    offsets = draw.integers(-(10**7), 10**7, n)
    kernels = {rank: Kernels(rank) for rank in range(n)}
    for number in range(10):
        for rank in range(n - 1):
            at = 10_000_000 * number + 500_000 * rank
            for own in (rank, rank + 1):
                start, end = at + int(draw.integers(0, 90_000)), at + 200_000 + int(draw.integers(0, NOISE_NS))
                _add(kernels[own], f"pair{rank}", start + int(offsets[own]), end + int(offsets[own]), number)
    _, clocks = fit_capture(range(n), kernels)
    fitted = [clock.clock.offset_ns if clock.clock else None for clock in clocks]
    assert all(
        got is not None and abs(got - (o - offsets[0])) < 4 * NOISE_NS for got, o in zip(fitted, offsets, strict=True)
    )


def test_a_clock_that_is_known_to_be_one_is_not_fitted() -> None:
    """A clock that all ranks are known to share is not fitted, even with noise and drift.

    The offset that the ends suggest is included in the error bar, and a contradiction refuses the clock.
    """
    kernels, offsets = nested(2, 30_000, seed=7)
    lanes, clocks = fit_capture(sorted(kernels), kernels, one_clock=True)
    assert {clock.clock.offset_ns for clock in clocks if clock.clock} == {0} and len(clocks) == len(offsets)
    for clock, truth in zip(clocks, offsets, strict=True):
        assert clock.clock and abs(clock.clock.error_ns - abs(truth - offsets[0])) < 3 * NOISE_NS
    for lane in lanes:
        raw = lane.lane.instances(lane.match.index)
        assert lane.starts is not None and lane.ends is not None
        assert (lane.starts == raw.start_ns).all() and (lane.ends == raw.end_ns).all()
    far, _ = nested(2, 10_000_000, seed=7)  # some ranks leave before others arrive
    _, clocks = fit_capture(sorted(far), far, one_clock=True)
    assert {(clock.clock, str(clock.refused).split(":")[0]) for clock in clocks} == {(None, "contradiction")}


def test_both_estimates_of_an_offset_are_from_the_same_rank() -> None:
    """Both estimates of a clock's offset are relative to the same rank.

    Rank 0 has no clock, so this is rank 1. Rank 3 drives two GPUs, so its launch delays do not give an estimate.
    """
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE _fitted_clocks AS SELECT 'c' AS capture_id, rank, CASE WHEN rank > 0 THEN 0 END AS offset_ns, "
            "5 AS error_ns, 0.0 AS drift_ppm, FALSE AS drift_applied, 9 AS n_matched, 'collective_ends' AS method, "
            "CASE WHEN rank = 0 THEN 'no_collectives' END AS refused_reason, 0 AS estimate_ns, NULL AS low_ns, "
            "NULL AS high_ns, 1 AS sigma_ns, 1 AS max_residual_ns, 0 AS contradiction_ns FROM range(4) AS r(rank);"
            "CREATE TABLE capture_ranks AS SELECT capture_id, rank, 't' || rank AS trace_id, NULL AS left_out_reason "
            "FROM _fitted_clocks;"
            "CREATE TABLE traces AS SELECT trace_id, 'node1' AS host FROM capture_ranks;"
            "CREATE TABLE min_launch_latency AS SELECT trace_id, rank AS device, 1000 * (rank + 1) AS floor_ns "
            "FROM capture_ranks UNION ALL SELECT 't3', 4, 100"
        )
        query = f"SELECT rank, launch_floor_offset_ns FROM ({load_catalog().models['clock_offsets'].sql}) ORDER BY rank"
        assert con.execute(query).fetchall() == [(0, -1000), (1, 0), (2, 1000), (3, None)]
        con.execute("INSERT INTO min_launch_latency VALUES ('t1', 5, 100)")
        assert {offset for _, offset in con.execute(query).fetchall()} == {None}
