"""Options of a run of a plan, and the run's measurements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pipelines.schedule.pictures.timeline import Timeline
from pipelines.schedule.plan.plan_file import PlanFile
from pipelines.schedule.simulation.durations import Duration
from pipelines.schedule.simulation.simulated import simulate

if TYPE_CHECKING:
    from pipelines.schedule.measurement.probe import Probe
    from pipelines.schedule.measurement.profiler import ProfileResult
    from pipelines.schedule.measurement.recording import Launch

ENGINES = {"serial": "serial", "sw": "SWPipeline", "dataflow": "DataFlowPipeline"}
"""The timeline's name of each engine, by its name on the command line."""


@dataclass(frozen=True)
class Settings:
    """Options of a run. `device`: cuda:N, cpu or simulated."""

    plan: PlanFile
    engine: str
    device: str
    iterations: int
    warmup: int = 0
    seed: int = 0
    size: str = "small"
    max_depth: int | None = None
    jitter_us: float = 0.0
    jitter_task: str | None = None
    profile: bool = False

    @property
    def depth(self) -> int:
        """Return the maximum number of iterations in flight."""
        if self.engine == "dataflow":
            return self.max_depth or self.plan.checked.depth + 2
        return 1 if self.engine == "serial" else self.plan.checked.depth

    @property
    def limit(self) -> int | None:
        """Return `depth` as an option of the engine, or None if the plan determines the engine's depth."""
        return self.depth if self.engine == "dataflow" else None

    def simulated(self, durations: Mapping[str, Duration], **options: Any) -> Timeline:
        """Return the timeline of the plan, simulated with this engine. `options`: keyword arguments of `simulate`."""
        engine = ENGINES[self.engine]
        return simulate(self.plan.checked, durations, engine=engine, max_depth=self.limit, **options)


@dataclass
class Measured:
    """Result of a run. `launches`: one per span, in the same order, or None for a simulation."""

    timeline: Timeline
    launches: list[Launch] | None
    wall_ns: int
    started_at: datetime
    """UTC, without a time zone."""
    device_name: str | None
    profile: ProfileResult | None
    probe: Probe | None = None
    """The tasks' times one by one. None on a CPU and in a simulation."""

    @property
    def by_events(self) -> bool:
        """Return whether CUDA events measured the times."""
        return any(launch.device_start_ns is not None for launch in self.launches or ())
