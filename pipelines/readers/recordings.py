"""Ingestion of recordings (counters, spans and stacks in folders by `pipelines.record`), once per recording_id.

A recording that is still running, or whose recorder was killed, is ingested with the data on disk, and its `state`
records that. If it has more data later, it is ingested again and replaces the earlier rows.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from pipelines.base import database
from pipelines.base.processes import is_alive
from pipelines.lake.names import RECORDING_MARK, tables_of
from pipelines.models.header import RECORDING
from pipelines.models.sqltext import parquet_rows, quoted
from pipelines.readers.inputs import Read, Reading, Rejected, SetInput
from pipelines.record.folder import COMPLETE

_SILENT_NS = 180 * 10**9  # a recorder on another host is assumed dead after this silence


def recording_folders(files: Iterable[Path]) -> dict[Path, list[Path]]:
    """Return the folders of recordings, each with its parts among the files."""
    tables = tables_of(RECORDING)
    parts = [path for path in files if (path.stem.rpartition("-")[0] or path.stem) in tables]
    return {folder: [path for path in parts if path.parent == folder] for folder in sorted({p.parent for p in parts})}


def read_recording(reading: Reading, folder: Path, _: Collection[Path]) -> Read:
    """Stage the tables of one recording. Raise Rejected unless the folder has one recording of this version."""
    recording_id, state = _stage(reading, folder)
    n_rows = reading.count(*_samples(reading))
    if not _is_news(reading.known.get(recording_id), state, n_rows):
        return Read(recording_id, status="known")
    if state == COMPLETE:
        return Read(recording_id, n_rows, state=(state, n_rows))
    # The recorder's own last state and row count may be outdated.
    reading.con.execute(f"UPDATE one.{RECORDING_MARK} SET state = {quoted(state)}, n_rows = {n_rows}")
    return Read(recording_id, n_rows, "partial", _SAYS[state], (state, n_rows))


def _state_and_rows(row: Mapping[str, Any]) -> tuple[str, int]:
    return row["state"], row["n_rows"]


def _is_news(stored: tuple[str, int] | None, state: str, n_rows: int) -> bool:
    """Return whether a recording has more rows than the lake's version of it, or another state.

    A recording that is complete in the lake never changes.
    """
    if stored is None or stored[0] == COMPLETE:
        return stored is None
    return state == COMPLETE or n_rows > stored[1] or (n_rows == stored[1] and state != stored[0])


_SAYS = {
    "running": "it is still running, so its rows so far were read; ingest it again when it has ended",
    "killed": "its recorder was killed, so only the rows written before were read",
}


def _stage(reading: Reading, folder: Path) -> tuple[str, str]:
    """Create the tables of one recording, and return its id and state.

    Raise Rejected unless the folder has one recording of this version.
    """
    mark = folder / f"{RECORDING_MARK}.parquet"
    if not mark.exists():
        raise Rejected(f"{mark.name} is missing; copy the whole folder of the recording")
    for table in reading.tables:
        parts = [mark] if table == RECORDING_MARK else sorted(folder.glob(f"{table}-*.parquet"))
        reading.add_files(table, [part for part in parts if part.exists()])
    rows = database.rows_of(reading.con, f"SELECT * FROM {parquet_rows(mark)}")
    recording = rows[0] if rows else {}
    if rows and "start_ns" not in recording:
        raise Rejected("another version of tracelake wrote it: record it again")
    if len(rows) != 1 or not recording.get("recording_id"):
        raise Rejected(f"{RECORDING_MARK}.parquet holds {len(rows)} recordings; a folder may hold only one")
    return recording["recording_id"], _state(recording)


def _state(recording: dict[str, Any]) -> str:
    """Return a recording's state: complete, running or killed."""
    if recording["state"] == COMPLETE:
        return COMPLETE
    if recording["host"] == socket.gethostname():
        pid, start = recording["recorder_pid"], recording["recorder_start"] or ""
        # A file from elsewhere may contain any value.
        is_running = type(pid) is int and 0 < pid < 2**31 and is_alive(f"{recording['host']}:{pid}:{start}")
    else:
        is_running = time.time_ns() - recording["seen_ns"] < _SILENT_NS
    return "running" if is_running else "killed"


def _samples(reading: Reading) -> list[str]:
    return [table for table in reading.tables if table != RECORDING_MARK]


INPUT = SetInput(
    scope="recording",
    suffixes=(".parquet",),
    recognise=recording_folders,
    read=read_recording,
    state=_state_and_rows,
    is_news=lambda stored, read: _is_news(stored, *read),
)
