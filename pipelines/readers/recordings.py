"""Recordings of counters, spans and stacks → the lake: folders that `pipelines.record` wrote, once by their recording_id.

A recording that is still running, or was killed, is ingested with what is on disk, and its state says so. If there is
more of it later, it is ingested again and replaces what was there.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from pipelines.base import database
from pipelines.lake.lake import Lake, committed_rows
from pipelines.lake.names import RECORDING_MARK, tables_of
from pipelines.models.header import RECORDING
from pipelines.models.sqltext import quoted
from pipelines.readers.inputs import Read, Reading, Rejected, SetInput
from pipelines.record.folder import COMPLETE, is_alive

_SILENT_NS = 180 * 10**9  # a recorder on another host that has been silent for this long is taken for dead


def recording_folders(files: Iterable[Path]) -> dict[Path, list[Path]]:
    """The folders of recordings, each with those of its parts that are among the files."""
    tables = tables_of(RECORDING)
    parts = [path for path in files if (path.stem.rpartition("-")[0] or path.stem) in tables]
    return {folder: [path for path in parts if path.parent == folder] for folder in sorted({p.parent for p in parts})}


def read_recording(reading: Reading, folder: Path, _: Collection[Path]) -> Read:
    """Stage the tables of one recording. Raises Rejected."""
    recording_id, state = _stage(reading, folder)
    n_rows = reading.count(*_samples(reading))
    if not _is_news(reading.known.get(recording_id), state, n_rows):
        return Read(recording_id, status="known")
    if state == COMPLETE:
        return Read(recording_id, n_rows, state=(state, n_rows))
    # What its recorder last recorded about itself may be less, or more.
    reading.con.execute(f"UPDATE one.{RECORDING_MARK} SET state = {quoted(state)}, n_rows = {n_rows}")
    return Read(recording_id, n_rows, "partial", _SAYS[state], (state, n_rows))


def _known(lake: Lake) -> dict[str, tuple[str, int]]:
    """State and rows of each recording in the lake."""
    files = lake.committed_files(RECORDING_MARK)
    if not files:
        return {}
    with database.scratch() as con:
        rows = database.rows_of(con, committed_rows(RECORDING_MARK, files))
    return {row["recording_id"]: (row["state"], row["n_rows"]) for row in rows}


def _complete(known: dict[str, tuple[str, int]]) -> set[str]:
    return {recording_id for recording_id, (state, _) in known.items() if state == COMPLETE}


def _is_news(before: tuple[str, int] | None, state: str, n_rows: int) -> bool:
    """Whether there is more of a recording than the lake has. A complete one is final; an older copy adds nothing."""
    if before is None or before[0] == COMPLETE:
        return before is None
    return state == COMPLETE or n_rows > before[1] or (n_rows == before[1] and state != before[0])


_SAYS = {
    "running": "it is still running: this is what is on disk; ingest it again when it has ended",
    "killed": "its recorder was killed: this is what was on disk",
}


def _stage(reading: Reading, folder: Path) -> tuple[str, str]:
    """Create the tables of one recording; returns its id and state. Raises Rejected."""
    mark = folder / f"{RECORDING_MARK}.parquet"
    if not mark.exists():
        raise Rejected(f"{mark.name} is missing; copy the whole folder of the recording")
    for table in reading.tables:
        parts = [mark] if table == RECORDING_MARK else sorted(folder.glob(f"{table}-*.parquet"))
        reading.add_files(table, [part for part in parts if part.exists()])
    rows = database.rows_of(reading.con, f"SELECT * FROM read_parquet({quoted(mark)})")
    told = rows[0] if rows else {}
    if rows and "start_ns" not in told:
        raise Rejected("another version of tracelake wrote it: record it again")
    if len(rows) != 1 or not told.get("recording_id"):
        raise Rejected(f"{RECORDING_MARK}.parquet holds {len(rows)} recordings; a folder may hold only one")
    return told["recording_id"], _state(told)


def _state(told: dict[str, Any]) -> str:
    """Returns complete, running or killed."""
    if told["state"] == COMPLETE:
        return COMPLETE
    if told["host"] == socket.gethostname():
        runs = is_alive(told["recorder_pid"], told["recorder_start"])
    else:
        runs = time.time_ns() - told["seen_ns"] < _SILENT_NS
    return "running" if runs else "killed"


def _samples(reading: Reading) -> list[str]:
    return [table for table in reading.tables if table != RECORDING_MARK]


INPUT = SetInput(
    scope="recording",
    suffixes=(".parquet",),
    recognise=recording_folders,
    read=read_recording,
    known=_known,
    settled=_complete,
)
