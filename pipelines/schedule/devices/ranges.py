"""Named ranges in profiler traces, at no cost while no profiler is active."""

from __future__ import annotations

import sys
from collections.abc import Callable

from pipelines.schedule.devices.base import Work


def profiled(work: Work, body: Callable[[], None]) -> None:
    """Run `body`, inside torch's record_function if a torch profiler is active in this process.

    A torch profiler records threads other than its own only with `_ExperimentalConfig(profile_all_threads=True)`.
    """
    profiler = sys.modules.get("torch.autograd.profiler")  # imported in every process that profiles
    if profiler is None or not profiler._is_profiler_enabled:
        body()
        return
    with profiler.record_function(work.label):
        body()
