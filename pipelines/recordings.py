"""Recordings of counters, spans and stacks → the lake: folders that `pipelines.record` wrote, once by their recording_id.

One that still runs, or was killed, comes in with what is on disk, and its state says so; where there is more of it later,
it comes in anew and replaces what was there.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from pipelines import database
from pipelines.lake.commit import commit_tables
from pipelines.lake.layout import RECORDING_MARK, Batch, tables_of
from pipelines.lake.rows import all_or_nothing, create_empty, staged_tables, unforeseen
from pipelines.lake.store import Lake, committed_rows
from pipelines.modelling.op_formulas import census_work
from pipelines.models.catalog import Catalog, Model, load_catalog
from pipelines.models.header import RECORDING
from pipelines.models.sqlfile import STAGED
from pipelines.record.folder import COMPLETE, is_alive
from pipelines.sqltext import file_list, first_line, quoted


@dataclass(frozen=True)
class RecordingRow:
    """What became of one recording's folder. `status`: ok, partial (it was killed, or still runs), known or rejected."""

    folder: Path
    status: str
    recording_id: str | None = None
    n_rows: int | None = None
    seconds: float = 0.0
    reason: str | None = None


class _Refused(Exception):
    """A folder that is not a recording."""


_SILENT_NS = 180 * 10**9  # a recorder of another host that was not heard of for so long is dead


def is_recording_part(path: Path) -> bool:
    """A Parquet file of a recording, by its name, and no trace."""
    table = path.stem.rpartition("-")[0] or path.stem
    return path.suffix == ".parquet" and table in tables_of(RECORDING)


def recording_folders(files: Iterable[Path]) -> list[Path]:
    """The folders of the recordings' parts among the files."""
    return sorted({path.parent for path in files if is_recording_part(path)})


def ingest_recordings(folders: Iterable[Path], lake: Lake) -> list[RecordingRow]:
    """Put recordings into the lake, all that are new in one batch. Raises OSError if the lake cannot be written."""
    catalog = load_catalog()
    batch = lake.new_batch()
    with database.connect() as con:
        create_empty(con, catalog, RECORDING)
        con.execute("CREATE SCHEMA one")
        known = _known(lake)
        rows = [_add(con, catalog, folder, batch, known) for folder in folders]
        if any(row.status in ("ok", "partial") for row in rows):
            already_committed = commit_tables(con, lake, batch, RECORDING, settled=lambda: _complete(_known(lake)))
            rows = [
                RecordingRow(r.folder, "known", r.recording_id) if r.recording_id in already_committed else r
                for r in rows
            ]
    return rows


def _known(lake: Lake) -> dict[str, tuple[str, int]]:
    """State and rows of each recording in the lake."""
    files = lake.committed_files(RECORDING_MARK)
    if not files:
        return {}
    with database.connect() as con:
        rows = database.rows_of(con, committed_rows(RECORDING_MARK, files))
    return {row["recording_id"]: (row.get("state") or COMPLETE, row["n_rows"]) for row in rows}


def _complete(known: dict[str, tuple[str, int]]) -> set[str]:
    return {recording_id for recording_id, (state, _) in known.items() if state == COMPLETE}


def _create(con: duckdb.DuckDBPyConnection, model: Model, parts: list[Path]) -> None:
    """Create a table of recordings in schema `one` from its parts (none: empty), with its columns and types."""
    nothing = ", ".join(f"CAST(NULL AS VARCHAR) AS {column}" for column in model.staged)
    given = f"SELECT {nothing} LIMIT 0"
    if parts:  # by name: a column that an older recorder did not write is NULL
        given = f"({given}) UNION ALL BY NAME SELECT * FROM read_parquet({file_list(parts)}, union_by_name = true)"
    con.execute(f"CREATE OR REPLACE TEMP VIEW {STAGED}{model.name} AS {given}")
    if model.name == "span_sample_operators":
        census_work(con)
    con.execute(f"CREATE OR REPLACE TABLE one.{model.name} AS {model.sql}")
    con.execute(f"DROP VIEW {STAGED}{model.name}")


def _add(
    con: duckdb.DuckDBPyConnection,
    catalog: Catalog,
    folder: Path,
    batch: Batch,
    known: dict[str, tuple[str, int]],
) -> RecordingRow:
    started = time.perf_counter()
    try:
        recording_id, state = _read(con, catalog, folder)
        n_rows = sum(con.execute(f"SELECT count(*) FROM one.{table}").fetchall()[0][0] for table in _samples(catalog))
        if not _is_news(known.get(recording_id), state, n_rows):
            return RecordingRow(folder, "known", recording_id, seconds=time.perf_counter() - started)
        if state != COMPLETE:  # what its recorder last wrote down may be less, or more
            con.execute(f"UPDATE one.{RECORDING_MARK} SET state = {quoted(state)}, n_rows = {n_rows}")
        with all_or_nothing(con):
            for table in staged_tables(catalog, RECORDING):  # of two copies of a folder, the one with more rows
                con.execute(f"DELETE FROM main.{table} WHERE recording_id = {quoted(recording_id)}")
                con.execute(
                    f"INSERT INTO main.{table} SELECT * REPLACE ({quoted(recording_id)} AS recording_id, "
                    f"{quoted(batch.batch_id)} AS batch_id) FROM one.{table}"
                )
    except _Refused as refusal:
        return RecordingRow(folder, "rejected", reason=str(refusal))
    except duckdb.Error as error:
        return RecordingRow(folder, "rejected", reason=f"DuckDB cannot read it: {first_line(error)}")
    except Exception as error:
        return RecordingRow(folder, "rejected", reason=unforeseen(error))
    known[recording_id] = state, n_rows
    status = "ok" if state == COMPLETE else "partial"
    reason = None if state == COMPLETE else _SAYS[state]
    return RecordingRow(folder, status, recording_id, n_rows, time.perf_counter() - started, reason)


def _is_news(before: tuple[str, int] | None, state: str, n_rows: int) -> bool:
    """There is more of a recording than the lake has: a complete one is final, an older copy is nothing new."""
    if before is None or before[0] == COMPLETE:
        return before is None
    return state == COMPLETE or n_rows > before[1] or (n_rows == before[1] and state != before[0])


_SAYS = {
    "running": "it is still running: this is what is on disk; ingest it again when it has ended",
    "killed": "its recorder was killed: this is what was on disk",
}


def _read(con: duckdb.DuckDBPyConnection, catalog: Catalog, folder: Path) -> tuple[str, str]:
    """Create the tables of one recording in schema `one`; returns its id and state. Raises _Refused."""
    mark = folder / f"{RECORDING_MARK}.parquet"
    for table in staged_tables(catalog, RECORDING):
        parts = [mark] if table == RECORDING_MARK else sorted(folder.glob(f"{table}-*.parquet"))
        _create(con, catalog.models[table], [part for part in parts if part.exists()])
    if not mark.exists():
        return _without_mark(con, catalog), "killed"
    rows = database.rows_of(con, f"SELECT * FROM read_parquet({quoted(mark)})")
    told = rows[0] if rows else {}
    if len(rows) != 1 or not told.get("recording_id"):
        raise _Refused(f"{RECORDING_MARK}.parquet holds {len(rows)} recordings; a folder may hold only one")
    return told["recording_id"], _state(told)


def _state(told: dict[str, Any]) -> str:
    """complete, running or killed. Earlier recorders wrote the row when all was complete."""
    if told.get("state") in (None, COMPLETE):
        return COMPLETE
    if told["host"] == socket.gethostname():
        runs = is_alive(told["recorder_pid"], told["recorder_start"])
    else:
        runs = time.time_ns() - told["seen_ns"] < _SILENT_NS
    return "running" if runs else "killed"


def _samples(catalog: Catalog) -> list[str]:
    return [table for table in staged_tables(catalog, RECORDING) if table != RECORDING_MARK]


def _without_mark(con: duckdb.DuckDBPyConnection, catalog: Catalog) -> str:
    """The id of a recording whose own row was never written: an earlier recorder's that was killed."""
    ids = " UNION ".join(f"SELECT recording_id FROM one.{table}" for table in _samples(catalog))
    found = con.execute(f"SELECT recording_id FROM ({ids}) WHERE recording_id IS NOT NULL").fetchall()
    if len(found) != 1:
        raise _Refused(
            f"no {RECORDING_MARK}.parquet, and its parts hold {len(found)} recordings; a folder may hold only one"
        )
    (recording_id,) = found[0]
    spans = con.execute("SELECT count(*) FROM one.span_samples").fetchall()[0][0]  # the only other kind that there was
    told = quoted(recording_id)
    con.execute(
        f"INSERT INTO one.{RECORDING_MARK} BY NAME SELECT {told} AS recording_id, {told} AS run_id, "
        f"{quoted('spans' if spans else 'counters')} AS kind"
    )
    return recording_id
