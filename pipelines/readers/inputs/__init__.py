"""Inputs, the kinds of files that can be ingested. Each declares its files and how to read them.

An input is a module anywhere in `pipelines/` with a constant

    INPUT = SetInput(scope="run", suffixes=(".parquet",), recognise=…, read=…)    the tables of a separate scope
    INPUT = EventInput(suffixes=(".sqlite",), recognise=…, read=…)                `events`, one trace per file

find.py discovers inputs in the source files, and imports an input only if a file has one of its suffixes. The SQL of
their tables is in `sql/ingest/`, where the headers declare each table's scope, and which table is the commit marker.

    find.py: the input that reads a file     file_sets.py, events.py: reading and committing

SQL converts traces of other tools to `events`; see pipelines/readers/events_by_sql.py.
"""

from pipelines.readers.inputs.kinds import EventInput, Read, Rejected, SetInput, TraceRow
from pipelines.readers.inputs.reading import Reading

__all__ = ["EventInput", "Read", "Reading", "Rejected", "SetInput", "TraceRow"]
