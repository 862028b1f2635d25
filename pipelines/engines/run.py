"""Submission of a run's units, and handling of units that fail.

A unit whose worker dies is retried in halves. Failed units are reported, and their files added to `rejects`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from pipelines.base.paths import is_under, path_text
from pipelines.engines.capture_units import CAPTURES, Capturing, changed_captures
from pipelines.engines.engine import Done, Engine, first_line
from pipelines.engines.private_lake import Setting
from pipelines.engines.stale_batches import Modelling, ModellingCaptures, stale_captures, stale_groups
from pipelines.engines.unit_work import Ingesting, reject_unread
from pipelines.engines.work_units import UNIT_FILES, Group, Unit, cut, groups_of
from pipelines.fleet.captures.grouping import Capture
from pipelines.models.catalog import load_catalog
from pipelines.readers.inputs import TraceRow
from pipelines.readers.kineto.limits import Limits
from pipelines.runs.materialize.per_capture import requested_captures, trace_tables
from pipelines.runs.materialize.per_trace import requested_tables
from pipelines.runs.store import Store, StoreError, open_store


@dataclass(frozen=True)
class FailedUnit:
    """A unit that failed in every attempt. The store contains none of its rows. `items`: its files or captures."""

    unit: str
    items: tuple[str, ...]
    error: str
    attempts: int


@dataclass
class Followed:
    """The progress of a run. Sizes are estimated bytes of JSON. Seconds are totals over all workers."""

    n_units: int = 0
    size: int = 0
    n_done: int = 0
    size_done: int = 0
    failed: list[FailedUnit] = field(default_factory=list)
    results: list[Any] = field(default_factory=list)
    rows: list[TraceRow] = field(default_factory=list)
    """Outcome of each file."""
    not_kept: str | None = None
    """Reason why the files of the failed units could not be added to `rejects`, None if they were."""
    seconds: float = 0.0
    cpu_seconds: float = 0.0


OnUnit = Callable[[Followed, Done], Any]


def ingest_on(
    engine: Engine,
    store: str,
    files: Iterable[Path],
    job: str | None = None,
    limits: Limits | None = None,
    on_unit: OnUnit = lambda *_: None,
) -> Followed:
    """Ingest and model files on an engine, into the store at an address that every worker can reach.

    `on_unit(so_far, done)` is called as each unit ends. A unit whose worker died in every attempt is retried alone,
    then in halves, so that only the file that kills its worker is lost. Units that finally fail are in `failed`, and
    their files in `rejects`. Files of the lake itself are skipped. Raise StoreError, OSError, UnusablePath, and
    CatalogError for an op_formulas.csv that cannot be used.
    """
    setting = Setting.here(store, engine.cpus)
    opened = open_store(store)
    opened.known(())  # reports a wrong address now, and creates a new catalog in one process
    opened.formulas()  # reports invalid formulas now, not in every unit
    so_far = Followed()
    is_own = is_under(opened.lake.root) if opened.lake else lambda _: False  # a unit's private lake is elsewhere
    units = cut(groups_of(path.absolute() for path in files if not is_own(path)), engine.slots, UNIT_FILES)
    _follow(engine, so_far, units, Ingesting(setting, job, limits), on_unit)
    so_far.rows += [row for result in so_far.results for row in result.rows]
    if reasons := {path: _reason(failed_unit) for failed_unit in so_far.failed for path in failed_unit.items}:
        so_far.rows += [TraceRow(path, "rejected", reason=why) for path, why in reasons.items()]
        try:
            reject_unread(setting, reasons)
        except (StoreError, OSError, duckdb.Error) as error:  # most likely also why the units failed
            so_far.not_kept = first_line(error)
    return so_far


def materialize_on(
    engine: Engine,
    store: str,
    tables: Iterable[str] | None = None,
    on_unit: OnUnit = lambda *_: None,
    force: bool = False,
) -> Followed:
    """Update tables (all by default) on an engine, first tables of traces, then tables of captures.

    Tables are computed if they are missing or of another model version. `force`: also compute the named tables that are
    up to date, but not their sources. Raise CatalogError for a name that is not a table, RolesError for a roles.csv
    that cannot be read, StoreError.
    """
    catalog = load_catalog()
    requested = [*catalog.materialized, *catalog.of_captures] if tables is None else list(dict.fromkeys(tables))
    opened = open_store(store)
    of_captures = [name for name in catalog.of_captures if name in requested]
    if of_captures:
        # Readers use only a capture's newest batch, so a batch without the other tables would hide them. Only a folder
        # lake can add tables to an existing batch.
        of_captures = requested_captures(catalog, of_captures) if opened.lake else list(catalog.of_captures)
    named = requested_tables(catalog, [name for name in requested if name not in catalog.of_captures])
    # The sources of capture tables are computed together with the named tables, as without an engine.
    of_traces = requested_tables(catalog, [*named, *trace_tables(catalog, of_captures)])
    setting = Setting.here(store, engine.cpus)
    so_far = Followed()
    if force and (groups := stale_groups(opened, named, force)):
        units = cut(groups, engine.slots, 1)
        _follow(engine, so_far, units, Modelling(setting, tuple(named), force), on_unit)
    if groups := stale_groups(opened, of_traces):
        units = cut(groups, engine.slots, 1)
        _follow(engine, so_far, units, Modelling(setting, tuple(of_traces)), on_unit)
    read = trace_tables(catalog, of_captures)
    # With `force` the known captures of a folder lake come first, so a changed capture is computed with its batch.
    steps = ("known", "changed") if force else ("changed", "known")
    for step in steps if of_captures else ():
        if step == "changed":
            work: Any = Capturing(setting, tuple(of_captures), force)
            groups = _ready(opened, changed_captures(opened, force), read, so_far)
        else:
            work = ModellingCaptures(setting, tuple(of_captures), force)
            groups = stale_captures(opened, of_captures, force)
        if groups:
            _follow(engine, so_far, cut(groups, engine.slots, CAPTURES), work, on_unit)
    return so_far


def _ready(store: Store, groups: list[Group], tables: Sequence[str], so_far: Followed) -> list[Group]:
    """Return the captures whose traces have all source tables. Other captures wait for a run in which no unit fails."""
    lacking = (
        {batch.batch_id for group in stale_groups(store, tables) for batch in group.items} if so_far.failed else ()
    )
    return [
        group
        for group in groups
        if not any(
            member.trace.batch_id in lacking
            for capture in group.items
            if isinstance(capture, Capture)
            for member in capture.members
        )
    ]


def _follow(
    engine: Engine, so_far: Followed, units: Sequence[Unit], work: Callable[[Unit], Any], on_unit: OnUnit
) -> None:
    """Submit units, and retry the units whose worker died, one by one.

    Another unit on the same worker may have killed it. If a worker dies again, its only unit is the cause, and is split
    in halves.
    """
    so_far.n_units += len(units)
    so_far.size += sum(unit.size for unit in units)
    suspects: deque[Unit] = deque()
    for done in engine.submit(units, work):
        if done.is_death:
            suspects.append(done.unit)
        else:
            _note(so_far, done, on_unit)
    while suspects:
        (done,) = engine.submit([suspects.popleft()], work)
        if done.is_death and done.unit.halves:
            so_far.n_units += 1
            suspects += done.unit.halves
        else:
            _note(so_far, done, on_unit)


def _note(so_far: Followed, done: Done, on_unit: OnUnit) -> None:
    so_far.n_done += 1
    so_far.size_done += done.unit.size
    if done.error is None:
        so_far.results.append(done.result)
        so_far.seconds += done.result.seconds
        so_far.cpu_seconds += done.result.cpu_seconds
    else:
        items = tuple(map(_named, done.unit.items))
        so_far.failed.append(FailedUnit(done.unit.name, items, done.error, done.attempts))
    on_unit(so_far, done)


def _named(item: Any) -> str:
    return path_text(item) if isinstance(item, Path) else getattr(item, "capture_id", None) or str(item)


def _reason(failed: FailedUnit) -> str:
    companions = f", with {len(failed.items) - 1} other files," if len(failed.items) > 1 else ""
    return f"the unit that it was in{companions} failed {failed.attempts} times; ingest it again. {failed.error}"
