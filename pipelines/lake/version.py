"""The version of a lake's layout (folders, logs and columns of its files), stored in `.layout` in the lake.

A lake of another version is refused. The message ends with the command that ingests the lake's source files again,
because these usually still exist. Increase LAYOUT when the program can no longer read existing files.
"""

from __future__ import annotations

import os
import shlex
import sqlite3
import tempfile
from collections.abc import Collection, Iterable
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import duckdb

from pipelines.base import database
from pipelines.base.paths import UnusablePath, path_text, text_path
from pipelines.base.whole_file import write_whole
from pipelines.lake.names import KEYS, REJECTS
from pipelines.models.catalog import load_catalog
from pipelines.models.sqltext import parquet_rows, quoted

LAYOUT = 4
MARKER = ".layout"
LIST = "files-to-read-again.txt"
_FEW = 20  # maximum number of paths in a command; more paths are in a list


class OtherLayout(UnusablePath):
    """A lake whose layout this program cannot read. The message contains the command that ingests its files again."""


def check_layout(root: Path) -> None:
    """Raise OtherLayout for a lake of another version. An empty or missing folder is accepted as a new lake."""
    version = _version(root)
    if version != LAYOUT and (root / MARKER).exists() and _is_of_this_layout(root, version):
        raise OtherLayout(
            f"{path_text(root / MARKER)} is damaged: tracelake check --repair --lake {shlex.quote(str(root))}"
        )
    if version is None and not any((root / mark).is_dir() for mark in (*KEYS, REJECTS)):
        return
    if version is not None and version > LAYOUT:
        raise OtherLayout(
            f"{path_text(root)} was written by a newer tracelake (layout {version}; this one knows {LAYOUT}): "
            "pip install -U tracelake"
        )
    if version != LAYOUT:
        old = f"was written by an older tracelake (layout {version}; this one reads {LAYOUT})"
        none = f"has no {MARKER}: tracelake 0.1 wrote it, or it was copied without its hidden files"
        why = f"{path_text(root)} {none if version is None else old}"
        raise OtherLayout(f"{why}; {read_again(files_of(root), f'{root}-new', root)}")


def mark_layout(root: Path) -> None:
    """Write and flush the layout marker of a lake without one, so that it survives a power loss."""
    if (root / MARKER).exists():
        return
    write_whole(root / MARKER, f"{LAYOUT}\n")


def restore_layout(root: Path) -> bool:
    """Rewrite the damaged or lost `.layout` of a lake that has this layout.

    Return whether it was restored. Raise OSError if it cannot be written.
    """
    version = _version(root)
    if version == LAYOUT or not _is_of_this_layout(root, version):
        return False
    (root / MARKER).unlink(missing_ok=True)
    mark_layout(root)
    return True


def _is_of_this_layout(root: Path, version: int | None) -> bool:
    """Return whether a lake has this layout, even if its marker is damaged or lost.

    The catalog contains a copy of the version. If the catalog is too old to contain the copy, the columns of the files
    decide, unless the marker contains another version.
    """
    copy = _version_in_catalog(root)
    if copy or version is not None:
        return copy == LAYOUT
    models = load_catalog().models
    newest = {mark: max(root.glob(f"{mark}/day=*/*.parquet"), default=None) for mark in KEYS}
    columns = {mark: _columns(file) for mark, file in newest.items() if file}
    return bool(columns) and all({c.name for c in models[mark].columns} <= names for mark, names in columns.items())


def _version_in_catalog(root: Path) -> int:
    """Return the version in the lake's catalog, or 0 without one."""
    try:
        with closing(sqlite3.connect(f"file:{quote(os.fsencode(root / 'catalog.sqlite'))}?mode=rw", uri=True)) as con:
            return con.execute("PRAGMA user_version").fetchall()[0][0]
    except sqlite3.Error:
        return 0


def _columns(file: Path) -> set[str]:
    from pyarrow import ArrowInvalid
    from pyarrow.parquet import read_schema

    try:
        return {*read_schema(file).names}
    except (OSError, ArrowInvalid):
        return set()


def read_again(files: Collection[Path], lake: str, folder: Path | None = None) -> str:
    """Return a clause with the command that ingests these files into another lake.

    If there are more than _FEW files, or paths with unprintable characters, write the paths to a list file, in `folder`
    if it is writable.
    """
    if not files:
        return f"ingest its files again into another one: tracelake ingest --lake {shlex.quote(lake)} PATH..."
    arguments = [str(path) for path in files]
    if len(arguments) > _FEW or not all(text.isprintable() for text in arguments):
        arguments = ["--from-list", str(_listed(files, folder))]
    words = ("tracelake", "ingest", "--lake", lake, *arguments)
    return f"read its {len(files):,} files again into another one: {' '.join(map(shlex.quote, words))}"


def _listed(files: Iterable[Path], folder: Path | None) -> Path:
    """Write the paths to a list file and return its path.

    Each path ends with a newline, or with NUL if any path contains a line break.
    """
    names = [os.fsencode(path) for path in files]
    end = b"\0" if any(len(name.splitlines()) > 1 for name in names) else b"\n"
    content = b"".join(name + end for name in names)
    for target_folder in (folder, Path(tempfile.gettempdir())):
        try:
            if target_folder is not None:
                (target_folder / LIST).write_bytes(content)
                return target_folder / LIST
        except OSError:  # the lake is read-only
            continue
    handle, name = tempfile.mkstemp(suffix=LIST)
    with open(handle, "wb") as file:
        file.write(content)
    return Path(name)


def files_of(root: Path) -> list[Path]:
    """Return the files that a lake of any version was ingested from.

    These are the files that ingestion recorded, and the files in the column `path` of the marker tables.
    """
    with database.scratch() as con:
        named = [path for mark in KEYS for path in _named(con, f"{root}/{mark}/day=*/*.parquet")]
    return sorted({*_noted(root), *named})


def _version(root: Path) -> int | None:
    try:
        return int((root / MARKER).read_text(encoding="utf-8"))
    except PermissionError as error:
        raise UnusablePath(
            f"{path_text(root / MARKER)}: {error.strerror}; its owner can change that: chmod a+r"
        ) from None
    except (OSError, ValueError):
        return None


def _noted(root: Path) -> list[Path]:
    """Return the files that ingestion recorded, in this layout or in layout 2, without rejected files."""
    rows = []
    for name in ("catalog.sqlite", ".settled.sqlite"):
        try:
            with closing(sqlite3.connect(f"file:{quote(os.fsencode(root / name))}?mode=rw", uri=True)) as con:
                rows += con.execute("SELECT path FROM settled WHERE status <> 'rejected'").fetchall()
        except sqlite3.Error:
            continue
    return [Path(os.fsdecode(path)) for (path,) in rows]


def _named(con: duckdb.DuckDBPyConnection, files: str) -> list[Path]:
    rows = parquet_rows(quoted(files), "union_by_name = true")
    try:
        return paths_in(con, rows)
    except duckdb.Error:  # the files do not exist or are damaged
        return []


def paths_in(con: duckdb.DuckDBPyConnection, rows: str) -> list[Path]:
    """Return the distinct paths in the column `path` of rows (SQL for FROM), or [] without such a column."""
    if "path" not in {name for name, *_ in con.execute(f"DESCRIBE FROM {rows}").fetchall()}:
        return []
    texts = con.execute(f"SELECT DISTINCT path FROM {rows} WHERE path IS NOT NULL").fetchall()
    return [text_path(text) for (text,) in texts]
