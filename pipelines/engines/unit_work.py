"""The work on a unit of files: ingestion and modelling in a private lake, and its commit in one transaction.

Workers may process a unit repeatedly and concurrently, because the store accepts each trace once.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pipelines.engines.private_lake import Setting, private_lake
from pipelines.engines.work_units import Unit
from pipelines.readers.inputs import TraceRow
from pipelines.readers.kineto.limits import Limits


@dataclass(frozen=True)
class Ingesting:
    """Callable, which can be sent to a worker, that ingests a unit."""

    setting: Setting
    job: str | None = None
    limits: Limits | None = None

    def __call__(self, unit: Unit) -> Ingested:
        """Return the outcome of each file. Errors of ingestion, the models and the store propagate."""
        return ingest_unit(self, unit)


@dataclass(frozen=True)
class Ingested:
    """The outcome of each of a unit's files, and the unit's cost on the worker, in seconds."""

    rows: tuple[TraceRow, ...]
    seconds: float
    cpu_seconds: float


def ingest_unit(how: Ingesting, unit: Unit) -> Ingested:
    """Ingest the unit's files, compute their tables, and commit. Run no model if the store already has all traces."""
    from pipelines.lake.publish.user_causes import CAUSES, write_causes
    from pipelines.lake.publish.user_formulas import OP_FORMULAS, write_formulas
    from pipelines.readers.ingest import ingest
    from pipelines.runs.materialize.per_trace import materialize
    from pipelines.runs.store import open_store

    began, cpu = time.perf_counter(), time.process_time()
    with private_lake(how.setting) as lake:
        store = open_store(how.setting.store)
        rows = ingest(unit.items, lake, how.job, limits=how.limits).rows
        mine = {row.trace_id for row in rows if row.trace_id}
        known_traces = set(store.known(mine)) if mine else set()
        if mine - known_traces:
            write_formulas(lake.root / OP_FORMULAS, store.formulas())
            write_causes(lake.root / CAUSES, store.causes())
            materialize(lake, and_publish=False)
        committed = store.commit(lake)
        # A trace in `traces` is new even if the lake already has its hardware counters, whose set has the same id.
        known_traces |= {key for keys in committed.known_keys.values() for key in keys} - {*committed.traces}
        rows = tuple(replace(row, status="known") if row.trace_id in known_traces else row for row in rows)
    return Ingested(rows, time.perf_counter() - began, time.process_time() - cpu)


def reject_unread(setting: Setting, reasons: Mapping[str, str]) -> None:
    """Commit the files of failed units as rows of `rejects`, without reading them. Errors of the store propagate."""
    from pipelines.base.paths import text_path
    from pipelines.readers.ingest import reject_files
    from pipelines.runs.store import open_store

    with private_lake(replace(setting, cpus=None)) as lake:
        reject_files({text_path(path): why for path, why in reasons.items()}, lake)
        open_store(setting.store).commit(lake)
