"""Work units of batches whose tables are missing or of another model version.

In a folder lake such a unit works on the lake itself, because its traces are already committed. In other stores it
works in a private lake, and replaces the tables in one transaction.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from pipelines.engines.private_lake import Setting, prepare, private_lake
from pipelines.engines.work_units import Group, Unit
from pipelines.lake import Lake
from pipelines.runs.materialize.per_capture import Part, compute_captures
from pipelines.runs.store import Store, open_store


@dataclass(frozen=True)
class Modelling:
    """Callable, which can be sent to a worker, that computes tables of batches.

    For a folder lake the worker must be on the same machine. `force`: also compute tables that are up to date.
    """

    setting: Setting
    tables: tuple[str, ...]
    force: bool = False

    def __call__(self, unit: Unit) -> Modelled:
        """Compute a unit. Errors of the models propagate."""
        prepare(self.setting)
        began, cpu = time.perf_counter(), time.process_time()
        store = open_store(self.setting.store)
        n_files = store.recompute(unit.items, self.tables, self.force, partial(private_lake, self.setting))
        return Modelled(n_files, time.perf_counter() - began, time.process_time() - cpu)


@dataclass(frozen=True)
class ModellingCaptures:
    """Callable, like Modelling, that computes tables of captures that are otherwise up to date.

    Its units contain ids of captures.
    """

    setting: Setting
    tables: tuple[str, ...]
    force: bool = False

    def __call__(self, unit: Unit) -> Modelled:
        """Compute a unit. Errors of the models propagate."""
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
    """Return the batches in which one of these tables is missing or outdated. With `force`, return all batches."""
    return [Group((stale.batch,), stale.size) for stale in store.stale_batches(tables, force)]


def stale_captures(store: Store, tables: Sequence[str], force: bool = False) -> list[Group]:
    """Return the captures with missing or outdated tables, grouped by batch. With `force`, return all captures."""
    return [Group(tuple(captures), 0) for captures in store.stale_captures(tables, force)]
