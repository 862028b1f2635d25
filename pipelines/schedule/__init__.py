"""Software pipelining for PyTorch: tasks and plans, and engines that run a plan clocked or by data flow.

    from pipelines.schedule import PipelinePlan, PipelineTask, SWPipeline, TaskSchedule

The package imports only torch and the standard library. Plans can be written and checked without torch, because names
that need torch are imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from pipelines.schedule.errors import PipelineError, PipelineTimeout, PlanError, PlanWarning

# Functions that share their module's name are imported here, because importing the module later would replace the
# function with the module. These functions do not need torch.
from pipelines.schedule.pictures.gantt import gantt, write_gantt
from pipelines.schedule.plan.checked_plan import CheckedPlan
from pipelines.schedule.plan.plan import DeclaredIO, IterContext, PipelinePlan, PipelineTask, TaskRef, TaskSchedule
from pipelines.schedule.plan.validate import validate_plan
from pipelines.schedule.search.predict import predict
from pipelines.schedule.search.search import search
from pipelines.schedule.simulation.simulated import SimulatedDevice, simulate

if TYPE_CHECKING:
    from pipelines.schedule.devices.resolve import resolve_device
    from pipelines.schedule.engine.dataflow_pipeline import DataFlowPipeline
    from pipelines.schedule.engine.sw_pipeline import SWPipeline
    from pipelines.schedule.measurement.profiler import ProfileResult, TaskProfiler
    from pipelines.schedule.pictures.timeline import Timeline
    from pipelines.schedule.simulation.durations import Jitter, Spikes

__all__ = [
    "CheckedPlan",
    "DataFlowPipeline",
    "DeclaredIO",
    "IterContext",
    "Jitter",
    "PipelineError",
    "PipelinePlan",
    "PipelineTask",
    "PipelineTimeout",
    "PlanError",
    "PlanWarning",
    "ProfileResult",
    "SWPipeline",
    "SimulatedDevice",
    "Spikes",
    "TaskProfiler",
    "TaskRef",
    "TaskSchedule",
    "Timeline",
    "gantt",
    "predict",
    "resolve_device",
    "search",
    "simulate",
    "validate_plan",
    "write_gantt",
]

_MODULE_OF = {
    "DataFlowPipeline": "engine.dataflow_pipeline",
    "Jitter": "simulation.durations",
    "ProfileResult": "measurement.profiler",
    "SWPipeline": "engine.sw_pipeline",
    "Spikes": "simulation.durations",
    "TaskProfiler": "measurement.profiler",
    "Timeline": "pictures.timeline",
    "resolve_device": "devices.resolve",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
