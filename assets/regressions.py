"""The check that fails if a job's newest captures are worse than those before."""

import dagster as dg

from assets.common import markdown_table
from pipelines.fleet.history import JobVerdict, regressions
from pipelines.lake import Lake
from pipelines.lake.publish import analyst

_COLUMNS = ["status", "job", "hardware", "ranks", "metric", "base", "new", "effect %", "floor %", "p", "why"]


@dg.asset_check(
    asset="capture_metrics",
    name="no_regression",
    description="In a job's last five captures, no metric is worse than in the earlier ones by more than the noise.",
)
def no_regression(lake: dg.ResourceParam[Lake]) -> dg.AssetCheckResult:
    """Judge every job of the lake as last published."""
    with analyst(lake) as con:
        found = regressions(con)
    worse = [one for one in found if one.verdict.status == "REGRESSION"]
    shown = [one for one in found if one.verdict.status in ("REGRESSION", "SUSPECT")]
    statuses = [one.verdict.status for one in found]
    counts = {status.lower(): statuses.count(status) for status in ("REGRESSION", "SUSPECT", "INSUFFICIENT", "OK")}
    table = dg.MetadataValue.md(markdown_table(_COLUMNS, map(_row, shown)))
    return dg.AssetCheckResult(passed=not worse, metadata={**counts, **({"found": table} if shown else {})})


def _row(one: JobVerdict) -> list[object]:
    v = one.verdict
    effect, floor = (None if share is None else round(100 * share, 2) for share in (v.effect, v.floor))
    of = [one.job, one.hardware, one.n_ranks, one.metric]
    return [v.status, *of, v.base_median, v.new_median, effect, floor, v.p_value, v.reason]
