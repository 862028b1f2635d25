"""Recordings of counters and spans → the lake: folders that `pipelines.record` wrote, once by their recording_id."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import duckdb

from pipelines.lake.commit import commit_tables
from pipelines.lake.layout import RECORDING_MARK, RECORDING_TABLES, Batch
from pipelines.lake.store import Lake
from pipelines.modelling.op_formulas import WORK_COLUMNS, work_columns
from pipelines.models.catalog import Catalog, load_catalog
from pipelines.sqltext import file_list, quoted, row


@dataclass(frozen=True)
class RecordingRow:
    """What became of one recording's folder. `status`: ok, known or rejected."""

    folder: Path
    status: str
    recording_id: str | None = None
    n_rows: int | None = None
    seconds: float = 0.0
    reason: str | None = None


class _Refused(Exception):
    """A folder that is no whole recording."""


def is_recording_part(path: Path) -> bool:
    """A Parquet file of a recording, by its name, and no trace."""
    table = path.stem.rpartition("-")[0] or path.stem
    return path.suffix == ".parquet" and table in RECORDING_TABLES


def recording_folders(files: Iterable[Path]) -> list[Path]:
    """The folders of the recordings' parts among the files."""
    return sorted({path.parent for path in files if is_recording_part(path)})


def ingest_recordings(folders: Iterable[Path], lake: Lake) -> list[RecordingRow]:
    """Put recordings into the lake, all that are new in one batch. Raises OSError where the lake cannot be written."""
    catalog = load_catalog()
    batch = Batch.new()
    with duckdb.connect() as con:
        for table in RECORDING_TABLES:
            create_recording_table(con, catalog, table, [])
        con.execute("CREATE SCHEMA one")
        known = set(lake.known(RECORDING_MARK))
        rows = [_add(con, catalog, folder, batch, known) for folder in folders]
        if any(row.status == "ok" for row in rows):
            beaten = commit_tables(con, lake, batch, RECORDING_TABLES)
            rows = [RecordingRow(r.folder, "known", r.recording_id) if r.recording_id in beaten else r for r in rows]
    return rows


def create_recording_table(
    con: duckdb.DuckDBPyConnection, catalog: Catalog, table: str, parts: list[Path], schema: str = "main"
) -> None:
    """Create a table of recordings in `con` from its parts (none: empty), with its columns and types."""
    nothing = ", ".join(f"CAST(NULL AS VARCHAR) AS {column.name}" for column in catalog.models[table].columns)
    given = f"SELECT {nothing} LIMIT 0"
    if parts:  # by name: a column that an older recorder did not write is NULL
        given = f"({given}) UNION ALL BY NAME SELECT * FROM read_parquet({file_list(parts)}, union_by_name = true)"
    con.execute(f"CREATE OR REPLACE TEMP VIEW _staged_{table} AS {given}")
    if table == "span_sample_operators":
        _work_out(con)
    con.execute(f"CREATE OR REPLACE TABLE {schema}.{table} AS {catalog.models[table].sql}")
    con.execute(f"DROP VIEW _staged_{table}")


def _work_out(con: duckdb.DuckDBPyConnection) -> None:
    """The formulas for operators of traces, over the calls that a census counted."""
    con.execute(
        f"CREATE OR REPLACE TABLE _staged_operator_work (op VARCHAR, dims VARCHAR, types VARCHAR, concrete VARCHAR, {WORK_COLUMNS})"
    )
    calls = con.execute("SELECT DISTINCT op, dims, types, concrete FROM _staged_span_sample_operators").fetchall()
    if calls:
        rows = (row((*call, *work_columns(*call))) for call in calls)
        con.execute(f"INSERT INTO _staged_operator_work VALUES {', '.join(rows)}")


def _add(con: duckdb.DuckDBPyConnection, catalog: Catalog, folder: Path, batch: Batch, known: set[str]) -> RecordingRow:
    started = time.perf_counter()
    try:
        recording_id = _read(con, catalog, folder)
        if recording_id in known:
            return RecordingRow(folder, "known", recording_id, seconds=time.perf_counter() - started)
        n_rows = 0
        for table in RECORDING_TABLES:
            con.execute(
                f"INSERT INTO main.{table} SELECT * REPLACE ({quoted(recording_id)} AS recording_id, "
                f"{quoted(batch.batch_id)} AS batch_id) FROM one.{table}"
            )
            n_rows += con.execute(f"SELECT count(*) FROM one.{table}").fetchall()[0][0]
    except _Refused as refusal:
        return RecordingRow(folder, "rejected", reason=str(refusal))
    except duckdb.Error as error:
        return RecordingRow(folder, "rejected", reason=f"DuckDB cannot read it: {str(error).splitlines()[0]}")
    known.add(recording_id)
    return RecordingRow(folder, "ok", recording_id, n_rows - 1, time.perf_counter() - started)


def _read(con: duckdb.DuckDBPyConnection, catalog: Catalog, folder: Path) -> str:
    """Create the tables of one recording in schema `one`; returns its id. Raises _Refused."""
    if not folder.joinpath(f"{RECORDING_MARK}.parquet").exists():
        raise _Refused(
            f"no {RECORDING_MARK}.parquet: the recorder still runs, or was killed; wait for its end, or record again"
        )
    for table in RECORDING_TABLES:
        parts = sorted(folder.glob(f"{table}.parquet" if table == RECORDING_MARK else f"{table}-*.parquet"))
        create_recording_table(con, catalog, table, parts, "one")
    found = con.execute(f"SELECT recording_id FROM one.{RECORDING_MARK}").fetchall()
    if len(found) != 1 or not found[0][0]:
        raise _Refused(f"{RECORDING_MARK}.parquet holds {len(found)} recordings; a folder holds one")
    return found[0][0]
