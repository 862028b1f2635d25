"""Whether the files of a DuckLake are as its catalog says: there, of that size, with that many rows, and readable throughout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb

from pipelines.lake.names import Batch
from pipelines.models.sqltext import first_line, quoted
from pipelines.runs.check import Checked, Fault
from pipelines.runs.store.ducklake.attach import LAKE, attach, told
from pipelines.runs.store.ducklake.schema import check_format
from pipelines.runs.store.ducklake.store import DuckLakeStore

_CATALOG = f"__ducklake_metadata_{LAKE}"


def check(store: DuckLakeStore, on_file: Callable[[str], Any] = lambda _: None) -> Checked:
    """Read every file that a query would read now. There are no checksums: all are `n_not_recorded`. Raises StoreError."""
    with attach(store.parsed, read_only=True) as con:
        check_format(con, store.address)
        with told(store.parsed):
            rows = con.execute(
                f"SELECT s.schema_name, t.table_name, f.path, f.record_count FROM {_CATALOG}.ducklake_data_file AS f "
                f"JOIN {_CATALOG}.ducklake_table AS t ON t.table_id = f.table_id AND t.end_snapshot IS NULL "
                f"JOIN {_CATALOG}.ducklake_schema AS s ON s.schema_id = t.schema_id AND s.end_snapshot IS NULL "
                "WHERE f.end_snapshot IS NULL ORDER BY ALL"
            ).fetchall()
            n_rows = {(table, _name(path)): n for _, table, path, n in rows}
            files = [
                (table, *found)
                for schema, table in dict.fromkeys((schema, table) for schema, table, *_ in rows)
                for found in con.execute(
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
    return Checked(faults, len(files), len(files))


def _wrong(con: duckdb.DuckDBPyConnection, file: str, size: int, n_rows: int | None) -> str | None:
    read = f"read_parquet({quoted(file)}, hive_partitioning = false)"
    try:
        ((there,),) = con.execute(f"SELECT size FROM read_blob({quoted(file)})").fetchall() or [(None,)]
        if there is None:
            return "is missing"
        if there != size:
            return f"has {there:,} bytes, not {size:,} as the catalog says"
        # Each value is looked at, and none is kept.
        n, *_ = con.execute(f"SELECT count(*), bit_xor(hash(COLUMNS(*))) FROM {read}").fetchall()[0]
    except duckdb.Error as error:
        said = first_line(error)
        return "is missing" if "No files found" in said or "404" in said else f"cannot be read: {said}"
    return None if n_rows in (None, n) else f"has {n:,} rows, not {n_rows:,} as the catalog says"


def _name(path: str) -> str:
    return path.rpartition("/")[2]
