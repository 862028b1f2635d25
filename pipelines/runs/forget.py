"""The removal of one trace from a lake. The trace is hidden immediately, and then deleted from every file of its batch.

Its row is first removed from the batch's `traces` file, atomically, which hides the trace in every table. The catalog
keeps a notice until the removal is complete, so the next run finishes a removal that was killed. The next run can do so
even if compaction merged the batch or retention removed it in the meantime.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Iterator, Set
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from pipelines.base import database
from pipelines.base.errors import TracelakeError
from pipelines.fleet.captures.grouping import folder_of, ingested
from pipelines.fleet.captures.input_tables import lake_captures
from pipelines.lake import Batch, Lake
from pipelines.lake.commit import manifest
from pipelines.lake.commit.ingested_files import forget_keys
from pipelines.lake.commit.parquet import options, row_groups, write_tables
from pipelines.lake.lake import Staged
from pipelines.lake.names import (
    CAPTURE_TABLES,
    COUNTER_MARK,
    KEYS,
    MARK,
    OVERLAYS,
    REJECTS,
    mark_of,
    table_file,
    table_of,
    tables_of,
)
from pipelines.lake.publish.analyst_file import publish
from pipelines.lake.read.damage import BrokenFiles
from pipelines.lake.retain.retention import FIRST, drop_notice, keep_notice, notices, removed_firsts, sources_of
from pipelines.lake.table_files import table_files
from pipelines.models.sqltext import parquet_rows, quoted
from pipelines.runs.materialize.per_capture import materialize_captures

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa


class NoSuchTrace(TracelakeError):
    """A prefix that does not match exactly one trace id of the lake. The message names the matching ids."""

    def __init__(self, message: str, lake: str | Path) -> None:
        lists = f"tracelake sql 'SELECT trace_id, path FROM traces' --lake {shlex.quote(str(lake))}"
        super().__init__(message, f"`{lists}` lists them.")


@dataclass(frozen=True)
class Forgotten:
    """A removed trace, with its source file and its number of rows in all per-trace tables."""

    trace_id: str
    batch_id: str
    path: str | None
    for_good: bool
    n_rows: int = 0


def forget(
    lake: Lake, beginning: str, for_good: bool = False, on_step: Callable[[str], Any] = lambda _: None
) -> Forgotten:
    """Remove the one trace whose id starts with `beginning`, and recompute its captures.

    Its content may be ingested again, unless `for_good`. Also complete the removals that earlier runs did not finish.
    The trace is hidden immediately. If another process is computing tables that contain its rows, wait for the process
    and report that through `on_step(text)`. Raise NoSuchTrace, or OSError if the lake cannot be written. If BrokenFiles
    is raised, the trace stays hidden, and the next run removes its rows.
    """
    trace = _find(lake, beginning, for_good)
    _keep_id(lake, trace)
    keep_notice(lake, _name(trace), [], forgetting=asdict(trace))
    with lake.retention_lock():  # while this lock is held, no batch is merged or removed
        n_rows = {trace.trace_id: _remove(lake, trace, on_step) for trace in begun(lake)}
    if tables := [table for table in CAPTURE_TABLES if table_files(lake.root, table)]:
        materialize_captures(lake, tables, on_step=on_step)
    else:
        publish(lake)
    return Forgotten(**{**asdict(trace), "n_rows": n_rows.get(trace.trace_id, 0)})


def _find(lake: Lake, id_prefix: str, for_good: bool) -> Forgotten:
    batch_by_trace = lake.known_traces()
    half_done = {trace.trace_id: trace for trace in begun(lake)}
    matching_ids = sorted(name for name in {*batch_by_trace, *half_done} if name.startswith(id_prefix))
    if len(matching_ids) != 1 or not id_prefix:
        several = f"{len(matching_ids)} trace ids start with {id_prefix!r}: {', '.join(matching_ids[:5])}; give more of the id"
        none = f"no trace id in the lake starts with {id_prefix!r}"
        raise NoSuchTrace(several if matching_ids else none, lake.root)
    trace_id = matching_ids[0]
    for_good = for_good or (trace_id in half_done and half_done[trace_id].for_good)
    if trace_id not in batch_by_trace:
        return replace(half_done[trace_id], for_good=for_good)
    batch = batch_by_trace[trace_id]
    path = (manifest.read_keys(lake.root, batch) or {}).get(trace_id)
    return Forgotten(trace_id, batch.batch_id, path, for_good)


def _keep_id(lake: Lake, trace: Forgotten) -> None:
    """If a capture is named after the trace, write a notice so that its other traces keep its id.

    A notice about a group's first capture also prevents other captures from getting its id, even if no trace of it
    remains.
    """
    folders = None if trace.path is None else [folder_of(trace.path)]
    for name, capture in lake_captures(lake, with_roles=False, folders=folders).items():
        members = {member.trace.trace_id: member.trace for member in capture.members}
        if trace.trace_id not in members:
            continue
        first, group_id = min(map(ingested, members.values())), members[trace.trace_id].group_id
        first_of_group = min(first, removed_firsts(lake).get(group_id, first)) if name == group_id else first
        # If any trace of a digest is forgotten, the whole digest is deleted.
        others = [ingested(t) for t in members.values() if t.trace_id != trace.trace_id and not capture.is_digest]
        firsts = {name: first_of_group} if name == group_id else {}
        if trace.trace_id in (first[1], first_of_group[1]) if others else firsts:
            # All traces, because a better trace may supersede any of them.
            kept = {trace_id: name for _, trace_id in others}
            keep_notice(lake, f"{FIRST}{name}", [], firsts=firsts, kept=kept)


def _remove(lake: Lake, trace: Forgotten, on_step: Callable[[str], Any]) -> int:
    """Remove a trace from its batch's files, the marker first. Return its number of rows in the other files."""
    batch = _batch_of(lake, trace)
    if trace.for_good:
        keep_notice(lake, f"forgotten-{trace.trace_id}", [trace.trace_id])
    with lake.commit_lock():
        _need_intact(lake, batch, {MARK})
        _rewrite(lake, MARK, batch, trace.trace_id)
    publish(lake)
    # Otherwise, a process that is computing the batch could commit tables with the trace's rows again.
    with lake.compute_lock(lambda: on_step("another process computes tables, waiting")):
        _need_intact(lake, batch)
        n_rows = _remove_rows(lake, batch, trace.trace_id)
    for source in sources_of(lake, batch):  # batches that were merged into this batch and not deleted yet
        _rewrite(lake, MARK, source, trace.trace_id)
        _remove_rows(lake, source, trace.trace_id)
    for other in _with_events(lake, trace.trace_id) - {batch, lake.known_traces().get(trace.trace_id)}:
        _need_intact(lake, other)
        _remove_rows(lake, other, trace.trace_id)
    n_rows += _remove_counters(lake, trace.trace_id)
    shutil.rmtree(lake.root / OVERLAYS / f"day={batch.day}" / trace.trace_id, ignore_errors=True)
    if not trace.for_good:
        forget_keys(lake, [trace.trace_id])  # otherwise, a duplicate file would count as done
    drop_notice(lake, _name(trace))
    return n_rows


def _with_events(lake: Lake, trace_id: str) -> set[Batch]:
    """Return the batches with events of a trace.

    Other processes may have read the trace's file concurrently, and their batches also have its events. No view shows
    these rows, because only one batch has the trace's marker.
    """
    files = lake.intact_files("events")
    if not files:
        return set()
    query = f"SELECT DISTINCT batch_id FROM {parquet_rows(files)} WHERE trace_id = {quoted(trace_id)}"
    with database.scratch() as con:
        return {Batch(name) for (name,) in con.execute(query).fetchall()}


def _need_intact(lake: Lake, batch: Batch, tables: Set[str] | None = None) -> None:
    """Raise BrokenFiles for a file whose bytes have changed, because a rewritten file would have a valid checksum."""
    if broken := lake.altered([batch], tables):
        raise BrokenFiles(broken)


def _batch_of(lake: Lake, trace: Forgotten) -> Batch:
    """Return the batch of a trace to be removed, or the batch that its batch was merged into.

    A trace may have been ingested again after a killed removal had hidden it. Then return its old batch, so that the
    trace stays in the later batch.
    """
    batch = lake.known_traces().get(trace.trace_id, Batch(trace.batch_id))
    if batch.batch_id == trace.batch_id:
        return batch
    with database.scratch() as con:
        query = (
            "SELECT coalesce(ingest_batch_id, batch_id) "
            f"FROM {parquet_rows(table_file(lake.root, MARK, batch))} "
            f"WHERE trace_id = {quoted(trace.trace_id)}"
        )
        is_later = any(ingest_batch_id > trace.batch_id for (ingest_batch_id,) in con.execute(query).fetchall())
    return Batch(trace.batch_id) if is_later else batch


def _remove_rows(lake: Lake, batch: Batch, trace_id: str) -> int:
    tables = {table_of(path) for path in lake.root.glob(f"*/day={batch.day}/{batch.batch_id}.parquet")}
    of_traces = sorted(table for table in tables - {MARK, REJECTS} if mark_of(table) == MARK)
    return sum(_rewrite(lake, table, batch, trace_id) for table in of_traces)


def _remove_counters(lake: Lake, trace_id: str) -> int:
    """Remove the hardware counters that came with a trace, unless the trace was ingested again.

    Return the number of removed rows, without the marker's row. The marker comes last, so the next run completes a
    removal that was killed.
    """
    batch = lake.known(COUNTER_MARK).get(trace_id)
    if batch is None or trace_id in lake.known_traces():
        return 0
    _need_intact(lake, batch)
    _, *others = tables_of("counters")
    n_rows = sum(_rewrite(lake, table, batch, trace_id) for table in others)
    _rewrite(lake, COUNTER_MARK, batch, trace_id)
    return n_rows


def _rewrite(lake: Lake, table: str, batch: Batch, trace_id: str) -> int:
    """Rewrite a table's file, if it exists, without a trace. Return the trace's number of rows in the old file."""
    source, log = table_file(lake.root, table, batch), manifest.read(lake.root, batch)
    if not source.exists():
        return 0
    record = log.records.get(table) if log else None
    failures = tuple(failure for failure in (record.failures if record else ()) if failure.trace_id != trace_id)
    version = record.version if record else None
    with database.connect() as con:
        rows = f"FROM {parquet_rows(source)}"
        of_trace, n_rows = con.execute(
            f"SELECT count(*) FILTER (WHERE trace_id = {quoted(trace_id)}), count(*) {rows}"
        ).fetchall()[0]
        if not of_trace and (record is None or failures == record.failures):
            return 0
        staged = lake.staging(batch) / f"{table}-without.parquet"
        if table == "events":
            write_tables(_without(source, trace_id), staged)
        else:
            remaining = f"SELECT * {rows} WHERE trace_id <> {quoted(trace_id)}"
            form = options(version, failures, lake.is_digest(batch))
            con.execute(f"COPY ({remaining}) TO {quoted(staged)} ({form})")
    keys = manifest.read_keys(lake.root, batch) if table in KEYS else None
    if keys is not None:
        keys = {key: path for key, path in keys.items() if key != trace_id}
    lake.put_all(batch, {table: Staged(staged, n_rows - of_trace, failures, version)}, keys)
    return of_trace


def _without(source: Path, trace_id: str) -> Iterator[pa.Table]:
    """Yield the row groups without the rows of a trace. Row groups of other traces are unchanged."""
    import pyarrow.compute as pc

    for group in row_groups(source):
        yield group.filter(pc.field("trace_id") != trace_id)


def begun(lake: Lake) -> list[Forgotten]:
    """Return the traces that are being removed, or whose removal was killed."""
    return [Forgotten(**notice["forgetting"]) for _, notice in sorted(notices(lake).items()) if "forgetting" in notice]


def _name(trace: Forgotten) -> str:
    return f"forgetting-{trace.trace_id}"
