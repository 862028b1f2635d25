"""Removes old batches of traces from the lake: first hidden, then deleted when no reader can have them open.

A batch is hidden by its file in `.retired/`, in one step for every table; the analysts' file is published without it,
and only `grace` after that are its files deleted, the commit mark first. Its file then moves to `.retired/removed/`, where
its trace ids keep ingestion from taking the same content in again from a folder that still holds it. A run that is
killed at any point is completed by the next. Until its files go, deleting `.retired/<batch>.json` brings a batch back.

Runs of schedules and op-level jobs stay: they are small, and later runs refer to the plans of earlier ones.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pipelines.base import database
from pipelines.lake.commit import manifest
from pipelines.lake.lake import Lake, write_json
from pipelines.lake.layout import (
    MARK,
    MERGED,
    OVERLAYS,
    REJECTS,
    RETIRED,
    STAGING,
    Batch,
    batch_files,
    batch_of,
    merges,
    table_file,
    table_files,
    table_of,
)
from pipelines.lake.publish.analyst_file import publish
from pipelines.lake.retain.retired_traces import traces_of
from pipelines.models.cache import digest_of
from pipelines.models.sqltext import quoted

GRACE = timedelta(days=1)
REMOVED = "removed"


@dataclass(frozen=True)
class Retirement:
    """A batch that is being removed. `state`: due (in a dry run: it would be hidden now), hidden or removed.

    `n_bytes` and `n_files` are all its files in all tables and the overlays of its traces, of removed ones as they were.
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
    """Hide batches ingested more than `keep_days` days ago, remove those hidden `grace` ago; returns these, oldest first.

    A dry run changes nothing and says what a run would do now. Raises ValueError for less than one day to keep or a
    negative grace, duckdb.IOException or OSError if the lake cannot be read or written.
    """
    if keep_days < 1 or grace < timedelta(0):
        raise ValueError(f"keep at least 1 day and a grace of at least 0, not {keep_days} days and {grace}")
    now = now or datetime.now(UTC)
    before = now - timedelta(days=keep_days)
    if dry_run:
        due = [_retirement(lake, batch, "due", _trace_ids(lake, batch)) for batch in _due(lake, before)]
        return sorted([*due, *_ending(lake, now, grace)], key=lambda r: r.batch_id)
    with lake.retention_lock():
        complete_merges(lake)
        _hide(lake, _due(lake, before))
        return remove_hidden(lake, now, grace)


def remove_hidden(
    lake: Lake, now: datetime, grace: timedelta, only: Callable[[dict[str, Any]], bool] = lambda notice: True
) -> list[Retirement]:
    """Publish without what is hidden, and delete what was hidden `grace` ago (`only` those whose notice passes).

    Returns these batches, oldest first. The caller holds the retention lock.
    """
    _show_without(lake, now)
    ended = _ending(lake, now, grace, only)
    for retirement in ended:
        if retirement.state == "removed":
            _remove(lake, retirement)
    return ended


def complete_merges(lake: Lake) -> None:
    """Hide the batches that a merged one took the place of, each by a notice of its own; undo merges that were killed.

    The caller holds the retention lock.
    """
    for name, sources in merges(lake.root).items():
        merged = Batch(name)
        if table_file(lake.root, MARK, merged).exists():
            for source in sources:
                # Their traces are in the lake as before: the notice keeps none of them out.
                if table_file(lake.root, MARK, Batch(source)).exists() or _has_rejects(lake, source):
                    _write(_notice(lake, source), {"traces": [], "hidden_at": None, "merged_into": name})
        else:
            # With those that are only in the log: a file is noted before it is in place.
            log = manifest.read(lake.root, merged)
            named = {table_of(path) for path in batch_files(lake.root, name)}.union(log.records if log else ())
            lake.take_away(merged, named)
        (lake.root / MERGED / f"{name}.json").unlink()
    for left in lake.root.glob(f"{MERGED}/*.part"):
        left.unlink()


def note_merge(lake: Lake, merged: Batch, sources: Iterable[Batch]) -> None:
    """Record that a batch takes the place of others as soon as it is committed."""
    write_json(lake.root / MERGED / f"{merged.batch_id}.json", {"batches": [one.batch_id for one in sources]})


def sources_of(lake: Lake, batch: Batch) -> list[Batch]:
    """Returns the batches that this one took the place of and whose files are still there."""
    named = [Batch(path.stem) for path, notice in _notices(lake) if notice.get("merged_into") == batch.batch_id]
    return named + [Batch(name) for name in merges(lake.root).get(batch.batch_id, ())]


def _has_rejects(lake: Lake, batch_id: str) -> bool:
    return table_file(lake.root, REJECTS, Batch(batch_id)).exists()


def retired_traces(lake: Lake) -> set[str]:
    """Returns the traces that retention removed from the lake, or is about to."""
    hidden = lake.root / RETIRED
    return traces_of(lake.root, (hidden, hidden / REMOVED), lambda path: (_read(path) or {"traces": []})["traces"])


def notices(lake: Lake) -> list[tuple[Path, dict[str, Any] | None]]:
    """Returns the notices of batches that were or will be removed, None for a notice that is damaged."""
    return [(path, _read(path)) for path in sorted(lake.root.joinpath(RETIRED).glob("**/*.json"))]


def _read(path: Path) -> dict[str, Any] | None:
    try:
        notice = json.loads(path.read_text(encoding="utf-8"))
        told = notice.pop("sum")
        return notice if told == _sum(notice) and isinstance(notice["traces"], list) else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _sum(notice: dict[str, Any]) -> str:
    return digest_of([json.dumps(notice, sort_keys=True)])[:16]


def _due(lake: Lake, before: datetime) -> list[Batch]:
    batches = {batch_of(path) for table in (MARK, REJECTS) for path in table_files(lake.root, table)}
    return sorted(batch for batch in batches if batch.batch_id < f"{before:%Y%m%dT%H%M%S%f}")


def _hide(lake: Lake, batches: list[Batch]) -> None:
    for batch in batches:
        _write(_notice(lake, batch.batch_id), {"traces": _trace_ids(lake, batch), "hidden_at": None})


def _show_without(lake: Lake, now: datetime) -> None:
    """Publish without the hidden batches; their grace period begins when no new reader can find them."""
    unpublished = [path for path, notice in _notices(lake) if notice["hidden_at"] is None]
    if unpublished:
        publish(lake)
    for path in unpublished:
        _write(path, {**(_read(path) or {}), "hidden_at": now.isoformat()})


def _ending(
    lake: Lake, now: datetime, grace: timedelta, only: Callable[[dict[str, Any]], bool] = lambda notice: True
) -> list[Retirement]:
    """Returns the hidden batches; those whose grace period is over are removed."""
    found = []
    for path, notice in _notices(lake):
        if not only(notice):
            continue
        over = notice["hidden_at"] and datetime.fromisoformat(notice["hidden_at"]) + grace <= now
        found.append(_retirement(lake, Batch(path.stem), "removed" if over else "hidden", notice["traces"]))
    return found


def _remove(lake: Lake, retirement: Retirement) -> None:
    """Delete a batch's files, the mark first, so that direct readers of the Parquet never see half a batch."""
    batch = Batch(retirement.batch_id)
    table_file(lake.root, MARK, batch).unlink(missing_ok=True)
    for path in _files(lake, batch, ()):
        path.unlink(missing_ok=True)
    manifest.path_of(lake.root, batch).unlink(missing_ok=True)
    for trace_id in retirement.traces:
        shutil.rmtree(lake.root / OVERLAYS / f"day={batch.day}" / trace_id, ignore_errors=True)
    shutil.rmtree(lake.root / STAGING / batch.batch_id, ignore_errors=True)
    notice = _notice(lake, batch.batch_id)
    if (_read(notice) or {}).get("merged_into"):
        notice.unlink()  # its traces are in another batch: there is nothing to keep out
        return
    done = lake.root / RETIRED / REMOVED / notice.name
    done.parent.mkdir(exist_ok=True)
    os.replace(notice, done)


def _retirement(lake: Lake, batch: Batch, state: str, traces: list[str]) -> Retirement:
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
    if not mark.exists():  # only rejected files were in it
        return []
    with database.scratch() as con:
        return [row[0] for row in con.execute(f"SELECT trace_id FROM {quoted(mark)} ORDER BY trace_id").fetchall()]


def _notice(lake: Lake, batch_id: str) -> Path:
    return lake.root / RETIRED / f"{batch_id}.json"


def _notices(lake: Lake) -> list[tuple[Path, dict]]:
    paths = sorted(lake.root.joinpath(RETIRED).glob("*.json"))
    return [(path, notice) for path in paths if (notice := _read(path))]  # `tracelake check` reports others


def forget_for_good(lake: Lake, trace_id: str) -> None:
    """Keep a trace's content from being ingested again."""
    _write(lake.root / RETIRED / REMOVED / f"forgotten-{trace_id}.json", {"traces": [trace_id], "hidden_at": None})


def write_again(lake: Lake, path: Path) -> bool:
    """Rewrite a damaged notice from the record of its batch; returns False if there was no record.

    Its grace period begins again.
    """
    noted = manifest.read_keys(lake.root, Batch(path.stem))
    if noted is None:
        return False
    _write(path, {"traces": sorted(noted), "hidden_at": None})
    return True


def _write(path: Path, notice: dict) -> None:
    write_json(path, {**notice, "sum": _sum(notice)})
