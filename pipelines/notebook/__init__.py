"""Traces in a notebook, in HTA's words where it has them: `from pipelines.notebook import TraceAnalysis`.

Tables are Ibis expressions or Arrow tables; `.to_pandas()` on either is the reader's own choice and needs pandas, which
nothing here does. docs/migrating-from-hta.md has each call of HTA beside ours.
"""

from pipelines.critical_path.saved import NotASavedPath
from pipelines.critical_path.windows import WindowNotFound
from pipelines.notebook.analysis import TraceAnalysis
from pipelines.notebook.path import CriticalPath, restore_cpgraph
from pipelines.notebook.sources import TraceNotFound
from pipelines.traces import TraceRejected

__all__ = [
    "CriticalPath",
    "NotASavedPath",
    "TraceAnalysis",
    "TraceNotFound",
    "TraceRejected",
    "WindowNotFound",
    "restore_cpgraph",
]
