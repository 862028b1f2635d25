"""Traces in a notebook, in HTA's words where it has them: `from pipelines.notebook import TraceAnalysis`.

Tables are Ibis expressions or Arrow tables; `.to_pandas()` on either is the reader's own choice and needs pandas, which
nothing here does: `summary()` is a Series where it is installed. docs/migrating-from-hta.md has each call of HTA beside ours.
"""

from pipelines.critical_path.saved import NotASavedPath
from pipelines.critical_path.windows import WindowNotFound
from pipelines.notebook.analysis import TraceAnalysis
from pipelines.notebook.cpgraph import CPEdge, CPEdgeType, CPNode
from pipelines.notebook.critical_path import CriticalPath, restore_cpgraph
from pipelines.notebook.sources import TraceNotFound
from pipelines.notebook.trace import Trace
from pipelines.traces import TraceRejected

CPGraph = CriticalPath

__all__ = [
    "CPEdge",
    "CPEdgeType",
    "CPGraph",
    "CPNode",
    "CriticalPath",
    "NotASavedPath",
    "Trace",
    "TraceAnalysis",
    "TraceNotFound",
    "TraceRejected",
    "WindowNotFound",
    "restore_cpgraph",
]
