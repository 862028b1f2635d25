"""Columns of schedules and recorders, which import no other package of ours: their lists must match the lake's SQL."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

from pipelines.lake.commit.staged_rows import staged_tables
from pipelines.models.catalog import load_catalog
from pipelines.models.dry_run import create_staged
from pipelines.models.header import RECORDING, RUN
from pipelines.record.folder import SCHEMAS
from pipelines.schedule.measurement.run_tables import TABLES, schema

WRITTEN = {RUN: {table: schema(table) for table in TABLES}, RECORDING: SCHEMAS}
# They identify the recorder's process, so that ingestion can check whether it still runs.
NOT_STORED = {"recordings": {"recorder_pid", "recorder_start"}}


@pytest.mark.parametrize("scope", WRITTEN)
def test_what_is_written_is_what_the_sql_reads(scope: str) -> None:
    catalog = load_catalog()
    assert sorted(staged_tables(catalog, scope)) == sorted(WRITTEN[scope])
    for table, written in WRITTEN[scope].items():
        assert _columns(written) == _staged(table) | {
            name: kind for name, kind in _columns(written).items() if name in NOT_STORED.get(table, ())
        }, table


def _columns(written: pa.Schema) -> dict[str, str]:
    with duckdb.connect() as con:
        con.register("empty", written.empty_table())
        return {name: kind for name, kind, *_ in con.execute("DESCRIBE empty").fetchall()}


def _staged(table: str) -> dict[str, str]:
    """Return the columns that the table's SQL reads, without the batch, which ingestion adds."""
    with duckdb.connect() as con:
        columns = con.execute(f"DESCRIBE {create_staged(con, load_catalog(), table)}").fetchall()
    return {name: kind for name, kind, *_ in columns if name != "batch_id"}
