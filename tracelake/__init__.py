"""The public names of tracelake: `import tracelake`. What they are is in `pipelines`; nothing is loaded twice.

    from tracelake import Lake, TraceAnalysis, ingest, materialize, open_tables, publish
    from tracelake.schedule import PipelinePlan, SWPipeline     # as pipelines.schedule
    from tracelake.record import record_spans                   # as pipelines.record

A name is imported when it is first used, so `tracelake.schedule` and `tracelake.record` need torch and pyarrow alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pipelines import __version__

if TYPE_CHECKING:
    from pipelines.faces.ibis_tables import open_tables
    from pipelines.faces.notebook import CriticalPath, Trace, TraceAnalysis
    from pipelines.lake import Lake
    from pipelines.lake.publish.analyst_file import publish
    from pipelines.readers.ingest import ingest
    from pipelines.runs.materialize.per_trace import materialize

__all__ = [
    "CriticalPath",
    "Lake",
    "Trace",
    "TraceAnalysis",
    "__version__",
    "ingest",
    "materialize",
    "open_tables",
    "publish",
]

_MODULE_OF = {
    "CriticalPath": "pipelines.faces.notebook",
    "Lake": "pipelines.lake",
    "Trace": "pipelines.faces.notebook",
    "TraceAnalysis": "pipelines.faces.notebook",
    "ingest": "pipelines.readers.ingest",
    "materialize": "pipelines.runs.materialize.per_trace",
    "open_tables": "pipelines.faces.ibis_tables",
    "publish": "pipelines.lake.publish.analyst_file",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "record", "schedule"]
