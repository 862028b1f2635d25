"""A lake on disk: write a table's batch, commit it, connect to what is committed."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from pathlib import Path

import duckdb

from pipelines.lake.layout import (
    ANALYST_TEMP,
    CAPTURE_MARK,
    CAPTURE_RANKS,
    KEYS,
    MARK,
    RECORDING_MARK,
    REJECTS,
    RUN_MARK,
    STAGING,
    Batch,
    batch_files,
    batch_of,
    mark_of,
    retired_batches,
    table_file,
    table_files,
)
from pipelines.paths import UnusablePath, local_path, utf8_path
from pipelines.sqltext import file_list, quoted

LEFTOVER_SECONDS = 24 * 3600
VERSION_KEY = "tracelake_version"


class Lake:
    """A folder of Parquet tables, for several processes at once; a crash leaves the old or the new state."""

    def __init__(self, root: str | Path) -> None:
        """Nothing is made yet. Raises UnusablePath for a URL, a file and a link that leads nowhere."""
        self.root = utf8_path(local_path(root).absolute())
        if self.root.exists() and not self.root.is_dir():
            raise UnusablePath(f"{root}: is a file; a lake is a folder")
        if self.root.is_symlink() and not self.root.exists():
            raise UnusablePath(f"{root}: is a link to {self.root.readlink()}, which is not there; mount or make it")

    @property
    def exists(self) -> bool:
        """Some batch is committed."""
        return any(table_files(self.root, mark) for mark in KEYS)

    def staging(self, batch: Batch) -> Path:
        """A private folder of a batch, made when it is first asked for; no view matches what is in it."""
        folder = self.root / STAGING / batch.batch_id
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def put(self, table: str, batch: Batch, staged: Path) -> Path:
        """Make a staged Parquet file the table's file of a batch: flushed, then renamed, so never half visible."""
        target = table_file(self.root, table, batch)
        is_new_folder = not target.parent.exists()
        target.parent.mkdir(parents=True, exist_ok=True)
        with staged.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(staged, target)
        # Names are flushed too, so that a commit mark does not outlive a loss of power that its batch's files do not.
        for folder in (target.parent, target.parent.parent, self.root)[: 3 if is_new_folder else 1]:
            _flush_names(folder)
        return target

    @contextmanager
    def commit_lock(self) -> Iterator[None]:
        """Held by one process at a time, only while it checks what is known and puts its commit mark."""
        with self._locked(".lock"):
            yield

    @contextmanager
    def publish_lock(self) -> Iterator[None]:
        """Held by one publisher at a time, so that a slow one does not replace a newer file by an older."""
        with self._locked(".publish.lock"):
            yield

    @contextmanager
    def retention_lock(self) -> Iterator[None]:
        """Held by the one process that takes old batches out of the lake."""
        with self._locked(".retention.lock"):
            yield

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / name).open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # the kernel frees it when the process dies
            yield

    def known_traces(self) -> dict[str, Batch]:
        """The committed traces and the batch each lies in."""
        return self.known(MARK)

    def known_runs(self) -> dict[str, Batch]:
        """The committed runs of schedules and the batch each lies in."""
        return self.known(RUN_MARK)

    def known(self, mark: str) -> dict[str, Batch]:
        """The committed keys of a mark (traces, runs of schedules, op-level jobs) and the batch each lies in."""
        files = table_files(self.root, mark)
        if not files:
            return {}
        with duckdb.connect() as con:
            rows = con.execute(f"SELECT {KEYS[mark]}, batch_id FROM read_parquet({file_list(files)})").fetchall()
        return {key: Batch(batch_id) for key, batch_id in rows}

    def batches(self, mark: str = MARK) -> list[Batch]:
        """The committed batches of traces (or of another mark), oldest first."""
        return [batch_of(path) for path in table_files(self.root, mark)]

    def all_batches(self) -> set[Batch]:
        """The committed batches of all marks."""
        return {batch for mark in KEYS for batch in self.batches(mark)}

    def committed_files(self, table: str, batches: Set[Batch] | None = None) -> list[Path]:
        """The table's files of committed batches (of `batches`, where these were listed before), oldest first.

        A file without a mark may be taken away again, so nobody else reads it.
        """
        known = self.all_batches() if batches is None else batches
        return [path for path in table_files(self.root, table) if table == REJECTS or batch_of(path) in known]

    def versions_of(self, batch: Batch, tables: Iterable[str]) -> dict[str, str]:
        """The model version that each table of a batch was computed with; a table without a file is not in it."""
        files = {path: table for table in tables if (path := table_file(self.root, table, batch)).exists()}
        if not files:
            return {}
        query = f"SELECT file_name, decode(key), decode(value) FROM parquet_kv_metadata({file_list(files)})"
        with duckdb.connect() as con:
            rows = con.execute(query).fetchall()
        return {files[Path(name)]: value for name, key, value in rows if key == VERSION_KEY}

    def sweep(self) -> list[Path]:
        """Remove what killed runs left behind more than a day ago; returns what is gone.

        That is: staging folders, files of batches without a commit mark, half-built analysts' files.
        """
        # The files of retired batches stay as long as readers may have them open: removing them is retention's.
        committed = self.all_batches() | {Batch(name) for name in retired_batches(self.root)}
        unmarked = (
            path
            for path in batch_files(self.root)
            if path.parts[-3] not in (*KEYS, REJECTS) and batch_of(path) not in committed
        )
        found = [*self.root.glob(f"{STAGING}/*"), *self.root.glob(f"{ANALYST_TEMP}*"), *unmarked]
        gone = [path for path in found if _is_leftover(path)]
        for path in gone:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)  # another sweep may be at it
            else:
                path.unlink(missing_ok=True)
        return gone

    def create_views(self, con: duckdb.DuckDBPyConnection, tables: Iterable[str], trace_id: str | None = None) -> None:
        """Create views over committed rows in `con`, of one trace or of all; tables without files are left out.

        The views list the files of this moment, the marks first: what is committed later is in none of them, so no
        query sees a batch in one table and not in another.
        """
        batches = self.all_batches()
        only = f" WHERE trace_id = {quoted(trace_id)}" if trace_id else ""
        asked = list(tables)
        marks = {MARK, *(mark_of(table) for table in asked)}
        order = (*marks, *(t for t in asked if t not in marks))
        files = {table: self.committed_files(table, batches) for table in (*order, *TOLD_BY)}
        for table in order:
            if files[table]:
                rows = trace_rows(files) if table == MARK else committed_rows(table, files[table])
                only_here = "" if table == REJECTS or mark_of(table) != MARK else only
                con.execute(f"CREATE OR REPLACE VIEW {table} AS SELECT * FROM ({rows}){only_here}")

    def connect(self, tables: Iterable[str]) -> duckdb.DuckDBPyConnection:
        """An in-memory connection with views of the tables, as of now. The caller closes it."""
        con = duckdb.connect()
        self.create_views(con, tables)
        return con


def committed_rows(table: str, files: Iterable[Path], mark_rows: str | None = None) -> str:
    """The SELECT of a table's committed rows; it reads the table's mark (`traces`), which must be there before.

    `mark_rows`: what to read instead of the mark's table. Of `traces` these are the rows as they lie: see trace_rows.

    Files of an older version of a model may lack columns: they read as NULL until they are computed anew.
    """
    rows = f"SELECT * FROM read_parquet({file_list(files)}, hive_partitioning = false, union_by_name = true)"
    mark = mark_of(table)
    if table == CAPTURE_MARK:  # a capture that was computed anew has several rows: the newest batch's counts
        newest = "QUALIFY row_number() OVER (PARTITION BY capture_id ORDER BY batch_id DESC) = 1"
        return f"SELECT * FROM ({rows} {newest}) WHERE NOT is_gone"
    if table == RECORDING_MARK:  # one that still ran when it came in may have come in again
        return f"{rows} QUALIFY row_number() OVER (PARTITION BY recording_id ORDER BY batch_id DESC) = 1"
    if table in (*KEYS, REJECTS):
        return rows
    return f"{rows} SEMI JOIN {mark_rows or mark} AS mark USING ({KEYS[mark]}, batch_id)"


TOLD_BY = (CAPTURE_MARK, CAPTURE_RANKS)  # the tables that tell which capture a trace is in
_NO_ROWS = "SELECT NULL::VARCHAR AS capture_id, NULL::VARCHAR AS group_id, NULL::VARCHAR AS trace_id, NULL::VARCHAR AS batch_id WHERE false"
_GROUP = "coalesce(t.group_id, t.capture_id)"  # files of an older version call the group capture_id


def trace_rows(files: Mapping[str, list[Path]]) -> str:
    """The SELECT of the committed traces, each with the capture that it is in; `files` of `traces` and TOLD_BY.

    The capture is known once tables of captures were computed with the trace. Before, it is what its group is called
    where no capture has that name yet, for a group's first capture will have it; else NULL.
    """
    captures, members = (files[table] for table in TOLD_BY)
    named = committed_rows(CAPTURE_MARK, captures) if captures else _NO_ROWS
    ranks = committed_rows(CAPTURE_RANKS, members, f"({named})") if captures and members else _NO_ROWS
    # A trace that changed its capture is in the old one, too, until that is computed anew: the newest batch counts.
    newest = f"SELECT trace_id, max_by(capture_id, batch_id) AS capture_id FROM ({ranks}) GROUP BY trace_id"
    captured = f"coalesce(m.capture_id, CASE WHEN c.capture_id IS NULL THEN {_GROUP} END)"
    return (
        f"SELECT t.* REPLACE ({captured} AS capture_id, {_GROUP} AS group_id) "
        f"FROM ({committed_rows(MARK, files[MARK])} UNION ALL BY NAME {_NO_ROWS}) AS t "
        f"LEFT JOIN ({newest}) AS m ON m.trace_id = t.trace_id "
        f"LEFT JOIN ({named}) AS c ON c.capture_id = {_GROUP}"
    )


def _flush_names(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _is_leftover(path: Path) -> bool:
    try:
        return path.stat().st_mtime < time.time() - LEFTOVER_SECONDS
    except FileNotFoundError:  # its run ended meanwhile
        return False
