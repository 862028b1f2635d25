"""The lake's tables as views in a Spark session: large ones over their Parquet files, small ones copied as rows.

A view shows the same rows as in DuckDB: committed batches, the newest state of a capture or recording, no superseded
traces. DuckDB determines these once, in the marker tables (`traces`, `captures`, …), which Spark gets as rows. From all
other files, Spark keeps the rows that belong to a marker row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from pipelines.base import database
from pipelines.base.errors import TracelakeError
from pipelines.engines.spark.rules import carried_over
from pipelines.fleet.captures.input_tables import lake_captures, stage_captures
from pipelines.lake.lake import Lake
from pipelines.lake.names import KEYS, MARK, mark_of
from pipelines.lake.publish.contents import column_types
from pipelines.lake.read.damage import BrokenFiles
from pipelines.lake.read.views import MEMBERSHIP_TABLES
from pipelines.models.catalog import Catalog, load_catalog

if TYPE_CHECKING:
    from ibis.backends.pyspark import Backend

_TYPES = {
    "VARCHAR": "STRING",
    "INTEGER": "INT",
    "TIMESTAMP": "TIMESTAMP_NTZ",
    "TIMESTAMP WITH TIME ZONE": "TIMESTAMP_LTZ",
}

STAGED = frozenset(f"_staged_{name}" for name in ("captures", "capture_ranks", "capture_roles", "capture_quality"))


class NotOnSpark(TracelakeError, ValueError):
    """A query that Spark cannot run, or would compute differently. The message gives the reason."""


def spark_schema(columns: Iterable[tuple[str, str]]) -> str:
    """Return columns with DuckDB types as a schema for Spark's readers."""
    return ", ".join(f"`{name}` {_TYPES.get(kind, kind)}" for name, kind in columns)


def read_by(catalog: Catalog, names: Iterable[str], computed: Collection[str]) -> list[str]:
    """Return these tables, and the tables that views and `computed` tables among them read, in dependency order.

    Input tables (`catalog.inputs`) are included. Raise NotOnSpark for a computed table that Python makes.
    """
    names_read: set[str] = set()
    todo = list(names)
    while todo:
        name = todo.pop()
        if name in names_read or name not in (catalog.inputs if name in catalog.inputs else catalog.models):
            continue
        names_read.add(name)
        if _is_computed(catalog, name, computed):
            todo += catalog.models[name].dependencies
    return [*sorted(names_read & catalog.inputs.keys()), *(name for name in catalog.models if name in names_read)]


def _is_computed(catalog: Catalog, name: str, computed: Collection[str]) -> bool:
    """Return whether Spark runs the table's SELECT. Otherwise its rows are read or copied."""
    if name in catalog.inputs:
        if name not in STAGED:
            raise NotOnSpark(f"{name} is a table that Python makes for one trace or comparison: it stays with DuckDB")
        return False
    model = catalog.models[name]
    if model.kind == "view":
        return True
    is_requested = model.private or name in computed
    if is_requested and model.kind != "sql":
        raise NotOnSpark(f"{name} is made by Python or by ingestion: Spark can read it from the lake, not compute it")
    return is_requested


class Tables:
    """Views, in a Spark session, of the tables in a lake's analyst file, which is open as `con`.

    `computed`: tables that Spark computes instead of reading their files.
    """

    def __init__(
        self, backend: Backend, con: duckdb.DuckDBPyConnection, lake: Lake, computed: Collection[str] = ()
    ) -> None:
        self.backend, self.con, self.lake = backend, con, lake
        self.computed = frozenset(computed)
        self.catalog = load_catalog()
        self.made: set[str] = set()
        self._session: Any = backend._session
        self._batches = lake.all_batches()
        self._marks: dict[str, Any] = {}

    def make(self, names: Iterable[str]) -> None:
        """Create the views of these tables and of their sources. Skip unknown names, for which the query itself fails.

        Raise BrokenFiles for a table with damaged files. If the lake is `without_broken`, Spark skips the same files
        as DuckDB instead. Raise NotOnSpark for a computed table that Python makes.
        """
        order = [name for name in read_by(self.catalog, names, self.computed) if name not in self.made]
        read = {name for name in order if name in self.catalog.models}
        broken = self.lake.broken({*read, *map(mark_of, read), *(MEMBERSHIP_TABLES if MARK in read else ())})
        if broken and not self.lake.without_broken:
            raise BrokenFiles(broken)
        if not STAGED.isdisjoint(order):
            self._stage_captures()
        bad = {file.path for file in broken}
        for name in order:
            if name not in self.made:
                self._make(name, bad)

    def query(self, text: str) -> Any:
        """Return the Spark data frame of a query in DuckDB's dialect."""
        return self.backend.raw_sql(self.backend.compile(self._expression(text)))

    def rows(self, text: str, first: int = 0) -> Any:
        """Return the answer to a query in DuckDB's dialect as an Arrow table.

        `first`: maximum number of rows, 0 for all.
        """
        expression = self._expression(text)
        # Not `to_pyarrow` of Ibis, which goes through pandas, where a BIGINT with a NULL becomes a DOUBLE.
        return self.backend.raw_sql(self.backend.compile(expression.limit(first) if first else expression)).toArrow()

    def _expression(self, text: str) -> Any:
        return self.backend.sql(carried_over(text, self._doubles()), dialect="duckdb")

    def _doubles(self) -> set[str]:
        """Return the names of the DOUBLE columns of the tables made so far."""
        types = column_types(self.catalog)
        return {column for name in self.made & types.keys() for column, kind in types[name] if kind == "DOUBLE"}

    def _give(self, name: str, frame: Any) -> None:
        frame.createOrReplaceTempView(name)
        self.made.add(name)

    def _make(self, name: str, bad: Collection[Path]) -> None:
        if _is_computed(self.catalog, name, self.computed):
            self._give(name, self.query(self.catalog.models[name].sql))
        elif self._is_copied(name):
            self._give(name, self._session.createDataFrame(self.con.table(name).to_arrow_table()))
        else:
            self._give(
                name, self._files(name, [p for p in self.lake.committed_files(name, self._batches) if p not in bad])
            )

    def _stage_captures(self) -> None:
        with database.connect() as con:
            stage_captures(con, lake_captures(self.lake).values())
            for name in STAGED:
                self._give(name, self._session.createDataFrame(con.table(name).to_arrow_table()))

    def _is_copied(self, name: str) -> bool:
        rows = self.con.execute(f"SELECT count(*) FROM duckdb_tables() WHERE table_name = '{name}'").fetchall()
        return bool(rows[0][0])

    def _files(self, name: str, files: list[Path]) -> Any:
        """Return the valid rows in files of a table, with the columns that DuckDB shows, in the same order."""
        relation = self.con.table(name)
        kinds = {column: str(kind) for column, kind in zip(relation.columns, relation.types, strict=True)}
        # With a schema, Spark opens no file to infer one. A missing column is NULL. A column of another type is an
        # error.
        rows = self._session.read.schema(spark_schema(kinds.items())).parquet(*(str(path) for path in files))
        mark = mark_of(name)
        return (
            rows if name == mark else rows.join(self._mark(mark), [KEYS[mark], "batch_id"], "left_semi").select(*kinds)
        )

    def _mark(self, name: str) -> Any:
        """Return the valid keys and batches of a marker table."""
        if name not in self._marks:
            keys = database.arrow_result(self.con, f"SELECT {KEYS[name]}, batch_id FROM {name}").to_arrow_table()
            self._marks[name] = self._session.createDataFrame(keys)
        return self._marks[name]
