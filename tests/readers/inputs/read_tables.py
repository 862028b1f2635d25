"""Tables of an input, loaded without a lake, because ingesting and publishing would take ten times as long."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import duckdb

from pipelines.lake.commit.staged_rows import derive
from pipelines.lake.names import Batch
from pipelines.models.catalog import load_catalog
from pipelines.readers.inputs import SetInput
from pipelines.readers.inputs.reading import Reading
from tests.harness import memory


def loaded(kind: SetInput, files: Iterable[Path], views: Iterable[str] = ()) -> duckdb.DuckDBPyConnection:
    """Return the tables of the input's scope, with the rows of all sets among the files, and with these views."""
    con, catalog = memory(), load_catalog()
    reading = Reading(con, catalog, kind.scope, {}, "j")
    for path, of_set in kind.recognise(files).items():
        reading.begin()
        result = kind.read(reading, path, of_set)
        assert result is not None
        reading.keep(result.key, Batch.new())
        reading.known[result.key] = result.state
    derive(con, catalog, catalog.ingested(kind.scope))
    for view in views:
        con.execute(f"CREATE VIEW {view} AS {catalog.models[view].sql}")
    return con
