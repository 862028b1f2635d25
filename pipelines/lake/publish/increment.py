"""The incremental update of an analysts' file after a few batches were added, changed or removed.

The result equals a rebuilt file. If the catalog cannot guarantee this (damage, changed tables of captures), the update
raises `Anew`, and the caller rebuilds the file.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import duckdb

from pipelines.lake.commit.model_failures import FAILURES, add_failures, drop_hidden_failures
from pipelines.lake.commit.staged_rows import insert_values
from pipelines.lake.names import CAPTURE_MARK, GROWING, KEYS, MARK, REJECTS, Batch, mark_of, table_file
from pipelines.lake.publish.contents import Contents, column_types, count_rows, large_rows
from pipelines.lake.publish.empty_file import BATCHES, HIDDEN, connect_written, write_out
from pipelines.lake.publish.file_lists import SCHEMA, is_large, write_macros
from pipelines.lake.read.snapshot import Now
from pipelines.lake.read.views import FOLDER, file_rows, placed_rows, valid_rows
from pipelines.models.sqltext import row

_SLIM = (
    "trace_id, batch_id, ingest_batch_id, capture_id, group_id, path, job, rank, status, n_events, trace_start_ns, "
    "trace_end_ns, format"
)
_NEWEST = (CAPTURE_MARK, *GROWING)  # marker tables where the newest row of a key counts


class Anew(Exception):
    """An analysts' file that must be rebuilt. The message contains the reason."""


@dataclass(frozen=True)
class _Changes:
    """The batches by their change. `added` and `removed` both contain changed batches. `before`: stamps in the file."""

    before: dict[str, str]
    added: list[str]
    removed: list[str]

    @property
    def all(self) -> set[str]:
        return {*self.added, *self.removed}


def update(built: Path, contents: Contents) -> None:
    """Update the file `built`, a copy of the published file. Raise Anew, which leaves `built` unusable."""
    with connect_written(built) as con:
        con.execute("SET threads = 1")  # the changes are small, so more threads only add overhead
        con.execute("BEGIN")
        try:
            changes = _changes(con, contents.now)
            _refuse(con, contents, changes)
            _Update(con, contents, changes).run()
        except duckdb.Error as error:  # such as a file that is unreadable or has other columns
            raise Anew(str(error)) from None
        contents.counts = count_rows(con, KEYS)
        write_out(con)


def _changes(con: duckdb.DuckDBPyConnection, now: Now) -> _Changes:
    before = dict(con.execute(f"SELECT batch_id, stamp FROM {BATCHES}").fetchall())
    added = [name for name, stamp in now.stamps.items() if before.get(name) != stamp]
    removed = [name for name in before if now.stamps.get(name) != before[name]]
    return _Changes(before, added, removed)


def _refuse(con: duckdb.DuckDBPyConnection, contents: Contents, changes: _Changes) -> None:
    """Raise Anew for changes whose effect is uncertain."""
    now = contents.now
    if loose := changes.all & now.loose:
        raise Anew(f"the log of {min(loose)} does not list its files")
    for name in changes.removed:
        if not set(changes.before[name].split(" ")[1:]) <= {MARK, REJECTS}:
            raise Anew(f"{name} is not a batch of traces alone")
    for mark in _NEWEST:
        new = [name for name in changes.added if name in now.marks[mark]]
        newest = con.execute(f"SELECT max(batch_id) FROM {mark}").fetchall()[0][0]
        if new and newest and min(new) < newest:
            raise Anew(f"{min(new)} is older than the shown batches")
    catalog = contents.catalog
    for name in changes.added:
        entry = now.entries[name]
        for table, index in entry.kind.places.items():
            path = table_file(now.root, table, entry.batch)
            if path.stat().st_size != entry.sizes[index]:
                raise Anew(f"{path} has another size than recorded")
            computed = table in catalog.models and catalog.models[table].kind != "lake"
            if computed and entry.kind.versions.get(table) not in (None, catalog.version(table)):
                raise Anew(f"{path} is of another version")


class _Update:
    def __init__(self, con: duckdb.DuckDBPyConnection, contents: Contents, changes: _Changes) -> None:
        self.con, self.contents, self.now, self.changes = con, contents, contents.now, changes
        catalog = contents.catalog
        stored = [catalog.models[name] for name in catalog.public if catalog.models[name].kind not in ("view", "rules")]
        self.copied = [model.name for model in stored if not is_large(model)]

    def run(self) -> None:
        self._check_columns()
        for mark in KEYS:
            if mark != MARK:
                self._add_keys(mark)
        redo = self._move_traces()
        for table in self.copied:
            if mark_of(table) == MARK and table != MARK:
                self._copy_again(table, redo)
        write_macros(self.con, large_rows(self.contents).macros)
        self._note(redo)

    def _check_columns(self) -> None:
        """Raise Anew if a copied table with new rows does not have this version's columns."""
        touched = {table for table in self.copied if self._files(table, self.changes.added)}
        columns_by_table: dict[str, list[tuple[str, str]]] = {}
        listed = "', '".join(touched)
        for table, column, kind in self.con.execute(
            "SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE schema_name = 'main' "
            f"AND table_name IN ('{listed}') ORDER BY column_index"
        ).fetchall():
            columns_by_table.setdefault(table, []).append((column, kind))
        types = column_types(self.contents.catalog)
        for table in touched:
            if sorted(columns_by_table.get(table, [])) != sorted(types[table]):
                raise Anew(f"{table} has the columns of another version")

    def _files(self, table: str, batch_ids: Iterable[str]) -> list[Path]:
        named = (name for name in batch_ids if name in self.now.marks[REJECTS if table == REJECTS else mark_of(table)])
        return [table_file(self.now.root, table, Batch(name)) for name in named if self.now.has(table, name)]

    def _insert(self, table: str, rows: str) -> None:
        self.con.execute(f"INSERT INTO {table} BY NAME {rows}")

    def _add_keys(self, mark: str) -> None:
        """Insert new batches of captures, runs and other scopes with all their tables. Delete their older rows."""
        files = self._files(mark, self.changes.added)
        if not files:
            return
        key, tables = KEYS[mark], [name for name in self.copied if mark_of(name) == mark]
        if mark in _NEWEST:
            condition = "true" if mark in GROWING else "NOT is_gone"
            newest = f"QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY batch_id DESC) = 1"
            self.con.execute(f"CREATE OR REPLACE TEMP TABLE _new AS {file_rows(files)} {newest}")
            if mark == CAPTURE_MARK:
                self.con.execute("CREATE TEMP TABLE _captured AS SELECT capture_id FROM _new")
            for table in tables:
                self.con.execute(f"DELETE FROM {table} WHERE {key} IN (SELECT {key} FROM _new)")
            self._insert(mark, f"SELECT * FROM _new WHERE {condition}")
        else:
            self._insert(mark, file_rows(files))
        for table in tables:
            if table != mark and (added := self._files(table, self.changes.added)):
                self._insert(table, valid_rows(table, file_rows(added)))

    def _move_traces(self) -> set[str]:
        """Update `traces` and `superseded`. Return the batches with traces that became visible or hidden."""
        con, files = self.con, self._files(MARK, self.changes.added)
        removed = row(["", *self.changes.removed])
        con.execute("CREATE TEMP TABLE _near (folder VARCHAR)")
        for table in ("traces", HIDDEN):
            con.execute(f"INSERT INTO _near SELECT DISTINCT {FOLDER} FROM {table} WHERE batch_id IN {removed}")
            con.execute(f"DELETE FROM {table} WHERE batch_id IN {removed}")
        con.execute(f"CREATE TEMP TABLE _added AS {file_rows(files) if files else 'SELECT * FROM traces LIMIT 0'}")
        slim = f"SELECT {_SLIM} FROM"
        near = self._near()
        con.execute(f"CREATE TEMP VIEW _around AS SELECT * FROM traces WHERE {near}")
        con.execute(
            f"CREATE TEMP TABLE _all AS {slim} traces WHERE {near} UNION ALL {slim} {HIDDEN} WHERE {near} "
            f"UNION ALL {slim} _added"
        )
        placed = placed_rows("SELECT * FROM _all", "SELECT * FROM captures", "SELECT * FROM capture_ranks")
        con.execute(f"CREATE TEMP TABLE _now AS {placed}")
        ids = "USING (trace_id, batch_id)"
        new = f"SELECT * FROM {HIDDEN} UNION ALL BY NAME SELECT * FROM _added"
        con.execute(f"CREATE TEMP TABLE _lost AS SELECT * FROM _around ANTI JOIN _now {ids}")
        con.execute(f"CREATE TEMP TABLE _gained AS SELECT * FROM ({new}) SEMI JOIN _now {ids} ANTI JOIN traces {ids}")
        for table, moved in (("traces", "_lost"), (HIDDEN, "_gained")):
            con.execute(f"DELETE FROM {table} WHERE (trace_id, batch_id) IN (SELECT (trace_id, batch_id) FROM {moved})")
        self._insert("traces", "SELECT * FROM _gained")
        better = f"SELECT * FROM _lost UNION ALL BY NAME (SELECT * FROM _added ANTI JOIN _now {ids})"
        self._insert(HIDDEN, f"SELECT * REPLACE (NULL AS capture_id) FROM ({better})")
        con.execute(
            "UPDATE traces SET capture_id = n.capture_id FROM _now AS n WHERE n.trace_id = traces.trace_id "
            "AND n.batch_id = traces.batch_id AND n.capture_id IS DISTINCT FROM traces.capture_id"
        )
        return {
            name for (name,) in con.execute("SELECT batch_id FROM _lost UNION SELECT batch_id FROM _gained").fetchall()
        }

    def _near(self) -> str:
        """Return the condition that selects the traces whose visibility or capture may change.

        These traces share a folder with a trace that was added or removed, or whose capture changed. Traces in
        different folders share no capture and do not supersede each other.
        """
        con = self.con
        con.execute(f"INSERT INTO _near SELECT DISTINCT {FOLDER} FROM _added")
        if self._files(CAPTURE_MARK, self.changes.added):
            con.execute(
                f"INSERT INTO _near SELECT DISTINCT {FOLDER} FROM (SELECT * FROM traces UNION ALL BY NAME FROM {HIDDEN}) AS t "
                "WHERE capture_id IN (SELECT capture_id FROM _captured) OR group_id IN (SELECT capture_id FROM _captured) "
                "OR trace_id IN (SELECT trace_id FROM capture_ranks SEMI JOIN _captured USING (capture_id))"
            )
        return f"{FOLDER} IN (SELECT folder FROM _near)"

    def _copy_again(self, table: str, moved: set[str]) -> None:
        """Replace a copied table's rows of all changed batches."""
        if table == REJECTS:
            moved = set()
        old = (self.changes.all | moved) & self.changes.before.keys()
        if old:
            self.con.execute(f"DELETE FROM {table} WHERE batch_id IN {row(['', *sorted(old)])}")
        if files := self._files(table, sorted({*self.changes.added, *moved})):
            self._insert(table, valid_rows(table, file_rows(files)))

    def _note(self, moved: set[str]) -> None:
        """Record the shown batches, and the model failures of batches that changed or have moved traces."""
        self.con.execute(f"DELETE FROM {FAILURES} WHERE batch_id IN {row(['', *sorted(self.changes.all | moved)])}")
        committed = {*self.now.marks[MARK], *self.now.marks[CAPTURE_MARK]}
        add_failures(self.con, self.now.entries, committed & {*self.changes.added, *moved})
        drop_hidden_failures(self.con)
        changed = row(["", *sorted(self.changes.all)])
        self.con.execute(f"DELETE FROM {BATCHES} WHERE batch_id IN {changed}")
        stamps = [{"batch_id": name, "stamp": self.now.stamps[name]} for name in self.changes.added]
        insert_values(self.con, BATCHES, stamps)
        self.con.execute(f"UPDATE {SCHEMA}.published SET published_at = now()")
