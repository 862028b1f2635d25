"""Conversion of counters in Kineto traces to `kernel_counters`, one row per range of the range profiler and counter.

The source is the Parquet file of the events that were just ingested, so a trace is not read twice. The set has the
trace's id.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pipelines.base import database
from pipelines.models.sqltext import parquet_rows
from pipelines.readers.counter_ranges import CounterRange, counter_ranges
from pipelines.readers.counters.lake import COLUMNS, COUNTERS, FINDINGS, TABLE
from pipelines.readers.inputs import Read, Reading, SetInput
from pipelines.readers.inputs.row_files import RowFiles
from pipelines.readers.kineto import ReadTrace

SOURCE = "Kineto"


def counters_of(traces: Mapping[Path, ReadTrace]) -> SetInput:
    """Return the input that reads the counters of `traces`, whose keys are the Parquet files of their events."""
    return SetInput(scope="counters", suffixes=(), recognise=_each_alone, read=partial(_read, traces))


def _each_alone(files: Iterable[Path]) -> dict[Path, list[Path]]:
    return {path: [path] for path in files}


def _read(traces: Mapping[Path, ReadTrace], reading: Reading, events: Path, _: Collection[Path]) -> Read:
    trace = traces[events]
    if trace.trace_id in reading.known:
        return Read(trace.trace_id, status="known")
    with database.connect() as con:
        con.execute(f"CREATE VIEW events AS SELECT * FROM {parquet_rows(events)}")
        ranges = counter_ranges(con)
    with tempfile.TemporaryDirectory() as folder:
        with RowFiles(Path(folder), COLUMNS) as files:
            for row in _rows(ranges):
                files.add(COUNTERS, row)
        reading.add_files(COUNTERS, files.paths(COUNTERS))
    missing = [span for span in ranges for value in span.counters.values() if value is None]
    first = f"event {missing[0].event_id:,}: " if missing else ""
    finding = {
        "fault": "not_measured",
        "severity": "info",
        "n": len(missing),
        "detail": f"{first}a counter without a number: NULL",
    }
    reading.add_rows(FINDINGS, [finding] if missing else [])
    about = {
        **reading.file_columns(trace.path),
        "n_lines": trace.n_events,
        "n_counters": reading.count(COUNTERS),
        "unpacked_bytes": trace.unpacked_bytes,
    }
    reading.add_rows(TABLE, [about])
    return Read(trace.trace_id, reading.count(COUNTERS))


def _rows(ranges: Iterable[CounterRange]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows in the column order of the table. Ranges are numbered from 0 within the file."""
    names = list(COLUMNS[COUNTERS])
    for number, span in enumerate(ranges):
        shared = {
            "line": span.event_id,
            "dispatch_id": number,
            "kernel_name": span.kernel,
            "device": span.device,
            "section": None if span.kernel else span.name or None,
            "source": SOURCE,
        }
        for counter, value in span.counters.items():
            row = {**shared, "counter": counter, "value": value}
            yield tuple(row.get(name) for name in names)
