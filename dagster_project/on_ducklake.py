"""Dagster's definitions for a lake at an address (`TRACELAKE_LAKE=ducklake:…`)."""

from datetime import timedelta

import dagster as dg

from assets.compaction import CompactionConfig
from assets.ducklake.checks import checks_of
from assets.ducklake.tables import capturing, ingesting, there, today_page
from assets.models import rule_assets
from assets.retention import RetentionConfig
from assets.schedule import view_assets
from assets.traces import trace_files
from dagster_project.alerts import alert_sensors
from dagster_project.jobs import WRITES
from dagster_project.old_runs import old_runs_sensor
from dagster_project.resources import LakeResource
from dagster_project.sensors import daily_schedule, trace_file_sensor
from pipelines.runs.store import open_store


def definitions_of(address: str) -> dg.Definitions:
    """Return the definitions without connecting to the lake."""
    captures, page = capturing(address), today_page(address)
    ingest_and_analyse = dg.define_asset_job(
        "ingest_and_analyse",
        selection=dg.AssetSelection.all(),
        description="Trace files → tables of traces → captures, committed to the DuckLake.",
        tags=WRITES,
    )
    analyse = dg.define_asset_job(
        "analyse",
        selection=dg.AssetSelection.assets(captures, page),
        description="Bring tables up to date after a change under sql/.",
        tags=WRITES,
    )

    @dg.op(name="retire_batches")
    def retire_batches(context: dg.OpExecutionContext, config: RetentionConfig) -> None:
        batches = open_store(address).expire(config.keep_days, timedelta(hours=config.grace_hours), config.dry_run)
        traces = sum(len(batch.traces) for batch in batches)
        context.add_output_metadata({"dry_run": config.dry_run, "batches": len(batches), "traces": traces})

    @dg.op(name="merge_batches")
    def merge_batches(context: dg.OpExecutionContext, config: CompactionConfig) -> None:
        tables = open_store(address).compact(config.dry_run, timedelta(hours=config.grace_hours))
        context.add_output_metadata({"dry_run": config.dry_run, "tables": len(tables)})

    @dg.job(description="Remove old traces; a dry run unless configured otherwise.", tags=WRITES)
    def retention() -> None:
        retire_batches()

    @dg.job(description="Merge small files; a dry run unless configured otherwise.", tags=WRITES)
    def compaction() -> None:
        merge_batches()

    return dg.Definitions(
        assets=[trace_files, *rule_assets(), ingesting(address), captures, page, *view_assets()],
        asset_checks=checks_of(address),
        jobs=[ingest_and_analyse, analyse, retention, compaction],
        sensors=[
            trace_file_sensor(address, ingest_and_analyse, lambda lake: there(address, lake)),
            old_runs_sensor(address),
            *alert_sensors(address),
        ],
        schedules=[daily_schedule(address, ingest_and_analyse, lambda lake: there(address, lake))],
        resources={"lake": LakeResource(path=address)},
        executor=dg.in_process_executor,
    )
