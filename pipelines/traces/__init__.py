"""One trace file becomes one staged table, its metadata and its findings."""

from pipelines.traces.record import Finding, StagedTrace, TraceRejected
from pipelines.traces.staging import connect_staging, stage_trace

__all__ = ["Finding", "StagedTrace", "TraceRejected", "connect_staging", "stage_trace"]
