"""Connection for tables that may be larger than memory. The tables of a memory snapshot are larger than its file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb

from pipelines.base import database
from pipelines.models.sqltext import first_line

# Memory of DuckDB's tables and sorts before they spill to disk. The process needs more, as measured by
# tests/readers/memory_snapshots/test_memory.py. The allocator returns the memory that it caches beyond that.
_GIGABYTES = 0.3
_THREADS = 2  # each has its own buffers, which must fit the bound


@contextmanager
def spilling() -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection whose tables spill beyond a memory bound to a temporary folder, which is deleted at the end.

    Raise TooLittleMemory if an operation needs more memory than the bound at one time.
    """
    with tempfile.TemporaryDirectory() as folder:
        bounds = {"memory_limit": limit(), "threads": database.threads(_THREADS)}
        spill_options = {"temp_directory": folder, "allocator_flush_threshold": "32MB"}
        with database.connect(config={**bounds, **spill_options}) as con:
            try:
                yield con
            except duckdb.OutOfMemoryException as error:
                database.raise_if_disk_is_full(error, folder)
                message = database.too_little(limit())
                raise database.TooLittleMemory(
                    f"these files were not ingested: {message} ({first_line(error)})"
                ) from None


def limit() -> str:
    """Return the memory limit for sets, as the text of DuckDB's option."""
    return database.at_most(_GIGABYTES)
