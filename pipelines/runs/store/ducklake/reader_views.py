"""The views of a connection to a DuckLake, with every public table under its name, as in an analysts' file."""

from __future__ import annotations

import json
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import duckdb

from pipelines.base import database
from pipelines.lake.commit.model_failures import FAILURES as FAILURES_VIEW
from pipelines.lake.names import CAPTURE_MARK, CAPTURE_RANKS, KEYS, MARK, REJECTS, mark_of
from pipelines.lake.publish.contents import column_types, no_row
from pipelines.lake.publish.empty_file import comments
from pipelines.lake.publish.prices import PRICE_TABLE
from pipelines.lake.read import views
from pipelines.lake.read.views import placed_rows, superseded, valid_rows
from pipelines.models import rule_tables
from pipelines.models.cache import digest_of, keep_file, kept_file
from pipelines.models.catalog import Catalog, Model
from pipelines.models.sqltext import quoted
from pipelines.runs.store.ducklake import user_tables
from pipelines.runs.store.ducklake.attach import LAKE
from pipelines.runs.store.ducklake.schema import (
    FAILURES,
    KEYS_TABLE,
    Columns,
    add_columns,
    create_bookkeeping,
    has_own,
    lake_columns,
)

SHOWN = "tracelake_shown"
_HIDDEN = "memory.main.tracelake_superseded"
_KEPT = 8  # maximum number of cached files, for different stores and versions of the models


def create_views(con: duckdb.DuckDBPyConnection, catalog: Catalog) -> None:
    """Attach a file with the views and their comments, over the attached `lake`, and make it the default.

    Creating 100 views with 1,600 comments takes seconds if each view is bound to a DuckLake. The views are therefore
    created over empty tables with the same columns, on which alone they depend, and cached for the user.
    """
    columns_by_table, has_own_tables = lake_columns(con), has_own(con)
    hidden = has_own_tables and _hide_superseded(con)
    build = _Build(catalog, columns_by_table, hidden, has_own_tables, user_tables.has_prices(con))
    _attach(con, build)
    con.execute(f"USE {SHOWN}")


@dataclass(frozen=True)
class _Build:
    """The inputs of the views.

    These are the models, the store's columns, and whether it has superseded traces, bookkeeping and prices.
    """

    catalog: Catalog
    there: dict[str, Columns]
    hidden: bool
    has_own: bool
    has_prices: bool

    @property
    def digest(self) -> str:
        models = [f"{name}={self.catalog.version(name)}" for name in self.catalog.public]
        code = [
            Path(file).read_bytes() for file in (__file__, rule_tables.__file__, views.__file__, user_tables.__file__)
        ]
        rules = [
            m.path.read_bytes() for name in self.catalog.public if (m := self.catalog.models[name]).kind == "rules"
        ]
        facts = json.dumps([self.there, self.hidden, self.has_own, self.has_prices])
        return digest_of([duckdb.__version__, facts, *models, *code, *rules])


def _attach(con: duckdb.DuckDBPyConnection, build: _Build) -> None:
    attach = f"ATTACH {{}} AS {SHOWN} (READ_ONLY)"
    if cached := kept_file("views", build.digest):
        with suppress(duckdb.IOException):  # another process deleted it
            con.execute(attach.format(quoted(cached)))
            return
    with tempfile.TemporaryDirectory(prefix="tracelake-views-") as temporary:
        made = Path(temporary, "views.duckdb")
        _create_file(made, build)
        con.execute(attach.format(quoted(made)))  # the open file stays readable after its folder is deleted
        keep_file("views", build.digest, made, _KEPT)


def _create_file(path: Path, build: _Build) -> None:
    with database.connect() as con:
        con.execute(f"ATTACH {quoted(path)} AS {SHOWN}; ATTACH ':memory:' AS {LAKE}")
        con.execute(f"CREATE TABLE {_HIDDEN} (trace_id VARCHAR)")
        create_bookkeeping(con)
        user_tables.create(con)
        add_columns(con, {}, build.there)
        con.execute(f"USE {SHOWN}")
        con.begin()
        types = column_types(build.catalog)
        # Create marker tables first, because tables of captures read their marker. Create views over tables last.
        order = sorted(build.catalog.public, key=lambda n: (build.catalog.models[n].kind == "view", n not in KEYS))
        for name in order:
            kind = _create(con, build, build.catalog.models[name])
            con.execute(comments(build.catalog.models[name], kind, {column for column, _ in types[name]}))
        con.commit()


def lock_to(con: duckdb.DuckDBPyConnection, data: str) -> None:
    """Allow only the files of the store, and no changes of settings, from now on."""
    con.execute(f"SET allowed_directories = [{quoted(data + '/')}]")
    con.execute("SET enable_external_access = false")
    con.execute("SET lock_configuration = true")


def _create(con: duckdb.DuckDBPyConnection, build: _Build, model: Model) -> str:
    """Create a model's table or view. Return "TABLE" or "VIEW"."""
    # In a folder lake, these two tables are rule tables that are filled later.
    is_stored = {FAILURES_VIEW: build.has_own, PRICE_TABLE: build.has_prices}.get(model.name)
    if model.kind == "rules" and not is_stored:
        rule_tables.create_rules(con, model)
        return "TABLE"
    if model.kind == "view":
        con.execute(f"CREATE VIEW {model.name} AS {model.sql}")
        return "VIEW"
    con.execute(f"CREATE VIEW {model.name} AS {_rows(build, model.name)}")
    return "VIEW"


def _rows(build: _Build, name: str) -> str:
    catalog, columns_by_table = build.catalog, build.there
    if name == FAILURES_VIEW:
        hidden = f" WHERE trace_id IS NULL OR trace_id NOT IN (SELECT trace_id FROM {_HIDDEN})" if build.hidden else ""
        return f"SELECT * FROM {FAILURES}{hidden}"
    if name == PRICE_TABLE:
        return f"SELECT * FROM {user_tables.PRICES}"
    if name not in columns_by_table:
        return _no_rows(catalog, name)
    rows = stored_rows(catalog, name, columns_by_table)
    if name == MARK:
        named = valid_rows(CAPTURE_MARK, stored_rows(catalog, CAPTURE_MARK, columns_by_table))
        ranks = valid_rows(CAPTURE_RANKS, stored_rows(catalog, CAPTURE_RANKS, columns_by_table), f"({named})")
        return placed_rows(rows, named, ranks)
    if mark_of(name) != MARK:
        return valid_rows(name, rows)
    # A trace is committed with all its tables, so only superseded traces must be excluded.
    is_of_traces = "trace_id" in columns_by_table[name] and name != REJECTS
    return f"{rows} WHERE trace_id NOT IN (SELECT trace_id FROM {_HIDDEN})" if build.hidden and is_of_traces else rows


def stored_rows(catalog: Catalog, name: str, there: dict[str, Columns]) -> str:
    """Return the SELECT of all rows with this version's columns. Columns that the store does not have are NULL."""
    if name not in there:
        return _no_rows(catalog, name)
    missing = [
        f'CAST(NULL AS {kind}) AS "{column}"'
        for column, kind in column_types(catalog)[name]
        if column not in there[name]
    ]
    return f"SELECT *{''.join(f', {column_sql}' for column_sql in missing)} FROM {LAKE}.{name}"


def _no_rows(catalog: Catalog, name: str) -> str:
    return f"SELECT * FROM (SELECT * FROM ({no_row(catalog, name)}) WHERE false)"


def _hide_superseded(con: duckdb.DuckDBPyConnection) -> bool:
    """Record the truncated traces that a better trace supersedes, and return whether there are any."""
    if not con.execute(f"SELECT count(*) FROM {KEYS_TABLE} WHERE is_partial").fetchall()[0][0]:
        return False
    con.execute(f"CREATE TABLE {_HIDDEN} AS SELECT trace_id FROM ({superseded(f'SELECT * FROM {LAKE}.{MARK}')})")
    return con.execute(f"SELECT count(*) FROM {_HIDDEN}").fetchall()[0][0] > 0
