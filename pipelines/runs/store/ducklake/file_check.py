"""The check of a DuckLake's files against its catalog: existence, size, row count, and readability of every value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb

from pipelines.lake.names import Batch
from pipelines.models.sqltext import first_line, parquet_rows, quoted
from pipelines.runs.check import Checked, Fault
from pipelines.runs.store.ducklake.attach import LAKE, store_errors
from pipelines.runs.store.ducklake.connection import DuckLake

REMEDY = (
    "Restore the file from a copy of the bucket, or remove its traces with `tracelake forget` and ingest them again; `tracelake "
    "materialize` computes what is missing or out of date."
)
_CATALOG = f"__ducklake_metadata_{LAKE}"


def check(store: DuckLake, on_file: Callable[[str], Any] = lambda _: None) -> Checked:
    """Read every file that a query would read now. All files count as `n_not_recorded`, because there are no checksums.

    Raise StoreError.
    """
    with store.reader() as con:
        with store_errors(store.parsed):
            rows = con.execute(
                f"SELECT s.schema_name, t.table_name, f.path, f.record_count FROM {_CATALOG}.ducklake_data_file AS f "
                f"JOIN {_CATALOG}.ducklake_table AS t ON t.table_id = f.table_id AND t.end_snapshot IS NULL "
                f"JOIN {_CATALOG}.ducklake_schema AS s ON s.schema_id = t.schema_id AND s.end_snapshot IS NULL "
                "WHERE f.end_snapshot IS NULL ORDER BY ALL"
            ).fetchall()
            n_rows = {(table, _name(path)): n for _, table, path, n in rows}
            files = [
                (table, *file_and_size)
                for schema, table in dict.fromkeys((schema, table) for schema, table, *_ in rows)
                for file_and_size in con.execute(
                    "SELECT data_file, data_file_size_bytes FROM "
                    f"ducklake_list_files({quoted(LAKE)}, {quoted(table)}, schema => {quoted(schema)})"
                ).fetchall()
            ]
        faults = []
        for table, file, size in files:
            on_file(f"{table}/{_name(file)}")
            if why := _wrong(con, file, size, n_rows.get((table, _name(file)))):
                batch = Batch(_name(file).removesuffix(".parquet").rpartition("-")[0])
                faults.append(Fault(file, why, table, batch.batch_id if batch.is_valid else None))
    return Checked(faults, len(files), len(files), has_checksums=False)


def _wrong(con: duckdb.DuckDBPyConnection, file: str, size: int, n_rows: int | None) -> str | None:
    read = parquet_rows(quoted(file))
    try:
        ((actual_size,),) = con.execute(f"SELECT size FROM read_blob({quoted(file)})").fetchall() or [(None,)]
        if actual_size is None:
            return "is missing"
        if actual_size != size:
            return f"has {actual_size:,} bytes, not {size:,} as the catalog says"
        # This reads every value without materializing it.
        n, *_ = con.execute(f"SELECT count(*), bit_xor(hash(COLUMNS(*))) FROM {read}").fetchall()[0]
    except duckdb.Error as error:
        message = first_line(error)
        return "is missing" if "No files found" in message or "404" in message else f"cannot be read: {message}"
    return None if n_rows in (None, n) else f"has {n:,} rows, not {n_rows:,} as the catalog says"


def _name(path: str) -> str:
    return path.rpartition("/")[2]
