"""The replay of all steps and dp ranks with changed durations, along the longest path from each step's start."""

from __future__ import annotations

import numpy as np

from pipelines.fleet.op_job.template import Template


def replay(template: Template, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return starts and ends [op, step, dp rank] (float64, s) of ops that take `times` [op, step, dp rank] (s).

    An op starts when all ops that it waits for have ended, or at 0. A single op ends `times` after its start. An op of
    a group ends `times` after the last start of the group.
    """
    starts, ends = np.zeros(times.shape), np.zeros(times.shape)
    for unit in template.units:
        for op in unit.ops:
            if template.deps[op]:
                starts[op] = ends[list(template.deps[op])].max(axis=0)
        if not unit.grouped:
            ends[unit.ops[0]] = starts[unit.ops[0]] + times[unit.ops[0]]
            continue
        ready = starts[list(unit.ops)].max(axis=0)
        if unit.across_dp:
            ready = ready.max(axis=1, keepdims=True)
        for op in unit.ops:
            ends[op] = ready + times[op]
    return starts, ends
