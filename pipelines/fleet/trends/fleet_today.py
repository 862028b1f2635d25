"""The current state of the fleet: each job's newest capture, regressions, stragglers and rejected files."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import duckdb

from pipelines.base.database import rows_of
from pipelines.fleet.trends.history import TABLES as HISTORY
from pipelines.fleet.trends.history import JobVerdict, regressions
from pipelines.models.questions import rejected_files, rows_of_question
from pipelines.models.sqltext import quoted

TABLES = (
    *HISTORY,
    *("straggler_ranks", "gpu_time_by_cause", "cause_totals", "fix_totals", "capture_ranks", "capture_quality"),
)
"""The tables that the views used here read, and the tables about what limits the newest captures."""
MOST = 50
"""Maximum number of listed rejected files and of listed failures. The counts include all of them."""
_BAD = ("REGRESSION", "SUSPECT")


@dataclass(frozen=True)
class Fleet:
    """The state of the fleet as rows of tables, each a dictionary by column.

    `worse`: the verdicts REGRESSION and SUSPECT. `rejects`, `failures`: at most MOST of them. `n_rejects` is None for a
    single job, because a rejected file has no job. `causes`, `fixes`: the answers to the questions fleet-causes and
    fleet-fixes.
    """

    n_traces: int
    n_captures: int
    jobs: list[dict[str, Any]]
    days: list[dict[str, Any]]
    worse: list[JobVerdict]
    stragglers: list[dict[str, Any]]
    n_rejects: int | None
    rejects: list[dict[str, Any]]
    n_failures: int
    failures: list[dict[str, Any]]
    causes: list[dict[str, Any]]
    fixes: list[dict[str, Any]]

    @property
    def is_of_lake(self) -> bool:
        """Return whether the state covers all jobs of the lake, not a single job."""
        return self.n_rejects is not None

    def as_json(self) -> dict[str, Any]:
        """Return the JSON object for programs."""
        worse = [{**{k: v for k, v in asdict(w).items() if k != "verdict"}, **asdict(w.verdict)} for w in self.worse]
        return {**{name: value for name, value in vars(self).items() if name != "worse"}, "worse": worse}


def fleet_today(con: duckdb.DuckDBPyConnection, job: str | None = None, most: int | None = MOST) -> Fleet:
    """Read the fleet, or one job of it, from a connection to the analysts' file.

    `most`: maximum number of listed rejected files and failures, None for all.
    """
    job_filter = "true" if job is None else f"job = {quoted(job)}"
    limit = "" if most is None else f"LIMIT {most}"
    rejects = rejected_files(con)
    list_rejects = f"SELECT path, reason, seen_at FROM {rejects} ORDER BY seen_at DESC, path {limit}"
    of_job = "" if job is None else f"AND trace_id IN (SELECT trace_id FROM traces WHERE {job_filter})"
    failures = f"model_failures WHERE outcome = 'left_out' {of_job}"
    return Fleet(
        n_traces=_count(con, f"traces WHERE {job_filter}"),
        n_captures=_count(con, f"captures WHERE {job_filter}"),
        jobs=rows_of(con, f"SELECT * FROM jobs WHERE {job_filter} ORDER BY began_at DESC, job"),
        days=rows_of(con, f"SELECT * FROM job_days WHERE {job_filter} ORDER BY job, hardware, n_ranks, began_on"),
        worse=[verdict for verdict in regressions(con, job) if verdict.verdict.status in _BAD],
        stragglers=rows_of(
            con, f"SELECT * FROM persistent_stragglers WHERE {job_filter} ORDER BY caused_wait_ns DESC, job, rank"
        ),
        n_rejects=_count(con, rejects) if job is None else None,
        rejects=rows_of(con, list_rejects) if job is None else [],
        n_failures=_count(con, failures),
        failures=rows_of(con, f"SELECT trace_id, table_name, model, reason FROM {failures} ORDER BY ALL {limit}"),
        causes=rows_of_question(con, "fleet-causes", job=job),
        fixes=rows_of_question(con, "fleet-fixes", job=job),
    )


def _count(con: duckdb.DuckDBPyConnection, source: str) -> int:
    return con.execute(f"SELECT count(*) FROM {source}").fetchall()[0][0]
