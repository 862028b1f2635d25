"""The jobs: everything from the inbox on, and the models alone."""

import dagster as dg

from assets.critical_path import overlay
from assets.models import models
from assets.schedule import schedule_runs

ingest_and_analyse = dg.define_asset_job(
    "ingest_and_analyse",
    selection=dg.AssetSelection.all() - dg.AssetSelection.assets(schedule_runs),
    description="Trace files → lake → models → critical path → overlay, for one ingest day.",
)
analyse = dg.define_asset_job(
    "analyse",
    selection=dg.AssetSelection.assets(models, overlay),
    description="Bring the models and overlays of a day up to date: after a change under sql/.",
)
schedule_benchmark = dg.define_asset_job(
    "schedule_benchmark",
    selection=dg.AssetSelection.assets(schedule_runs),
    description="Run schedules of software pipelines on the device at hand; their timings come back as tables.",
)
