"""Execution traces: what PyTorch's ExecutionTraceObserver writes (Chakra's PyTorch JSON), beside a profiler trace.

It has no times, but says which tensors every operator read and wrote: the data dependencies that a profiler trace lacks.
"""

from pipelines.execution.execution_trace import ExecutionSummary, load_execution
from pipelines.execution.tables import create_tables

__all__ = ["ExecutionSummary", "create_tables", "load_execution"]
