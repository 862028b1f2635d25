"""The contents of an analysts' file: each public table with types and comments, or an error naming damaged files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import duckdb

from pipelines.base import database
from pipelines.lake.commit.model_failures import add_failures, drop_hidden_failures
from pipelines.lake.commit.staged_rows import insert_values
from pipelines.lake.names import ANALYST, CAPTURE_MARK, KEYS, MARK, REJECTS, mark_of
from pipelines.lake.publish import empty_file
from pipelines.lake.publish.empty_file import (
    BATCH_COLUMN,
    BATCHES,
    HIDDEN,
    NotPublished,
    Statements,
    Types,
    begin,
    comments,
    connect_written,
    hidden_comments,
    write_out,
)
from pipelines.lake.publish.file_lists import SCHEMA, Lists, is_large, rows_of, write_macros
from pipelines.lake.publish.prices import add_prices
from pipelines.lake.read.damage import Broken, damage_sentence, unreadable
from pipelines.lake.read.snapshot import Now
from pipelines.lake.read.views import MEMBERSHIP_TABLES, committed_rows, file_rows, trace_rows
from pipelines.models.catalog import Catalog, Model
from pipelines.models.dry_run import types_of_tables
from pipelines.models.sqltext import quoted


@dataclass
class Contents:
    """The contents of an analysts' file, with the files of each table and the damaged files.

    A table that needs damaged files raises an error. With `leave_out`, it skips these files, and the analysts' file is
    then private, not published.
    """

    root: Path
    catalog: Catalog
    files: dict[str, list[Path]]
    broken: list[Broken]
    now: Now  # the committed state
    leave_out: bool = False
    home: Path | None = None  # the folder where the file is used, None for the lake's folder
    counts: dict[str, int] = field(default_factory=dict)  # number of rows of each marker table's files

    def of(self, table: str) -> list[Broken]:
        """Return the broken files that a table needs. Rule tables need no files."""
        if self.leave_out or self.catalog.models[table].kind == "rules":
            return []
        return [file for file in self.broken if file.table in (table, mark_of(table))]

    def usable(self, table: str) -> list[Path]:
        """Return the files of a table that are not broken."""
        bad = {file.path for file in self.broken if file.table == table}
        return [path for path in self.files[table] if path not in bad]


def build(built: Path, contents: Contents) -> None:
    """Create the file. If a Parquet file is unreadable, add it to the damaged files and start again."""
    catalog = contents.catalog
    while True:
        begin(built, catalog, _statements(catalog.shipped or catalog))
        with connect_written(built) as con:
            unreadable_files = _fill(con, contents, _order(catalog))
        if not unreadable_files:
            return
        contents.broken += unreadable_files
        built.unlink()


def _fill(con: duckdb.DuckDBPyConnection, contents: Contents, order: list[str]) -> list[Broken]:
    """Replace the macros of large tables and fill the small tables. Return the unreadable files, if any.

    If a table's files have other columns than this version, the table has the files' columns. So have the views over
    it.
    """
    con.execute("BEGIN")  # a transaction flushes to disk once instead of once per statement
    con.execute(f"INSERT INTO {SCHEMA}.published SELECT {quoted(contents.root)}, now()")
    insert_values(con, BATCHES, [{"batch_id": name, "stamp": stamp} for name, stamp in contents.now.stamps.items()])
    lists = large_rows(contents)
    write_macros(con, lists.macros)
    for table in order:
        try:
            _copy(con, contents.catalog.models[table], contents, lists)
        except duckdb.Error:
            unreadable_files = _unreadable(table, contents)
            if not unreadable_files:
                raise
            return unreadable_files
    contents.counts = count_rows(con, [mark for mark in KEYS if not contents.of(mark)])
    add_prices(con, contents.root)
    committed = [path.stem for mark in (MARK, CAPTURE_MARK) for path in contents.usable(mark)]
    add_failures(con, contents.now.entries, committed)
    if not contents.of(MARK):  # `traces` raises an error if its files are broken
        drop_hidden_failures(con)
    _keep_superseded(con, contents)
    write_out(con)
    return []


def large_rows(contents: Contents) -> Lists:
    """Return the macros of the large tables, which have their file lists and the rows in these files."""
    lists, types = Lists(contents.now, contents.catalog), column_types(contents.catalog)
    for table in contents.catalog.public:
        if not is_large(contents.catalog.models[table]):
            continue
        if broken := contents.of(table):
            rows = _refusal(contents.catalog, table, broken)
        else:
            files = lists.of_others(table, contents.usable(table)) if contents.leave_out else lists.of(table)
            rows = files.rows(contents.root, types[table])
            if rows is None:  # the same text as in the empty file, so that the macro is not rewritten
                rows = f"{no_row(contents.catalog, table)} WHERE false"
            elif not contents.leave_out:
                rows = f"SELECT * FROM ({rows}) WHERE {is_at_home(contents.home or contents.root)}"
        lists.macros[rows_of(table)] = f"TABLE {rows}"
    return lists


def _copy(con: duckdb.DuckDBPyConnection, model: Model, contents: Contents, lists: Lists) -> None:
    """Fill a small table. If its files have other columns than this version, replace it by a table like its files."""
    table = model.name
    if model.kind in ("view", "rules") or is_large(model):
        return
    if broken := contents.of(table):
        _replace(con, model, "VIEW", _refusal(contents.catalog, table, broken))
        return
    if not contents.usable(table):
        return
    rows = _rows_in_files(table, contents)
    if table == MARK and _untold(contents):
        _replace(con, model, "VIEW", f"SELECT * FROM ({rows}) WHERE {is_at_home(contents.home or contents.root)}")
        return
    if model.kind == "lake" and mark_of(table) != MARK and table != REJECTS:
        # An older file may not have columns of newer versions of the table, which views over it and the report need.
        rows = f"({rows}) UNION ALL BY NAME {no_row(contents.catalog, table)} WHERE FALSE"
    if _fits(con, model, contents, lists, rows):
        con.execute(f"INSERT INTO {table} BY NAME {rows}")
    else:
        _replace(con, model, "TABLE", rows)


def _fits(con: duckdb.DuckDBPyConnection, model: Model, contents: Contents, lists: Lists, rows: str) -> bool:
    """Return whether rows have this version's columns, from the catalog for computed tables, else from the files."""
    if model.kind != "lake" and not contents.leave_out:
        return lists.fit(model.name)
    columns = [(column, kind) for column, kind, *_ in con.execute(f"DESCRIBE {rows}").fetchall()]
    return sorted(columns) == sorted(column_types(contents.catalog)[model.name])


def _replace(con: duckdb.DuckDBPyConnection, model: Model, kind: str, rows: str) -> None:
    """Replace a table of the empty file by a table or view over these rows, with its comments."""
    con.execute(f"DROP TABLE {model.name}")
    con.execute(f"CREATE {kind} {model.name} AS {rows}")
    con.execute(comments(model, kind, _columns(con, model.name)))


def _columns(con: duckdb.DuckDBPyConnection, table: str) -> set[str]:
    return {name for name, *_ in con.execute(f"DESCRIBE {table}").fetchall()}


def _keep_superseded(con: duckdb.DuckDBPyConnection, contents: Contents) -> None:
    """Fill `tracelake.superseded` with the traces that a better trace supersedes. It has the columns of `traces`."""
    files = contents.usable(MARK)
    if not files or contents.of(MARK) or _untold(contents):
        return
    rows = f"SELECT * REPLACE (NULL::VARCHAR AS capture_id) FROM ({file_rows(files)})"
    only = f"SELECT * FROM ({rows}) ANTI JOIN traces USING (trace_id, batch_id)"
    con.execute(f"CREATE OR REPLACE TABLE {HIDDEN} AS {only}")
    con.execute(hidden_comments(contents.catalog.models[MARK], _columns(con, HIDDEN)))


def _unreadable(table: str, contents: Contents) -> list[Broken]:
    """Return the unreadable files that a table reads."""
    tables = {table, mark_of(table), *(MEMBERSHIP_TABLES if table == MARK else ())}
    with database.scratch() as con:
        return [file for name in tables if name in contents.files for file in unreadable(con, contents.usable(name))]


def verify(built: Path, contents: Contents) -> None:
    """Check that the file on disk has every public table, and that every marker table has as many rows as its files.

    Raise NotPublished.
    """
    try:
        if built.with_name(f"{built.name}.wal").exists():
            raise NotPublished("part of it was not written (its log remains); is the disk full?")
        with database.attached(built) as con:
            existing = {name for (name,) in con.execute("SHOW TABLES").fetchall()}
            if missing := sorted(set(contents.catalog.public) - existing):
                raise NotPublished(f"{len(missing)} tables are missing, such as {missing[0]}")
            for mark, n_rows in count_rows(con, contents.counts).items():
                if n_rows != contents.counts[mark]:
                    raise NotPublished(f"{mark} has {n_rows} rows; {contents.counts[mark]} are committed")
    except (duckdb.Error, NotPublished) as error:
        why = str(error).splitlines()[0]
        raise NotPublished(f"{ANALYST}: the new file is incomplete, so the old one stays: {why}") from None


def count_rows(con: duckdb.DuckDBPyConnection, tables: Iterable[str]) -> dict[str, int]:
    """Return the number of rows of each of these tables."""
    return {table: con.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0] for table in tables}


@lru_cache
def column_types(catalog: Catalog) -> dict[str, Types]:
    """Return the columns and DuckDB types of every public table, as stored."""
    types_by_table = types_of_tables(catalog)
    types = {name: list(types_by_table[name]) for name in catalog.public}
    for name in (*catalog.materialized, *catalog.of_captures):
        types[name].append((BATCH_COLUMN.name, "VARCHAR"))
    return types


@lru_cache(maxsize=1)
def _statements(catalog: Catalog) -> Statements:
    """Return the statements of the empty file, cached.

    `catalog`: the shipped catalog, because a user's rules change neither columns nor comments of its tables.
    """
    return Statements(catalog, column_types(catalog), _order(catalog))


def _order(catalog: Catalog) -> list[str]:
    """Return the public tables, marker tables first, because other tables read them."""
    return sorted(catalog.public, key=lambda name: name not in KEYS)


def _rows_in_files(table: str, contents: Contents) -> str:
    if table != MARK:
        return committed_rows(table, contents.usable(table))
    rows = trace_rows({name: contents.usable(name) for name in (MARK, *MEMBERSHIP_TABLES)})
    if untold := _untold(contents):  # only capture_id is unknown
        return (
            f"SELECT * REPLACE (CAST(error({quoted(damage_sentence(untold))}) AS VARCHAR) AS capture_id) FROM ({rows})"
        )
    return rows


def _untold(contents: Contents) -> list[Broken]:
    """Return the broken files that determine the capture of a trace."""
    return list(dict.fromkeys(file for table in MEMBERSHIP_TABLES for file in contents.of(table)))


def _refusal(catalog: Catalog, table: str, broken: list[Broken]) -> str:
    """Return a SELECT with the table's columns that raises an error when a row is read."""
    return empty_file.refusal(column_types(catalog)[table], f"{table} is damaged: {damage_sentence(broken)}")


def no_row(catalog: Catalog, table: str) -> str:
    """Return a SELECT of one row with a table's columns and types, all NULL. Append `WHERE false` for no rows."""
    return empty_file.no_row(column_types(catalog)[table])


def is_at_home(root: Path) -> str:
    """Return an SQL condition that raises an error if the analysts' file is not in the folder where it was made.

    A copy in another folder must not answer from the original lake's files.
    """
    hint = (
        f"this file was made as {root / ANALYST} and would read the files there, but it has been moved: open that one, or "
        "for a copied or moved lake run `tracelake sql --lake FOLDER` once, which rebuilds it for the new place"
    )
    n_open = f"SELECT count(*) FROM duckdb_databases() WHERE starts_with(path, {quoted(f'{root}/')})"
    return f"(SELECT CASE WHEN ({n_open}) > 0 THEN true ELSE error({quoted(hint)}) END)"
