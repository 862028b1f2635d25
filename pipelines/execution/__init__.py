"""Execution traces, as PyTorch's ExecutionTraceObserver writes them (Chakra's PyTorch JSON), next to a profiler trace.

They have no times, but record which tensors every operator read and wrote: the data dependencies that a profiler trace
lacks.
"""

from pipelines.execution.execution_trace import ExecutionSummary, load_execution
from pipelines.execution.tables import create_tables

__all__ = ["ExecutionSummary", "create_tables", "load_execution"]
