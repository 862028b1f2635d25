"""A connection for tables that may be larger than memory: those of a memory snapshot are larger than its file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb

from pipelines.base import database
from pipelines.models.sqltext import first_line

# What DuckDB's tables and sorts take before they go to disk; what the process takes is more, and is measured by
# tests/readers/memory_snapshots/test_memory.py. The allocator gives back what it keeps beyond that.
_GIGABYTES = 0.3
_THREADS = 2  # each has buffers of its own, which the bound has to hold


@contextmanager
def spilling() -> Iterator[duckdb.DuckDBPyConnection]:
    """Yields a connection whose tables go to a temporary folder beyond a bound; the folder goes with it.

    Raises TooLittleMemory where what is done with it needs more than that bound at once.
    """
    with tempfile.TemporaryDirectory() as folder:
        bounds = {"memory_limit": limit(), "threads": database.threads(_THREADS)}
        spilled = {"temp_directory": folder, "allocator_flush_threshold": "32MB"}
        with database.connect(config={**bounds, **spilled}) as con:
            try:
                yield con
            except duckdb.OutOfMemoryException as error:
                database.raise_if_disk_is_full(error, folder)
                told = database.too_little(limit())
                raise database.TooLittleMemory(f"these files were not ingested: {told} ({first_line(error)})") from None


def limit() -> str:
    """Returns how much memory DuckDB may use for sets, as it takes it."""
    return database.at_most(_GIGABYTES)
