"""The catalog `catalog.sqlite`, which records the files of a lake in one SQLite file (WAL) with one lock.

Every commit is a transaction that increments `serial`, so one SELECT shows whether anything changed. Rows of batches
and notices have checksums, and `state` has a checksum over all of them. A reader therefore detects a damaged catalog
and rebuilds it from the Parquet files (rebuild.py). The other tables only save time, so losing them does no harm.
"""

from __future__ import annotations

import glob
import json
import os
import secrets
import shutil
import sqlite3
import tempfile
import threading
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pipelines.lake.commit.locks import held
from pipelines.lake.commit.rebuild import implied_rows
from pipelines.lake.version import LAYOUT

CATALOG, LOCK = "catalog.sqlite", ".catalog.lock"
REBUILT = ".catalog-"  # prefix of the folder in which a catalog is rebuilt
_WITH_IT = ("-wal", "-shm")
_TABLES = (
    "CREATE TABLE state (id TEXT NOT NULL, serial INTEGER NOT NULL, sum INTEGER NOT NULL)",
    # `brief` and `keys`: see batch_rows.py. `told` (the detail) is last, because it is long and rarely read.
    "CREATE TABLE batches (name TEXT PRIMARY KEY, serial INTEGER NOT NULL, sum INTEGER NOT NULL, brief TEXT NOT NULL,"
    " keys TEXT NOT NULL, told TEXT NOT NULL)",
    "CREATE INDEX changed ON batches (serial)",
    "CREATE TABLE notices (name TEXT PRIMARY KEY, serial INTEGER NOT NULL, sum INTEGER NOT NULL, brief TEXT NOT NULL)",
    "CREATE TABLE records (name TEXT PRIMARY KEY, text TEXT NOT NULL, sum INTEGER NOT NULL)",
    "CREATE TABLE settled (path BLOB PRIMARY KEY, state TEXT NOT NULL, status TEXT NOT NULL, trace_id TEXT) WITHOUT ROWID",
    "CREATE TABLE grouped (batch_id TEXT PRIMARY KEY, stamp TEXT, folders TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE grouped_captures (folder TEXT, capture_id TEXT, PRIMARY KEY (folder, capture_id)) WITHOUT ROWID",
)
# Errors that do not mean a damaged file. For example, another process has it open, or the disk is full.
_OF_THE_MACHINE = {
    sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR, sqlite3.SQLITE_PERM, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_AUTH,
}  # fmt: skip


class Damaged(Exception):
    """A catalog that is damaged or lost."""


@dataclass(frozen=True)
class Row:
    """A row of a batch or a notice. `n`: the serial of the commit that wrote the row. `sum`: the row's checksum."""

    n: int
    sum: int
    brief: str
    keys: str = ""


@dataclass(frozen=True)
class Content:
    """The content of a catalog, the same object until the next commit. `state`: id, serial, sum."""

    state: tuple[str, int, int] = ("", 0, 0)
    batches: Mapping[str, Row] = field(default_factory=dict)
    notices: Mapping[str, Row] = field(default_factory=dict)

    @property
    def stamp(self) -> str:
        """Return a text that changes with each commit."""
        return ":".join(map(str, self.state))


_memory: dict[Path, Content] = {}
_connections: Counter[tuple[int, int]] = Counter()
"""Number of this process's connections by (device, inode) of the catalog."""
_counting = threading.Lock()


def content(root: Path) -> Content:
    """Return the committed content. Rebuild a damaged or lost catalog first. Raise OSError."""
    try:
        return _content(root)
    except Damaged:
        mend(root)
        return _content(root)


def _content(root: Path) -> Content:
    with reading(root) as con:
        current = Content() if con is None else _read(con, _memory.get(root, Content()))
    _memory[root] = current
    return current


def _read(con: sqlite3.Connection, cached: Content) -> Content:
    con.execute("BEGIN")
    states = con.execute("SELECT id, serial, sum FROM state").fetchall()
    if len(states) != 1:
        raise Damaged("no state")
    state = states[0]
    if state == cached.state:
        return cached
    try:
        if state[0] == cached.state[0] and state[1] > cached.state[1]:
            newer = f"WHERE serial > {cached.state[1]}"
            batches = {**cached.batches, **_rows(con, "batches", ", keys", newer)}
            current = Content(state, batches, {**cached.notices, **_rows(con, "notices", "", newer)})
            if _sum_of(current) == state[2]:  # a different sum means that a row was deleted
                return current
        current = Content(state, _rows(con, "batches", ", keys"), _rows(con, "notices", ""))
        is_intact = _sum_of(current) == state[2] and all(_sum(name, row) == row.sum for name, row in _all(current))
    except (TypeError, ValueError) as error:  # values whose types differ from the columns' types
        raise Damaged(str(error)) from error
    if not is_intact:
        raise Damaged("rows are not as they were written")
    return current


def _rows(con: sqlite3.Connection, table: str, more: str, where: str = "") -> dict[str, Row]:
    rows = con.execute(f"SELECT name, serial, sum, brief{more} FROM {table} {where} ORDER BY name").fetchall()
    return {str(name): Row(*values) for name, *values in rows}


def _all(source: Content) -> Iterator[tuple[str, Row]]:
    yield from source.batches.items()
    yield from source.notices.items()


def _sum_of(source: Content) -> int:
    total = 0
    for _, row in _all(source):
        total ^= row.sum
    return total


def _sum(name: str, row: Row) -> int:
    return zlib.crc32(f"{name}\n{row.n}\n{row.brief}\n{row.keys}".encode("utf-8", "surrogatepass"))


def batch_summary(root: Path, name: str) -> str:
    """Return the detail (row counts and digests, JSON) of a batch's row, or "" if the row does not exist."""
    rows = rows_of(root, "SELECT told FROM batches WHERE name = ?", (name,))
    return str(rows[0][0]) if rows else ""


def rows_of(root: Path, query: str, parameters: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the rows of a query. If the catalog is damaged, rebuild it and query it again. Raise OSError."""
    for _ in range(2):
        try:
            with reading(root) as con:
                return con.execute(query, parameters).fetchall() if con else []
        except Damaged:
            mend(root)
    raise OSError(f"{root / CATALOG} is damaged")


class Writer:
    """Changes of a catalog, which `commit` makes durable together."""

    def __init__(self, con: sqlite3.Connection) -> None:
        self.con = con
        self._serial = self._sum = 0

    def begin(self) -> None:
        """Begin a transaction unless `con` is in one. The caller may then write rows of other tables in `con`."""
        if not self.con.in_transaction:
            self.con.execute("BEGIN IMMEDIATE")

    def batch(self, name: str, brief: str | None, keys: str = "", detail: str = "") -> None:
        """Write a batch's row, or remove it if `brief` is None."""
        self._put("batches", name, brief, keys, detail)

    def notice(self, name: str, brief: str | None) -> None:
        """Write a notice, or remove it if `brief` is None."""
        self._put("notices", name, brief)

    def _put(self, table: str, name: str, brief: str | None, *more: str) -> None:
        self.begin()
        if not self._serial:
            self._serial, self._sum = self.con.execute("SELECT serial + 1, sum FROM state").fetchall()[0]
        for (before,) in self.con.execute(f"SELECT sum FROM {table} WHERE name = ?", (name,)).fetchall():
            self._sum ^= before
        if brief is None:
            self.con.execute(f"DELETE FROM {table} WHERE name = ?", (name,))
            return
        row = (self._serial, _sum(name, Row(self._serial, 0, brief, *more[:1])))
        self._sum ^= row[1]
        values = (name, *row, brief, *more)
        self.con.execute(f"INSERT OR REPLACE INTO {table} VALUES ({', '.join('?' * len(values))})", values)

    def record(self, name: str, value: Any) -> None:
        """Write a value under a name, as JSON, or remove the record if the value is None."""
        self.begin()
        self.con.execute("DELETE FROM records WHERE name = ?", (name,))
        if value is not None:
            text = json.dumps(value)
            self.con.execute("INSERT INTO records VALUES (?, ?, ?)", (name, text, zlib.crc32(text.encode())))

    def commit(self) -> None:
        """Make all changes since the last commit durable and visible."""
        if self._serial:
            self.con.execute("UPDATE state SET serial = ?, sum = ?", (self._serial, self._sum))
            self._serial = 0
        if self.con.in_transaction:
            self.con.execute("COMMIT")


@contextmanager
def writing(root: Path) -> Iterator[Writer]:
    """Yield a writer of the catalog, under its lock. Commit at the end, unless the block raises. Raise OSError."""
    with held(root, LOCK):
        content(root)  # rebuilds a damaged catalog
        try:
            if not (root / CATALOG).exists():
                with _said(root), closing(_connect(root / CATALOG, "rwc")) as con:
                    create(con)
            with _said(root), _checked(root / CATALOG), closing(_connect(root / CATALOG, "rw")) as con:
                writer = Writer(con)
                yield writer
                writer.commit()
        except Damaged as error:  # damage in a part that `content` does not read
            rebuild(root)
            raise OSError(
                f"{root / CATALOG} was damaged ({error}), and has been rebuilt: run the command again"
            ) from None


def create(con: sqlite3.Connection) -> None:
    """Create the tables of a catalog, with a new random id."""
    con.execute("PRAGMA journal_mode = WAL")
    con.execute("BEGIN IMMEDIATE")
    for table in _TABLES:
        con.execute(table)
    con.execute(
        f"PRAGMA user_version = {LAYOUT}"
    )  # a second copy, from which a damaged marker of the layout is restored
    con.execute("INSERT INTO state VALUES (?, 0, 0)", (secrets.token_hex(8),))
    con.execute("COMMIT")


@contextmanager
def reading(root: Path) -> Iterator[sqlite3.Connection | None]:
    """Yield a connection that reads the catalog, or None if the lake has no files yet. Raise Damaged or OSError."""
    if not (root / CATALOG).exists():
        if next(glob.iglob("*/day=*/*.parquet", root_dir=root), None):
            raise Damaged("it is lost")
        yield None
        return
    with _said(root), ExitStack() as stack:
        stack.enter_context(_checked(root / CATALOG))
        yield _opened(root, stack)


@contextmanager
def _checked(path: Path) -> Iterator[None]:
    """Check a catalog's header before this process's first connection to it. Connect and disconnect within the block.

    While a connection is open, other code must not open the file. Closing any descriptor of a file drops all POSIX
    locks that the process has on it, including SQLite's locks. Another process would then remove the log that the
    connection writes to. Raise Damaged or OSError.
    """
    status = path.stat()
    file_id = status.st_dev, status.st_ino
    with _counting:
        if not _connections[file_id]:
            _check_header(path)
        _connections[file_id] += 1
    try:
        yield
    finally:
        with _counting:
            _connections[file_id] -= 1


def _begin_anew() -> None:
    """Reset the counts in a forked process, which has no connections.

    Also replace the lock, because the inherited lock may be held by a thread that exists only in the parent process.
    """
    global _counting
    _counting = threading.Lock()
    _connections.clear()


os.register_at_fork(after_in_child=_begin_anew)


def _check_header(path: Path) -> None:
    with path.open("rb") as file:
        header = file.read(20)
    if header[:16] != b"SQLite format 3\0" or header[18:] != b"\2\2":  # SQLite would open some other files read-only
        raise Damaged("it is not a catalog")


def _opened(root: Path, stack: ExitStack) -> sqlite3.Connection:
    try:
        con = stack.enter_context(closing(_connect(root / CATALOG, "rw")))
        con.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
        return con
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
            raise
    # In a read-only folder, SQLite cannot read rows that are still in the log (WAL), so open a copy in another folder.
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    _copy(root, folder)
    return stack.enter_context(closing(_connect(folder / CATALOG, "rw")))


def _copy(root: Path, folder: Path) -> None:
    """Copy the catalog and its log into `folder`. Repeat the copy if a writer changed them meanwhile.

    A mix of two states would look damaged.
    """
    copied = None
    while (state := [_state(root / (CATALOG + end)) for end in ("", "-wal")]) != copied:
        for end in ("", "-wal"):
            (folder / (CATALOG + end)).unlink(missing_ok=True)
            with suppress(FileNotFoundError):
                shutil.copyfile(root / (CATALOG + end), folder / (CATALOG + end))
        copied = state


def _state(path: Path) -> tuple[int, int] | None:
    """Return the size and the modification time of a file, or None if it does not exist."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_size, status.st_mtime_ns


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    name = f"file:{quote(os.fsencode(path))}?mode={mode}"
    con = sqlite3.connect(name, timeout=60, uri=True, isolation_level=None)
    con.execute("PRAGMA synchronous = FULL")
    return con


@contextmanager
def _said(root: Path) -> Iterator[None]:
    """Convert SQLite's errors to Damaged for a damaged file, and to OSError for any other cause."""
    try:
        yield
    except UnicodeDecodeError as error:  # from a damaged name
        raise Damaged(str(error)) from error
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", None)
        is_short = code == sqlite3.SQLITE_IOERR_SHORT_READ
        if code is None or code & 0xFF not in _OF_THE_MACHINE or is_short:
            raise Damaged(str(error)) from error
        raise OSError(f"{root / CATALOG}: {error}") from None


def mend(root: Path) -> None:
    """Rebuild a damaged or lost catalog from the Parquet files, unless another process has done so. Raise OSError."""
    try:
        with held(root, LOCK):
            if not _is_whole(root):
                rebuild(root)
    except OSError as error:
        raise OSError(f"{root / CATALOG} is damaged or lost, and cannot be rebuilt: {error}") from None


def _is_whole(root: Path) -> bool:
    try:
        _content(root)
        with reading(root) as con:
            if con is None:
                return True
            statements = {f"{sql}" for (sql,) in con.execute("SELECT sql FROM sqlite_master").fetchall()}
            return statements >= {*_TABLES} and con.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    except Damaged:
        return False


def rebuild(root: Path) -> None:
    """Rebuild the catalog from the Parquet files alone, regardless of its current content. Raise OSError."""
    with held(root, LOCK), tempfile.TemporaryDirectory(prefix=REBUILT, dir=root) as folder:
        made = Path(folder) / CATALOG
        with _said(root), closing(_connect(made, "rwc")) as con:
            create(con)
            writer = Writer(con)
            rows, notices = implied_rows(root)
            for name, row in rows.items():
                writer.batch(name, *row)
            for name, text in notices.items():
                writer.notice(name, text)
            writer.commit()
        # SQLite must never apply a log of the old file to the new one. If the process is killed here, the catalog is
        # missing, and the next access rebuilds it.
        for end in ("", *_WITH_IT):
            (root / (CATALOG + end)).unlink(missing_ok=True)
        os.replace(made, root / CATALOG)


def record_of(root: Path, name: str) -> Any:
    """Return the value that was recorded under a name, or None if it is missing or damaged. Raise OSError.

    Records only save time.
    """
    rows = rows_of(root, "SELECT text, sum FROM records WHERE name = ?", (name,))
    return next((json.loads(text) for text, checksum in rows if zlib.crc32(text.encode()) == checksum), None)


def note(root: Path, name: str, value: Any) -> None:
    """Record a value under a name, as JSON, or remove the record if the value is None. Raise OSError."""
    with writing(root) as catalog:
        catalog.record(name, value)
