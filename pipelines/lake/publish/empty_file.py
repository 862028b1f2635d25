"""The empty analysts' file, which is the start of every new analysts' file. It is cached per user between processes.

Creating 120 tables and 1,600 comments takes longer than all other steps of publishing, and they are the same for every
lake.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path

import duckdb

from pipelines.base import database
from pipelines.base.errors import TracelakeError
from pipelines.lake.names import ANALYST, MARK
from pipelines.lake.publish.file_lists import MACROS, SCHEMA, is_large, rows_of, view_of, write_macros
from pipelines.models import rule_tables
from pipelines.models.cache import digest_of, keep_file, kept_file
from pipelines.models.catalog import Catalog, Model
from pipelines.models.sqlfile import Column
from pipelines.models.sqltext import quoted

BATCH_COLUMN = Column("batch_id", "Ingest run that the trace came with.")
BATCHES = f"{SCHEMA}.batches"
HIDDEN = f"{SCHEMA}.superseded"
# DuckDB writes the oldest format by default, which needs six times the space and twice the time to open.
_FORMAT = {"storage_compatibility_version": "v1.2.0", "default_block_size": 65_536}
# Trying these compression methods takes most of the time of writing small tables. For large tables, they save a seventh
# of the space.
_NOT_TRIED = "fsst,dict_fsst,zstd,roaring,alp,alprd"
_KEPT = 3  # maximum number of cached versions, for the installed version and a checkout or two
Types = list[tuple[str, str]]


class NotPublished(TracelakeError):
    """A new analysts' file that is incomplete. The message contains the reason. The published file stays."""


class Statements:
    """The SQL that creates the empty file, except the rows of rule tables. It is assembled once per process.

    `digest`: a hash over all statements.
    """

    def __init__(self, catalog: Catalog, types: Mapping[str, Types], order: Iterable[str]) -> None:
        """Assemble the statements, which create the tables in the order `order`."""
        models = [catalog.models[name] for name in order]
        self.of_tables = {model.name: _statements(model, types[model.name]) for model in models}
        self.macros = {
            rows_of(model.name): f"TABLE {no_row(types[model.name])} WHERE false" for model in models if is_large(model)
        }
        self.own = _own(catalog.models[MARK], types[MARK])
        self.digest = digest_of([self.own, *self.macros.values(), *chain(*self.of_tables.values())])


def begin(built: Path, catalog: Catalog, statements: Statements) -> None:
    """Create the file `built` with empty public tables, filled rule tables, views, comments and bookkeeping tables.

    Raise NotPublished.
    """
    models = [_usable(catalog.models[name]) for name in statements.of_tables]
    rules = [model.path.read_bytes() for model in models if model.kind == "rules"]
    added = [model.added.content for model in models if model.added]
    code = Path(rule_tables.__file__).read_bytes()  # this code determines the rows of rule tables
    digest = digest_of([duckdb.__version__, code, statements.digest, *rules, *added])
    if cached := kept_file("empty", digest):
        try:
            shutil.copyfile(cached, built)
            return
        except OSError:  # another process deleted it
            built.unlink(missing_ok=True)
    with connect_written(built) as con:
        con.execute("BEGIN")  # a transaction flushes to disk once instead of once per statement
        con.execute(statements.own)
        write_macros(con, statements.macros)
        for model in models:
            if model.kind == "rules":
                rule_tables.create_rules(con, model)
            for statement in statements.of_tables[model.name]:
                con.execute(statement)
        write_out(con)
    keep_file("empty", digest, built, _KEPT)


def connect_written(built: Path) -> duckdb.DuckDBPyConnection:
    """Return a connection for writing an analysts' file."""
    con = database.connect(built, config=_FORMAT)
    con.execute(f"SET disabled_compression_methods = '{_NOT_TRIED}'")
    return con


def _usable(model: Model) -> Model:
    """Return the model without the user's rules if the rules are unusable.

    Only callers that need the rules fail (Catalog.refuse_errors).
    """
    return replace(model, added=None) if model.added and model.added.error else model


def write_out(con: duckdb.DuckDBPyConnection) -> None:
    """Commit and flush to disk. Raise NotPublished."""
    try:
        con.execute("COMMIT")
        con.execute("CHECKPOINT")  # closing also writes, but does not report a failure
    except (duckdb.FatalException, duckdb.TransactionException) as error:
        raise NotPublished(f"{ANALYST}: cannot be written, so the old one stays: {error}") from None


def _statements(model: Model, types: Types) -> list[str]:
    kind = "VIEW" if model.kind == "view" or is_large(model) else "TABLE"
    comment_sql = comments(model, kind, {column for column, _ in types})
    if model.kind == "rules":
        return [comment_sql]
    if model.kind == "view":
        return [f"CREATE VIEW {model.name} AS {model.sql}", comment_sql]
    return [view_of(model.name) if is_large(model) else _table(model.name, types), comment_sql]


def _table(name: str, types: Types) -> str:
    return f"CREATE TABLE {name} ({', '.join(f'{_column_name(column)} {kind}' for column, kind in types)})"


def no_row(types: Types) -> str:
    """Return a SELECT of one row with these columns, all NULL. Append `WHERE false` for no rows."""
    return f"SELECT {', '.join(f'CAST(NULL AS {kind}) AS {_column_name(column)}' for column, kind in types)}"


def refusal(types: Types, message: str) -> str:
    """Return a SELECT with these columns that raises a duckdb.Error with the message when it is read.

    Each column is computed from the error. If it were a constant NULL, DuckDB would evaluate a filter on it to false
    and not raise.
    """
    columns = ", ".join(f"CAST(why AS {kind}) AS {_column_name(column)}" for column, kind in types)
    return f"SELECT {columns} FROM (SELECT error({quoted(message)}) AS why) WHERE why IS NULL"


def _own(mark: Model, types: Types) -> str:
    """Return the statements that create the bookkeeping tables of the file.

    The next publication compares `batches` with the catalog to find what changed.
    """
    described = {
        f"{SCHEMA}.published": (
            "root VARCHAR, published_at TIMESTAMP WITH TIME ZONE",
            "One row: this file.",
            {"root": "The lake whose files the views read.", "published_at": "When the file was created."},
        ),
        BATCHES: (
            "batch_id VARCHAR, stamp VARCHAR",
            "One row per batch that this file shows.",
            {
                "batch_id": "The batch.",
                "stamp": "Serial of the commit that changed it last, and the marks that it has.",
            },
        ),
        MACROS: (
            "name VARCHAR, text VARCHAR",
            "One row per macro that the views read: lists of files, and the rows in them.",
            {"name": "The macro, in this schema.", "text": "What it returns."},
        ),
    }
    made = [
        f"CREATE TABLE {name} ({columns}); {_comments(name, 'TABLE', doc, docs)}"
        for name, (columns, doc, docs) in described.items()
    ]
    hidden = f"{_table(HIDDEN, types)}; {hidden_comments(mark, {column for column, _ in types})}"
    return "; ".join([f"CREATE SCHEMA {SCHEMA}", *made, hidden])


def hidden_comments(mark: Model, present: set[str]) -> str:
    """Return the statements that comment `tracelake.superseded`, which has the columns of `traces`."""
    doc = "One row per trace that is not shown because a better one superseded it."
    return _comments(HIDDEN, "TABLE", doc, _docs(mark, present))


def comments(model: Model, kind: str, present: set[str]) -> str:
    """Return the statements that comment a table (`kind`: TABLE or VIEW) and its columns in `present`."""
    return _comments(model.name, kind, model.doc, _docs(model, present))


def _docs(model: Model, present: set[str]) -> dict[str, str]:
    return {column.name: column.doc for column in (BATCH_COLUMN, *model.columns) if column.name in present}


def _comments(name: str, kind: str, doc: str, docs: Mapping[str, str]) -> str:
    statements = [f"COMMENT ON {kind} {name} IS {quoted(doc)}"]
    statements += [
        f"COMMENT ON COLUMN {name}.{_column_name(column)} IS {quoted(text)}" for column, text in docs.items()
    ]
    return "; ".join(statements)


def _column_name(column: str) -> str:
    """Return the column as a quoted SQL identifier."""
    return f'"{column}"'
