"""The tables of a DuckLake as assets. One step ingests files and computes the tables of their traces, one the tables of captures.

Dagster's own files (the sensor's lists, the record of finished files, the page of today) are in a folder of this machine.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import dagster as dg

from assets.fleet import capture_specs
from assets.metadata import AGAIN, DAYS, EVERY_DAY, OWNERS, PROCESS_TAG, WHOLE_RANGE, Span, table_spec, today
from assets.models import model_specs, upstream_first
from assets.results import fail, is_checked, left_out
from assets.today import written
from assets.traces import (
    LAKE_TABLES,
    REJECTED_TAG,
    IngestConfig,
    inbox_files,
    named_files,
    report_of,
    told_of_files,
)
from pipelines.base.foreign_text import visible
from pipelines.base.paths import path_text
from pipelines.base.processes import this_process
from pipelines.engines.in_process import InProcess
from pipelines.engines.private_lake import Setting
from pipelines.engines.run import Followed, ingest_on, materialize_on
from pipelines.engines.unit_work import reject_unread
from pipelines.engines.work_units import groups_of
from pipelines.lake import Lake
from pipelines.lake.commit.ingested_files import Outcome, settle, settled, states_of
from pipelines.lake.inbox import waiting
from pipelines.lake.names import MARK
from pipelines.models.catalog import load_catalog
from pipelines.readers.ingest import IngestReport
from pipelines.readers.inputs import TraceRow
from pipelines.runs.store import open_store


def there(address: str, lake: Lake) -> set[str]:
    """Return the traces of settled files that are in the store or were removed from it. Raise StoreError if the store fails."""
    trace_ids = {outcome.trace_id for outcome in settled(lake).values() if outcome.trace_id}
    return open_store(address).known(trace_ids) if trace_ids else set()


def ingesting(address: str) -> dg.AssetsDefinition:
    """Return the asset of the tables that ingestion writes and of the tables of traces."""
    specs = [
        *(table_spec(n, {"ducklake"}, freshness_policy=EVERY_DAY if n == MARK else None) for n in LAKE_TABLES),
        *model_specs(),
    ]

    @dg.multi_asset(name="ingest", specs=specs, can_subset=True, partitions_def=DAYS, backfill_policy=WHOLE_RANGE)
    def tables(
        context: dg.AssetExecutionContext, config: IngestConfig, lake: dg.ResourceParam[Lake]
    ) -> Iterator[dg.MaterializeResult]:
        """Ingest the named files or, without names, those in the watched folder, and compute the tables of their traces.

        A unit of files is one transaction. Of tables that other versions of the models computed `fleet` takes care.
        """
        context.instance.add_run_tags(context.run.run_id, {PROCESS_TAG: this_process()})
        span = Span.of(context)
        files = named_files(config, lake)
        if files is None:
            is_now = today() in span.days or not span.days
            files = (
                sorted(waiting(lake, inbox_files(), and_rejected=True, there=there(address, lake))) if is_now else []
            )
        states, started, log_row = states_of(files), time.perf_counter(), told_of_files(context.log.info)
        run = Followed()
        if files and config.isolate:
            run.rows = [row for group in groups_of(files) for row in _isolated(address, group.items, config.job)]
        elif files:
            run = ingest_on(InProcess(), address, files, config.job)
        for row in run.rows:
            log_row(row)
        _settle(lake, states, run)
        rejected = [row for row in run.rows if row.status == "rejected"]
        if rejected:
            context.instance.add_run_tags(context.run.run_id, {REJECTED_TAG: str(len(rejected))})
        if run.failed:
            first = run.failed[0]
            raise dg.Failure(f"{len(run.failed)} units failed, the first: {visible(first.error)}", allow_retries=False)
        metadata = {
            "seconds": time.perf_counter() - started,
            "files_given": len(files),
            "files_rejected": len(rejected),
        }
        for name in _chosen(context, [*LAKE_TABLES, *upstream_first()]):
            yield dg.MaterializeResult(name, metadata={**metadata, "report": report_of(IngestReport(run.rows))})
        if not is_checked(context) and (missing := left_out(address, span)):
            fail(missing, address)

    return tables


def capturing(address: str) -> dg.AssetsDefinition:
    """Return the asset of the tables of captures."""

    @dg.multi_asset(
        name="fleet",
        specs=capture_specs(),
        can_subset=True,
        partitions_def=DAYS,
        backfill_policy=WHOLE_RANGE,
        retry_policy=AGAIN,
    )
    def captures(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult]:
        """Update all tables that are missing or of another version of their models: of traces, then of captures."""
        run = materialize_on(InProcess(), address)
        if run.failed:
            raise dg.Failure(f"{len(run.failed)} units failed, the first: {visible(run.failed[0].error)}")
        for name in _chosen(context, load_catalog().of_captures):
            yield dg.MaterializeResult(name, metadata={"units": run.n_done, "worker_cpu_seconds": run.cpu_seconds})
        if not is_checked(context) and (missing := left_out(address, Span.of(context))):
            fail(missing, address)

    return captures


def today_page(address: str) -> dg.AssetsDefinition:
    """Return the asset of the page of today."""

    @dg.asset(
        name="fleet_today",
        deps=["capture_ranks", "captures", "capture_metrics", "rejects"],
        group_name="fleet",
        kinds={"html"},
        owners=OWNERS,
        freshness_policy=EVERY_DAY,
    )
    def fleet_today(lake: dg.ResourceParam[Lake]) -> dg.MaterializeResult:
        """Each job's newest capture, what got worse, who is waited for, and which files were not read: a page, and in short here."""
        with open_store(address).connect(locked=False) as con:
            return written(con, lake)

    return fleet_today


def _chosen(context: dg.AssetExecutionContext, names: Iterable[str]) -> list[str]:
    """Return the selected names in their order. Dagster expects results upstream first."""
    selected = {key.to_user_string() for key in context.selected_asset_keys}
    return [name for name in names if name in selected]


def _isolated(address: str, paths: Sequence[Path], job: str | None) -> list[TraceRow]:
    """Ingest files that belong together in a separate process. If the process dies, reject the files."""
    command = [sys.executable, "-m", "tracelake", "ingest", *map(str, paths), "--lake", address, "--json"]
    process = subprocess.run([*command, *(["--job", job] if job else [])], capture_output=True, text=True, check=False)
    try:
        return [TraceRow(**row) for row in json.loads(process.stdout)]
    except (ValueError, TypeError):
        lines = process.stderr.strip().splitlines()
        reason = f"its process ended with {process.returncode}{f': {lines[-1]}' if lines else ''}"
        reject_unread(Setting.here(address, None), {path_text(path): reason for path in paths})
        return [TraceRow(path_text(path), "rejected", reason=reason) for path in paths]


def _settle(lake: Lake, states: dict[Path, str], run: Followed) -> None:
    """Record which files are done. Files of failed units are not recorded, so the next run repeats them."""
    failed = {item for unit in run.failed for item in unit.items}
    row_by_path = {row.path: row for row in run.rows}
    lake.root.mkdir(parents=True, exist_ok=True)
    done = {path: state for path, state in states.items() if path_text(path) not in failed}
    outcomes = {}
    for path, state in done.items():
        row = row_by_path.get(path_text(path))
        outcomes[path] = Outcome(state, row.status, row.trace_id) if row else Outcome(state, "part")
    settle(lake, outcomes)
