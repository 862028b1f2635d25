"""What an analysts' file holds: every public table with its types and comments, or an error that names damaged files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import duckdb

from pipelines.base import database
from pipelines.lake.commit.model_failures import add_failures
from pipelines.lake.commit.staged_rows import create_empty, create_given, insert_values
from pipelines.lake.layout import ANALYST, CAPTURE_MARK, KEYS, MARK, REJECTS, mark_of
from pipelines.lake.publish.empty_file import (
    BATCH_COLUMN,
    NotPublished,
    begin,
    column_name,
    comments,
    comments_as,
    write_out,
)
from pipelines.lake.publish.file_lists import SCHEMA, Lists, write_macros
from pipelines.lake.publish.prices import add_prices
from pipelines.lake.read.damage import Broken, logs, told, unreadable
from pipelines.lake.read.snapshot import Now
from pipelines.lake.read.views import TOLD_BY, committed_rows, file_rows, trace_rows
from pipelines.models.cache import digest_of, remembered
from pipelines.models.catalog import Catalog, Model
from pipelines.models.run import run_models
from pipelines.models.sqltext import quoted

Types = list[tuple[str, str]]
BATCHES = f"{SCHEMA}.batches"
HIDDEN = f"{SCHEMA}.superseded"
_SMALL = (MARK, "findings", REJECTS)  # and everything about runs of schedules
_LARGE = ("collective_ranks", "capture_critical_path")  # of the tables of captures, which are otherwise small


@dataclass
class Contents:
    """The contents of an analysts' file: the files of each table, and which files are damaged.

    Tables that need damaged files raise an error, or answer without them; in the latter case the file is not the lake's
    own.
    """

    root: Path
    catalog: Catalog
    files: dict[str, list[Path]]
    broken: list[Broken]
    leave_out: bool = False
    now: Now | None = None  # what is committed; None for a private file
    counts: dict[str, int] = field(default_factory=dict)  # rows of each mark, as read from its files

    def of(self, table: str) -> list[Broken]:
        """Returns the broken files that a table needs; rules are not in files of the lake."""
        if self.leave_out or self.catalog.models[table].kind == "rules":
            return []
        return [one for one in self.broken if one.table in (table, mark_of(table))]

    def usable(self, table: str) -> list[Path]:
        """Returns the files of a table that are not broken."""
        bad = {one.path for one in self.broken if one.table == table}
        return [path for path in self.files[table] if path not in bad]


def build(built: Path, contents: Contents) -> None:
    """Create the file; files found to be unreadable on the way are added to the damaged ones."""
    catalog = contents.catalog
    order = sorted(catalog.public, key=lambda name: name not in KEYS)  # marks first: other tables read them
    while True:
        begin(built, catalog, column_types(catalog), order)
        with database.connect(built) as con:
            found = _fill(con, contents, order)
        if not found:
            return
        contents.broken += found
        built.unlink()


def _fill(con: duckdb.DuckDBPyConnection, contents: Contents, order: list[str]) -> list[Broken]:
    """Replace tables that have files, and the views that read them."""
    con.execute("BEGIN")  # one flush to disk instead of one per statement
    con.execute(f"CREATE SCHEMA {SCHEMA}")
    con.execute(f"CREATE TABLE tracelake.published AS SELECT {quoted(contents.root)} AS root, now() AS published_at")
    con.execute(
        "COMMENT ON TABLE tracelake.published IS 'One row: this file.'; "
        "COMMENT ON COLUMN tracelake.published.root IS 'The lake whose files the views read.'; "
        "COMMENT ON COLUMN tracelake.published.published_at IS 'When it was made.'"
    )
    rows = {}
    if contents.now:
        create_batches(con, contents.now.stamps)
        rows = _listed_rows(con, contents, order)
    replaced: set[str] = set()
    for table in order:
        model = contents.catalog.models[table]
        is_view = model.kind == "view"
        if not (replaced.intersection(model.dependencies) if is_view else contents.usable(table) or contents.of(table)):
            continue
        replaced.add(table)
        try:
            con.execute(f"DROP {'VIEW' if is_view else 'TABLE'} {table}")
            _publish_table(con, model, contents, rows.get(table))
        except duckdb.Error:
            found = _unreadable(table, contents)
            if not found:
                raise
            return found
    contents.counts = {mark: count_rows(con, mark) for mark in KEYS if not contents.of(mark)}
    add_prices(con, contents.root)
    entries = contents.now.entries if contents.now else logs(contents.root)
    add_failures(con, entries, [path.stem for mark in (MARK, CAPTURE_MARK) for path in contents.usable(mark)])
    _keep_superseded(con, contents)
    write_out(con)
    return []


def create_batches(con: duckdb.DuckDBPyConnection, stamps: Mapping[str, str]) -> None:
    """Create `tracelake.batches`: the batches that the file shows, by which the next publication finds what changed."""
    con.execute(f"CREATE TABLE {BATCHES} (batch_id VARCHAR, stamp VARCHAR)")
    insert_values(con, BATCHES, [{"batch_id": name, "stamp": stamp} for name, stamp in stamps.items()])
    con.execute(
        f"COMMENT ON TABLE {BATCHES} IS 'One row per batch that this file shows.'; "
        f"COMMENT ON COLUMN {BATCHES}.batch_id IS 'The batch.'; "
        f"COMMENT ON COLUMN {BATCHES}.stamp IS 'Size and time of its log, and the marks that it has.'"
    )


def _keep_superseded(con: duckdb.DuckDBPyConnection, contents: Contents) -> None:
    """Create `tracelake.superseded`: traces that are not shown because there is a better one."""
    files = contents.usable(MARK)
    if contents.now is None or not files or contents.of(MARK):
        return
    rows = f"SELECT * REPLACE (NULL::VARCHAR AS capture_id) FROM ({file_rows(files)})"
    only = (
        "SELECT * FROM traces LIMIT 0"
        if _untold(contents)
        else f"SELECT * FROM ({rows}) ANTI JOIN traces USING (trace_id, batch_id)"
    )
    con.execute(f"CREATE TABLE {HIDDEN} AS {only}")
    doc = "One row per trace that is not shown because a better one superseded it."
    present = {found[0] for found in con.execute(f"DESCRIBE {HIDDEN}").fetchall()}
    con.execute(comments_as(HIDDEN, "TABLE", doc, contents.catalog.models[MARK], present))


def _unreadable(table: str, contents: Contents) -> list[Broken]:
    """Returns the files that a table is made of and that cannot be read."""
    tables = {table, mark_of(table), *(TOLD_BY if table == MARK else ())}
    with database.connect() as con:
        return [one for name in tables if name in contents.files for one in unreadable(con, contents.usable(name))]


def verify(built: Path, contents: Contents) -> None:
    """Check that the file on disk has every public table, and every mark as many rows as its files.

    Raises NotPublished.
    """
    try:
        if built.with_name(f"{built.name}.wal").exists():
            raise NotPublished("part of it was not written (its log remains); is the disk full?")
        with database.connect(built, read_only=True) as con:
            there = {name for (name,) in con.execute("SHOW TABLES").fetchall()}
            if missing := sorted(set(contents.catalog.public) - there):
                raise NotPublished(f"{len(missing)} tables are missing, such as {missing[0]}")
            for mark, n_rows in contents.counts.items():
                if (found := count_rows(con, mark)) != n_rows:
                    raise NotPublished(f"{mark} has {found} rows; {n_rows} are committed")
    except (duckdb.Error, NotPublished) as error:
        why = str(error).splitlines()[0]
        raise NotPublished(f"{ANALYST}: the new file is incomplete, so the old one stays: {why}") from None


def count_rows(con: duckdb.DuckDBPyConnection, table: str) -> int:
    return con.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0]


@lru_cache
def column_types(catalog: Catalog) -> dict[str, Types]:
    """Returns the columns and DuckDB types of every public table, found by running all models on empty inputs."""
    if catalog.shipped:  # rows of rules change no type
        return column_types(catalog.shipped)
    digest = digest_of([duckdb.__version__, *(catalog.version(name) for name in catalog.models)])
    found = remembered("column-types", digest, lambda: _dry_run(catalog))
    return {table: [(column, kind) for column, kind in columns] for table, columns in found.items()}


def _dry_run(catalog: Catalog) -> dict[str, list[tuple[str, str]]]:
    with database.connect() as con:
        for scope in {model.scope for model in catalog.models.values() if model.kind == "lake"}:
            create_empty(con, catalog, scope)
        create_given(con, catalog, [name for name, model in catalog.models.items() if model.kind != "lake"])
        run_models(con, catalog, catalog.public)
        types = {n: [(r[0], r[1]) for r in con.execute(f"DESCRIBE {n}").fetchall()] for n in catalog.public}
    for name in (*catalog.materialized, *catalog.of_captures):
        types[name].append((BATCH_COLUMN.name, "VARCHAR"))
    return types


def _listed_rows(con: duckdb.DuckDBPyConnection, contents: Contents, tables: Iterable[str]) -> dict[str, str]:
    """Returns the SELECTs of the views over lists of files, after creating the macros that hold these (chunks.py)."""
    assert contents.now is not None
    lists, types = Lists(contents.now, contents.catalog), column_types(contents.catalog)
    seen = [table for table in tables if is_seen(contents.catalog.models[table], contents) and not contents.of(table)]
    found = {table: lists.of(table).rows(contents.root, types[table]) for table in seen}
    write_macros(con, lists.macros)
    return {table: rows or f"{no_row(contents.catalog, table)} WHERE false" for table, rows in found.items()}


def _publish_table(con: duckdb.DuckDBPyConnection, model: Model, contents: Contents, listed: str | None) -> None:
    """`listed`: the SELECT over lists of files, if the table is a view over them."""
    kind = "VIEW"
    if model.kind == "view":
        con.execute(f"CREATE VIEW {model.name} AS {model.sql}")
    elif broken := contents.of(model.name):
        con.execute(f"CREATE VIEW {model.name} AS {_refusal(contents.catalog, model.name, broken)}")
    else:
        kind = "TABLE" if is_copied(model, contents) else "VIEW"
        rows = listed or _rows_in_files(model.name, contents)
        if model.kind == "lake" and mark_of(model.name) != MARK and model.name != REJECTS:
            # A file may lack columns that the table has since, which views over it and the report need.
            rows = f"({rows}) UNION ALL BY NAME {no_row(contents.catalog, model.name)} WHERE FALSE"
        if kind == "VIEW" and not contents.leave_out:
            rows = f"SELECT * FROM ({rows}) WHERE {is_at_home(contents.root)}"
        con.execute(f"CREATE {kind} {model.name} AS {rows}")
    present = {row[0] for row in con.execute(f"DESCRIBE {model.name}").fetchall()}
    con.execute(comments(model, kind, present))


def is_copied(model: Model, contents: Contents) -> bool:
    """Small tables are copied; the others are views, and so is whatever is damaged."""
    if model.name == MARK and _untold(contents):
        return False
    if mark_of(model.name) == CAPTURE_MARK:
        return model.name not in _LARGE
    return model.name in _SMALL or model.layer == "summary" or mark_of(model.name) != MARK


def is_seen(model: Model, contents: Contents) -> bool:
    """Whether a table is a view over lists of files."""
    return model.kind not in ("view", "rules") and model.name != MARK and not is_copied(model, contents)


def _rows_in_files(table: str, contents: Contents) -> str:
    if table != MARK:
        return committed_rows(table, contents.usable(table))
    rows = trace_rows({name: contents.usable(name) for name in (MARK, *TOLD_BY)})
    if untold := _untold(contents):  # all but this column is known
        return f"SELECT * REPLACE (CAST(error({quoted(told(untold))}) AS VARCHAR) AS capture_id) FROM ({rows})"
    return rows


def _untold(contents: Contents) -> list[Broken]:
    """Returns the broken files that determine which capture a trace is in."""
    return list(dict.fromkeys(one for table in TOLD_BY for one in contents.of(table)))


def _refusal(catalog: Catalog, table: str, broken: list[Broken]) -> str:
    """Returns the SELECT of a table with the right columns that fails when a row is requested."""
    columns = no_row(catalog, table)
    return f"{columns} FROM (SELECT error({quoted(f'{table} is damaged: {told(broken)}')}) AS why) WHERE why IS NULL"


def no_row(catalog: Catalog, table: str) -> str:
    """Returns a SELECT of one row with a table's columns and types, all NULL; `… WHERE false` has none."""
    return "SELECT " + ", ".join(
        f"CAST(NULL AS {kind}) AS {column_name(c)}" for c, kind in column_types(catalog)[table]
    )


def is_at_home(root: Path) -> str:
    """Returns the condition that the file is opened where it was made: a copy must not answer from the original's
    files.
    """
    hint = (
        f"this file was made as {root / ANALYST} and would read the files there, but it has been moved: open that one, or "
        "for a copied or moved lake run `tracelake sql --lake FOLDER` once, which rebuilds it for the new place"
    )
    there = f"SELECT count(*) FROM duckdb_databases() WHERE starts_with(path, {quoted(f'{root}/')})"
    return f"(SELECT CASE WHEN ({there}) > 0 THEN true ELSE error({quoted(hint)}) END)"
