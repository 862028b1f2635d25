"""The computation of tables of traces from the lake's batches. Missing files and files of other versions are computed.

A batch is processed in groups of traces of at most GROUP_EVENTS events, so memory does not grow with the batch. Each
table's file is moved into place in one step, so a killed run leaves the old or the new file. If a model fails,
bisection identifies the failing trace. The tables that need the model then do not contain this trace (see table
model_failures). The other traces are computed.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from pipelines.base import database
from pipelines.base.stopping import raise_if_stopped
from pipelines.lake.commit.batch_rows import OPTIMIZER_OFF, Failure
from pipelines.lake.commit.parquet import options
from pipelines.lake.lake import Lake, Staged
from pipelines.lake.names import MARK, Batch, table_file
from pipelines.lake.publish.contents import column_types
from pipelines.lake.read.damage import Broken, BrokenFiles, unreadable
from pipelines.models.catalog import Catalog
from pipelines.models.errors import CatalogError
from pipelines.models.run import ModelRun, run_models, why_plain
from pipelines.models.sqltext import parquet_rows, quoted
from pipelines.runs.materialize.publishing import Materialized, run_and_publish

# 1.5 million events and their edges stay below the memory limit without spilling. A larger trace is its own group.
GROUP_EVENTS = 1_500_000
# DuckDB distributes a table in chunks of about 120,000 rows. Models with few rows therefore take a fifth more CPU time
# on two cores than on one core.
FEW_EVENTS = 300_000
SOURCES = ("traces", "events", "findings")
# Errors whose cause is the machine, the lake or the code, not a trace.
_NO_FAULT_OF_A_TRACE = (CatalogError, OSError, MemoryError, duckdb.IOException, duckdb.InterruptException)


def stale(lake: Lake, catalog: Catalog, tables: Iterable[str], batch: Batch) -> list[str]:
    """Return the tables of a batch whose file is missing or was computed by another version of the model.

    Return [] for a digest, because it has no events.
    """
    if lake.is_digest(batch):
        return []
    versions = lake.versions_of(batch, tables)
    return [table for table in tables if versions.get(table) != catalog.version(table)]


def materialize(
    lake: Lake,
    tables: Iterable[str] | None = None,
    batches: Iterable[Batch] | None = None,
    force: bool = False,
    on_step: Callable[[str], Any] | None = None,
    and_publish: bool = True,
) -> list[Materialized]:
    """Update tables of traces (all by default) in some or all batches, and publish if `and_publish`.

    Raise the errors of compute_traces.
    """
    requested = requested_tables(lake.catalog(), tables)
    steps = compute_traces(lake, requested, batches, force, on_step)
    return run_and_publish(lake, steps, requested, batches is None, force, and_publish)


def requested_tables(catalog: Catalog, tables: Iterable[str] | None) -> list[str]:
    """Return the tables of traces among `tables` (None: all), in the order in which they are computed.

    Raise CatalogError for a name that is not a table.
    """
    requested = set(catalog.materialized if tables is None else tables)
    catalog.closure(requested)  # raises CatalogError for names that are not tables
    return [table for table in catalog.materialized if table in requested]


def compute_traces(
    lake: Lake,
    tables: Iterable[str] | None,
    batches: Iterable[Batch] | None,
    force: bool = False,
    on_step: Callable[[str], Any] | None = None,
) -> Iterator[Materialized]:
    """Update model tables (all by default). `on_step(text)` is called before each model.

    Only one process computes at a time, one batch at a time (`Lake.compute_lock`). If another process computed a batch
    while this process waited, the batch is not recomputed. Private models, and public models that the requested tables
    read, are computed with them but not stored. Do not publish. If `compact` merges batches in the meantime, compute
    the merged batch instead. Skip batches that `retention` removes in the meantime.

    Raise CatalogError for a name that is not a table, or for a necessary op_formulas.csv that is unusable. Raise
    BrokenFiles for batches in which `events` or another input is missing or broken, after all other batches are
    computed. With `lake.without_broken`, skip these batches instead.
    """
    catalog = lake.catalog()
    say = on_step or (lambda _: None)
    requested = requested_tables(catalog, tables)
    catalog.refuse_errors(requested)
    broken: list[Broken] = []
    known = lake.batches()
    todo = [batch for batch in (known if batches is None else batches) if not lake.is_digest(batch)]
    for batch in todo if force else stale_batches(lake, catalog, requested, todo):
        with lake.compute_lock(lambda: say("another process computes tables, waiting")):
            stale_tables = requested if force else stale(lake, catalog, requested, batch)
            if not stale_tables:  # another process computed the batch while this process waited
                continue
            try:
                if lost := lake.broken(SOURCES, [batch]):
                    raise BrokenFiles(lost)
                done = _compute_batch(lake, _Work(catalog, stale_tables, batch, say))
            except BrokenFiles as error:
                broken += error.broken if batch in lake.batches() else []
                continue
            except OSError:
                if batch in lake.batches():
                    raise
                continue  # `compact` or `retention` removed the batch, and the files staged for it
        yield from done
    if merged := _merged_meanwhile(lake, todo, known):
        yield from compute_traces(lake, requested, merged, force, on_step)
    if broken and not lake.without_broken:
        raise BrokenFiles(broken)


def _merged_meanwhile(lake: Lake, todo: Sequence[Batch], known: Sequence[Batch]) -> list[Batch]:
    """Return the batches that `compact` created since `known` by merging batches of `todo`.

    These are the new batches on days of batches of `todo` that no longer exist.
    """
    now = lake.batches()
    days = {batch.day for batch in set(todo) - set(now)}
    return [batch for batch in now if batch.day in days and batch not in known]


def stale_batches(lake: Lake, catalog: Catalog, tables: Sequence[str], batches: Sequence[Batch]) -> list[Batch]:
    """Return the batches in which a table's file is missing or was computed by another version of the model.

    Digests are excluded, because they have no events.
    """
    batches = [batch for batch in batches if not lake.is_digest(batch)]
    versions = lake.versions(batches, tables)
    current_versions = {table: catalog.version(table) for table in tables}
    is_current: dict[int, bool] = {}  # many batches share their versions
    for batch_versions in versions.values():
        if id(batch_versions) not in is_current:
            is_current[id(batch_versions)] = all(
                batch_versions.get(table) == version for table, version in current_versions.items()
            )
    return [batch for batch in batches if not is_current[id(versions[batch])]]


@dataclass
class _Work:
    """The tables to compute for one batch, the seconds that each model took so far, and the model failures.

    `plain`: the models that run with the optimizer off, because DuckDB invalidated its database with it on, each with
    the reason.
    """

    catalog: Catalog
    tables: list[str]
    batch: Batch
    on_step: Callable[[str], Any]
    seconds: dict[str, float] = field(default_factory=dict)
    failures: dict[str, list[Failure]] = field(default_factory=dict)
    plain: dict[str, str] = field(default_factory=dict)
    n_rows: dict[Path, int] = field(default_factory=dict)  # by file written so far
    n_parts: int = 0
    step: str = ""  # the model that is running

    def next_part(self, folder: Path) -> Path:
        """Return a new folder. Folder names sort in the order of their creation."""
        self.n_parts += 1
        part = folder / f"{self.n_parts:06d}"
        part.mkdir()
        return part


def _compute_batch(lake: Lake, work: _Work) -> list[Materialized]:
    """Compute the tables and commit their files. Raise BrokenFiles if their inputs cannot be read."""
    folder = Path(tempfile.mkdtemp(dir=lake.staging(work.batch)))
    try:
        groups = _groups(lake, work.batch)
        for number, traces in enumerate(groups):
            label = "" if len(groups) == 1 else f" (group {number + 1} of {len(groups)})"
            _run(lake, work, work.tables, traces, folder, label)
        staged = {table: _joined(work, table, folder) for table in work.tables}
        lake.put_all(work.batch, staged)
        return [Materialized(t, work.batch, s.n_rows or 0, work.seconds.get(t, 0.0)) for t, s in staged.items()]
    except duckdb.Error:
        if broken := _unreadable_sources(lake, work.batch):
            raise BrokenFiles(broken) from None
        raise
    finally:
        lake.unstage(folder)


def _unreadable_sources(lake: Lake, batch: Batch) -> list[Broken]:
    with database.scratch() as con:
        return unreadable(con, [table_file(lake.root, table, batch) for table in SOURCES])


def _run(lake: Lake, work: _Work, tables: list[str], traces: list[str], folder: Path, label: str) -> None:
    """Compute tables of traces into parts. If a model fails, bisect the traces.

    For the failing trace, compute the tables that do not need the model.
    """
    part = work.next_part(folder)
    try:
        _run_group(lake, work, tables, traces, part, label)
    except _NO_FAULT_OF_A_TRACE:
        raise
    except Exception as error:  # models in Python may raise anything
        raise_if_stopped(error)
        database.raise_if_disk_is_full(error, folder)
        shutil.rmtree(part)
        if broken := _unreadable_sources(lake, work.batch):
            raise BrokenFiles(broken) from None
        if isinstance(error, duckdb.FatalException) and work.step not in work.plain:
            work.plain[work.step] = why_plain(error)
            _run(lake, work, tables, traces, folder, label)
        elif len(traces) > 1:
            half = len(traces) // 2
            _run(lake, work, tables, traces[:half], folder, label)
            _run(lake, work, tables, traces[half:], folder, label)
        else:
            computable = _without_failed(work, tables, traces[0], error)
            if computable:
                _run(lake, work, computable, traces, folder, label)


def _without_failed(work: _Work, tables: list[str], trace_id: str, error: Exception) -> list[str]:
    """Return the tables that do not need the failed model, and record that the trace is missing from the others."""
    lines = str(error).strip().splitlines() or [""]
    reason = f"{type(error).__name__}: {lines[0]}"[:500]
    if isinstance(error, duckdb.OutOfMemoryException):
        limit = database.for_models()
        reason = f"the trace needs more memory than the {limit} that its models may use: profile fewer steps. {reason}"
    lost = [table for table in tables if not work.step or work.step in work.catalog.closure([table])]
    for table in lost:
        work.failures.setdefault(table, []).append(Failure(trace_id, work.step or "(windows)", reason))
    return [table for table in tables if table not in lost]


def _groups(lake: Lake, batch: Batch) -> list[list[str]]:
    """Return the batch's traces in order of trace_id, in groups of at most GROUP_EVENTS events."""
    with database.scratch() as con:
        path = table_file(lake.root, "traces", batch)
        rows = con.execute(f"SELECT trace_id, n_events FROM {parquet_rows(path)} ORDER BY trace_id").fetchall()
    groups: list[list[str]] = []
    size = 0
    for trace_id, n_events in rows:
        if not groups or size + n_events > GROUP_EVENTS:
            groups.append([])
            size = 0
        groups[-1].append(trace_id)
        size += n_events
    return groups


def _run_group(lake: Lake, work: _Work, tables: list[str], traces: list[str], folder: Path, label: str) -> None:
    def starts(name: str) -> None:
        work.step = name
        work.on_step(name + label)

    from pipelines.critical_path.graph.windows import (  # imported late, because many runs do not need it
        request_windows,
        usual_windows,
    )

    work.step = ""
    # Use an in-memory database, because a database on disk compresses and flushes even short-lived tables. Excess data
    # is spilled.
    with database.private(folder) as con:
        _sources(con, lake, work.batch, traces)
        request_windows(con, usual_windows(con, traces))
        # Sort, so that readers find a trace's row groups by their bounds.
        order = " ORDER BY trace_id" if len(traces) > 1 else ""

        def write(table: str, rows: str) -> None:
            with_batch = f"SELECT *, {quoted(work.batch.batch_id)} AS batch_id FROM (\n{rows}\n){order}"
            _write(con, work, with_batch, folder / f"{table}.parquet")

        runs = run_models(con, work.catalog, tables, on_model=starts, write=write, plain=work.plain)
    for run in runs:
        work.seconds[run.name] = work.seconds.get(run.name, 0.0) + run.seconds
    for table, failures in plain_runs(work.catalog, tables, runs, traces).items():
        work.failures.setdefault(table, []).extend(failures)


def plain_runs(
    catalog: Catalog, tables: Iterable[str], runs: Iterable[ModelRun], traces: Sequence[str | None]
) -> dict[str, list[Failure]]:
    """Return for each table the needed models that ran with the optimizer off, as a Failure per trace."""
    plain = [run for run in runs if run.plain_for]
    failures_by_table = {}
    for table in tables if plain else ():
        needed = set(catalog.closure([table]))
        failures = [
            Failure(t, run.name, run.plain_for, OPTIMIZER_OFF) for run in plain if run.name in needed for t in traces
        ]
        if failures:
            failures_by_table[table] = failures
    return failures_by_table


def _sources(con: duckdb.DuckDBPyConnection, lake: Lake, batch: Batch, traces: list[str]) -> None:
    """Create views of the ingested tables of these traces, or tables if there are few events.

    Some forty models read them. With views, each model opens the files again.
    """
    listed = ", ".join(quoted(trace_id) for trace_id in traces)
    kind = "VIEW"
    for table in SOURCES:
        path = table_file(lake.root, table, batch)
        columns = "* EXCLUDE (capture_id)" if table == MARK else "*"  # no batch records a trace's capture
        rows = f"SELECT {columns} FROM {parquet_rows(path)} WHERE trace_id IN ({listed})"
        con.execute(f"CREATE {kind} {table} AS {rows}")
        if table == MARK and use_few_threads(con):
            kind = "TABLE"


def use_few_threads(con: duckdb.DuckDBPyConnection) -> bool:
    """If the traces in `con` have few events, compute on one thread from now on. Return whether they have."""
    is_few = con.execute(f"SELECT coalesce(sum(n_events), 0) < {FEW_EVENTS} FROM {MARK}").fetchall()[0][0]
    if is_few:
        con.execute("SET threads = 1")
    return is_few


def _joined(work: _Work, table: str, folder: Path) -> Staged:
    """Join the parts of a table into one file. The file has no rows if no trace could be computed."""
    parts = sorted(folder.glob(f"*/{table}.parquet"))
    failures = tuple(work.failures.get(table, ()))
    joined = parts[0] if parts else folder / f"{table}.whole"
    if not parts:
        columns = (f'CAST(NULL AS {kind}) AS "{name}"' for name, kind in column_types(work.catalog)[table])
        with database.scratch() as con:
            _write(con, work, f"SELECT {', '.join(columns)} WHERE false", joined, failures)
    elif len(parts) > 1 or failures:  # rewrite a single part to store the model failures in its footer
        joined = folder / f"{table}.whole"
        with database.scratch() as con:
            _write(con, work, f"SELECT * FROM {parquet_rows(parts)}", joined, failures)
    return Staged(joined, work.n_rows[joined], failures, work.catalog.version(table))


def _write(
    con: duckdb.DuckDBPyConnection, work: _Work, rows: str, target: Path, failures: Sequence[Failure] = ()
) -> None:
    """Write rows to a file that is named after its table, and record their number."""
    version = work.catalog.version(target.stem)
    copied = con.execute(f"COPY ({rows}) TO {quoted(target)} ({options(version, failures)})")
    ((work.n_rows[target],),) = copied.fetchall()
