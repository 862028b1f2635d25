"""Execution traces, as PyTorch's ExecutionTraceObserver writes them (Chakra's PyTorch JSON), next to a profiler trace.

They have no times, but record which tensors every operator read and wrote: the data dependencies that a profiler trace
lacks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipelines.readers.execution.tables import create_tables

if TYPE_CHECKING:
    from pipelines.readers.execution.execution_trace import ExecutionSummary, load_execution

__all__ = ["ExecutionSummary", "create_tables", "load_execution"]


def __getattr__(name: str) -> Any:
    """The reader when it is first used: every query asks for the tables alone."""
    if name not in ("ExecutionSummary", "load_execution"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pipelines.readers.execution import execution_trace

    return getattr(execution_trace, name)
