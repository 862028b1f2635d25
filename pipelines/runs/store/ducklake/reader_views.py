"""What a connection to a DuckLake shows: every public table under its name, as in a folder lake's analysts' file."""

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
_KEPT = 8  # files of views, of different versions of the models or of stores


def create_views(con: duckdb.DuckDBPyConnection, catalog: Catalog) -> None:
    """Attaches a file with the views and their comments, over the attached `lake`, and makes it the default.

    Creating 100 views with 1,600 comments takes seconds where each one looks into a DuckLake: so they are made over empty
    tables with the same columns, and kept in the user's cache. They depend on nothing else.
    """
    there, has_own_tables = lake_columns(con), has_own(con)
    hidden = has_own_tables and _hide_superseded(con)
    build = _Build(catalog, there, hidden, has_own_tables, user_tables.has_prices(con))
    _attach(con, build)
    con.execute(f"USE {SHOWN}")


@dataclass(frozen=True)
class _Build:
    """What the views depend on: the models, the store's columns, whether traces are superseded, whether it has keys, and
    whether it has prices.
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
    if kept := kept_file("views", build.digest):
        with suppress(duckdb.IOException):  # another process deleted it
            con.execute(attach.format(quoted(kept)))
            return
    with tempfile.TemporaryDirectory(prefix="tracelake-views-") as own:
        made = Path(own, "views.duckdb")
        _create_file(made, build)
        con.execute(attach.format(quoted(made)))  # it stays while it is open
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
        # Marks first, for tables of captures read theirs; views that read tables last.
        order = sorted(build.catalog.public, key=lambda n: (build.catalog.models[n].kind == "view", n not in KEYS))
        for name in order:
            kind = _create(con, build, build.catalog.models[name])
            con.execute(comments(build.catalog.models[name], kind, {column for column, _ in types[name]}))
        con.commit()


def lock_to(con: duckdb.DuckDBPyConnection, data: str) -> None:
    """From here on, allow no files except those of the store, and no changes of settings."""
    con.execute(f"SET allowed_directories = [{quoted(data + '/')}]")
    con.execute("SET enable_external_access = false")
    con.execute("SET lock_configuration = true")


def _create(con: duckdb.DuckDBPyConnection, build: _Build, model: Model) -> str:
    """Returns whether it made a TABLE or a VIEW."""
    # Of a folder these are tables of rules, filled in later.
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
    catalog, there = build.catalog, build.there
    if name == FAILURES_VIEW:
        return f"SELECT * FROM {FAILURES}"
    if name == PRICE_TABLE:
        return f"SELECT * FROM {user_tables.PRICES}"
    if name not in there:
        return _no_rows(catalog, name)
    rows = stored_rows(catalog, name, there)
    if name == MARK:
        named = valid_rows(CAPTURE_MARK, stored_rows(catalog, CAPTURE_MARK, there))
        ranks = valid_rows(CAPTURE_RANKS, stored_rows(catalog, CAPTURE_RANKS, there), f"({named})")
        return placed_rows(rows, named, ranks)
    if mark_of(name) != MARK:
        return valid_rows(name, rows)
    # A trace is committed with all its tables, so that only superseded ones are to be left out.
    is_of_traces = "trace_id" in there[name] and name != REJECTS
    return f"{rows} WHERE trace_id NOT IN (SELECT trace_id FROM {_HIDDEN})" if build.hidden and is_of_traces else rows


def stored_rows(catalog: Catalog, name: str, there: dict[str, Columns]) -> str:
    """Returns the SELECT of all rows, with the columns that this version knows: NULL where the store lacks them."""
    if name not in there:
        return _no_rows(catalog, name)
    missing = [
        f'CAST(NULL AS {kind}) AS "{column}"'
        for column, kind in column_types(catalog)[name]
        if column not in there[name]
    ]
    return f"SELECT *{''.join(f', {one}' for one in missing)} FROM {LAKE}.{name}"


def _no_rows(catalog: Catalog, name: str) -> str:
    return f"SELECT * FROM (SELECT * FROM ({no_row(catalog, name)}) WHERE false)"


def _hide_superseded(con: duckdb.DuckDBPyConnection) -> bool:
    """Notes the truncated traces for which there is a better one; returns whether there are any."""
    if not con.execute(f"SELECT count(*) FROM {KEYS_TABLE} WHERE is_partial").fetchall()[0][0]:
        return False
    con.execute(f"CREATE TABLE {_HIDDEN} AS SELECT trace_id FROM ({superseded(f'SELECT * FROM {LAKE}.{MARK}')})")
    return con.execute(f"SELECT count(*) FROM {_HIDDEN}").fetchall()[0][0] > 0
