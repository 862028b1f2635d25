"""The reduction of old traces to digests, for `tracelake retention --keep digest` (see lake/retain/digest_files.py).

A capture is reduced when all of its traces are old enough and in batches that can be reduced. First, its tables are
committed as tables of a digest, so that no further trace joins the capture. Then a batch with the digests of its traces
replaces their batches, as in compaction. Readers may have the old files open, so the files are deleted `grace` later.
If a run is killed, the next run completes its work.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from pipelines.base import database
from pipelines.fleet.captures.input_tables import lake_captures
from pipelines.lake.commit.batch_rows import merged_away
from pipelines.lake.commit.catalog_file import writing
from pipelines.lake.commit.manifest import Entry
from pipelines.lake.commit.model_failures import left_out_of
from pipelines.lake.lake import Lake
from pipelines.lake.names import CAPTURE_MARK, OVERLAYS, Batch, table_file, time_in_id
from pipelines.lake.read.snapshot import look
from pipelines.lake.read.views import file_rows
from pipelines.lake.retain.compaction import replace_batches
from pipelines.lake.retain.digest_files import OF_CAPTURES, OF_TRACES, capture_files, digest_files
from pipelines.lake.retain.retention import GRACE, Retirement, remove_ended, remove_hidden, retirement_of, undo_merges
from pipelines.models.catalog import Catalog
from pipelines.runs.materialize.per_capture import Part
from pipelines.runs.materialize.run_order import materialize_all

_AT_ONCE = 500  # maximum number of captures whose digests one batch contains


def reduce_old(
    lake: Lake,
    older_than_days: int,
    grace: timedelta = GRACE,
    dry_run: bool = False,
    now: datetime | None = None,
    on_step: Callable[[str], Any] = lambda _: None,
) -> list[Retirement]:
    """Keep only digests of traces ingested more than `older_than_days` days ago, and delete batches hidden `grace` ago.

    The tables that a digest needs are computed first. A trace is not reduced while another rank of its capture is
    younger or in a damaged batch.

    Return the affected batches. Their `state` is one of: due (a digest would replace the batch, in a dry run), reduced
    (a digest replaced it), damaged (it has a damaged file and is not reduced), incomplete (a table of the digest does
    not contain one of its traces, or a trace of a batch with which it shares a capture), changed (it was written in the
    meantime, so the next run reduces it), hidden, and removed (after `grace`).

    Raise ValueError for less than one day or a negative grace. Raise the errors of materialize_all.
    """
    if older_than_days < 1 or grace < timedelta(0):
        raise ValueError(f"keep at least 1 day and a grace of at least 0, not {older_than_days} days and {grace}")
    now = now or datetime.now(UTC)
    before = time_in_id(now - timedelta(days=older_than_days))
    if dry_run:
        due, _, damaged = _due(lake, before, with_checksums=False)
        return [*(_described(lake, entry, "due") for entry in due), *damaged]
    with lake.retention_lock():
        undo_merges(lake)
        removed = remove_ended(lake, now, grace)  # first, because digests need free disk space
        due, captures, done = _due(lake, before, with_checksums=True)
        batches = frozenset(entry.batch for entry in due)
        if due:
            materialize_all(lake, (*OF_TRACES, *OF_CAPTURES), on_step=on_step, part=Part(frozenset(captures), batches))
        on_step("writing digests")
        with lake.compute_lock(lambda: on_step("another process computes tables, waiting")):
            captures, incomplete, groups = _ready(lake, batches, captures)
            for first in range(0, len(captures), _AT_ONCE):
                _reduce_captures(lake, captures[first : first + _AT_ONCE])
            _hide_old_states(lake)
            done += [_described(lake, entry, "incomplete") for entry in incomplete]
            for group in groups:
                reduced = [_described(lake, entry, "reduced") for entry in group]
                replaced = replace_batches(lake, look(lake.root), group, partial(digest_files, on=now.date()))
                done += reduced if replaced.into else [replace(batch, state="changed") for batch in reduced]
                for batch, trace_id in ((b, t) for b in reduced if replaced.into for t in b.traces):
                    shutil.rmtree(lake.root / OVERLAYS / f"day={batch.day}" / trace_id, ignore_errors=True)
        return [*done, *removed, *remove_hidden(lake, now, grace)]


def _due(lake: Lake, before: str, with_checksums: bool) -> tuple[list[Entry], list[str], list[Retirement]]:
    """Return the batches to reduce, their captures without a digest, and the damaged batches.

    All batches are older than `before` (time_in_id), oldest first. The captures of batches to reduce have no trace in a
    younger or damaged batch. `with_checksums`: also detect damage that does not change a file's size, by reading all
    files.
    """
    entries, digests = look(lake.root).entries, {batch for batch in lake.batches() if lake.is_digest(batch)}
    old = {batch for batch in lake.batches() if batch.batch_id < before} - digests
    damaged = old & {file.batch for file in lake.broken()}
    if with_checksums:
        damaged |= {file.batch for file in lake.altered(old - damaged)}
    old -= damaged
    captures = lake_captures(lake, with_roles=False)
    batches = {
        name: {Batch(member.trace.batch_id) for member in capture.members} - digests
        for name, capture in captures.items()
    }
    while young := {batch for of_capture in batches.values() if not of_capture <= old for batch in of_capture & old}:
        old -= young  # then another capture may have a batch that is not reduced
    due = [name for name, of_capture in sorted(batches.items()) if of_capture <= old and not captures[name].is_digest]
    whole = [_described(lake, entries[batch.batch_id], "damaged") for batch in sorted(damaged)]
    return [entries[batch.batch_id] for batch in sorted(old)], due, whole


def _described(lake: Lake, entry: Entry, state: str) -> Retirement:
    return retirement_of(lake, entry.batch, state, sorted(entry.key_paths() or ()))


def _reduce_captures(lake: Lake, captures: Sequence[str]) -> None:
    """Commit the tables of captures as tables of a digest, in a new batch."""
    batch = lake.new_batch()
    folder = lake.staging(batch)
    try:
        with lake.connect(OF_CAPTURES) as con:
            staged = capture_files(con, captures, batch, folder)
        lake.put_all(batch, staged)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _hide_old_states(lake: Lake) -> None:
    """Hide the batches of captures that do not have the newest state of any capture.

    A row which states that a capture no longer exists is also a state. Without this row, older rows of the capture
    would count again.
    """
    batches = lake.batches(CAPTURE_MARK)
    digests = [batch for batch in batches if lake.is_digest(batch)]
    if not digests:
        return
    with database.connect() as con:
        rows = file_rows(table_file(lake.root, CAPTURE_MARK, batch) for batch in batches)
        newest = con.execute(f"SELECT DISTINCT max(batch_id) OVER (PARTITION BY capture_id) FROM ({rows})").fetchall()
    if old := [batch for batch in batches if (batch.batch_id,) not in newest]:
        with writing(lake.root) as catalog:
            for batch in old:
                catalog.notice(batch.batch_id, merged_away(digests[-1].batch_id))


def _ready(
    lake: Lake, batches: frozenset[Batch], due: Sequence[str]
) -> tuple[list[str], list[Entry], list[list[Entry]]]:
    """Return the captures of `due` to reduce, the batches that are not reduced, and the batches to reduce by day.

    A batch is not reduced if one of its traces is missing from a table of a digest, or if it shares a capture with a
    batch that is not reduced. Nor are its captures, because the tables of a reduced capture are never recomputed.
    """
    catalog, batches_of_captures = lake.catalog(), {}
    for name, capture in lake_captures(lake, with_roles=False).items():
        batches_of_captures[name] = {member.trace.batch_id for member in capture.members}
    entries = {name: entry for name, entry in sorted(look(lake.root).entries.items()) if entry.batch in batches}
    lacking = {failure.batch_id for failure in left_out_of(lake, OF_TRACES)}
    whole = {name for name, entry in entries.items() if name in lacking or not _is_current(entry, catalog)}
    while more := {
        name for names in batches_of_captures.values() if names & whole for name in names & entries.keys() - whole
    }:
        whole |= more  # then other captures may have a batch that is not reduced
    by_day = defaultdict(list)
    for name in entries.keys() - whole:
        by_day[entries[name].batch.day].append(entries[name])
    groups = [sorted(group, key=lambda entry: entry.batch) for _, group in sorted(by_day.items())]
    captures = [name for name in due if not batches_of_captures.get(name, set()) & whole]
    return captures, [entries[name] for name in sorted(whole)], groups


def _is_current(entry: Entry, catalog: Catalog) -> bool:
    """Return whether a batch has this version of all tables of a digest."""
    return all(entry.kind.versions.get(table) == catalog.version(table) for table in OF_TRACES)
