"""Work units of captures.

The ranks of a capture may come from different units, so its tables are computed once all ranks are in the store.
A worker copies the tables of their traces from the store into a private lake, computes there, and commits the result.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import duckdb

from pipelines.engines.private_lake import Setting, private_lake
from pipelines.engines.work_units import Group, Unit
from pipelines.fleet.captures.grouping import Capture, RankTrace, find_captures
from pipelines.fleet.captures.input_tables import lake_captures
from pipelines.lake import Batch, Lake
from pipelines.lake.commit.model_failures import FAILURES, left_out
from pipelines.lake.lake import Staged
from pipelines.lake.names import MARK
from pipelines.lake.publish.contents import no_row
from pipelines.lake.publish.user_causes import CAUSES, write_causes
from pipelines.lake.publish.user_formulas import OP_FORMULAS, write_formulas
from pipelines.models.catalog import Catalog
from pipelines.models.sqltext import quoted, row
from pipelines.runs.materialize.per_capture import compute_into_batch, requested_captures, trace_tables
from pipelines.runs.store import Store, open_store
from pipelines.runs.store.interface import BYTES_PER_EVENT

CAPTURES = 40
"""Maximum number of captures in a unit."""


@dataclass(frozen=True)
class Capturing:
    """Callable, which can be sent to a worker, that computes tables of captures.

    Its units contain captures, and ids of captures that no longer exist.
    """

    setting: Setting
    tables: tuple[str, ...]
    force: bool = False  # see Store.capture_contents

    def __call__(self, unit: Unit) -> Computed:
        """Compute a unit. Errors of the models and of the store propagate."""
        return _compute(self, unit)


@dataclass(frozen=True)
class Computed:
    """Cost of a unit of captures on its worker, in seconds.

    `n_captures`: captures that the unit computed or removed, except captures that another worker finished first.
    """

    n_captures: int
    seconds: float
    cpu_seconds: float


def changed_captures(store: Store, force: bool = False) -> list[Group]:
    """Return a group for each capture that is new or changed, and for the id of each deleted capture.

    `force`: see Store.capture_contents. A capture changes with its traces or roles, and in a DuckLake with the versions
    of the models. Captures of which only a digest is kept are omitted. Raise StoreError if the store cannot be read,
    and RolesError for a roles.csv that cannot be read.
    """
    captures = lake_captures(store.lake) if store.lake else _captures(store)
    known_content = store.capture_contents(force)
    new = [
        Group((capture,), _size(capture))
        for name, capture in captures.items()
        if known_content.get(name) != capture.content and not capture.is_digest
    ]
    return [*new, *(Group((name,), 0) for name in sorted(known_content.keys() - captures.keys()))]


def _captures(store: Store) -> dict[str, Capture]:
    columns = ", ".join(field.name for field in fields(RankTrace))
    with store.look([MARK]) as con:
        if not _has(con, MARK):
            return {}
        traces = [RankTrace(*values) for values in con.execute(f"SELECT {columns} FROM {MARK}").fetchall()]
        lacking: dict[str, set[str]] = {}
        tables = [table for (table,) in con.execute(f"SELECT DISTINCT table_name FROM {FAILURES}").fetchall()]
        for failure in left_out(con, tables):
            lacking.setdefault(failure.trace_id, set()).update(failure.tables)
    captures = find_captures(traces, store.roles(), lacking=lacking)
    return {capture.capture_id: capture for capture in captures}


def _has(con: duckdb.DuckDBPyConnection, table: str) -> bool:
    try:
        con.execute(f"SELECT 1 FROM {table} LIMIT 0")
    except duckdb.CatalogException:  # no row was ever committed
        return False
    return True


def _size(capture: Capture) -> int:
    return sum(member.trace.n_events for member in capture.members) * BYTES_PER_EVENT


def _compute(how: Capturing, unit: Unit) -> Computed:
    began, cpu = time.perf_counter(), time.process_time()
    with private_lake(how.setting) as lake:
        store = open_store(how.setting.store)
        known_content = store.capture_contents(how.force)
        removed = [name for name in unit.items if isinstance(name, str) and name in known_content]
        requested = [capture for capture in unit.items if isinstance(capture, Capture)]
        captures = [capture for capture in requested if known_content.get(capture.capture_id) != capture.content]
        if captures or removed:
            write_formulas(lake.root / OP_FORMULAS, store.formulas())
            write_causes(lake.root / CAUSES, store.causes())
            catalog = lake.catalog()
            batch, here = _fetched(store, lake, catalog, how.tables, captures)
            compute_into_batch(lake, how.tables, here, removed)
            lake.take_away(batch, [MARK, "events", "findings", *trace_tables(catalog, how.tables)])
            store.commit(lake)
    return Computed(len(captures) + len(removed), time.perf_counter() - began, time.process_time() - cpu)


def _fetched(
    store: Store, lake: Lake, catalog: Catalog, tables: Iterable[str], captures: Sequence[Capture]
) -> tuple[Batch, list[Capture]]:
    """Copy the inputs of the captures' models into one batch of the private lake.

    Return the batch, and the captures with their traces in it.
    """
    batch = lake.new_batch()
    ids = sorted({member.trace.trace_id for capture in captures for member in capture.members})
    sources = ["events", "findings", *trace_tables(catalog, requested_captures(catalog, tables)), MARK]
    with store.look(sources) as con:
        files = {table: _copied(con, catalog, table, ids, batch, lake.staging(batch)) for table in sources}
    keys: Mapping[str, str | None] = {m.trace.trace_id: m.trace.path for c in captures for m in c.members}
    lake.put_all(batch, files, keys)
    return batch, [_moved(capture, batch) for capture in captures]


def _copied(
    con: duckdb.DuckDBPyConnection, catalog: Catalog, table: str, ids: Sequence[str], batch: Batch, folder: Path
) -> Staged:
    target = folder / f"{table}.parquet"
    rows = f"SELECT * REPLACE ({quoted(batch.batch_id)} AS batch_id) FROM {table} WHERE trace_id IN {row(['', *ids])}"
    if not _has(con, table):
        rows = f"{no_row(catalog, table)} WHERE false"
    con.execute(f"COPY ({rows}) TO {quoted(target)} (FORMAT parquet, COMPRESSION zstd)")
    return Staged(target)


def _moved(capture: Capture, batch: Batch) -> Capture:
    """Return the capture with its traces in another batch."""
    members = (replace(m, trace=replace(m.trace, batch_id=batch.batch_id)) for m in capture.members)
    return replace(capture, members=tuple(members))
