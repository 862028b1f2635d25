"""Loading of one memory snapshot into the tables of a connection, without a lake."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from pipelines.lake.commit.staged_rows import derive
from pipelines.lake.names import Batch
from pipelines.models.catalog import load_catalog
from pipelines.readers.inputs import Reading, Rejected
from pipelines.readers.inputs.spilling import spilling
from pipelines.readers.memory_snapshots.lake import INPUT, is_snapshot, read_snapshot


@contextmanager
def opened_snapshot(path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection with the tables of one snapshot: `memory_snapshots` and all tables derived at ingestion.

    Raise Rejected if the file is not a snapshot or is broken, and OSError if it cannot be read.
    """
    with path.open("rb"):  # raises OSError; is_snapshot() returns False for a file that cannot be read
        pass
    if not is_snapshot(path):
        raise Rejected("not a memory snapshot; give a file that torch.cuda.memory._dump_snapshot wrote")
    catalog = load_catalog()
    with spilling() as con:
        reading = Reading(con, catalog, INPUT.scope, {}, None)
        reading.keep(read_snapshot(reading, path, [path]).key, Batch.new())
        con.execute("DROP SCHEMA one CASCADE")  # a copy of the same rows
        derive(con, catalog, catalog.ingested(INPUT.scope))
        yield con
