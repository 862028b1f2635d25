"""Each op's own duration, and its duration if no op were slower than the others of its kind."""

from __future__ import annotations

import numpy as np

from pipelines.base.datafiles import threshold
from pipelines.fleet.op_job.job import JobTrace
from pipelines.fleet.op_job.p2p import COMPUTES
from pipelines.fleet.op_job.template import GC, OPTIMIZER, Template

SLACK = threshold("op_job_late_s")
MEAN_OF = (*COMPUTES, OPTIMIZER, GC)  # the others use the median, because a few transfers take a hundred times longer


def own_times(job: JobTrace, template: Template) -> np.ndarray:
    """Return the seconds [op, step, dp rank] that each op takes without waiting for others, float32 as recorded.

    For an op of a group, this is the time from the group's last start to the op's end. For other ops, it is the
    duration. Values of at most -SLACK become 0. Negative values above -SLACK stay, so that clock errors cancel out.
    """
    times, end = job.duration.copy(), job.end
    for unit in template.units:
        if unit.grouped:
            ready = job.start[list(unit.ops)].max(axis=0)
            if unit.across_dp:
                ready = ready.max(axis=1, keepdims=True)
            for op in unit.ops:
                own_s = end[op] - ready
                times[op] = np.where(own_s <= np.float32(-SLACK), np.float32(0), own_s)
    return times


def ideal_times(job: JobTrace, times: np.ndarray, per_stage: bool = False) -> tuple[np.ndarray, dict[str, float]]:
    """Return ideal seconds [op, step, dp rank], and the ideal of each op type.

    An op type has one value over all steps, dp ranks and stages. It is the mean for computes, optimizer and gc, and the
    median for other types. `times`: the result of `own_times` as float64, with replayed durations for ungrouped ops.
    `per_stage`: use one value per op type and stage. The returned ideal of an op type is then the value of its last
    stage.
    """
    ideal, values = np.zeros(times.shape), {}
    kinds: dict[tuple[str, int], list[int]] = {}
    for index, op in enumerate(job.ops):
        kinds.setdefault((op.optype, op.stage if per_stage else -1), []).append(index)
    for (optype, _), ops in sorted(kinds.items()):
        value = (np.mean if optype in MEAN_OF else np.median)(times[ops])
        ideal[ops] = values[optype] = float(value)
    return ideal, values
