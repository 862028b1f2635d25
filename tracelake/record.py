"""The recorders of `pipelines.record` that a program starts itself.

They need pyarrow. `record_spans` and `profiler_cost` also need torch. To record another process, use the commands
`python -m pipelines.record.counters` and `python -m pipelines.record.stacks`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipelines.record.profiler.cost import note_profiler_cost, profiler_cost
    from pipelines.record.sampler import CounterSampler
    from pipelines.record.spans import SpanRecorder, record_spans
    from pipelines.record.stacks import StackSampler

__all__ = ["CounterSampler", "SpanRecorder", "StackSampler", "note_profiler_cost", "profiler_cost", "record_spans"]

_MODULE_OF = {
    "CounterSampler": "pipelines.record.sampler",
    "SpanRecorder": "pipelines.record.spans",
    "StackSampler": "pipelines.record.stacks",
    "note_profiler_cost": "pipelines.record.profiler.cost",
    "profiler_cost": "pipelines.record.profiler.cost",
    "record_spans": "pipelines.record.spans",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)
