"""For programs written for HTA: change the imports to `from tracelake.hta import …`, and nothing else.

Critical paths equal HTA 0.6.1's to the edge and the digit (profile `hta`); the same names in `tracelake` use the profile
`default`.
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
