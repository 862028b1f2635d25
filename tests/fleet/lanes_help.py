"""Lanes of simulated ranks with known waits, and lanes of real traces read without the project's code."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import numpy as np

from pipelines.fleet.clocks.clock_offsets import ClockFit, fit_clocks
from pipelines.fleet.collectives.entries import Instances
from pipelines.fleet.collectives.lanes import KINDS
from pipelines.fleet.collectives.matching import LaneMatch, match_lane
from pipelines.fleet.collectives.rank_lane import RankLane

US = 1_000


def real_lanes(folder: Path, names: list[str]) -> list[RankLane]:
    """Return the NCCL kernels of trace files, sorted by (start, position), one lane per file.

    The clock counts microseconds.
    """
    lanes = []
    for rank, name in enumerate(names):
        events = json.loads(gzip.decompress((folder / name).read_bytes()))["traceEvents"]
        kernels = sorted(
            (round(e["ts"] * US), i, round(e["dur"] * US), _kind(e["name"]))
            for i, e in enumerate(events)
            if str(e.get("cat")).lower() == "kernel" and re.search("nccl|rccl", e["name"], re.IGNORECASE)
        )
        start, _, dur, kind = (np.array(column) for column in zip(*kernels, strict=True))
        lanes.append(RankLane(rank, np.array([KINDS.index(k) for k in kind]), start, start + dur))
    return lanes


def _kind(name: str) -> str:
    plain = name.lower().replace("_", "")
    return next((kind for kind in KINDS if kind in plain), "other")


def simulated(
    n_ranks: int = 4, n: int = 40, offsets_ns: tuple[int, ...] = (), noise_ns: float = 2_000, seed: int = 1
) -> tuple[list[RankLane], np.ndarray]:
    """Return lanes of ranks that arrive at random and leave together except for noise, and the waits, (ranks, n) ns."""
    draw = np.random.default_rng(seed)
    turn = np.cumsum(draw.integers(5_000_000, 9_000_000, n))
    arrive = turn + draw.integers(0, 3_000_000, (n_ranks, n))
    last = arrive.max(axis=0)
    leave = last + draw.integers(50_000, 400_000, n) + np.round(draw.normal(0, noise_ns, (n_ranks, n))).astype(int)
    kinds = draw.integers(0, 4, n)
    shift = np.array([*offsets_ns, *[0] * n_ranks][:n_ranks])[:, None]
    lanes = [
        RankLane(rank, kinds, start, end)
        for rank, (start, end) in enumerate(zip(arrive + shift, leave + shift, strict=True))
    ]
    return lanes, last - arrive


def cut(lane: RankLane, chosen: slice | np.ndarray) -> RankLane:
    """Return a lane with only the chosen kernels."""
    return RankLane(lane.rank, lane.kinds[chosen], lane.start_ns[chosen], lane.end_ns[chosen])


def without(lane: RankLane, place: int) -> RankLane:
    """Return a lane without the kernel at index `place`."""
    return cut(lane, np.delete(np.arange(len(lane)), place))


def moved(lane: RankLane, start_ns: np.ndarray | int, end_ns: np.ndarray | int) -> RankLane:
    """Return a lane whose starts and ends are shifted by these ns."""
    return RankLane(lane.rank, lane.kinds, lane.start_ns + start_ns, lane.end_ns + end_ns)


def fitted(lanes: list[RankLane], n_steps: int = 1) -> tuple[LaneMatch, ClockFit | None]:
    """Return the match and the clock fit, which is None if the match is refused."""
    match = match_lane(lanes)
    return match, None if match.refused else fit_clocks(instances(lanes, match), n_steps)


def instances(lanes: list[RankLane], match: LaneMatch) -> Instances:
    """Return the times of the matched collectives.

    All ranks take part in each, and none can leave before all have arrived.
    """
    start = np.stack([lane.start_ns[row] for lane, row in zip(lanes, match.index, strict=True)])
    end = np.stack([lane.end_ns[row] for lane, row in zip(lanes, match.index, strict=True)])
    return Instances(start, end, np.ones(start.shape, bool), np.ones(start.shape[1], bool))


def refusal(lanes: list[RankLane]) -> str | None:
    """Return why lanes are refused, by matching or by their clocks, or None if they are not."""
    match, fit = fitted(lanes)
    return match.refused or ((match.doubt or fit.refused) if fit and fit.refused else None)
