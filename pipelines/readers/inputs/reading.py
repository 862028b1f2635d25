"""Destination of an input's data: the tables of its scope, each filled with the table's SQL."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from importlib import import_module
from itertools import compress
from pathlib import Path
from typing import Any

import duckdb

from pipelines.base.paths import path_text
from pipelines.lake.commit.staged_rows import all_or_nothing, insert_rows, staged_tables
from pipelines.lake.names import KEYS, Batch, tables_of
from pipelines.models.catalog import Catalog
from pipelines.models.dry_run import create_empty, create_staged
from pipelines.models.sqlfile import STAGED
from pipelines.models.sqltext import parquet_rows, quoted
from pipelines.readers.kineto.limits import Limits
from pipelines.readers.origin import job_from_inbox, job_from_pattern
from pipelines.readers.secrets import COMMAND, masked, may_be_secret, text_columns


class Reading:
    """Tables of a scope while sets are read.

    Schema `one` has the current set's rows, schema `main` the rows of all sets. `known`: state by key, for the sets in
    the lake and the sets read so far. `job`: the job's name if it was passed at ingestion. `limits`: limits on the size
    of a file, by default the environment's. `rejected`: reason by file, for files that are rejected although their set
    is ingested.
    """

    def __init__(
        self,
        con: duckdb.DuckDBPyConnection,
        catalog: Catalog,
        scope: str,
        known: dict[str, Any],
        job: str | None,
        limits: Limits | None = None,
    ) -> None:
        self.con, self.catalog, self.known, self.job = con, catalog, known, job
        self.limits = limits or Limits.from_environment()
        self.mark = tables_of(scope)[0]
        self.tables = staged_tables(catalog, scope)
        self.rejected: dict[Path, str] = {}
        self.filled: set[str] = set()
        create_empty(con, catalog, scope)
        con.execute("CREATE SCHEMA one")

    def begin(self) -> None:
        """Start the next set, with no table filled and no file rejected."""
        self.rejected, self.filled = {}, set()

    def add_rows(self, table: str, rows: Sequence[dict[str, Any]]) -> None:
        """Fill a table of the set with its SQL, from rows by the names of staged columns. Missing columns are NULL."""
        insert_rows(self.con, create_staged(self.con, self.catalog, table), rows)
        self._fill(table, "TABLE")

    def add_files(self, table: str, paths: Collection[Path]) -> None:
        """Fill a table of the set with its SQL, from Parquet files.

        Missing columns are NULL. Without files, add no rows.
        """
        by_name = ["union_by_name = true"] if len(paths) > 1 else []
        source = parquet_rows(paths, *by_name) if paths else "(SELECT 0) WHERE false"
        columns_present = {row[0] for row in self.con.execute(f"DESCRIBE FROM {source}").fetchall()}
        types = self.catalog.models[table].staged
        selected = (
            f'"{name}"' if name in columns_present else f'CAST(NULL AS {types[name]}) AS "{name}"' for name in types
        )
        self.con.execute(f"CREATE OR REPLACE VIEW {STAGED}{table} AS SELECT {', '.join(selected)} FROM {source}")
        self._fill(table, "VIEW")

    def _fill(self, table: str, kind: str) -> None:
        model = self.catalog.models[table]
        for input_table in (self.catalog.inputs[name] for name in model.dependencies if name in self.catalog.inputs):
            if input_table.function:  # computed from the staged rows
                getattr(import_module(input_table.module), input_table.function.partition(":")[2])(self.con)
        types = self.con.execute(f"DESCRIBE main.{table}").fetchall()
        self.con.execute(f"CREATE OR REPLACE TABLE one.{table} AS {model.sql}")
        self._mask(table, text_columns(types))
        self.con.execute(f"DROP {kind} {STAGED}{table}")
        self.filled.add(table)

    def _mask(self, table: str, names: Sequence[str]) -> None:
        """Mask the secrets in these text columns.

        Test for secrets first, because planning the UPDATE takes longer than reading a small file.
        """
        if not names:
            return
        conditions = ", ".join(f"bool_or({may_be_secret(name)})" for name in names)
        (may_be_secrets,) = self.con.execute(f"SELECT {conditions} FROM one.{table}").fetchall()
        for name in compress(names, may_be_secrets):
            self.con.execute(
                f"UPDATE one.{table} SET {name} = {masked(name, is_name=name != COMMAND)} WHERE {may_be_secret(name)}"
            )

    def file_columns(self, path: Path) -> dict[str, Any]:
        """Return the columns of every commit marker: path, job and time of ingestion.

        Raise WrongPattern if TRACELAKE_JOB_PATTERN cannot be used.
        """
        return {
            "path": path_text(path.absolute()),
            "job": self.job or job_from_pattern(path) or job_from_inbox(path),
            # UTC without a time zone, because DuckDB would convert a time with a zone to the machine's zone.
            "ingested_at": datetime.now(UTC).replace(tzinfo=None),
        }

    def count(self, *tables: str) -> int:
        """Return the number of rows that the current set has in these tables."""
        return sum(
            self.con.execute(f"SELECT count(*) FROM one.{table}").fetchall()[0][0]
            for table in tables
            if table in self.filled
        )

    def keep(self, key: str, batch: Batch) -> None:
        """Add the set to the batch, and replace an earlier set with the same key.

        Raise LookupError if the set has no row in the commit marker, because it would never be visible.
        """
        if not self.count(self.mark):
            raise LookupError(f"it has no rows in {self.mark}")
        column = KEYS[self.mark]
        key_columns = f"{quoted(key)} AS {column}, {quoted(batch.batch_id)} AS batch_id"
        with all_or_nothing(self.con):
            for table in self.tables if key in self.known else ():
                self.con.execute(f"DELETE FROM main.{table} WHERE {column} = {quoted(key)}")
            for table in self.filled:
                self.con.execute(f"INSERT INTO main.{table} SELECT * REPLACE ({key_columns}) FROM one.{table}")

    def move(self, batch: Batch) -> None:
        """Move all sets that were read to another batch."""
        for table in self.tables:
            self.con.execute(f"UPDATE main.{table} SET batch_id = {quoted(batch.batch_id)}")
