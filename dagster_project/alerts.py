"""Posts what somebody should know to a webhook: new findings about the fleet, and runs that failed."""

from __future__ import annotations

import json
import os
from typing import NamedTuple

import dagster as dg

from assets.metadata import store_address
from dagster_project.resources import lake_folder
from pipelines.fleet.trends.findings import FORMATS, Finding, NotTold, findings, tell
from pipelines.fleet.trends.fleet_today import fleet_today
from pipelines.lake import Lake
from pipelines.lake.publish.analyst_file import analyst
from pipelines.runs.store import Store, open_store

WEBHOOK, FORMAT = "TRACELAKE_WEBHOOK", "TRACELAKE_WEBHOOK_FORMAT"
_SECONDS = 300


class Told(NamedTuple):
    """The keys of all findings that have been told, how many were posted now, and why no more, if something failed."""

    keys: set[str]
    posted: int
    failed: str = ""


def tell_new(lake: Lake | Store, told: set[str] | None, url: str, form: str = "json") -> Told:
    """Post each finding that is not in `told`, up to the first message that does not arrive: the rest is told the next time.

    A finding that is gone is forgotten, so that it is told again if it comes back. With `told` None, the first time, files
    that were rejected before are not told.
    """
    with analyst(lake) if isinstance(lake, Lake) else lake.connect(locked=False) as con:
        now = {one.key: one for one in findings(fleet_today(con))}
    if told is None:
        told = {key for key, one in now.items() if one.kind == "rejected"}
    keys = told & now.keys()
    for posted, key in enumerate(sorted(now.keys() - keys, key=list(now).index)):
        try:
            tell(url, now[key], form)
        except NotTold as error:
            return Told(keys, posted, str(error))
        keys.add(key)
    return Told(keys, len(now.keys() - (told & now.keys())))


def alert_sensors(lake_path: str = "") -> list[dg.SensorDefinition]:
    """Returns a sensor of new findings and one of failed runs. Without TRACELAKE_WEBHOOK they do nothing."""

    @dg.sensor(
        name="tell_findings",
        minimum_interval_seconds=_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Post new regressions, stragglers, rejected files and failed models to {WEBHOOK}, one message each.",
    )
    def tell_findings(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        url, form = _where()
        if not url:
            return dg.SkipReason(f"{WEBHOOK} is not set")
        address = store_address(lake_path)
        lake = open_store(address) if address else Lake(lake_folder(lake_path))
        if isinstance(lake, Lake) and not lake.exists:
            return dg.SkipReason("there are no traces yet")
        told = None if context.cursor is None else set(json.loads(context.cursor))
        found = tell_new(lake, told, url, form)
        said = f"{found.posted} new findings were posted" + (f"; {found.failed}" if found.failed else "")
        return dg.SensorResult(skip_reason=said, cursor=json.dumps(sorted(found.keys)))

    @dg.run_failure_sensor(
        name="tell_failed_runs",
        minimum_interval_seconds=_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Post runs that failed to {WEBHOOK}.",
    )
    def tell_failed_runs(context: dg.RunFailureSensorContext) -> None:
        url, form = _where()
        if url:
            run = context.dagster_run
            why = context.failure_event.message or "no reason was given"
            tell(url, Finding("failed_run", f"the run {run.run_id} of {run.job_name} failed: {why}", run.run_id), form)

    return [tell_findings, tell_failed_runs]


def _where() -> tuple[str, str]:
    form = os.environ.get(FORMAT, FORMATS[0])
    if form not in FORMATS:
        raise ValueError(f"{FORMAT} is {form!r}: it takes {' or '.join(FORMATS)}")
    return os.environ.get(WEBHOOK, ""), form
