"""The check that fails if a job's newest captures are worse than those before, and warns if it could judge none."""

from typing import Any

import dagster as dg

from assets.metadata import markdown_table
from pipelines.fleet.trends.history import JobVerdict, regressions, without_job
from pipelines.fleet.trends.regression import LEAST_BASE, LEAST_NEW
from pipelines.lake import Lake
from pipelines.lake.publish.analyst_file import analyst
from pipelines.readers.origin import INBOX, JOB_PATTERN

_COLUMNS = ["status", "job", "hardware", "ranks", "metric", "base", "new", "effect %", "floor %", "p", "why"]


@dg.asset_check(
    asset="capture_metrics",
    name="no_regression",
    description="In a job's last five captures, no metric is worse than in the earlier ones by more than the noise.",
)
def no_regression(lake: dg.ResourceParam[Lake]) -> dg.AssetCheckResult:
    """Judge every job of the lake as last published."""
    with analyst(lake) as con:
        return judged(con)


def judged(con: Any) -> dg.AssetCheckResult:
    """Returns the check's result for the tables that a connection shows."""
    found, unnamed = regressions(con), without_job(con)
    worse = [one for one in found if one.verdict.status == "REGRESSION"]
    shown = [one for one in found if one.verdict.status in ("REGRESSION", "SUSPECT")]
    statuses = [one.verdict.status for one in found]
    counts = {status.lower(): statuses.count(status) for status in ("REGRESSION", "SUSPECT", "INSUFFICIENT", "OK")}
    if len(found) == statuses.count("INSUFFICIENT"):
        return dg.AssetCheckResult(
            passed=False,
            severity=dg.AssetCheckSeverity.WARN,
            metadata={**counts, "nothing judged": _why(unnamed, found)},
        )
    table = dg.MetadataValue.md(markdown_table(_COLUMNS, map(_row, shown)))
    return dg.AssetCheckResult(passed=not worse, metadata={**counts, **({"found": table} if shown else {})})


def _why(unnamed: int, found: list[JobVerdict]) -> str:
    """What the lake lacks for a verdict."""
    few = f"{len({(one.job, one.hardware, one.n_ranks) for one in found})} jobs have too few captures: a verdict needs "
    few += f"{LEAST_BASE + LEAST_NEW}. "
    names = f"{unnamed} captures have no job: put traces into a folder per job below {INBOX}, or set {JOB_PATTERN}."
    return (few if found else "") + (names if unnamed else "") or "No capture of the lake can be compared."


def _row(one: JobVerdict) -> list[object]:
    v = one.verdict
    effect, floor = (None if share is None else round(100 * share, 2) for share in (v.effect, v.floor))
    of = [one.job, one.hardware, one.n_ranks, one.metric]
    return [v.status, *of, v.base_median, v.new_median, effect, floor, v.p_value, v.reason]
