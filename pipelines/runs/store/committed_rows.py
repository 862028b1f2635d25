"""The committed rows of single tables for checks, limited to some days or to commits after an earlier check."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import duckdb

from pipelines.base import database
from pipelines.lake.commit.manifest import entries
from pipelines.lake.lake import Lake
from pipelines.lake.names import CAPTURE_MARK, KEYS, REJECTS, Batch, batch_of, mark_of, table_file
from pipelines.lake.read.views import file_rows
from pipelines.lake.table_files import table_files
from pipelines.models.sqltext import parquet_rows, quoted, row
from pipelines.runs.store.ducklake.attach import LAKE
from pipelines.runs.store.ducklake.schema import KEYS_TABLE, has_own, lake_columns
from pipelines.runs.store.interface import BatchSpan, Rows

_TICK_S = 0.02  # maximum lag of a file's timestamp behind the clock


class RowsOfFolder:
    """CommittedRows of a folder lake. `until` and `since` are times, in s since 1970."""

    def __init__(self, con: duckdb.DuckDBPyConnection, lake: Lake) -> None:
        """Use `con`, a connection that can read Parquet files."""
        self.con, self._lake, self.address = con, lake, str(lake.root)
        self.until: float | str = time.time() - _TICK_S
        self._old: dict[float, set[str]] = {}

    def of(self, table: str, span: BatchSpan, since: float | str = "") -> Rows | None:
        """See CommittedRows."""
        files, begin = [Path(file) for file in files_of(self._lake, table, span.holds)], float(since or 0)
        if begin:
            old = self._not_written_after(begin)
            files = [file for file in files if file.stem not in old and self._committed_at(table, file) > begin]
        return Rows(parquet_rows(files), len(files)) if files else None

    def _not_written_after(self, begin: float) -> set[str]:
        """Return the batches without a file written after `begin`, from the catalog, to avoid a stat of every file."""
        if begin not in self._old:
            logs = entries(self._lake.root).items() if self._lake.exists else ()
            self._old[begin] = {name for name, entry in logs if entry.is_plain and entry.written_at_ns < begin * 1e9}
        return self._old[begin]

    def _committed_at(self, table: str, file: Path) -> float:
        """Return the time (ctime, s) when both a file and its batch's commit marker were in place.

        Writing the file ended before this time.
        """
        marker = table_file(self._lake.root, mark_of(table), batch_of(file))
        return max((path.stat().st_ctime for path in (file, marker) if path.exists()), default=0.0)


def files_of(lake: Lake, table: str, holds: Callable[[Batch], bool]) -> list[str]:
    """Return the files of a table in the batches that `holds` accepts.

    Files of `rejects` count even if their batch has no commit marker.
    """
    committed = lake.all_batches()
    return [
        str(path)
        for path in table_files(lake.root, table)
        if (table == REJECTS or batch_of(path) in committed) and holds(batch_of(path))
    ]


def replaced_rows(mark: str, mark_files: Sequence[str], files: Sequence[str]) -> int:
    """Count the rows in a table's files that belong to replaced or deleted captures or to replaced recordings.

    `mark_files`: the files of the table's marker, one of NEWEST, in the same batches. Open only files with such rows.
    Return 0 if one of these files is damaged.
    """
    if len(mark_files) < 2:
        return 0
    key, is_gone = KEYS[mark], "is_gone" if mark == CAPTURE_MARK else "false"
    replaced = f"batch_id < max(batch_id) OVER (PARTITION BY {key}) OR {is_gone}"
    states = f"SELECT {key}, batch_id FROM ({file_rows(map(Path, mark_files))} QUALIFY {replaced})"
    with database.scratch() as con, suppress(duckdb.Error):
        batches = {batch for _, batch in con.execute(states).fetchall()}
        if opened := [path for file in files if (path := Path(file)).stem in batches]:
            rows = f"{file_rows(opened)} SEMI JOIN ({states}) AS replaced USING ({key}, batch_id)"
            return con.execute(f"SELECT count(*) FROM ({rows})").fetchall()[0][0]
    return 0


class RowsOfDuckLake:
    """CommittedRows of a DuckLake. `until` and `since` are ids of batches."""

    def __init__(self, con: duckdb.DuckDBPyConnection, address: str) -> None:
        """Use `con`, a connection with the DuckLake attached."""
        self.con, self._tables, self.address = con, lake_columns(con), address
        newest = con.execute(f"SELECT max(batch_id) FROM {KEYS_TABLE}").fetchall() if has_own(con) else [(None,)]
        self.until: float | str = newest[0][0] or ""

    def of(self, table: str, span: BatchSpan, since: float | str = "") -> Rows | None:
        """See CommittedRows."""
        if table not in self._tables:
            return None
        days = [day.replace("-", "") for day in sorted(span.days)]
        of_span = f"(substr(batch_id, 1, 8) IN {row(days)} OR batch_id >= {quoted(span.since)})" if days else "true"
        return Rows(f"(FROM {LAKE}.main.{table} WHERE {of_span} AND batch_id > {quoted(str(since))})", None)
