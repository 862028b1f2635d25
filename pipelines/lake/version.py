"""The version of a lake's layout: the folders, logs and columns of its files. `.layout` in the lake says it.

A lake of another version is refused; what it was read from is not lost, so the refusal ends with the command that reads it
again. Raise LAYOUT where files that are there can no longer be read as they are.
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
from pipelines.lake.names import KEYS, REJECTS
from pipelines.models.sqltext import quoted

LAYOUT = 4
MARKER = ".layout"
LIST = "files-to-read-again.txt"
_FEW = 20  # paths that a command names; more are in a list


class OtherLayout(UnusablePath):
    """The lake was written by a tracelake whose files this one does not read; the message says how to read them again."""


def check_layout(root: Path) -> None:
    """Raise OtherLayout for a lake of another version. An empty folder, or none, is no lake yet."""
    found = _version(root)
    if found is None and not any((root / mark).is_dir() for mark in (*KEYS, REJECTS)):
        return
    if found is not None and found > LAYOUT:
        raise OtherLayout(
            f"{path_text(root)} was written by a newer tracelake (layout {found}; this one knows {LAYOUT}): "
            "pip install -U tracelake"
        )
    if found != LAYOUT:
        old = f"was written by an older tracelake (layout {found}; this one reads {LAYOUT})"
        none = f"has no {MARKER}: tracelake 0.1 wrote it, or it was copied without its hidden files"
        why = f"{path_text(root)} {none if found is None else old}"
        raise OtherLayout(f"{why}; {read_again(files_of(root), f'{root}-new', root)}")


def mark_layout(root: Path) -> None:
    """Note the version in a lake that has none yet, so that it is there after a power loss as well."""
    if (root / MARKER).exists():
        return
    handle, name = tempfile.mkstemp(prefix=f"{MARKER}-", dir=root)
    with open(handle, "w", encoding="utf-8") as file:
        file.write(f"{LAYOUT}\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(name, root / MARKER)


def read_again(files: Collection[Path], lake: str, folder: Path | None = None) -> str:
    """Returns a clause with the command that reads these files into another lake.

    Many of them, or ones that a terminal does not show, are listed in a file, in `folder` if that can be written.
    """
    if not files:
        return f"ingest its files again into another one: tracelake ingest --lake {shlex.quote(lake)} PATH..."
    shown = [str(path) for path in files]
    if len(shown) > _FEW or not all(text.isprintable() for text in shown):
        shown = ["--from-list", str(_listed(files, folder))]
    words = ("tracelake", "ingest", "--lake", lake, *shown)
    return f"read its {len(files):,} files again into another one: {' '.join(map(shlex.quote, words))}"


def _listed(files: Iterable[Path], folder: Path | None) -> Path:
    """Write the paths, one a line; ended by NUL instead if one of them holds a line's end."""
    names = [os.fsencode(path) for path in files]
    end = b"\0" if any(len(name.splitlines()) > 1 for name in names) else b"\n"
    content = b"".join(name + end for name in names)
    for place in (folder, Path(tempfile.gettempdir())):
        try:
            if place is not None:
                (place / LIST).write_bytes(content)
                return place / LIST
        except OSError:  # a lake that cannot be written
            continue
    handle, name = tempfile.mkstemp(suffix=LIST)
    with open(handle, "wb") as file:
        file.write(content)
    return Path(name)


def files_of(root: Path) -> list[Path]:
    """Returns the files that a lake was read from, whatever its version: those that ingestion noted, and those that its
    marks name.
    """
    with database.scratch() as con:
        named = [path for mark in KEYS for path in _named(con, f"{root}/{mark}/day=*/*.parquet")]
    return sorted({*_noted(root), *named})


def _version(root: Path) -> int | None:
    try:
        return int((root / MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _noted(root: Path) -> list[Path]:
    """Files that ingestion noted, now or in layout 2; not those that were rejected."""
    found = []
    for name in ("catalog.sqlite", ".settled.sqlite"):
        try:
            with closing(sqlite3.connect(f"file:{quote(os.fsencode(root / name))}?mode=rw", uri=True)) as con:
                found += con.execute("SELECT path FROM settled WHERE status <> 'rejected'").fetchall()
        except sqlite3.Error:
            continue
    return [Path(os.fsdecode(path)) for (path,) in found]


def _named(con: duckdb.DuckDBPyConnection, files: str) -> list[Path]:
    rows = f"read_parquet({quoted(files)}, hive_partitioning = false, union_by_name = true)"
    try:
        return paths_in(con, rows)
    except duckdb.Error:  # no such files, or damaged ones
        return []


def paths_in(con: duckdb.DuckDBPyConnection, rows: str) -> list[Path]:
    """Returns what the column `path` of rows (SQL for FROM) names, if there is one."""
    if "path" not in {name for name, *_ in con.execute(f"DESCRIBE FROM {rows}").fetchall()}:
        return []
    found = con.execute(f"SELECT DISTINCT path FROM {rows} WHERE path IS NOT NULL").fetchall()
    return [text_path(text) for (text,) in found]
