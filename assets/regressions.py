"""Asset check that fails if a job's newest captures are worse than the earlier ones. It warns if no job can be judged."""

import dagster as dg

from assets.metadata import markdown_table
from pipelines.fleet.trends.history import JobVerdict, newest_incomplete, regressions, without_job
from pipelines.fleet.trends.regression import LEAST_BASE, LEAST_NEW
from pipelines.readers.origin import INBOX, JOB_PATTERN
from pipelines.runs.store import Store

_COLUMNS = ["status", "job", "hardware", "ranks", "metric", "base", "new", "effect %", "floor %", "p", "why"]


@dg.asset_check(
    asset="capture_metrics",
    name="no_regression",
    description="In a job's last five captures, no metric is worse than in the earlier ones by more than the noise.",
)
def no_regression(store: dg.ResourceParam[Store]) -> dg.AssetCheckResult:
    """Judge every job of the lake as last published."""
    with store.analyst() as con:
        verdicts, unnamed, incomplete = regressions(con), without_job(con), newest_incomplete(con)
    worse = [verdict for verdict in verdicts if verdict.verdict.status == "REGRESSION"]
    doubtful = [verdict for verdict in verdicts if verdict.verdict.status in ("REGRESSION", "SUSPECT")]
    statuses = [verdict.verdict.status for verdict in verdicts]
    counts: dict[str, int | str] = {
        status.lower(): statuses.count(status) for status in ("REGRESSION", "SUSPECT", "INSUFFICIENT", "OK")
    }
    if incomplete:
        counts["newest captures without all ranks"] = ", ".join(f"{job}: {n}" for job, n in incomplete.items())
    if len(verdicts) == statuses.count("INSUFFICIENT"):
        return dg.AssetCheckResult(
            passed=False,
            severity=dg.AssetCheckSeverity.WARN,
            metadata={**counts, "nothing judged": _why(unnamed, verdicts)},
        )
    table = dg.MetadataValue.md(markdown_table(_COLUMNS, map(_row, doubtful)))
    return dg.AssetCheckResult(passed=not worse, metadata={**counts, **({"found": table} if doubtful else {})})


def _why(unnamed: int, verdicts: list[JobVerdict]) -> str:
    """Return the reasons why no job can be judged."""
    message = f"{len({(verdict.job, verdict.hardware, verdict.n_ranks) for verdict in verdicts})} jobs have too few captures: a verdict needs "
    message += f"{LEAST_BASE + LEAST_NEW}. "
    unnamed_message = (
        f"{unnamed} captures have no job: put traces into a folder per job below {INBOX}, or set {JOB_PATTERN}."
    )
    return (message if verdicts else "") + (
        unnamed_message if unnamed else ""
    ) or "No capture of the lake can be compared."


def _row(job_verdict: JobVerdict) -> list[object]:
    verdict = job_verdict.verdict
    effect, floor = (None if share is None else round(100 * share, 2) for share in (verdict.effect, verdict.floor))
    identity = [job_verdict.job, job_verdict.hardware, job_verdict.n_ranks, job_verdict.metric]
    return [
        verdict.status,
        *identity,
        verdict.base_median,
        verdict.new_median,
        effect,
        floor,
        verdict.p_value,
        verdict.reason,
    ]
