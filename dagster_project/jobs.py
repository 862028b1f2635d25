"""The jobs: the whole pipeline (in Dagster or on an engine), models only, schedules, retention, compaction."""

import dagster as dg

from assets.engines import capture_units, ingest_units
from assets.schedule import schedule_runs
from assets.traces import lake_tables
from assets.upkeep import merge_batches, retire_batches

# Runs with this tag run one at a time (see dagster.yaml).
WRITES = {"tracelake/writes": "lake"}

# Overlays and schedules need a lake in a folder. For a lake at an address, definitions.py omits their assets.
_OF_TRACES = dg.AssetSelection.all() - dg.AssetSelection.assets(schedule_runs)
ingest_and_analyse = dg.define_asset_job(
    "ingest_and_analyse",
    selection=_OF_TRACES,
    description="Trace files → lake → models → critical path → overlay → captures, for one ingest day.",
    tags=WRITES,
)
analyse = dg.define_asset_job(
    "analyse",
    selection=_OF_TRACES - dg.AssetSelection.assets(lake_tables),
    description="Bring a day's models and overlays, the tables of captures and the page of today up to date after a "
    "change under sql/.",
    tags=WRITES,
)
schedule_benchmark = dg.define_asset_job(
    "schedule_benchmark",
    selection=dg.AssetSelection.assets(schedule_runs),
    description="Run software-pipeline schedules on this machine's device; their timings become tables.",
)


@dg.job(
    description="Remove old batches from the lake after a grace period, or all but digests; a dry run unless configured otherwise.",
    tags=WRITES,
)
def retention() -> None:
    """Run the step that retires batches."""
    retire_batches()


@dg.job(
    description="Trace files → tables of traces → tables of captures, in units on Ray or in this process.",
    tags=WRITES,
)
def ingest_on_engine() -> None:
    """Compute the tables of captures after those of all traces."""
    capture_units(ingest_units())


@dg.job(
    description="Merge the small batches of past days; a dry run unless configured otherwise.",
    tags=WRITES,
)
def compaction() -> None:
    """Run the step that merges batches."""
    merge_batches()
