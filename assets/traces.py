"""Trace files in the inbox, and the lake tables that ingestion writes from them."""

import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg

from assets.common import DAYS, PROCESS_TAG, TRACE_FILES, WHOLE_RANGE, Span, markdown_table, shown, table_spec, today
from pipelines.foreign_text import visible
from pipelines.inbox import look
from pipelines.ingest import IngestReport, ingest
from pipelines.isolated import ingest_isolated
from pipelines.lake import Lake
from pipelines.lake.layout import RUN_MARK, mark_of
from pipelines.models.catalog import load_catalog
from pipelines.origin import INBOX
from pipelines.paths import path_text, text_path
from pipelines.processes import this_process

LAKE_TABLES = [
    name for name, model in load_catalog().models.items() if model.kind == "lake" and mark_of(name) != RUN_MARK
]


def watched_folder() -> Path | None:
    """Returns the folder that `TRACELAKE_INBOX` names; None if it names none that exists."""
    named = os.environ.get(INBOX)
    return Path(named) if named and Path(named).is_dir() else None


def inbox_files() -> dict[Path, str]:
    """The files in the watched folder, each with its size and modification time, which identify a version of it."""
    folder = watched_folder()
    return look(folder).files if folder else {}


def no_inbox() -> str:
    """Says why there is no watched folder."""
    named = os.environ.get(INBOX)
    return (
        f"{INBOX}={named} is not a folder on this machine"
        if named
        else f"{INBOX} is not set: set it to the folder to watch"
    )


def batch_hash(states: dict[Path, str]) -> str:
    """Returns a name for the state of a set of files: the same set in the same state gives the same name."""
    lines = "\n".join(f"{path_text(path)}\t{state}" for path, state in sorted(states.items()))
    return hashlib.sha256(lines.encode()).hexdigest()[:16]


@dg.observable_source_asset(
    key=TRACE_FILES,
    group_name="ingest",
    description=f"Trace files in the watched folder (`{INBOX}`), or those named in a run's configuration.",
)
def trace_files() -> dg.ObserveResult:
    """Observe the watched folder: how many files, which state."""
    states = inbox_files()
    metadata = {"files": len(states), "bytes": sum(int(state.split(":")[0]) for state in states.values())}
    return dg.ObserveResult(data_version=dg.DataVersion(batch_hash(states)), metadata=metadata)


class IngestConfig(dg.Config):
    """Which files a run ingests, as named by `path_text`; without `files`, those in the watched folder.

    `isolate`: read each file in a separate process, so that a file which kills its process is rejected and the others
    are ingested.
    """

    files: list[str] | None = None
    job: str | None = None
    isolate: bool = False


@dg.multi_asset(
    name="ingest",
    specs=[table_spec(name, {"parquet", "duckdb"}) for name in LAKE_TABLES],
    partitions_def=DAYS,
    backfill_policy=WHOLE_RANGE,
)
def lake_tables(
    context: dg.AssetExecutionContext, config: IngestConfig, lake: dg.ResourceParam[Lake]
) -> Iterator[dg.MaterializeResult]:
    """Ingest the named files or, without names, those in the watched folder. Known content changes nothing.

    A batch belongs to the day of its ingestion: without named files, a run of earlier days reports what was ingested
    then.
    """
    context.instance.add_run_tags(context.run.run_id, {PROCESS_TAG: this_process()})
    span = Span.of(context)
    watched = list(inbox_files()) if today() in span.days or not span.days else []
    files = watched if config.files is None else [text_path(name) for name in config.files]
    started = time.perf_counter()
    take_in = ingest_isolated if config.isolate else ingest
    report = take_in(files, lake, config.job, lambda row: context.log.info(f"{row.status} {visible(row.path)}"))
    seconds = time.perf_counter() - started
    for name in LAKE_TABLES:
        run = {"seconds": seconds, "files_given": len(files), "files_rejected": len(report.rejected)}
        yield dg.MaterializeResult(name, metadata={**shown(lake, name, span), **run, "report": _report(report)})


def _report(report: IngestReport) -> dg.MarkdownMetadataValue:
    rows = [(Path(r.path).name, r.status, r.trace_id, r.rank, r.n_events, r.reason) for r in report.rows[:50]]
    more = f"\n\n{len(report.rows) - 50} more" if len(report.rows) > 50 else ""
    return dg.MetadataValue.md(markdown_table(["file", "status", "trace", "rank", "events", "reason"], rows) + more)
