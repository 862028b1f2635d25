"""Inputs: what can be ingested. Each says which files it takes and what they hold; the rest is the same for all.

An input is a module anywhere in `pipelines/` with a constant

    INPUT = SetInput(scope="run", suffixes=(".parquet",), recognise=…, read=…)    tables of a scope of their own
    INPUT = EventInput(suffixes=(".sqlite",), recognise=…, read=…)                `events`, one trace per file

which is found by reading the source files (find.py) and imported when a file with one of its suffixes turns up. Its
tables are `sql/ingest/*.sql`, whose headers say their scope and which of them is the mark.

    find.py → which input takes which file;  sets.py, events.py → read, commit;  by_sql.py → events by SQL of their own
"""

from pipelines.inputs.kinds import EventInput, Read, Rejected, SetInput, TraceRow
from pipelines.inputs.reading import Reading

__all__ = ["EventInput", "Read", "Reading", "Rejected", "SetInput", "TraceRow"]
