"""The idle time of a pipeline rank by its schedule's formula, to compare measured bubbles with.

All times are in one unit of the caller's choice. Sources: GPipe and 1F1B (Narayanan et al. 2021), ZB-H1 (Qi et al.
2023), DualPipe (the table of DeepSeek's README, where B is the whole backward pass).
"""

from __future__ import annotations

from dataclasses import dataclass

SCHEDULES = ("GPipe", "1F1B", "interleaved", "ZB-H1", "DualPipe")


@dataclass(frozen=True)
class Stage:
    """Times of one microbatch in one rank's stages: forward, the whole backward, its weight-gradient part, and an
    overlapped forward and backward (DualPipe; by default their sum, which means no overlap).
    """

    forward: float
    backward: float
    weights: float = 0.0
    both: float | None = None


@dataclass(frozen=True)
class Bubble:
    """Idle time of one rank and step. `idle`: in the unit of the stage's times; `ratio`: relative to the ideal time m
    (F + B); `share`: of the whole time, ideal plus idle. Both are None for DualPipe, whose ideal time depends on the
    overlap.
    """

    idle: float
    ratio: float | None
    share: float | None


def bubble(schedule: str, ranks: int, microbatches: int, stage: Stage, chunks: int = 1) -> Bubble:
    """Returns the idle time of each rank; `chunks` are the stages per rank in an interleaved schedule.

    Raises ValueError for a schedule without a formula, fewer than one rank, microbatch or chunk, a weight-gradient part
    longer than the backward pass, or an odd number of ranks with DualPipe.
    """
    _check(schedule, ranks, microbatches, stage, chunks)
    whole = stage.forward + stage.backward
    if schedule == "DualPipe":
        both = whole if stage.both is None else stage.both
        return Bubble((ranks / 2 - 1) * (both + stage.backward - 3 * stage.weights), None, None)
    each = {"interleaved": whole / chunks, "ZB-H1": whole - 2 * stage.weights}.get(schedule, whole)
    idle, ideal = (ranks - 1) * each, microbatches * whole
    return Bubble(idle, idle / ideal if ideal else None, idle / (idle + ideal) if ideal else None)


def _check(schedule: str, ranks: int, microbatches: int, stage: Stage, chunks: int) -> None:
    if schedule not in SCHEDULES:
        raise ValueError(f"no formula for schedule {schedule!r}; known are: {', '.join(SCHEDULES)}")
    if min(ranks, microbatches, chunks) < 1:
        raise ValueError(f"{ranks} ranks, {microbatches} microbatches, {chunks} chunks: each must be at least 1")
    if not 0 <= stage.weights <= stage.backward or stage.forward < 0:
        raise ValueError(f"{stage}: times must not be negative, and the weights' part no longer than the backward pass")
    if schedule == "DualPipe" and ranks % 2:
        raise ValueError(f"DualPipe runs from both ends, so the number of ranks must be even, not {ranks}")
