"""Batches whose tables are missing or of another model version, as units.

In a folder lake such a unit works on the lake itself, because its traces are already committed. In a DuckLake it works
in a private lake, and replaces the tables in one transaction.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.engines.capture_units import BYTES_PER_EVENT
from pipelines.engines.private_lake import Setting, prepare, private_lake
from pipelines.engines.work_units import Group, Unit
from pipelines.lake import Batch, Lake
from pipelines.lake.names import table_file
from pipelines.runs.materialize.per_capture import Part, compute_captures, known_captures
from pipelines.runs.materialize.per_trace import materialize, stale_batches
from pipelines.runs.store import Store, open_store
from pipelines.runs.store.ducklake.recompute import recompute
from pipelines.runs.store.ducklake.recompute import stale_batches as stale_in_ducklake
from pipelines.runs.store.ducklake.store import DuckLakeStore
from pipelines.runs.store.folder import FolderStore

_BYTES_PER_BYTE = 20  # estimated bytes of JSON per byte of `events` in Parquet


@dataclass(frozen=True)
class Modelling:
    """A function, which can be sent to a worker, that computes tables of batches.

    For a folder lake the worker must be on the same machine. `force`: also compute tables that are up to date.
    """

    setting: Setting
    tables: tuple[str, ...]
    force: bool = False

    def __call__(self, unit: Unit) -> Modelled:
        """Compute a unit. Raises what the models raise."""
        prepare(self.setting)
        began, cpu = time.perf_counter(), time.process_time()
        store = open_store(self.setting.store)
        if isinstance(store, DuckLakeStore):
            n_files = sum(len(_replaced(self, store, batch)) for batch in unit.items)
        else:
            lake = Lake(self.setting.store)
            n_files = len(materialize(lake, self.tables, unit.items, self.force, and_publish=False))
        return Modelled(n_files, time.perf_counter() - began, time.process_time() - cpu)


def _replaced(how: Modelling, store: DuckLakeStore, batch: Batch) -> list[str]:
    with private_lake(how.setting) as lake:
        return recompute(store, lake, batch, how.tables, how.force)


@dataclass(frozen=True)
class ModellingCaptures:
    """A function, as Modelling, that computes tables of captures that are otherwise up to date.

    Its units contain ids of captures.
    """

    setting: Setting
    tables: tuple[str, ...]
    force: bool = False

    def __call__(self, unit: Unit) -> Modelled:
        """Compute a unit. Raises what the models raise."""
        prepare(self.setting)
        began, cpu = time.perf_counter(), time.process_time()
        part = Part(frozenset(unit.items), frozenset())
        done = list(compute_captures(Lake(self.setting.store), self.tables, self.force, part=part))
        return Modelled(len(done), time.perf_counter() - began, time.process_time() - cpu)


@dataclass(frozen=True)
class Modelled:
    """The number of table files that a unit wrote, and its cost on the worker, in seconds."""

    n_files: int
    seconds: float
    cpu_seconds: float


def stale_groups(store: Store, tables: Sequence[str], force: bool = False) -> list[Group]:
    """Return the batches that lack some of these tables or have outdated ones. With `force`, all batches."""
    if not tables:
        return []
    if isinstance(store, DuckLakeStore):
        return [
            Group((stale_batch.batch,), stale_batch.n_events * BYTES_PER_EVENT)
            for stale_batch in stale_in_ducklake(store, tables, force)
        ]
    if not isinstance(store, FolderStore):
        return []
    lake = store.lake
    stale = lake.batches() if force else stale_batches(lake, lake.catalog(), tables, lake.batches())
    sizes = {batch: table_file(lake.root, "events", batch) for batch in stale}
    return [Group((b,), (p.stat().st_size if p.exists() else 0) * _BYTES_PER_BYTE) for b, p in sizes.items()]


def stale_captures(store: Store, tables: Sequence[str], force: bool) -> list[Group]:
    """Return the ids of captures whose batch lacks some of these tables or has them from another version, by batch.

    With `force`, return all captures. Empty for a DuckLake, where such captures count as changed.
    """
    if not isinstance(store, FolderStore) or not tables:
        return []
    by_batch: dict[Batch, list[str]] = {}
    for name, row in known_captures(store.lake).items():
        if not row.is_gone:
            by_batch.setdefault(row.batch, []).append(name)
    stale = sorted(by_batch) if force else stale_batches(store.lake, store.lake.catalog(), tables, sorted(by_batch))
    return [Group(tuple(by_batch[batch]), 0) for batch in stale]
