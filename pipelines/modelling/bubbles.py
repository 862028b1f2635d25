"""The idle time of a pipeline rank by its schedule's formula, for comparison with measured bubbles.

The caller chooses the unit of all times. Sources: GPipe and 1F1B (Narayanan et al. 2021), ZB-H1 (Qi et al. 2023),
DualPipe (the table of DeepSeek's README, where B is the whole backward pass).
"""

from __future__ import annotations

from dataclasses import dataclass

SCHEDULES = ("GPipe", "1F1B", "interleaved", "ZB-H1", "DualPipe")


@dataclass(frozen=True)
class Stage:
    """The times of one microbatch in one rank's stages.

    `forward`, `backward`: the time of the whole pass. `weights`: the weight-gradient part of the backward pass. `both`:
    the time of an overlapped forward and backward pass (DualPipe). None means their sum, without overlap.
    """

    forward: float
    backward: float
    weights: float = 0.0
    both: float | None = None


@dataclass(frozen=True)
class Bubble:
    """The idle time of one rank and step.

    `idle`: in the unit of the stage's times. `ratio`: idle time relative to the ideal time m (F + B). `share`: idle
    time as a share of ideal plus idle time. Both are None if their denominator is 0, and for DualPipe, whose ideal time
    depends on the overlap.
    """

    idle: float
    ratio: float | None
    share: float | None


def bubble(schedule: str, ranks: int, microbatches: int, stage: Stage, chunks: int = 1) -> Bubble:
    """Return the idle time of each rank. `chunks`: the number of stages per rank in an interleaved schedule.

    Raise ValueError for a schedule without a formula, fewer than one rank, microbatch or chunk, a negative forward
    time, a weight-gradient part that is negative or longer than the backward pass, or an odd number of ranks with
    DualPipe.
    """
    _check(schedule, ranks, microbatches, stage, chunks)
    forward_backward = stage.forward + stage.backward
    if schedule == "DualPipe":
        both = forward_backward if stage.both is None else stage.both
        return Bubble((ranks / 2 - 1) * (both + stage.backward - 3 * stage.weights), None, None)
    idle_per_rank = {"interleaved": forward_backward / chunks, "ZB-H1": forward_backward - 2 * stage.weights}.get(
        schedule, forward_backward
    )
    idle, ideal = (ranks - 1) * idle_per_rank, microbatches * forward_backward
    return Bubble(idle, idle / ideal if ideal else None, idle / (idle + ideal) if ideal else None)


def _check(schedule: str, ranks: int, microbatches: int, stage: Stage, chunks: int) -> None:
    if schedule not in SCHEDULES:
        raise ValueError(f"no formula for schedule {schedule!r}; choose one of {', '.join(SCHEDULES)}")
    if min(ranks, microbatches, chunks) < 1:
        raise ValueError(f"{ranks} ranks, {microbatches} microbatches, {chunks} chunks: each must be at least 1")
    if not 0 <= stage.weights <= stage.backward or stage.forward < 0:
        raise ValueError(f"{stage}: times must not be negative, and the weights' part no longer than the backward pass")
    if schedule == "DualPipe" and ranks % 2:
        raise ValueError(f"DualPipe runs from both ends, so the number of ranks must be even, not {ranks}")
