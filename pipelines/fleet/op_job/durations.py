"""Computes each op's own duration, and its duration if no op were slower than the others of its kind."""

from __future__ import annotations

import numpy as np

from pipelines.base.datafiles import threshold
from pipelines.fleet.op_job.job import JobTrace
from pipelines.fleet.op_job.p2p import COMPUTES
from pipelines.fleet.op_job.template import GC, OPTIMIZER, Template

SLACK = threshold("op_job_late_s")
MEAN_OF = (*COMPUTES, OPTIMIZER, GC)  # median for the others: a few transfers take a hundred times longer


def own_times(job: JobTrace, template: Template) -> np.ndarray:
    """Returns seconds [op, step, dp rank], float32 as recorded, that each op takes without waiting for others.

    That is the duration or, for a group, what is left after its last start. Below -10 ms it is set to 0; less negative
    values stay, so that clock errors cancel out.
    """
    times, end = job.duration.copy(), job.end
    for unit in template.units:
        if unit.grouped:
            ready = job.start[list(unit.ops)].max(axis=0)
            if unit.across_dp:
                ready = ready.max(axis=1, keepdims=True)
            for op in unit.ops:
                left = end[op] - ready
                times[op] = np.where(left <= np.float32(-SLACK), np.float32(0), left)
    return times


def ideal_times(job: JobTrace, times: np.ndarray, per_stage: bool = False) -> tuple[np.ndarray, dict[str, float]]:
    """Returns seconds [op, step, dp rank] with one value per op type over all steps, dp ranks and stages; and these
    values.

    The mean for computes, optimizer and gc, the median for others. `times`: those of `own_times`, with float64 where
    they were replayed. `per_stage`: one value per op type and stage; the returned values are then those of the last
    stage.
    """
    ideal, values = np.zeros(times.shape), {}
    kinds: dict[tuple[str, int], list[int]] = {}
    for i, op in enumerate(job.ops):
        kinds.setdefault((op.optype, op.stage if per_stage else -1), []).append(i)
    for (optype, _), ops in sorted(kinds.items()):
        value = (np.mean if optype in MEAN_OF else np.median)(times[ops])
        ideal[ops] = values[optype] = float(value)
    return ideal, values
