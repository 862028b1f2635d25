"""Traces in a notebook, with the names of HTA (Holistic Trace Analysis) for HTA's functions.

`from tracelake import TraceAnalysis` imports the class of an analysis.

Tables are Ibis expressions or Arrow tables, or data frames as in HTA with `TraceAnalysis(…, frames="pandas")`. Only
data frames and `.to_pandas()` need pandas. `summary()` is a pandas Series if pandas is installed.
docs/migrating-from-hta.md compares each call of HTA with ours.
"""

from pipelines.critical_path.answer.saved_path import NotASavedPath
from pipelines.critical_path.graph.windows import WindowNotFound
from pipelines.faces.notebook.analysis import TraceAnalysis
from pipelines.faces.notebook.cpgraph import CPEdge, CPEdgeType, CPNode
from pipelines.faces.notebook.critical_path import CriticalPath, restore_cpgraph
from pipelines.faces.notebook.sources import TraceNotFound
from pipelines.faces.notebook.trace import Trace
from pipelines.readers.kineto import TraceRejected

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
