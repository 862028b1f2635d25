"""One trace file → one staged table with metadata and findings."""

from pipelines.traces.staging import Finding, StagedTrace, TraceRejected, connect_staging, stage_trace

__all__ = ["Finding", "StagedTrace", "TraceRejected", "connect_staging", "stage_trace"]
