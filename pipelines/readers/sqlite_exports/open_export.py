"""Untrusted SQLite file, of which only the plain tables can be read.

A database can contain views, triggers, virtual tables and generated columns, which run code of the file's author.
Profilers do not write them, so a table that is or has one of these is rejected. Nothing is written, and no lock is
taken.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from pipelines.base.foreign_text import visible
from pipelines.base.paths import path_text
from pipelines.readers.kineto import TraceRejected
from pipelines.readers.kineto.limits import allow

MAGIC = b"SQLite format 3\0"
_WAL = 2  # value of the header's bytes 18 and 19 if recent writes may be in a separate -wal file
_GENERATED = (2, 3)  # values of `hidden` in table_xinfo
# A message with a name that is not UTF-8 raises UnicodeDecodeError. A flipped bit that makes a row huge raises
# MemoryError.
_UNREADABLE = (sqlite3.Error, sqlite3.Warning, OverflowError, UnicodeDecodeError, MemoryError)
_CHUNK_ROWS = 20_000
_CHUNK_CHARACTERS = 16 << 20


class Exported:
    """Tables of an export.

    The methods raise TraceRejected, naming the file and the table, if SQLite cannot read the table.
    """

    def __init__(self, con: sqlite3.Connection, path: Path, max_text_mib: int, again: str) -> None:
        self._con, self.path, self._max_text_mib, self._again = con, path, max_text_mib, again
        self._columns: dict[str, frozenset[str]] = {}
        listed = self._fetch("sqlite_master", "SELECT name, type, rootpage, sql FROM sqlite_master")
        self._kinds = {str(name): (kind, page, str(sql or "")) for name, kind, page, sql in listed}
        self.tables = frozenset(name for name, (kind, *_) in self._kinds.items() if kind in ("table", "view"))

    def columns(self, table: str) -> frozenset[str]:
        """Return a table's columns, an empty set if it does not exist.

        Raise TraceRejected if it is not a plain table.
        """
        if table not in self._columns:
            self._columns[table] = self._read_columns(table) if table in self.tables else frozenset()
        return self._columns[table]

    def _read_columns(self, table: str) -> frozenset[str]:
        kind, page, sql = self._kinds[table]
        if kind != "table" or not isinstance(page, int) or page < 1 or re.match(r"\s*create\s+virtual", sql, re.I):
            raise self.rejected(f"{table} is not a plain table, as the profiler writes it: {self._again}")
        rows = self._fetch(table, f"SELECT name, hidden FROM pragma_table_xinfo({_text(table)})")
        if any(hidden in _GENERATED for _, hidden in rows):
            raise self.rejected(f"{table} has generated columns, which no profiler writes: {self._again}")
        return frozenset(name for name, _ in rows)

    def has(self, table: str) -> bool:
        """Return whether the table exists and has rows."""
        return bool(self.columns(table)) and bool(self._fetch(table, f"SELECT 1 FROM {column(table)} LIMIT 1"))

    def rows(self, table: str, query: str, values: tuple[object, ...] = ()) -> list[tuple]:
        """Return all rows of a query on `table`. Use `chunks` for queries with many rows."""
        return self._fetch(table, query, values)

    def check_unique(self, table: str, name: str) -> None:
        """Raise TraceRejected if column `name` has duplicates, which would duplicate joined rows of other tables."""
        primary_key = self._fetch(table, f"SELECT name FROM pragma_table_xinfo({_text(table)}) WHERE pk > 0")
        if primary_key == [(name,)]:
            return
        key_sql = column(name)
        query = f"SELECT count(*) - count(DISTINCT {key_sql}) FROM {column(table)} WHERE typeof({key_sql}) = 'integer'"
        if n := self._fetch(table, query)[0][0]:
            raise self.rejected(
                f"{table} has {n:,} rows too many with the same {name}, by which others name them: {self._again}"
            )

    def chunks(self, table: str, query: str, values: tuple[object, ...] = ()) -> Iterator[list[tuple]]:
        """Yield the rows of a query on `table` in chunks, so that memory does not grow with their number."""
        with self._errors(table):
            cursor = self._con.execute(query, values)
            chunk, size = [], 0
            for row in cursor:
                chunk.append(row)
                size += sum(len(value) for value in row if isinstance(value, str))
                if len(chunk) >= _CHUNK_ROWS or size >= _CHUNK_CHARACTERS:
                    yield chunk
                    chunk, size = [], 0
            if chunk:
                yield chunk

    def _fetch(self, table: str, query: str, values: tuple[object, ...] = ()) -> list[tuple]:
        with self._errors(table):
            return self._con.execute(query, values).fetchall()

    @contextmanager
    def _errors(self, table: str) -> Iterator[None]:
        try:
            yield
        except _UNREADABLE as error:
            text = str(error) or "a row needs more memory than is available"
            if "too big" in text:
                reason = f"{table} has a text over {self._max_text_mib} MiB; {allow('max_event_mib')}"
            else:
                reason = (
                    f"SQLite cannot read {visible(table)}: {visible(text)}; the file is damaged or incomplete: copy it again, "
                    f"or {self._again}"
                )
            raise self.rejected(reason) from None

    def rejected(self, why: str) -> TraceRejected:
        """Return a TraceRejected for this file with the reason `why`."""
        return TraceRejected(self.path, None, why)


@contextmanager
def opened(path: Path, max_text_mib: int, again: str) -> Iterator[Exported]:
    """Open a SQLite file read-only. `again`: advice on how to write the file again, for messages.

    Raise TraceRejected if the file is still being written, or OSError. The file is opened as immutable, without lock
    and journal, so it may be on read-only or network storage.
    """
    _check_finished(path)
    address = f"file:{quote(os.fsencode(path.absolute()))}?mode=ro&immutable=1"
    with closing(sqlite3.connect(address, uri=True)) as con:
        con.text_factory = lambda raw: raw.decode("utf-8", "replace")
        con.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, min(max_text_mib << 20, 1_000_000_000))
        con.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        try:
            con.execute("PRAGMA trusted_schema = OFF")
            con.execute("PRAGMA query_only = ON")
            con.execute("PRAGMA cell_size_check = ON")
            con.execute("PRAGMA mmap_size = 0")
        except _UNREADABLE as error:
            raise TraceRejected(path, None, f"SQLite cannot open it: {visible(error)}") from None
        yield Exported(con, path, max_text_mib, again)


def is_sqlite(path: Path) -> bool:
    """Return whether a file begins with the magic bytes of SQLite."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def has_table_like(path: Path, beginning: str) -> bool:
    """Return whether a SQLite database has a table or view with this prefix. Return False if it is unreadable."""
    address = f"file:{quote(os.fsencode(path.absolute()))}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(address, uri=True)) as con:
            con.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1 << 20)
            cursor = con.execute(
                "SELECT 1 FROM sqlite_master WHERE substr(name, 1, ?) = ? LIMIT 1", (len(beginning), beginning)
            )
            return cursor.fetchone() is not None
    except _UNREADABLE:
        return False


def _check_finished(path: Path) -> None:
    """Raise TraceRejected if a journal, or the WAL in WAL mode, has data, because its rows would be missing."""
    with path.open("rb") as file:
        head = file.read(20)
    path_by_suffix = {suffix: path.with_name(f"{path.name}-{suffix}") for suffix in ("journal", "wal")}
    pending = [name for name, file in path_by_suffix.items() if file.is_file() and file.stat().st_size]
    if "journal" in pending or ("wal" in pending and _WAL in head[18:20]):
        name = path_text(path_by_suffix[pending[0]].name)
        message = f"{name} is next to it: the export is still running, or was interrupted; export again"
        raise TraceRejected(path, None, message)


def column(name: str) -> str:
    """Return a name quoted as an SQLite identifier."""
    return '"' + name.replace('"', '""') + '"'


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
