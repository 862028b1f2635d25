"""Inputs: what can be ingested. Each declares which files it takes and how they are read; everything else is shared.

An input is a module anywhere in `pipelines/` with a constant

    INPUT = SetInput(scope="run", suffixes=(".parquet",), recognise=…, read=…)    tables of a scope of their own
    INPUT = EventInput(suffixes=(".sqlite",), recognise=…, read=…)                `events`, one trace per file

It is found by reading the source files (find.py), and imported only if a file has one of its suffixes. Its tables are
`sql/ingest/`, whose headers declare their scope and which of them is the mark.

    find.py → which input takes which file;  sets.py, events.py → read and commit

Traces of other tools become `events` by SQL of their own: see pipelines/readers/events_by_sql.py.
"""

from pipelines.readers.inputs.kinds import EventInput, Read, Rejected, SetInput, TraceRow
from pipelines.readers.inputs.reading import Reading

__all__ = ["EventInput", "Read", "Reading", "Rejected", "SetInput", "TraceRow"]
