"""Dagster's definitions: everything that it shows and runs."""

import dagster as dg

from assets.checks import checks
from assets.critical_path import overlay
from assets.fleet import captures
from assets.metadata import lake_address
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
from dagster_project.resources import LakeResource, StoreResource
from dagster_project.sensors import daily_schedule, trace_file_sensor
from pipelines.runs.store import is_folder_address


def definitions(lake_path: str = "") -> dg.Definitions:
    """Return the definitions for a lake (a folder or an address). If `lake_path` is empty, use TRACELAKE_LAKE."""
    is_folder = is_folder_address(lake_address(lake_path))
    return dg.Definitions(
        assets=[
            trace_files,
            *rule_assets(),
            lake_tables,
            models,
            captures,
            today_page,
            *view_assets(),
            *((overlay, schedule_runs) if is_folder else ()),
        ],
        asset_checks=[checks, no_regression],
        jobs=[
            ingest_and_analyse,
            ingest_on_engine,
            analyse,
            retention,
            compaction,
            *((schedule_benchmark,) if is_folder else ()),
        ],
        sensors=[trace_file_sensor(lake_path), old_runs_sensor(lake_path), *alert_sensors(lake_path)],
        schedules=[daily_schedule(lake_path)],
        resources={"lake": LakeResource(path=lake_path), "store": StoreResource(path=lake_path)},
        # One process per step would cost 4 to 10 s each. The work is parallel inside DuckDB.
        executor=dg.in_process_executor,
    )


defs = definitions()
