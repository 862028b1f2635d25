"""The merging of a day's small batches into few large batches, so that there are fewer files to open, count and list.

A merged batch is written next to the batches that it replaces. The commit of its marker makes it visible and hides the
replaced batches in one step. The replaced batches are deleted after a grace period, as in retention, so readers that
have their files open can continue. If a run is killed, the next run completes or undoes its work.

Only the `batch_id` of the rows changes. In `traces`, `ingest_batch_id` keeps the batch of the ingest run. No table is
recomputed, because only batches with the same tables of the same versions are merged.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb

from pipelines.base import database
from pipelines.lake.commit.manifest import Entry
from pipelines.lake.lake import Lake, Staged
from pipelines.lake.names import MARK, REJECTS, Batch, mark_of
from pipelines.lake.read.snapshot import Now, look
from pipelines.lake.retain.merge import merged_files
from pipelines.lake.retain.retention import GRACE, Retirement, remove_ended, remove_hidden, undo_merges

SMALLER_THAN = 2 << 30
"""Size in bytes. Batches smaller than this are merged into batches of at most this size."""


@dataclass(frozen=True)
class Merge:
    """Batches of a day that one batch replaces. `state`: due (in a dry run), merged, changed (meanwhile) or damaged.

    A batch with a damaged file is not merged. `n_files` and `n_bytes` are totals over all tables. `into`,
    `n_files_after` and `n_bytes_after` are None until the batches are merged.
    """

    day: str
    state: str
    batches: tuple[str, ...]
    n_traces: int
    n_files: int
    n_bytes: int
    into: str | None = None
    n_files_after: int | None = None
    n_bytes_after: int | None = None


@dataclass(frozen=True)
class Compaction:
    """The merges of a run, and the batches whose files it deleted.

    Earlier runs merged or hid these batches at least `grace` ago.
    """

    merges: list[Merge]
    removed: list[Retirement]


Writing = Callable[
    [duckdb.DuckDBPyConnection, Lake, Sequence[Entry], Batch, Path], tuple[dict[str, Staged], dict[str, str | None]]
]
"""A function that writes a merged batch's files. It returns the files by table, and the source path by trace."""


class _Changed(Exception):
    """A failure of a merge because a batch changed since it was read."""


def compact(
    lake: Lake,
    older_than: int = 1,
    smaller_than: int = SMALLER_THAN,
    grace: timedelta = GRACE,
    dry_run: bool = False,
    now: datetime | None = None,
) -> Compaction:
    """Merge the batches of each day that ended at least `older_than - 1` days ago, and publish. 0 includes today.

    Batches of `smaller_than` bytes or more stay unchanged. A later run deletes the merged batches, and the batches that
    retention has hidden, after `grace`. A dry run changes nothing and returns the merges that are due. Raise ValueError
    for a negative number. Raise duckdb.IOException or OSError if the lake cannot be read or written.
    """
    if older_than < 0 or smaller_than < 1 or grace < timedelta(0):
        raise ValueError(
            f"days and grace are at least 0, a size at least 1 byte: {older_than}, {grace}, {smaller_than}"
        )
    now = now or datetime.now(UTC)
    before_day = (now - timedelta(days=older_than - 1)).date().isoformat()
    if dry_run:
        return Compaction([_described(group) for group in _due(lake, look(lake.root), before_day, smaller_than)], [])
    done = []
    with lake.retention_lock():
        undo_merges(lake)
        removed = remove_ended(lake, now, grace)  # first, because merging needs free disk space
        before = look(lake.root)
        for group in _due(lake, before, before_day, smaller_than):
            done += _merge(lake, before, group)
        removed += remove_hidden(lake, now, grace)
    return Compaction(done, [retirement for retirement in removed if retirement.state == "removed"])


def _due(lake: Lake, now: Now, before: str, smaller_than: int) -> list[list[Entry]]:
    """Return the groups of batches to merge, oldest first. A group has one day and the same tables and versions.

    Damaged batches, batches that a writer is working on, and batches from the day `before` on are excluded.
    """
    damaged = {broken_file.batch.batch_id for broken_file in lake.broken()}
    alike: defaultdict[tuple[str, ...], list[Entry]] = defaultdict(list)
    only_rejects: defaultdict[str, list[Entry]] = defaultdict(list)
    for name in now.stamps:
        entry = now.entries.get(name)
        if entry is None or name in now.loose or name in damaged or not entry.batch.day < before:
            continue
        tables = entry.kind.places.keys()
        if tables <= {REJECTS}:
            only_rejects[entry.batch.day].append(entry)
        elif MARK in tables and all(table == REJECTS or mark_of(table) == MARK for table in tables):
            alike[_kind(entry)].append(entry)
    groups = []
    for (day, *_), entries in sorted(alike.items()):
        # Rejected files have no marker, so they join the day's first group of traces.
        groups += _packed([*entries, *only_rejects.pop(day, ())], smaller_than)
    return list(filter(_is_mergeable, groups))


def _is_mergeable(group: Sequence[Entry]) -> bool:
    return len(group) > 1 and any(MARK in entry.kind.places for entry in group)


def _kind(entry: Entry) -> tuple[str, ...]:
    tables = (f"{table}={entry.kind.versions.get(table)}" for table in entry.kind.places if table != REJECTS)
    return (entry.batch.day, *sorted(tables))


def _packed(entries: Iterable[Entry], limit: int) -> list[list[Entry]]:
    groups: list[list[Entry]] = []
    room = 0
    for entry in entries:
        size = _bytes([entry])
        if size >= limit:
            continue
        if not groups or size > room:
            groups.append([])
            room = limit
        groups[-1].append(entry)
        room -= size
    return groups


def _bytes(entries: Iterable[Entry]) -> int:
    return sum(sum(entry.sizes) for entry in entries)


def _described(group: Sequence[Entry]) -> Merge:
    n_files = sum(len(entry.kind.places) for entry in group)
    n_traces = sum(len(entry.key_paths() or ()) for entry in group)
    names = tuple(sorted(entry.batch.batch_id for entry in group))
    return Merge(group[0].batch.day, "due", names, n_traces, n_files, _bytes(group))


def _merge(lake: Lake, before: Now, group: Sequence[Entry]) -> list[Merge]:
    """Merge the intact batches of a group, unless there is only one."""
    damaged = {file.batch for file in lake.altered(entry.batch for entry in group)}
    merges = [replace(_described([entry]), state="damaged") for entry in group if entry.batch in damaged]
    intact = [entry for entry in group if entry.batch not in damaged]
    return [*merges, replace_batches(lake, before, intact, merged_files)] if _is_mergeable(intact) else merges


def replace_batches(lake: Lake, before: Now, group: Sequence[Entry], write: Writing) -> Merge:
    """Replace the group's batches by a batch with the files that `write` returns, unless one changed since `before`.

    The caller holds the retention lock, and has compared the checksums of the group's files (Lake.altered).
    """
    described = _described(group)
    merged = _batch_like(max(entry.batch for entry in group))
    folder = lake.staging(merged)
    try:
        with database.connect() as con:
            staged, keys = write(con, lake, group, merged, folder)
        # `rejects` has no marker, so its rows count as soon as the file is in place.
        mark = {table: staged.pop(table) for table in (REJECTS, MARK) if table in staged}
        _put(lake, merged, group, staged, mark, keys, lambda: _same(lake, before, described))
    except _Changed:
        return replace(described, state="changed")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    after = look(lake.root).entries[merged.batch_id]
    into = {"into": merged.batch_id, "n_files_after": len(after.kind.places), "n_bytes_after": _bytes([after])}
    return replace(described, state="merged", n_traces=len(keys), **into)


def _put(
    lake: Lake,
    merged: Batch,
    group: Sequence[Entry],
    staged: Mapping[str, Staged],
    mark: Mapping[str, Staged],
    keys: Mapping[str, str | None],
    check: Callable[[], None],
) -> None:
    takes = [entry.batch for entry in group]
    try:
        lake.put_all(merged, staged, takes=takes)
        with lake.commit_lock():
            lake.put_all(merged, mark, keys, first=check, takes=takes)
    except _Changed:
        undo_merges(lake)
        raise


def _same(lake: Lake, before: Now, merge: Merge) -> None:
    """Raise _Changed if a batch changed since `before`, for example by a computed table or a forgotten trace."""
    now = look(lake.root)
    if any(now.stamps.get(name) != before.stamps[name] for name in merge.batches):
        raise _Changed


def _batch_like(newest: Batch) -> Batch:
    """Return a new batch whose id is just after `newest` and has the same day."""
    after = newest.next
    if after.day == newest.day:
        return after
    return Batch(f"{newest.batch_id.partition('-')[0]}-{after.batch_id.partition('-')[2]}")
