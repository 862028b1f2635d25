"""A job's slowdown, and how much of it each rank, stage and kind of op causes: replays with ideal and actual durations.

S_X: the time with everything ideal except X, which takes as long as it did, divided by the time with everything ideal.
M_S and M_W: the share of the job's loss that disappears when only the last stage, or only the worst ranks, are ideal.
See the package docstring for how to read them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil

import numpy as np

from pipelines.base.datafiles import threshold
from pipelines.fleet.op_job.durations import ideal_times, own_times
from pipelines.fleet.op_job.job import JobTrace
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
    """A part of a job, with everything else ideal. `scope`: job, dp_rank, stage, optype, last_stage or worst_ranks.

    `key`: which one (NULL for the job; ranks are comma-separated). `slowdown` and, by step, `by_step` [step]: S_X.
    `explained`: share of the job's loss that disappears when only X is ideal (M_S, M_W); `explained_alone`: share that
    remains when only X is not ideal. `slowdown_stage_ideal`: S_X with an ideal per stage. None: not computed for this
    scope.
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
    """Step times [step] in seconds: `base` as recorded, `now` replayed without launch gaps, `ideal`.

    `ideals`: the ideal seconds of each op type. `parts`: the job first. For a job that loses less than 3 % there are no
    other parts and `scores` is None; otherwise `scores` is [stage, dp rank], the lower of the stage's and the dp rank's
    slowdown.
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
        """The job's slowdown: mean actual step (without launch gaps) over the mean ideal one."""
        return float(self.now.mean() / self.ideal.mean())

    @property
    def launch_slowdown(self) -> float:
        """Mean recorded step over the mean step without gaps between an op and what it waited for."""
        return float(self.base.mean() / self.now.mean())

    @property
    def gpu_seconds(self) -> dict[str, float]:
        """GPU-seconds of the sampled steps: `total`, and lost to `straggler` and `launch`."""
        world = self.job.meta.world_size
        lost = {"total": self.base, "straggler": self.now - self.ideal, "launch": self.base - self.now}
        return {cause: float(seconds.sum() * world) for cause, seconds in lost.items()}

    def of(self, scope: str) -> dict[str, Part]:
        """Returns the parts of a scope by key."""
        return {part.key or "": part for part in self.parts if part.scope == scope}


@dataclass(frozen=True, eq=False)
class _Times:
    """Durations [op, step, dp rank] of a job and the resulting step times."""

    job: JobTrace
    template: Template
    own: np.ndarray
    replayed: np.ndarray
    ideal: np.ndarray
    stage_ideal: np.ndarray

    def steps(self, times: np.ndarray) -> np.ndarray:
        """Returns the time of each step, s: until the last optimizer."""
        _, ends = replay(self.template, times)
        return ends[[i for i, op in enumerate(self.job.ops) if op.optype == OPTIMIZER]].max(axis=(0, 2))


def what_if(job: JobTrace) -> WhatIf:
    """Replay a job with ideal durations. Raises JobRejected if its ops do not fit the model (see `build_template`)."""
    template = build_template(job)
    own = own_times(job, template).astype(np.float64)
    starts, ends = replay(template, own)
    replayed = own.copy()
    alone = [i for i in range(len(job.ops)) if i not in template.grouped]
    replayed[alone] = (ends - starts)[alone]
    ideal, ideals = ideal_times(job, replayed)
    times = _Times(job, template, own, replayed, ideal, ideal_times(job, replayed, per_stage=True)[0])
    base = (job.end.max(axis=(0, 2)) - job.start.min(axis=(0, 2))).astype(np.float64)
    found = WhatIf(job, base, times.steps(own), times.steps(ideal), ideals)
    found.parts.append(_whole(times, found))
    if found.slowdown < DECOMPOSED_FROM:
        return found
    return _decomposed(times, found)


def _whole(times: _Times, found: WhatIf) -> Part:
    by_stage = found.now.mean() / times.steps(times.stage_ideal).mean()
    return Part("job", None, found.slowdown, found.now / found.ideal, slowdown_stage_ideal=float(by_stage))


def _decomposed(times: _Times, found: WhatIf) -> WhatIf:
    masks = _masks(times.job)
    stage_ideal = times.steps(times.stage_ideal).mean()
    for (scope, key), mask in masks.items():
        steps = times.steps(np.where(mask, times.own, times.ideal))
        even = float(times.steps(np.where(mask, times.own, times.stage_ideal)).mean() / stage_ideal)
        slowdown = float(steps.mean() / found.ideal.mean())
        found.parts.append(Part(scope, key, slowdown, steps / found.ideal, slowdown_stage_ideal=even))
    by_stage, by_dp = found.of("stage"), found.of("dp_rank")
    stages = np.array([by_stage[str(stage)].slowdown for stage in range(times.job.meta.pp)])
    dps = np.array([by_dp[str(dp)].slowdown for dp in range(times.job.meta.dp)])
    scores = np.minimum(stages[:, None], dps[None, :])
    last = times.job.meta.pp - 1
    found.parts.append(_explained(times, found, "last_stage", str(last), masks["stage", str(last)]))
    worst = worst_ranks(times.job.ranks, scores)
    mask = _of_ranks(times.job, worst)
    found.parts.append(_explained(times, found, "worst_ranks", ",".join(map(str, worst)), mask))
    return WhatIf(found.job, found.base, found.now, found.ideal, found.ideals, found.parts, scores)


def _masks(job: JobTrace) -> dict[tuple[str, str], np.ndarray]:
    """Returns which ops [op, 1, dp rank] belong to each part."""
    stage = np.array([op.stage for op in job.ops])[:, None, None]
    kind = np.array([MERGED.get(op.optype, op.optype) for op in job.ops])[:, None, None]
    dp = np.arange(job.meta.dp)[None, None, :]
    masks = {("dp_rank", str(d)): dp == d for d in range(job.meta.dp)}
    masks |= {("stage", str(s)): stage == s for s in range(job.meta.pp)}
    return masks | {("optype", str(k)): kind == k for k in sorted(set(kind.flat))}


def _of_ranks(job: JobTrace, ranks: list[int]) -> np.ndarray:
    rank = job.ranks[np.array([op.stage for op in job.ops])]
    return np.isin(rank, ranks)[:, None, :]


def _explained(times: _Times, found: WhatIf, scope: str, key: str, mask: np.ndarray) -> Part:
    added = times.steps(np.where(mask, times.replayed, times.ideal))
    now, ideal = float(found.now.mean()), float(found.ideal.mean())
    removed_s = float(times.steps(np.where(mask, times.ideal, times.replayed)).mean())
    added_s, lost = float(added.mean()), now - ideal
    return Part(
        scope,
        key,
        added_s / ideal,
        added / found.ideal,
        explained=(now - removed_s) / lost,
        explained_alone=(added_s - ideal) / lost,
        removed_s=removed_s,
        added_s=added_s,
    )


def worst_ranks(ranks: np.ndarray, scores: np.ndarray) -> list[int]:
    """Returns the 3 % of the ranks (at least one) with the highest scores, ascending; of equal ones the smaller first."""
    in_order = sorted(zip((-scores).flat, ranks.flat, strict=True))
    return sorted(int(rank) for _, rank in in_order[: ceil(WORST_SHARE * len(in_order))])
