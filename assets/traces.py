"""Trace files in the inbox, and the lake tables that ingestion writes from them."""

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import dagster as dg

from assets.metadata import (
    DAYS,
    EVERY_DAY,
    TRACE_FILES,
    WHOLE_RANGE,
    Span,
    markdown_table,
    shown,
    table_spec,
    today,
)
from assets.pictures import pictures
from assets.units import fail_units, ingest_units
from pipelines.base.foreign_text import visible
from pipelines.base.paths import path_text, text_path
from pipelines.engines.run import Followed
from pipelines.lake import Lake
from pipelines.lake.commit.ingested_files import settled
from pipelines.lake.commit.sensor_lists import ListGone, files_of
from pipelines.lake.inbox import look, waiting
from pipelines.lake.names import MARK, RUN_MARK, mark_of
from pipelines.models.catalog import load_catalog
from pipelines.readers.child_processes import ingest_isolated
from pipelines.readers.ingest import IngestReport, ingest
from pipelines.readers.inputs.kinds import TraceRow
from pipelines.readers.origin import INBOX
from pipelines.runs.store import Store

REJECTED_TAG = "tracelake/rejected"
"""Tag of a run: number of its files that were rejected."""
_EACH = 50  # the first 50 files are logged, then every 50th
LAKE_TABLES = [
    name for name, model in load_catalog().models.items() if model.kind == "lake" and mark_of(name) != RUN_MARK
]


def watched_folder() -> Path | None:
    """Return the folder named by `TRACELAKE_INBOX`, or None if it is unset or not a folder."""
    path = os.environ.get(INBOX)
    return Path(path) if path and Path(path).is_dir() else None


def inbox_files() -> dict[Path, str]:
    """Return the files in the watched folder, each with its size and modification time, which identify its version."""
    folder = watched_folder()
    return look(folder).files if folder else {}


def is_inbox_away() -> bool:
    """Return whether `TRACELAKE_INBOX` is set but not a folder, for example because its disk is not mounted.

    Such an inbox must not be taken for an empty one.
    """
    return bool(os.environ.get(INBOX)) and watched_folder() is None


def files_to_read() -> dict[Path, str]:
    """Return `inbox_files()`. Raise dg.Failure if TRACELAKE_INBOX is set but not a folder."""
    if is_inbox_away():
        raise dg.Failure(no_inbox())
    return inbox_files()


def no_inbox() -> str:
    """Return the reason why there is no watched folder."""
    named = os.environ.get(INBOX)
    return (
        f"{INBOX}={named} is not a folder on this machine"
        if named
        else f"{INBOX} is not set: set it to the folder to watch"
    )


def batch_hash(states: dict[Path, str]) -> str:
    """Return a digest of the paths and states of a set of files (16 hex digits)."""
    lines = "\n".join(f"{path_text(path)}\t{state}" for path, state in sorted(states.items()))
    return hashlib.sha256(lines.encode()).hexdigest()[:16]


@dg.observable_source_asset(
    key=TRACE_FILES,
    group_name="traces",
    description=f"Trace files in the watched folder (`{INBOX}`), or those named in a run's configuration.",
)
def trace_files() -> dg.ObserveResult:
    """Observe the watched folder: how many files, which state."""
    states = inbox_files()
    return dg.ObserveResult(data_version=dg.DataVersion(batch_hash(states)), metadata=outcome_metadata(states))


def outcome_metadata(states: dict[Path, str]) -> dict[str, Any]:
    """Return the metadata of an observation of the watched folder."""
    folder = watched_folder()
    location = {"folder": dg.MetadataValue.path(folder)} if folder else {}
    return {"files": len(states), "bytes": sum(int(state.split(":")[0]) for state in states.values()), **location}


class IngestConfig(dg.Config):
    """The files that a run ingests: `files`, as `path_text` writes them, or the files of `file_list`.

    The sensor writes the list into the lake (`.sensor/`). Without either, the run ingests the files in the watched
    folder. `isolate`: read the files in child processes, so that a file that kills its process is rejected and the
    others are ingested.
    """

    files: list[str] | None = None
    file_list: str | None = None
    job: str | None = None
    isolate: bool = False


def ingested_kinds(name: str) -> set[str]:
    """Return the kinds of an ingested table. DuckDB writes every table except `events`, which pyarrow writes."""
    return {"duckdb", "parquet"} | ({"pyarrow"} if name == "events" else set())


@dg.multi_asset(
    name="ingest",
    specs=[
        table_spec(name, ingested_kinds(name), freshness_policy=EVERY_DAY if name == MARK else None)
        for name in LAKE_TABLES
    ],
    can_subset=True,
    partitions_def=DAYS,
    backfill_policy=WHOLE_RANGE,
)
def lake_tables(
    context: dg.AssetExecutionContext,
    config: IngestConfig,
    lake: dg.ResourceParam[Lake],
    store: dg.ResourceParam[Store],
) -> Iterator[dg.MaterializeResult]:
    """Ingest the named files or, without names, those in the watched folder. Known content changes nothing.

    A file in the watched folder that is unchanged since it was ingested is not re-read. A rejected file is re-read once
    a day (`daily`), because the disk may have been at fault. Rejected files are read last, in child processes, because
    one of them may have been rejected for killing its process. A batch belongs to the day of its ingestion, so without
    named files, a run of earlier days reports the files ingested on those days. Ingestion writes all of these tables,
    whichever are selected.
    """
    span = Span.of(context)
    files = named_files(config, lake)
    if files is None:
        # A scheduled run reads the watched folder even if it starts after midnight.
        is_of_today = today() in span.days or not span.days or "dagster/schedule_name" in context.run.tags
        files = _watched(lake, store) if is_of_today else []
    started, log_row, units, report = time.perf_counter(), row_logger(context.log.info), Followed(), IngestReport()
    rejected = _rejected_before(lake, files)
    others = [path for path in files if path not in rejected]
    parts = [(others, config.isolate), *([(sorted(rejected), True)] if rejected else [])]
    for part, isolate in parts:
        if store.lake is None:
            done = ingest_units(store.address, lake, part, config.job, isolate, log_row)
            report.rows.extend(done.rows)
            units.failed.extend(done.failed)
        else:
            read = ingest_isolated if isolate else ingest
            report.rows.extend(read(part, store.lake, config.job, log_row).rows)
    seconds = time.perf_counter() - started
    if report.rejected:  # shown in the list of runs
        context.instance.add_run_tags(context.run.run_id, {REJECTED_TAG: str(len(report.rejected))})
    fail_units(units, allow_retries=False)
    selected = {key.to_user_string() for key in context.selected_asset_keys}
    for name in (table for table in LAKE_TABLES if table in selected):
        run = {"seconds": seconds, "files_given": len(files), "files_rejected": len(report.rejected)}
        rows = {**shown(store.lake, name, span), **pictures(store.lake, name)} if store.lake else {}
        yield dg.MaterializeResult(name, metadata={**rows, **run, "report": report_of(report)})


def row_logger(log: Callable[[str], None]) -> Callable[[TraceRow], None]:
    """Return a function that logs the outcome of a file.

    It logs each of the first 50 files, then every 50th and each whose status is not ok or known. Each line is an event in
    Dagster's database and costs some milliseconds.
    """
    numbers = count(1)

    def log_row(row: TraceRow) -> None:
        number = next(numbers)
        if number <= _EACH or number % _EACH == 0 or row.status not in ("ok", "known"):
            reason = f": {visible(row.reason)}" if row.reason else ""
            log(f"{row.status} {visible(row.path)}{reason}" + (f" ({number} files)" if number > _EACH else ""))

    return log_row


def _watched(lake: Lake, store: Store) -> list[Path]:
    """Return the files of the watched folder that must be read. Files in the lake are skipped, because hashing them takes long.

    Raise dg.Failure if TRACELAKE_INBOX is set but not a folder.
    """
    return sorted(waiting(lake, files_to_read(), and_rejected=True, known=store.accounted_for))


def _rejected_before(lake: Lake, files: list[Path]) -> set[Path]:
    """Return the files that were rejected before, in their current state or an earlier one."""
    outcomes = settled(lake)
    return {path for path in files if path in outcomes and outcomes[path].status == "rejected"}


def named_files(config: IngestConfig, lake: Lake) -> list[Path] | None:
    if config.files is not None:
        return [text_path(name) for name in config.files]
    try:
        return None if config.file_list is None else files_of(lake, config.file_list)
    except ListGone as error:
        raise dg.Failure(str(error), allow_retries=False) from None


def report_of(report: IngestReport) -> dg.MarkdownMetadataValue:
    rows = [(Path(r.path).name, r.status, r.trace_id, r.rank, r.n_events, r.reason) for r in report.rows[:50]]
    more = f"\n\n{len(report.rows) - 50} more" if len(report.rows) > 50 else ""
    return dg.MetadataValue.md(markdown_table(["file", "status", "trace", "rank", "events", "reason"], rows) + more)
