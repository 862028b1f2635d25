"""The public names of tracelake (`import tracelake`), which are defined in `pipelines`. No module is loaded twice.

    from tracelake import Lake, TraceAnalysis, ingest, materialize, open_tables, publish
    from tracelake.hta import TraceAnalysis                     # for programs written for HTA
    from tracelake.schedule import PipelinePlan, SWPipeline     # as pipelines.schedule
    from tracelake.record import record_spans                   # as pipelines.record

A name is imported when it is first used, so `tracelake.schedule` and `tracelake.record` need torch and pyarrow alone.
"""

from __future__ import annotations

from importlib import import_module

from pipelines import __version__

TYPE_CHECKING = False  # replaces typing's: importing typing takes 9 ms, in which signals are not handled yet
if TYPE_CHECKING:
    from typing import Any

    from pipelines.base.errors import TracelakeError
    from pipelines.critical_path.answer.saved_path import restore_path
    from pipelines.critical_path.graph.dependency_graph import ArrayGraph
    from pipelines.faces.ibis_tables import open_tables
    from pipelines.faces.notebook import (
        CPEdge,
        CPEdgeType,
        CPNode,
        CriticalPath,
        NotASavedPath,
        Trace,
        TraceAnalysis,
        TraceNotFound,
        TraceRejected,
        WindowNotFound,
        restore_cpgraph,
    )
    from pipelines.lake import Lake
    from pipelines.lake.publish.analyst_file import publish
    from pipelines.lake.read.sandbox import LimitReached, Limits, LockedLake, QueryRefused
    from pipelines.readers.ingest import ingest
    from pipelines.runs.materialize.per_trace import materialize
    from pipelines.runs.store import open_store
    from pipelines.synthetic import CaptureSpec, write_capture

__all__ = [
    "ArrayGraph",
    "CPEdge",
    "CPEdgeType",
    "CPNode",
    "CaptureSpec",
    "CriticalPath",
    "Lake",
    "LimitReached",
    "Limits",
    "LockedLake",
    "NotASavedPath",
    "QueryRefused",
    "Trace",
    "TraceAnalysis",
    "TraceNotFound",
    "TraceRejected",
    "TracelakeError",
    "WindowNotFound",
    "__version__",
    "ingest",
    "materialize",
    "open_store",
    "open_tables",
    "publish",
    "restore_cpgraph",
    "restore_path",
    "write_capture",
]

_MODULE_OF = {
    "ArrayGraph": "pipelines.critical_path.graph.dependency_graph",
    "CPEdge": "pipelines.faces.notebook",
    "CPEdgeType": "pipelines.faces.notebook",
    "CPNode": "pipelines.faces.notebook",
    "CaptureSpec": "pipelines.synthetic",
    "CriticalPath": "pipelines.faces.notebook",
    "Lake": "pipelines.lake",
    "LimitReached": "pipelines.lake.read.sandbox",
    "Limits": "pipelines.lake.read.sandbox",
    "LockedLake": "pipelines.lake.read.sandbox",
    "NotASavedPath": "pipelines.faces.notebook",
    "QueryRefused": "pipelines.lake.read.sandbox",
    "Trace": "pipelines.faces.notebook",
    "TraceAnalysis": "pipelines.faces.notebook",
    "TraceNotFound": "pipelines.faces.notebook",
    "TraceRejected": "pipelines.faces.notebook",
    "TracelakeError": "pipelines.base.errors",
    "WindowNotFound": "pipelines.faces.notebook",
    "ingest": "pipelines.readers.ingest",
    "materialize": "pipelines.runs.materialize.per_trace",
    "open_store": "pipelines.runs.store",
    "open_tables": "pipelines.faces.ibis_tables",
    "publish": "pipelines.lake.publish.analyst_file",
    "restore_cpgraph": "pipelines.faces.notebook",
    "restore_path": "pipelines.critical_path.answer.saved_path",
    "write_capture": "pipelines.synthetic",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "hta", "record", "schedule", "spark", "torch"]
