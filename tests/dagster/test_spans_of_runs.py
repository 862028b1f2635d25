"""The batches that a run covers: those of its days, or the whole lake if the run has no days."""

import dagster as dg
import pytest
import yaml

from assets.metadata import PROCESS_TAG, Span
from assets.schedule import POOL, ScheduleConfig
from dagster_project.resources import LakeResource
from dagster_project.serve import SETTINGS
from pipelines.base.processes import this_process

DAYS = dg.DailyPartitionsDefinition(start_date="2026-01-01", end_date="2026-01-05")
START, END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"
seen: list[Span] = []


@dg.asset(partitions_def=DAYS, backfill_policy=dg.BackfillPolicy.single_run())
def of_days(context: dg.AssetExecutionContext, lake: dg.ResourceParam[object]) -> None:
    seen.append(Span.of(context))


@dg.asset
def of_no_days(context: dg.AssetExecutionContext, lake: dg.ResourceParam[object]) -> None:
    seen.append(Span.of(context))


@pytest.mark.parametrize(
    ("asset", "run", "days"),
    [
        (of_days, {"partition_key": "2026-01-02"}, {"2026-01-02"}),
        (of_days, {"tags": {START: "2026-01-02", END: "2026-01-03"}}, {"2026-01-02", "2026-01-03"}),
        (of_no_days, {}, set()),
    ],
    ids=["a day", "several days", "no days"],
)
def test_a_run_is_about_its_days_and_says_which_process_works_on_it(
    asset: object, run: dict, days: set, tmp_path: object
) -> None:
    seen.clear()
    with dg.DagsterInstance.ephemeral() as instance:
        resources = {"lake": LakeResource(path=str(tmp_path))}
        result = dg.materialize([asset], resources=resources, instance=instance, **run)  # pyright: ignore[reportArgumentType]
        record = instance.get_run_by_id(result.run_id)
    assert seen[0].days == days and bool(seen[0].since) == bool(days)
    assert record and record.tags[PROCESS_TAG] == this_process()


def test_runs_that_measure_on_a_device_wait_for_each_other() -> None:
    for name in ("dagster.yaml", "dagster-postgres.yaml"):
        settings = yaml.safe_load(SETTINGS.with_name(name).read_text())
        assert settings["concurrency"]["pools"] == {"default_limit": 1}, POOL


def test_a_run_without_plans_is_refused() -> None:
    for nothing in ({"plans": []}, {"engines": []}):
        with pytest.raises(ValueError, match="at least 1 item"):
            ScheduleConfig(**nothing)
