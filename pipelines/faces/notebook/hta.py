"""Replacement for HTA: programs only change their imports to `from tracelake.hta import …`.

Critical paths equal those of HTA 0.6.1 to the edge and the digit (profile `hta`). `tracelake` itself uses the profile
`default`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipelines.faces.notebook.analysis import TraceAnalysis as _TraceAnalysis
from pipelines.faces.notebook.cpgraph import CPEdge, CPEdgeType, CPNode
from pipelines.faces.notebook.critical_path import CriticalPath, PathAndSuccess, restore_cpgraph
from pipelines.faces.notebook.sources import Files
from pipelines.faces.notebook.trace import Trace as _Trace
from pipelines.faces.notebook.trace import trace_of

CPGraph = CriticalPath


class Trace(_Trace):
    """`Trace` with HTA's critical paths (profile `hta`)."""

    def __init__(
        self,
        trace_files: Files | None = None,
        trace_dir: str | Path | None = None,
        parser_config: None = None,
        **options: Any,
    ) -> None:
        super().__init__(trace_files, trace_dir, parser_config, **{"profile": "hta", **options})


class TraceAnalysis(_TraceAnalysis):
    """`TraceAnalysis` with HTA's critical paths (profile `hta`)."""

    def __init__(
        self,
        trace_files: Files | None = None,
        trace_dir: str | Path | None = None,
        include_last_profiler_step: bool | None = False,
        **options: Any,
    ) -> None:
        super().__init__(trace_files, trace_dir, include_last_profiler_step, **{"profile": "hta", **options})


class CriticalPathAnalysis:
    """HTA's functions behind the methods of TraceAnalysis."""

    @classmethod
    def critical_path_analysis(
        cls, t: _Trace, rank: int, annotation: str, instance_id: int | tuple[int, int] | None
    ) -> PathAndSuccess:
        """Run `TraceAnalysis.critical_path_analysis` on loaded traces."""
        return TraceAnalysis.of(trace_of(t)).critical_path_analysis(rank, annotation, instance_id)

    @classmethod
    def overlay_critical_path_analysis(
        cls,
        t: _Trace,
        rank: int,
        critical_path_graph: CriticalPath,
        output_dir: str,
        only_show_critical_events: bool,
        show_all_edges: bool,
    ) -> str:
        """Run `TraceAnalysis.overlay_critical_path_analysis` on loaded traces."""
        return TraceAnalysis.of(trace_of(t)).overlay_critical_path_analysis(
            rank, critical_path_graph, output_dir, only_show_critical_events, show_all_edges
        )


__all__ = [
    "CPEdge",
    "CPEdgeType",
    "CPGraph",
    "CPNode",
    "CriticalPathAnalysis",
    "Trace",
    "TraceAnalysis",
    "restore_cpgraph",
]
