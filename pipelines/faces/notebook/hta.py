"""Drop-in replacement for HTA. Programs only change their imports to `from tracelake.hta import …`.

Critical paths equal those of HTA 0.6.1 exactly, edge by edge (profile `hta`). `tracelake` itself uses the profile
`default`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pipelines.faces.notebook.analysis import Frame
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


_MEMORY_CALLS = ("cudaMemcpyAsync", "cudaMemsetAsync")  # as in HTA


class TraceAnalysis(_TraceAnalysis):
    """`TraceAnalysis` with HTA's critical paths (profile `hta`) and parameters.

    Parameters of HTA's charts have no effect, because methods return tables only: `visualize`, `duration_ratio`,
    `image_renderer`, `runtime_cutoff` and `launch_delay_cutoff`.
    """

    def __init__(
        self,
        trace_files: Files | None = None,
        trace_dir: str | Path | None = None,
        include_last_profiler_step: bool | None = False,
        **options: Any,
    ) -> None:
        super().__init__(trace_files, trace_dir, include_last_profiler_step, **{"profile": "hta", **options})

    def get_temporal_breakdown(self, visualize: bool = True) -> Frame:
        """Run `get_temporal_breakdown` of the base class."""
        return super().get_temporal_breakdown()

    def get_comm_comp_overlap(self, visualize: bool = True) -> Frame:
        """Run `get_comm_comp_overlap` of the base class."""
        return super().get_comm_comp_overlap()

    def get_gpu_kernel_breakdown(
        self,
        visualize: bool = True,
        duration_ratio: float = 0.8,
        num_kernels: int | None = 10,
        include_memory_kernels: bool = True,
        image_renderer: str = "",
    ) -> tuple[Frame, Frame]:
        """Run `get_gpu_kernel_breakdown` of the base class."""
        return super().get_gpu_kernel_breakdown(num_kernels, include_memory_kernels)

    def get_cuda_kernel_launch_stats(
        self,
        ranks: Iterable[int] | None = None,
        runtime_cutoff: int = 50,
        launch_delay_cutoff: int = 100,
        include_memory_events: bool = True,
        visualize: bool = True,
    ) -> Frame:
        """Run `get_cuda_kernel_launch_stats` of the base class.

        `include_memory_events`: include asynchronous copies and memsets.
        """
        launches: Any = self._ranked("launches", ranks)
        return self.t.framed(launches if include_memory_events else launches.filter(launches.name.notin(_MEMORY_CALLS)))


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
