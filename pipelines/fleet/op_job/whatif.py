"""A job's slowdown, and how much of it each rank, stage and kind of op causes.

The model replays the job with ideal and actual durations. S_X is the time with everything ideal except X, divided by
the time with everything ideal. M_S is the share of the job's loss that disappears when only the last stage is ideal.
M_W is the same for the worst ranks. The package docstring explains how to read them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil

import numpy as np

from pipelines.base.datafiles import threshold
from pipelines.fleet.op_job.durations import ideal_times, own_times
from pipelines.fleet.op_job.job import JobRejected, JobTrace
from pipelines.fleet.op_job.replay import replay
from pipelines.fleet.op_job.template import OPTIMIZER, Template, build_template

DECOMPOSED_FROM, WORST_SHARE = threshold("op_job_decomposed"), threshold("op_job_worst_share")
MERGED = {
    "forward-send": "forward-pp-comm",
    "forward-recv": "forward-pp-comm",
    "backward-send": "backward-pp-comm",
    "backward-recv": "backward-pp-comm",
}


@dataclass(frozen=True, eq=False)
class Part:
    """A part X of a job, with everything else ideal. `scope`: job, dp_rank, stage, optype, last_stage or worst_ranks.

    `key`: identifies X in its scope (None for the job; ranks are comma-separated). `slowdown` and, by step, `by_step`
    [step]: S_X. `explained`: share of the job's loss that disappears when only X is ideal (M_S, M_W).
    `explained_alone`: share that remains when only X is not ideal. `slowdown_stage_ideal`: S_X with an ideal per stage.
    `removed_s`: mean step time when only X is ideal. `added_s`: mean step time when only X is not ideal. None means not
    computed for this scope.
    """

    scope: str
    key: str | None
    slowdown: float
    by_step: np.ndarray
    explained: float | None = None
    explained_alone: float | None = None
    slowdown_stage_ideal: float | None = None
    removed_s: float | None = None
    added_s: float | None = None


@dataclass(frozen=True, eq=False)
class WhatIf:
    """The step times [step] of a job, s: `base` as recorded, `now` replayed without launch gaps, and `ideal`.

    `ideals`: the ideal seconds of each op type. `parts`: the first part is the job. If the slowdown is below
    DECOMPOSED_FROM, it is the only part, and `scores` is None. Otherwise `scores` [stage, dp rank] is the lower of the
    stage's and the dp rank's slowdown.
    """

    job: JobTrace
    base: np.ndarray
    now: np.ndarray
    ideal: np.ndarray
    ideals: dict[str, float]
    parts: list[Part] = field(default_factory=list)
    scores: np.ndarray | None = None

    @property
    def slowdown(self) -> float:
        """Return the job's slowdown, the mean actual step time (without launch gaps) over the mean ideal step time."""
        return float(self.now.mean() / self.ideal.mean())

    @property
    def launch_slowdown(self) -> float:
        """Return the mean recorded step time over `now`, which has no gaps between an op and the ops it waited for."""
        return float(self.base.mean() / self.now.mean())

    @property
    def gpu_seconds(self) -> dict[str, float]:
        """Return the GPU-seconds of the sampled steps, `total` and lost to `straggler` and `launch` (launch gaps)."""
        world = self.job.meta.world_size
        lost = {"total": self.base, "straggler": self.now - self.ideal, "launch": self.base - self.now}
        return {cause: float(seconds.sum() * world) for cause, seconds in lost.items()}

    def of(self, scope: str) -> dict[str, Part]:
        """Return the parts of a scope by key."""
        return {part.key or "": part for part in self.parts if part.scope == scope}


@dataclass(frozen=True, eq=False)
class _Times:
    """Durations [op, step, dp rank] of a job, from which `steps` computes step times."""

    job: JobTrace
    template: Template
    own: np.ndarray
    replayed: np.ndarray
    ideal: np.ndarray
    stage_ideal: np.ndarray

    def steps(self, times: np.ndarray) -> np.ndarray:
        """Return the time of each step, s, until the last optimizer op ends."""
        _, ends = replay(self.template, times)
        return ends[[i for i, op in enumerate(self.job.ops) if op.optype == OPTIMIZER]].max(axis=(0, 2))


def what_if(job: JobTrace) -> WhatIf:
    """Replay a job with ideal durations.

    Raise JobRejected if its ops do not fit the model (see `build_template`) or all have zero duration.
    """
    template = build_template(job)
    own_s = own_times(job, template).astype(np.float64)
    starts, ends = replay(template, own_s)
    replayed = own_s.copy()
    ungrouped = [op_index for op_index in range(len(job.ops)) if op_index not in template.grouped]
    replayed[ungrouped] = (ends - starts)[ungrouped]
    ideal, ideals = ideal_times(job, replayed)
    times = _Times(job, template, own_s, replayed, ideal, ideal_times(job, replayed, per_stage=True)[0])
    base = (job.end.max(axis=(0, 2)) - job.start.min(axis=(0, 2))).astype(np.float64)
    result = WhatIf(job, base, times.steps(own_s), times.steps(ideal), ideals)
    if result.ideal.mean() <= 0:
        raise JobRejected(f"{job.path}: column 'duration': no op takes time; durations are seconds, also below one")
    result.parts.append(_whole(times, result))
    if result.slowdown < DECOMPOSED_FROM:
        return result
    return _decomposed(times, result)


def _whole(times: _Times, result: WhatIf) -> Part:
    by_stage = result.now.mean() / times.steps(times.stage_ideal).mean()
    return Part("job", None, result.slowdown, result.now / result.ideal, slowdown_stage_ideal=float(by_stage))


def _decomposed(times: _Times, result: WhatIf) -> WhatIf:
    masks = _masks(times.job)
    stage_ideal = times.steps(times.stage_ideal).mean()
    for (scope, key), mask in masks.items():
        steps = times.steps(np.where(mask, times.own, times.ideal))
        stage_ideal_slowdown = float(times.steps(np.where(mask, times.own, times.stage_ideal)).mean() / stage_ideal)
        slowdown = float(steps.mean() / result.ideal.mean())
        result.parts.append(Part(scope, key, slowdown, steps / result.ideal, slowdown_stage_ideal=stage_ideal_slowdown))
    by_stage, by_dp = result.of("stage"), result.of("dp_rank")
    stage_slowdowns = np.array([by_stage[str(stage)].slowdown for stage in range(times.job.meta.pp)])
    dp_slowdowns = np.array([by_dp[str(dp)].slowdown for dp in range(times.job.meta.dp)])
    scores = np.minimum(stage_slowdowns[:, None], dp_slowdowns[None, :])
    last = times.job.meta.pp - 1
    result.parts.append(_explained(times, result, "last_stage", str(last), masks["stage", str(last)]))
    worst = worst_ranks(times.job.ranks, scores)
    mask = _of_ranks(times.job, worst)
    result.parts.append(_explained(times, result, "worst_ranks", ",".join(map(str, worst)), mask))
    return WhatIf(result.job, result.base, result.now, result.ideal, result.ideals, result.parts, scores)


def _masks(job: JobTrace) -> dict[tuple[str, str], np.ndarray]:
    """Return a mask of the ops of each part, broadcastable to [op, step, dp rank]."""
    stage = np.array([op.stage for op in job.ops])[:, None, None]
    kind = np.array([MERGED.get(op.optype, op.optype) for op in job.ops])[:, None, None]
    dp = np.arange(job.meta.dp)[None, None, :]
    masks = {("dp_rank", str(d)): dp == d for d in range(job.meta.dp)}
    masks |= {("stage", str(s)): stage == s for s in range(job.meta.pp)}
    return masks | {("optype", str(k)): kind == k for k in sorted(set(kind.flat))}


def _of_ranks(job: JobTrace, ranks: list[int]) -> np.ndarray:
    rank = job.ranks[np.array([op.stage for op in job.ops])]
    return np.isin(rank, ranks)[:, None, :]


def _explained(times: _Times, result: WhatIf, scope: str, key: str, mask: np.ndarray) -> Part:
    added = times.steps(np.where(mask, times.replayed, times.ideal))
    now_s, ideal_s = float(result.now.mean()), float(result.ideal.mean())
    removed_s = float(times.steps(np.where(mask, times.ideal, times.replayed)).mean())
    added_s, lost_s = float(added.mean()), now_s - ideal_s
    return Part(
        scope,
        key,
        added_s / ideal_s,
        added / result.ideal,
        explained=(now_s - removed_s) / lost_s,
        explained_alone=(added_s - ideal_s) / lost_s,
        removed_s=removed_s,
        added_s=added_s,
    )


def worst_ranks(ranks: np.ndarray, scores: np.ndarray) -> list[int]:
    """Return the WORST_SHARE of ranks (at least one) with the highest scores, ascending. Ties favor the lower rank."""
    in_order = sorted(zip((-scores).flat, ranks.flat, strict=True))
    return sorted(int(rank) for _, rank in in_order[: ceil(WORST_SHARE * len(in_order))])
