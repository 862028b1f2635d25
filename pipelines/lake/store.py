"""A lake on disk: write a table's batch, commit it, connect to what is committed."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from pipelines.lake.layout import MARK, STAGING, Batch, batch_of, table_file, table_files

LEFTOVER_SECONDS = 24 * 3600
VERSION_KEY = "tracelake_version"


def quoted(value: str | Path) -> str:
    """A SQL text literal."""
    return "'" + str(value).replace("'", "''") + "'"


class Lake:
    """A folder of Parquet tables. Safe to use from several processes at once; a crash leaves the old or the new state."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).absolute()

    @property
    def exists(self) -> bool:
        """Some batch is committed."""
        return bool(table_files(self.root, MARK))

    def staging(self, batch: Batch) -> Path:
        """A private folder of a batch, made when it is first asked for; no view matches what is in it."""
        folder = self.root / STAGING / batch.batch_id
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def put(self, table: str, batch: Batch, staged: Path) -> Path:
        """Make a staged Parquet file the table's file of a batch: flushed, then renamed, so never half visible."""
        target = table_file(self.root, table, batch)
        target.parent.mkdir(parents=True, exist_ok=True)
        with staged.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(staged, target)
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return target

    @contextmanager
    def commit_lock(self) -> Iterator[None]:
        """Held by one process at a time, only while it checks what is known and puts its commit mark."""
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / ".lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def known_traces(self) -> dict[str, Batch]:
        """The committed traces and the batch each lies in."""
        files = table_files(self.root, MARK)
        if not files:
            return {}
        with duckdb.connect() as con:
            rows = con.execute("SELECT trace_id, batch_id FROM read_parquet(?)", [[str(f) for f in files]]).fetchall()
        return {trace_id: Batch(batch_id) for trace_id, batch_id in rows}

    def batches(self) -> list[Batch]:
        """The committed batches, oldest first."""
        return [batch_of(path) for path in table_files(self.root, MARK)]

    def version_of(self, table: str, batch: Batch) -> str | None:
        """The model version that a table's batch was computed with; None where there is no such file."""
        path = table_file(self.root, table, batch)
        if not path.exists():
            return None
        query = "SELECT decode(value) FROM parquet_kv_metadata(?) WHERE decode(key) = ?"
        with duckdb.connect() as con:
            rows = con.execute(query, [str(path), VERSION_KEY]).fetchall()
        return rows[0][0] if rows else None

    def sweep(self) -> list[Path]:
        """Remove what crashed runs left behind more than a day ago: staging folders and files without a commit mark."""
        old = time.time() - LEFTOVER_SECONDS
        committed = set(self.batches())
        gone = [p for p in self.root.glob(f"{STAGING}/*") if p.stat().st_mtime < old and Batch(p.name) not in committed]
        for folder in gone:
            shutil.rmtree(folder, ignore_errors=True)
        for path in self.root.glob("*/day=*/*.parquet"):
            unmarked = path.parts[-3] not in (MARK, "rejects") and batch_of(path) not in committed
            if unmarked and path.stat().st_mtime < old:
                path.unlink(missing_ok=True)
                gone.append(path)
        return gone

    def create_views(self, con: duckdb.DuckDBPyConnection, tables: Iterable[str], trace_id: str | None = None) -> None:
        """Create views over committed rows in `con`, of one trace or of all; tables without files are left out."""
        marks = table_files(self.root, MARK)
        only = f" WHERE trace_id = {quoted(trace_id)}" if trace_id else ""
        listed = ", ".join(quoted(f) for f in marks)
        con.execute(f"CREATE OR REPLACE VIEW traces AS SELECT * FROM read_parquet([{listed}]){only}")
        for table in tables:
            files = table_files(self.root, table)
            if table == MARK or not files:
                continue
            listed = ", ".join(quoted(f) for f in files)
            joined = "" if table == "rejects" else "SEMI JOIN traces USING (trace_id, batch_id)"
            con.execute(f"CREATE OR REPLACE VIEW {table} AS SELECT * FROM read_parquet([{listed}]) {joined}{only}")
