"""Trace files in the inbox, and the lake tables that ingestion writes from them."""

import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg

from assets.common import DAYS, TRACE_FILES, WHOLE_RANGE, Span, markdown_table, shown, table_spec, today
from pipelines.foreign_text import visible
from pipelines.ingest import IngestReport, expand, ingest
from pipelines.lake import Lake
from pipelines.lake.layout import RUN_MARK, mark_of
from pipelines.models.catalog import load_catalog

INBOX = "TRACELAKE_INBOX"
LAKE_TABLES = [
    name for name, model in load_catalog().models.items() if model.kind == "lake" and mark_of(name) != RUN_MARK
]


def inbox_files() -> dict[Path, str]:
    """The files in the watched folder, each with what tells one content from the next: size and time of change."""
    folder = os.environ.get(INBOX)
    states = {}
    for path in expand([folder]) if folder and Path(folder).is_dir() else []:
        try:
            stat = path.stat()
        except FileNotFoundError:  # moved away meanwhile
            continue
        states[path.absolute()] = f"{stat.st_size}:{stat.st_mtime_ns}"
    return states


def without_files() -> str:
    """Why the watched folder has no files."""
    folder = os.environ.get(INBOX)
    if not folder:
        return f"{INBOX} is not set: it names the folder to watch"
    return f"{INBOX}={folder} holds no files" if Path(folder).is_dir() else f"{INBOX}={folder} is no folder here"


def batch_hash(states: dict[Path, str]) -> str:
    """A name for a set of files in a state: the same set gives the same name."""
    lines = "\n".join(f"{path}\t{state}" for path, state in sorted(states.items()))
    return hashlib.sha256(lines.encode()).hexdigest()[:16]


@dg.observable_source_asset(
    key=TRACE_FILES,
    group_name="ingest",
    description=f"Trace files in the watched folder (`{INBOX}`), or those a run is given by name.",
)
def trace_files() -> dg.ObserveResult:
    """Observe the watched folder: how many files, which state."""
    states = inbox_files()
    metadata = {"files": len(states), "bytes": sum(int(state.split(":")[0]) for state in states.values())}
    return dg.ObserveResult(data_version=dg.DataVersion(batch_hash(states)), metadata=metadata)


class IngestConfig(dg.Config):
    """Which files a run takes in; without `files`, those in the watched folder."""

    files: list[str] | None = None
    job: str | None = None


@dg.multi_asset(
    name="ingest",
    specs=[table_spec(name, {"parquet", "duckdb"}) for name in LAKE_TABLES],
    partitions_def=DAYS,
    backfill_policy=WHOLE_RANGE,
)
def lake_tables(
    context: dg.AssetExecutionContext, config: IngestConfig, lake: dg.ResourceParam[Lake]
) -> Iterator[dg.MaterializeResult]:
    """Take in the named files; without names, what lies in the watched folder. Known content changes nothing.

    A batch belongs to the day it comes in: without named files, a run of earlier days reports what came in then.
    """
    span = Span.of(context)
    watched = [str(path) for path in inbox_files()] if today() in span.days or not span.days else []
    files = watched if config.files is None else config.files
    started = time.perf_counter()
    report = ingest(
        files, lake, job=config.job, on_file=lambda row: context.log.info(f"{row.status} {visible(row.path)}")
    )
    seconds = time.perf_counter() - started
    for name in LAKE_TABLES:
        run = {"seconds": seconds, "files_given": len(files), "files_rejected": len(report.rejected)}
        yield dg.MaterializeResult(name, metadata={**shown(lake, name, span), **run, "report": _report(report)})


def _report(report: IngestReport) -> dg.MarkdownMetadataValue:
    rows = [(Path(r.path).name, r.status, r.trace_id, r.rank, r.n_events, r.reason) for r in report.rows[:50]]
    more = f"\n\n{len(report.rows) - 50} more" if len(report.rows) > 50 else ""
    return dg.MetadataValue.md(markdown_table(["file", "status", "trace", "rank", "events", "reason"], rows) + more)
