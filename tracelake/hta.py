"""Drop-in replacement for HTA. A program written for HTA only needs to import `from tracelake.hta import …` instead.

Critical paths equal those of HTA 0.6.1 exactly, edge by edge (profile `hta`). The same names in `tracelake` use the
profile `default`.
"""

from __future__ import annotations

from pipelines.faces.notebook.hta import (
    CPEdge,
    CPEdgeType,
    CPGraph,
    CPNode,
    CriticalPathAnalysis,
    Trace,
    TraceAnalysis,
    restore_cpgraph,
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
