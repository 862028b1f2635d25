"""The removal of old batches of traces. A batch is first hidden, and deleted when no reader can have it open.

A notice in the catalog hides a batch in every table in one step. The analysts' file is then published without the
batch. Its files are deleted `grace` later, the commit marker first. The notice stays, because its trace ids prevent
ingestion from reading the same content again from a folder that still contains it. It also names the first trace of
each group, so that no other capture takes over the id of a removed capture. A copy of the notice in `.retired/`
survives the loss of the catalog. If a run is killed at any point, the next run completes the removal.

Schedule runs and op-level jobs stay, because they are small, and later runs refer to the plans of earlier runs. Batches
of captures stay as well, even if newer batches replace all their rows.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import duckdb

from pipelines.base import database
from pipelines.lake.commit import manifest
from pipelines.lake.commit.catalog_file import content, writing
from pipelines.lake.lake import Lake, write_json
from pipelines.lake.names import (
    MARK,
    OVERLAYS,
    REJECTS,
    RETIRED,
    STAGING,
    Batch,
    batch_files,
    batch_of,
    table_file,
    time_in_id,
)
from pipelines.lake.publish.analyst_file import publish
from pipelines.lake.table_files import table_files
from pipelines.models.sqltext import parquet_rows

GRACE = timedelta(days=1)
FIRST = "first-"
"""Prefix of the names of notices that keep the id of a capture. The id follows the prefix."""


@dataclass(frozen=True)
class Retirement:
    """A batch that is being removed. `state`: due (in a dry run), hidden, removed, or reduced to a digest.

    In a dry run, due batches are the batches that a run would hide now. `n_bytes` and `n_files` count its files in all
    tables and the overlays of its traces. For a removed batch they are the values before the removal.
    """

    batch_id: str
    day: str
    state: str
    traces: tuple[str, ...]
    n_files: int
    n_bytes: int


def retire(
    lake: Lake, keep_days: int, grace: timedelta = GRACE, dry_run: bool = False, now: datetime | None = None
) -> list[Retirement]:
    """Hide batches ingested more than `keep_days` days ago, and remove batches hidden at least `grace` ago.

    Return the hidden and removed batches, oldest first. A dry run changes nothing and returns the batches that a run
    would hide or remove now. Raise ValueError for less than one day to keep or a negative grace. Raise
    duckdb.IOException or OSError if the lake cannot be read or written.
    """
    if keep_days < 1 or grace < timedelta(0):
        raise ValueError(f"keep at least 1 day and a grace of at least 0, not {keep_days} days and {grace}")
    now = now or datetime.now(UTC)
    before = now - timedelta(days=keep_days)
    if dry_run:
        due = [retirement_of(lake, batch, "due", _trace_ids(lake, batch)) for batch in _due(lake, before)]
        return sorted([*due, *_ending(lake, now, grace)], key=lambda r: r.batch_id)
    with lake.retention_lock():
        _hide(lake, _due(lake, before))
        return remove_hidden(lake, now, grace)


def remove_hidden(lake: Lake, now: datetime, grace: timedelta) -> list[Retirement]:
    """Delete the batches hidden at least `grace` ago. Then publish without the batches hidden since.

    Deleting first frees disk space for publishing. Return the hidden and deleted batches, oldest first. The caller
    holds the retention lock. Raise OSError.
    """
    removed = remove_ended(lake, now, grace)
    _show_without(lake, now)
    removed += remove_ended(lake, now, grace)  # with a grace of 0, the batches that were just hidden
    return sorted([*removed, *_ending(lake, now, grace)], key=lambda retirement: retirement.batch_id)


def remove_ended(lake: Lake, now: datetime, grace: timedelta) -> list[Retirement]:
    """Delete and return the batches hidden at least `grace` ago. The caller holds the retention lock. Raise OSError."""
    ended = [retirement for retirement in _ending(lake, now, grace) if retirement.state == "removed"]
    for retirement in ended:
        _remove(lake, retirement)
    return ended


def undo_merges(lake: Lake) -> None:
    """Remove the files of merges that were killed before the commit. The caller holds the retention lock."""
    for entry in list(manifest.entries(lake.root).values()):
        record = manifest.read(lake.root, entry.batch)
        if record and record.takes and MARK not in record.records and entry.is_plain:
            lake.take_away(entry.batch, record.records)


def sources_of(lake: Lake, batch: Batch) -> list[Batch]:
    """Return the batches that were merged into this batch, directly or through others, and still have notices."""
    into = {name: notice.get("merged_into") for name, notice in notices(lake).items()}
    sources = [batch.batch_id]
    for merged in sources:
        sources += [name for name in into if into[name] == merged]
    return [Batch(name) for name in sources[1:]]


def retired_traces(lake: Lake) -> set[str]:
    """Return the ids of the traces that retention has removed from the lake or is about to remove."""
    return {trace for notice in notices(lake).values() for trace in notice["traces"]}


def removed_firsts(lake: Lake) -> dict[str, tuple[str, str]]:
    """Return the batch and id of the first-ingested removed trace of each group (`traces.group_id`) with a notice."""
    noted = (notice.get("firsts", {}).items() for notice in notices(lake).values())
    firsts: dict[str, tuple[str, str]] = {}
    for group_id, (batch_id, trace_id) in chain.from_iterable(noted):
        firsts[group_id] = min(firsts.get(group_id, (batch_id, trace_id)), (batch_id, trace_id))
    return firsts


def kept_ids(lake: Lake) -> dict[str, str]:
    """Return the ids of captures whose naming trace was forgotten, by the ids of their remaining traces."""
    noted = (json.loads(row.brief) for name, row in content(lake.root).notices.items() if name.startswith(FIRST))
    return {trace_id: capture_id for notice in noted for trace_id, capture_id in notice.get("kept", {}).items()}


def notices(lake: Lake) -> dict[str, dict[str, Any]]:
    """Return by name the notices of removed or hidden batches, and of traces that were or are being forgotten."""
    return {name: json.loads(row.brief) for name, row in content(lake.root).notices.items()}


def _due(lake: Lake, before: datetime) -> list[Batch]:
    batches = {batch_of(path) for table in (MARK, REJECTS) for path in table_files(lake.root, table)}
    return sorted(batch for batch in batches if batch.batch_id < time_in_id(before))


def _hide(lake: Lake, batches: list[Batch]) -> None:
    _write(
        lake,
        {
            batch.batch_id: {"traces": _trace_ids(lake, batch), "firsts": _firsts(lake, batch), "hidden_at": None}
            for batch in batches
        },
    )


def _show_without(lake: Lake, now: datetime) -> None:
    """Publish without the hidden batches. Their grace period then begins, because no new reader can see them."""
    if unpublished := {name: notice for name, notice in _hidden(lake).items() if notice["hidden_at"] is None}:
        publish(lake)
        _write(lake, {name: {**notice, "hidden_at": now.isoformat()} for name, notice in unpublished.items()})


def _ending(lake: Lake, now: datetime, grace: timedelta) -> list[Retirement]:
    """Return the hidden batches. If the grace period is over, the state is `removed`."""
    retirements = []
    for name, notice in _hidden(lake).items():
        over = notice["hidden_at"] and datetime.fromisoformat(notice["hidden_at"]) + grace <= now
        retirements.append(retirement_of(lake, Batch(name), "removed" if over else "hidden", notice["traces"]))
    return retirements


def _remove(lake: Lake, retirement: Retirement) -> None:
    """Delete a batch's files, the marker first, so that direct readers of Parquet files never see a partial batch.

    The lock excludes a process that moves more tables of the batch into place.
    """
    batch = Batch(retirement.batch_id)
    with lake.manifest_lock():
        notice = notices(lake)[batch.batch_id]
        is_merged = "merged_into" in notice  # another batch has its traces, so ingestion must not reject them later
        if not is_merged:
            _keep(lake, batch.batch_id, notice)
        table_file(lake.root, MARK, batch).unlink(missing_ok=True)
        for path in _files(lake, batch, ()):
            path.unlink(missing_ok=True)
        for trace_id in retirement.traces:
            shutil.rmtree(lake.root / OVERLAYS / f"day={batch.day}" / trace_id, ignore_errors=True)
        for folder in (lake.root / STAGING).glob(f"{batch.batch_id}*"):
            shutil.rmtree(folder, ignore_errors=True)
        with writing(lake.root) as catalog:
            catalog.batch(batch.batch_id, None)
            catalog.notice(batch.batch_id, None if is_merged else json.dumps({**notice, "is_removed": True}))


def retirement_of(lake: Lake, batch: Batch, state: str, traces: list[str]) -> Retirement:
    """Return a batch with its state, and the number and size of its files."""
    sizes = [path.stat().st_size for path in _files(lake, batch, traces)]
    return Retirement(batch.batch_id, batch.day, state, tuple(traces), len(sizes), sum(sizes))


def _files(lake: Lake, batch: Batch, traces: list[str] | tuple[str, ...]) -> Iterator[Path]:
    yield from sorted(batch_files(lake.root, batch.batch_id))
    for trace_id in traces:
        yield from (p for p in (lake.root / OVERLAYS / f"day={batch.day}" / trace_id).rglob("*") if p.is_file())


def _trace_ids(lake: Lake, batch: Batch) -> list[str]:
    mark = table_file(lake.root, MARK, batch)
    if (noted := manifest.read_keys(lake.root, batch)) is not None:
        return sorted(noted)
    if not mark.exists():  # the batch has only rejected files
        return []
    with database.scratch() as con:
        return [
            row[0] for row in con.execute(f"SELECT trace_id FROM {parquet_rows(mark)} ORDER BY trace_id").fetchall()
        ]


def _firsts(lake: Lake, batch: Batch) -> dict[str, tuple[str, str]]:
    """Return the batch and id of the batch's first-ingested trace in each group.

    A capture may be named after this trace.
    """
    mark = table_file(lake.root, MARK, batch)
    if not mark.exists():
        return {}
    query = (
        f"SELECT group_id, coalesce(ingest_batch_id, batch_id), trace_id FROM {parquet_rows(mark)} ORDER BY ALL DESC"
    )
    with database.scratch() as con:
        try:
            return {group_id: (batch_id, trace_id) for group_id, batch_id, trace_id in con.execute(query).fetchall()}
        except duckdb.Error:  # a damaged file must not prevent the removal of its batch
            return {}


def _hidden(lake: Lake) -> dict[str, dict[str, Any]]:
    return {name: notice for name, notice in notices(lake).items() if not notice.get("is_removed")}


def keep_notice(lake: Lake, name: str, traces: list[str], **more: Any) -> None:
    """Write a notice that belongs to no batch and survives a loss of the catalog. `traces` are not ingested again."""
    notice = {"traces": traces, "hidden_at": None, "is_removed": True, **more}
    _write(lake, {name: notice})
    _keep(lake, name, notice)


def drop_notice(lake: Lake, name: str) -> None:
    """Remove what `keep_notice` wrote: first the file, then the catalog row.

    If the process is killed in between, the row still exists. In the other order, a rebuilt catalog would bring the
    notice back.
    """
    (lake.root / RETIRED / f"{name}.json").unlink(missing_ok=True)
    with writing(lake.root) as catalog:
        catalog.notice(name, None)


def _write(lake: Lake, notice_by_name: Mapping[str, dict[str, Any]]) -> None:
    if notice_by_name:
        with writing(lake.root) as catalog:
            for name, notice in notice_by_name.items():
                catalog.notice(name, json.dumps(notice))


def _keep(lake: Lake, name: str, notice: dict[str, Any]) -> None:
    """Write a notice to `.retired/`, so that a rebuilt catalog also has it."""
    write_json(lake.root / RETIRED / f"{name}.json", {**notice, "is_removed": True})
