"""The analysts' file of a lake without rows, the starting point of every other: cached per user between processes.

Most of the time of publishing goes into creating 120 tables and 1,600 comments, which are the same for every lake.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import duckdb
from isal import isal_zlib

from pipelines.base import database
from pipelines.lake.layout import ANALYST
from pipelines.models import run
from pipelines.models.cache import cache_folder, digest_of
from pipelines.models.catalog import Catalog, Column, Model
from pipelines.models.sqltext import quoted

BATCH_COLUMN = Column("batch_id", "Ingest run that the trace came with.")
_KEPT = 3  # how many versions are kept: a checkout or two besides what is installed
_DAY_S = 86_400
Types = dict[str, list[tuple[str, str]]]


class NotPublished(Exception):
    """The newly built analysts' file is not complete; the message says why. The published one is still in place."""


def begin(built: Path, catalog: Catalog, types: Types, order: Iterable[str]) -> None:
    """Create the file `built`: each public table in this order, empty except for rules, plus views and all comments.

    Raises NotPublished.
    """
    models = [_usable(catalog.models[name]) for name in order]
    statements = {model.name: _statements(model, types[model.name]) for model in models}
    rules = [model.path.read_bytes() for model in models if model.kind == "rules"]
    added = [model.added.content for model in models if model.added]
    code = Path(run.__file__).read_bytes()  # how rules are read
    digest = digest_of(
        [duckdb.__version__, code, *(text for texts in statements.values() for text in texts), *rules, *added]
    )
    if _from_cache(built, digest):
        return
    with database.connect(built) as con:
        con.execute("BEGIN")  # one flush to disk instead of one per statement
        for model in models:
            if model.kind == "rules":
                run.create_rules(con, model)
            for statement in statements[model.name]:
                con.execute(statement)
        write_out(con)
    _into_cache(built, digest)


def _usable(model: Model) -> Model:
    """Rules without a user's rows, if these cannot be used: only who needs them is refused (Catalog.refuse_errors)."""
    return replace(model, added=None) if model.added and model.added.error else model


def write_out(con: duckdb.DuckDBPyConnection) -> None:
    """Commit and flush to disk. Raises NotPublished."""
    try:
        con.execute("COMMIT")
        con.execute("CHECKPOINT")  # closing also writes, but does not report a failure
    except (duckdb.FatalException, duckdb.TransactionException) as error:
        raise NotPublished(f"{ANALYST}: cannot be written, so the old one stays: {error}") from None


def _statements(model: Model, types: list[tuple[str, str]]) -> list[str]:
    said = comments(model, "VIEW" if model.kind == "view" else "TABLE", {column for column, _ in types})
    if model.kind == "rules":
        return [said]
    if model.kind == "view":
        return [f"CREATE VIEW {model.name} AS {model.sql}", said]
    columns = ", ".join(f"{column_name(column)} {type_}" for column, type_ in types)
    return [f"CREATE TABLE {model.name} ({columns})", said]


def comments(model: Model, kind: str, present: set[str]) -> str:
    """Returns the statements that comment a table (`kind`: TABLE or VIEW) and those of its columns that are present."""
    return comments_as(model.name, kind, model.doc, model, present)


def comments_as(name: str, kind: str, doc: str, model: Model, present: set[str]) -> str:
    """Returns the statements that comment a table of another name, with the columns of a model."""
    docs = {column.name: column.doc for column in (BATCH_COLUMN, *model.columns) if column.name in present}
    return _comments(name, kind, doc, docs)


def _comments(name: str, kind: str, doc: str, docs: Mapping[str, str]) -> str:
    said = [f"COMMENT ON {kind} {name} IS {quoted(doc)}"]
    said += [f"COMMENT ON COLUMN {name}.{column_name(column)} IS {quoted(text)}" for column, text in docs.items()]
    return "; ".join(said)


def column_name(column: str) -> str:
    """As SQL spells it."""
    return f'"{column}"'


def _from_cache(built: Path, digest: str) -> bool:
    """Copy the cached file; its name ends with a checksum of its content, so a corrupt one is not used."""
    for kept in cache_folder().glob(f"empty-{digest[:16]}-*.duckdb"):
        try:
            content = kept.read_bytes()
            if kept.name == _name(digest, content):
                built.write_bytes(content)
                os.utime(kept)  # used: see _into_cache
                return True
            kept.unlink()
        except OSError:  # another process deleted it, or we may not read it: build it again
            built.unlink(missing_ok=True)
    return False


def _name(digest: str, content: bytes) -> str:
    return f"empty-{digest[:16]}-{isal_zlib.crc32(content):08x}.duckdb"


def _into_cache(built: Path, digest: str) -> None:
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".empty-", dir=folder) as own:
            copy = Path(shutil.copyfile(built, Path(own) / "empty.duckdb"))
            os.replace(copy, folder / _name(digest, copy.read_bytes()))
        for old in sorted(folder.glob("empty-*.duckdb"), key=os.path.getmtime)[:-_KEPT]:
            old.unlink(missing_ok=True)
        for left in folder.glob(".empty-*"):  # left by a process that was killed
            if left.stat().st_mtime < time.time() - _DAY_S:
                shutil.rmtree(left, ignore_errors=True)
    except OSError:
        return  # a home directory that is not writable only costs time
