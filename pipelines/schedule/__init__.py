"""Software pipelines for PyTorch: declare tasks and a plan, run it clocked or by data flow.

    from pipelines.schedule import PipelinePlan, PipelineTask, SWPipeline, TaskSchedule

Imports torch and the standard library only; a plan can be written and checked without torch.
"""

from __future__ import annotations

from pipelines.schedule.errors import PipelineError, PipelineTimeout, PlanError, PlanWarning
from pipelines.schedule.plan import DeclaredIO, IterContext, PipelinePlan, PipelineTask, TaskRef, TaskSchedule
from pipelines.schedule.validate import CheckedPlan, validate_plan

__all__ = [
    "CheckedPlan",
    "DeclaredIO",
    "IterContext",
    "PipelineError",
    "PipelinePlan",
    "PipelineTask",
    "PipelineTimeout",
    "PlanError",
    "PlanWarning",
    "TaskRef",
    "TaskSchedule",
    "validate_plan",
]
