"""Alerts to a webhook: new findings about the fleet, and failed runs."""

from __future__ import annotations

import json
import os
import time
from typing import NamedTuple

import dagster as dg

from assets.metadata import lake_address
from assets.today import is_empty
from pipelines.fleet.trends.findings import FORMATS, Finding, MessageRefused, NotificationFailed, findings, post
from pipelines.fleet.trends.fleet_today import fleet_today
from pipelines.runs.store import Store, open_store

WEBHOOK, FORMAT = "TRACELAKE_WEBHOOK", "TRACELAKE_WEBHOOK_FORMAT"
_SECONDS = 300
_BUDGET_SECONDS = 20.0  # for posting. Dagster aborts a tick after 60 s, and its cursor is lost.
_TRIES, _WAIT_SECONDS = 3, 5.0


class Posted(NamedTuple):
    """Keys of all findings posted so far, the number posted now, and why some were not posted ("" if all were)."""

    keys: set[str]
    posted: int
    failed: str = ""


def notify_new(store: Store, posted_keys: set[str] | None, url: str, form: str = "json") -> Posted:
    """Post each finding whose key is not in `posted_keys`, until the webhook fails or 20 s are over.

    The next call posts the others. The key of a finding that no longer exists is dropped, so the finding is posted again
    if it recurs. If `posted_keys` is None (the first call), existing findings of rejected files count as posted.
    """
    with store.analyst() as con:
        finding_by_key = {finding.key: finding for finding in findings(fleet_today(con, most=None))}
    if posted_keys is None:
        posted_keys = {key for key, finding in finding_by_key.items() if finding.kind == "rejected"}
    lake, until = store.lake, time.monotonic() + _BUDGET_SECONDS
    # In a lake of an older version, findings about captures seem to have disappeared until a run computes
    # capture_summary.
    is_read = lake is None or not lake.batches("captures") or bool(lake.batches("capture_summary"))
    keys = posted_keys & finding_by_key.keys() if is_read else set(posted_keys)
    new_keys = [key for key in finding_by_key if key not in posted_keys]
    failed = ""
    for tried, key in enumerate(new_keys):
        if time.monotonic() > until:
            failed = failed or f"{len(new_keys) - tried} wait for the next tick"
            break
        try:
            post(url, finding_by_key[key], form)
            keys.add(key)
        except MessageRefused as error:  # may recur at every tick, so it must not block the other findings
            failed = str(error)
        except NotificationFailed as error:
            failed = str(error)
            break
    return Posted(keys, len(keys.intersection(new_keys)), failed)


def alert_sensors(lake_path: str = "") -> list[dg.SensorDefinition]:
    """Return the sensors of new findings and of failed runs. Both do nothing if TRACELAKE_WEBHOOK is unset."""

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
        store = open_store(lake_address(lake_path))
        if is_empty(store):  # so that files rejected from now on are new findings
            return dg.SensorResult(skip_reason="there are no traces yet", cursor=context.cursor or "[]")
        posted_keys = None if context.cursor is None else set(json.loads(context.cursor))
        result = notify_new(store, posted_keys, url, form)
        summary = f"{result.posted} new findings were posted" + (f"; {result.failed}" if result.failed else "")
        return dg.SensorResult(skip_reason=summary, cursor=json.dumps(sorted(result.keys)))

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
            message = context.failure_event.message or "no reason was given"
            finding = Finding("failed_run", f"the run {run.run_id} of {run.job_name} failed: {message}", run.run_id)
            _tell_again(url, finding, form)

    return [tell_findings, tell_failed_runs]


def _tell_again(url: str, finding: Finding, form: str) -> None:
    """Post a finding, up to _TRIES times, because Dagster does not evaluate a failed run again.

    Raise NotificationFailed if the last try fails.
    """
    for left in reversed(range(_TRIES)):
        try:
            return post(url, finding, form)
        except NotificationFailed:
            if not left:
                raise
            time.sleep(_WAIT_SECONDS)
    return None


def _where() -> tuple[str, str]:
    form = os.environ.get(FORMAT, FORMATS[0])
    if form not in FORMATS:
        raise ValueError(f"{FORMAT} is {form!r}: set it to {' or '.join(FORMATS)}")
    return os.environ.get(WEBHOOK, ""), form
