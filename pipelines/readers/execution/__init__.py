"""Execution traces, as PyTorch's ExecutionTraceObserver writes them (Chakra's PyTorch JSON), next to a profiler trace.

They have no times, but record which tensors every operator read and wrote. A profiler trace has no such data
dependencies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipelines.readers.execution.tables import create_tables

if TYPE_CHECKING:
    from pipelines.readers.execution.execution_trace import ExecutionSummary, load_execution

__all__ = ["ExecutionSummary", "create_tables", "load_execution"]


def __getattr__(name: str) -> Any:
    """Import the reader on first use, because queries need only the tables."""
    if name not in ("ExecutionSummary", "load_execution"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pipelines.readers.execution import execution_trace

    return getattr(execution_trace, name)
