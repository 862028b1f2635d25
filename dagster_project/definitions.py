"""Dagster's definitions: everything that it shows and runs."""

import dagster as dg

from assets.checks import checks
from assets.critical_path import overlay
from assets.fleet import captures
from assets.metadata import store_address
from assets.models import models, rule_assets
from assets.regressions import no_regression
from assets.schedule import schedule_runs, view_assets
from assets.today import today_page
from assets.traces import lake_tables, trace_files
from dagster_project.alerts import alert_sensors
from dagster_project.jobs import (
    analyse,
    compaction,
    ingest_and_analyse,
    ingest_on_engine,
    retention,
    schedule_benchmark,
)
from dagster_project.old_runs import old_runs_sensor
from dagster_project.on_ducklake import definitions_of
from dagster_project.resources import LakeResource
from dagster_project.sensors import daily_schedule, trace_file_sensor


def definitions(lake_path: str = "") -> dg.Definitions:
    """Return the definitions for a lake (a folder or an address). If `lake_path` is empty, use TRACELAKE_LAKE."""
    if address := store_address(lake_path):
        return definitions_of(address)
    return dg.Definitions(
        assets=[
            trace_files,
            *rule_assets(),
            lake_tables,
            models,
            overlay,
            captures,
            today_page,
            schedule_runs,
            *view_assets(),
        ],
        asset_checks=[checks, no_regression],
        jobs=[ingest_and_analyse, ingest_on_engine, analyse, schedule_benchmark, retention, compaction],
        sensors=[trace_file_sensor(lake_path), old_runs_sensor(lake_path), *alert_sensors(lake_path)],
        schedules=[daily_schedule(lake_path)],
        resources={"lake": LakeResource(path=lake_path)},
        # One process per step would cost 4 to 10 s each; the work is parallel inside DuckDB.
        executor=dg.in_process_executor,
    )


defs = definitions()
