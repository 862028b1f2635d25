"""`catalog.sqlite`: which files a lake consists of, and what is known about them. One SQLite file (WAL) with one lock.

Every commit is a transaction that raises `serial`; so whether anything changed is one SELECT. Rows of batches and notices
carry checksums, and `state` one over all of them: a damaged catalog is noticed when it is read, and made again from the
Parquet files (rebuild.py). The other tables may be lost: they only save time.
"""

from __future__ import annotations

import glob
import json
import os
import secrets
import shutil
import sqlite3
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pipelines.lake.commit.locks import held
from pipelines.lake.commit.rebuild import found_in

CATALOG, LOCK = "catalog.sqlite", ".catalog.lock"
REBUILT = ".catalog-"  # one that is being made
_WITH_IT = ("-wal", "-shm")
_TABLES = (
    "CREATE TABLE state (id TEXT NOT NULL, serial INTEGER NOT NULL, sum INTEGER NOT NULL)",
    # `brief` and `keys`: see manifest.py. `told` is last: it is long, and not read with the others.
    "CREATE TABLE batches (name TEXT PRIMARY KEY, serial INTEGER NOT NULL, sum INTEGER NOT NULL, brief TEXT NOT NULL,"
    " keys TEXT NOT NULL, told TEXT NOT NULL)",
    "CREATE INDEX changed ON batches (serial)",
    "CREATE TABLE notices (name TEXT PRIMARY KEY, serial INTEGER NOT NULL, sum INTEGER NOT NULL, brief TEXT NOT NULL)",
    "CREATE TABLE records (name TEXT PRIMARY KEY, text TEXT NOT NULL, sum INTEGER NOT NULL)",
    "CREATE TABLE settled (path BLOB PRIMARY KEY, state TEXT NOT NULL, status TEXT NOT NULL, trace_id TEXT) WITHOUT ROWID",
    "CREATE TABLE grouped (batch_id TEXT PRIMARY KEY, stamp TEXT, folders TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE grouped_captures (folder TEXT, capture_id TEXT, PRIMARY KEY (folder, capture_id)) WITHOUT ROWID",
)
# Not the file's fault: somebody else has it, the disk is full, it may not be written, …
_OF_THE_MACHINE = {
    sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR, sqlite3.SQLITE_PERM, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_AUTH,
}  # fmt: skip


class Damaged(Exception):
    """The catalog is damaged, or lost."""


@dataclass(frozen=True)
class Row:
    """A batch's row. `n`: the serial of the commit that wrote it."""

    n: int
    sum: int
    brief: str
    keys: str = ""


@dataclass(frozen=True)
class Content:
    """What a catalog says: the same object as long as nothing was committed. `state`: id, serial, sum."""

    state: tuple[str, int, int] = ("", 0, 0)
    batches: Mapping[str, Row] = field(default_factory=dict)
    notices: Mapping[str, Row] = field(default_factory=dict)

    @property
    def stamp(self) -> str:
        """Returns what changes with each commit."""
        return ":".join(map(str, self.state))


_memory: dict[Path, Content] = {}


def content(root: Path) -> Content:
    """Returns what is committed right now. A catalog that is damaged or lost is made again. Raises OSError."""
    try:
        return _content(root)
    except Damaged:
        mend(root)
        return _content(root)


def _content(root: Path) -> Content:
    with reading(root) as con:
        found = Content() if con is None else _read(con, _memory.get(root, Content()))
    _memory[root] = found
    return found


def _read(con: sqlite3.Connection, known: Content) -> Content:
    con.execute("BEGIN")
    states = con.execute("SELECT id, serial, sum FROM state").fetchall()
    if len(states) != 1:
        raise Damaged("no state")
    state = states[0]
    if state == known.state:
        return known
    try:
        if state[0] == known.state[0] and state[1] > known.state[1]:
            newer = f"WHERE serial > {known.state[1]}"
            batches = {**known.batches, **_rows(con, "batches", ", keys", newer)}
            found = Content(state, batches, {**known.notices, **_rows(con, "notices", "", newer)})
            if _sum_of(found) == state[2]:  # else a row is gone
                return found
        found = Content(state, _rows(con, "batches", ", keys"), _rows(con, "notices", ""))
        is_whole = _sum_of(found) == state[2] and all(_sum(name, row) == row.sum for name, row in _all(found))
    except (TypeError, ValueError) as error:  # values that are not even of their types
        raise Damaged(str(error)) from error
    if not is_whole:
        raise Damaged("rows are not as they were written")
    return found


def _rows(con: sqlite3.Connection, table: str, more: str, where: str = "") -> dict[str, Row]:
    rows = con.execute(f"SELECT name, serial, sum, brief{more} FROM {table} {where} ORDER BY name").fetchall()
    return {str(name): Row(*told) for name, *told in rows}


def _all(found: Content) -> Iterator[tuple[str, Row]]:
    yield from found.batches.items()
    yield from found.notices.items()


def _sum_of(found: Content) -> int:
    total = 0
    for _, row in _all(found):
        total ^= row.sum
    return total


def _sum(name: str, row: Row) -> int:
    return zlib.crc32(f"{name}\n{row.n}\n{row.brief}\n{row.keys}".encode("utf-8", "surrogatepass"))


def told_of(root: Path, name: str) -> str:
    """Returns the long text of a batch's row."""
    rows = rows_of(root, "SELECT told FROM batches WHERE name = ?", (name,))
    return str(rows[0][0]) if rows else ""


def rows_of(root: Path, query: str, given: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Returns the rows of a query; a catalog that turns out to be damaged is made again. Raises OSError."""
    for _ in range(2):
        try:
            with reading(root) as con:
                return con.execute(query, given).fetchall() if con else []
        except Damaged:
            mend(root)
    raise OSError(f"{root / CATALOG} is damaged")


class Writer:
    """Changes of a catalog, which `commit` makes durable together."""

    def __init__(self, con: sqlite3.Connection) -> None:
        self.con = con
        self._serial = self._sum = 0

    def begin(self) -> None:
        """Begin a transaction, if none has begun. Rows of other tables may then be written in `con`."""
        if not self.con.in_transaction:
            self.con.execute("BEGIN IMMEDIATE")

    def batch(self, name: str, brief: str | None, keys: str = "", told: str = "") -> None:
        """Write a batch's row; `brief` None removes it."""
        self._put("batches", name, brief, keys, told)

    def notice(self, name: str, brief: str | None) -> None:
        """Write a notice; None removes it."""
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

    def record(self, name: str, said: Any) -> None:
        """Note something under a name; None removes it."""
        self.begin()
        self.con.execute("DELETE FROM records WHERE name = ?", (name,))
        if said is not None:
            text = json.dumps(said)
            self.con.execute("INSERT INTO records VALUES (?, ?, ?)", (name, text, zlib.crc32(text.encode())))

    def commit(self) -> None:
        """Make everything since the last commit durable and visible."""
        if self._serial:
            self.con.execute("UPDATE state SET serial = ?, sum = ?", (self._serial, self._sum))
            self._serial = 0
        if self.con.in_transaction:
            self.con.execute("COMMIT")


@contextmanager
def writing(root: Path) -> Iterator[Writer]:
    """Yields what changes the catalog, which nobody else does meanwhile; committed at the end, unless something is raised.

    Raises OSError.
    """
    with held(root, LOCK):
        content(root)  # made again if it is damaged
        try:
            is_new = not (root / CATALOG).exists()
            with _said(root), closing(_connect(root / CATALOG, "rwc")) as con:
                if is_new:
                    create(con)
                writer = Writer(con)
                yield writer
                writer.commit()
        except Damaged as error:  # where a look does not come
            rebuild(root)
            raise OSError(f"{root / CATALOG} was damaged ({error}), and has been made again: run this again") from None


def create(con: sqlite3.Connection) -> None:
    """Create the tables of a catalog, with an id of its own."""
    con.execute("PRAGMA journal_mode = WAL")
    con.execute("BEGIN IMMEDIATE")
    for table in _TABLES:
        con.execute(table)
    con.execute("INSERT INTO state VALUES (?, 0, 0)", (secrets.token_hex(8),))
    con.execute("COMMIT")


@contextmanager
def reading(root: Path) -> Iterator[sqlite3.Connection | None]:
    """Yields a connection that reads the catalog; None if the lake has no files yet. Raises Damaged or OSError."""
    if not (root / CATALOG).exists():
        if next(glob.iglob("*/day=*/*.parquet", root_dir=root), None):
            raise Damaged("it is lost")
        yield None
        return
    with _said(root), ExitStack() as stack:
        with (root / CATALOG).open("rb") as file:
            header = file.read(20)
        if header[:16] != b"SQLite format 3\0" or header[18:] != b"\2\2":  # SQLite would take some for read-only
            raise Damaged("it is not a catalog")
        yield _opened(root, stack)


def _opened(root: Path, stack: ExitStack) -> sqlite3.Connection:
    try:
        con = stack.enter_context(closing(_connect(root / CATALOG, "rw")))
        con.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
        return con
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
            raise
    # In a folder that cannot be written SQLite cannot read what has not been moved out of the log yet.
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    for end in ("", "-wal"):
        if (root / (CATALOG + end)).exists():
            shutil.copyfile(root / (CATALOG + end), Path(folder) / (CATALOG + end))
    return stack.enter_context(closing(_connect(Path(folder) / CATALOG, "rw")))


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    name = f"file:{quote(os.fsencode(path))}?mode={mode}"
    con = sqlite3.connect(name, timeout=60, uri=True, isolation_level=None)
    con.execute("PRAGMA synchronous = FULL")
    return con


@contextmanager
def _said(root: Path) -> Iterator[None]:
    """Raises Damaged or OSError for what SQLite raises."""
    try:
        yield
    except UnicodeDecodeError as error:  # of a name that is not as it was written
        raise Damaged(str(error)) from error
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", None)
        is_short = code == sqlite3.SQLITE_IOERR_SHORT_READ
        if code is None or code & 0xFF not in _OF_THE_MACHINE or is_short:
            raise Damaged(str(error)) from error
        raise OSError(f"{root / CATALOG}: {error}") from None


def mend(root: Path) -> None:
    """Make a catalog that is damaged or lost again from the Parquet files, unless another process did. Raises OSError."""
    try:
        with held(root, LOCK):
            if not _is_whole(root):
                rebuild(root)
    except OSError as error:
        raise OSError(f"{root / CATALOG} is damaged or lost, and cannot be made again: {error}") from None


def _is_whole(root: Path) -> bool:
    try:
        _content(root)
        with reading(root) as con:
            if con is None:
                return True
            there = {f"{sql}" for (sql,) in con.execute("SELECT sql FROM sqlite_master").fetchall()}
            return there >= {*_TABLES} and con.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    except Damaged:
        return False


def rebuild(root: Path) -> None:
    """Make the catalog from the Parquet files alone, whatever it says now. Raises OSError."""
    with held(root, LOCK), tempfile.TemporaryDirectory(prefix=REBUILT, dir=root) as folder:
        made = Path(folder) / CATALOG
        with _said(root), closing(_connect(made, "rwc")) as con:
            create(con)
            writer = Writer(con)
            rows, notices = found_in(root)
            for name, row in rows.items():
                writer.batch(name, *row)
            for name, text in notices.items():
                writer.notice(name, text)
            writer.commit()
        # A log of the old file must never be applied to the new one; without a catalog it is made again.
        for end in ("", *_WITH_IT):
            (root / (CATALOG + end)).unlink(missing_ok=True)
        os.replace(made, root / CATALOG)


def record_of(root: Path, name: str) -> Any:
    """Returns what was noted under a name; None if nothing was, or if it is damaged. It only saves time. Raises OSError."""
    rows = rows_of(root, "SELECT text, sum FROM records WHERE name = ?", (name,))
    return next((json.loads(text) for text, told in rows if zlib.crc32(text.encode()) == told), None)


def note(root: Path, name: str, said: Any) -> None:
    """Note something under a name; None removes it. Raises OSError."""
    with writing(root) as catalog:
        catalog.record(name, said)
