"""The newest captures of each job compared with the captures before them.

The samples come from sql/fleet/trends/regression_samples.sql, and regression.py judges them.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import duckdb

from pipelines.fleet.trends.regression import LEAST_BASE, LEAST_NEW, Verdict, judge

TABLES = ("captures", "capture_summary", "capture_metrics")
"""Tables that the view regression_samples reads."""
MOST_BASE = 20


@dataclass(frozen=True)
class JobVerdict:
    """The verdict on one metric of a job on one hardware with one number of ranks.

    `newest`: the newest capture that has the metric. The job may have a newer capture without it.
    """

    job: str
    hardware: str | None
    n_ranks: int
    metric: str
    unit: str
    newest: str
    verdict: Verdict


def regressions(con: duckdb.DuckDBPyConnection, job: str | None = None, n_new: int = LEAST_NEW) -> list[JobVerdict]:
    """Return a verdict on every tested metric of every job (or one job), worst first.

    The new side is the last `n_new` good captures. The base is up to MOST_BASE captures before them. If the base has
    fewer than LEAST_BASE, the verdict is INSUFFICIENT. `con` has the view regression_samples. Metrics of one job are
    tested together, so that many metrics do not cause many false alarms.
    """
    # Query all jobs. With a condition on the job, DuckDB numbers all captures instead of taking each job's newest.
    rows = con.execute(
        "SELECT job, hardware, n_ranks, metric, unit, ordinal, value, capture_id FROM regression_samples "
        f"WHERE ordinal <= {n_new + MOST_BASE} ORDER BY ordinal"
    ).fetchall()
    histories: defaultdict[tuple, defaultdict[tuple, tuple[list, list]]] = defaultdict(
        lambda: defaultdict(lambda: ([], []))
    )
    newest: dict[tuple, str] = {}
    for *key, metric, unit, ordinal, value, capture_id in rows:
        if job not in (None, key[0]):
            continue
        newest.setdefault((*key, metric, unit), capture_id)  # ordinal 1 comes first
        histories[tuple(key)][metric, unit][0 if ordinal > n_new else 1].append(value)
    job_verdicts = []
    for key, samples in histories.items():
        job_name, hardware, n_ranks = key
        verdicts = judge({f"{metric}\n{unit}": values for (metric, unit), values in samples.items()}, LEAST_BASE, n_new)
        for name, verdict in verdicts.items():
            metric, unit = name.split("\n")
            capture_id = newest[*key, metric, unit]
            job_verdicts.append(JobVerdict(job_name, hardware, n_ranks, metric, unit, capture_id, verdict))
    order = ("REGRESSION", "SUSPECT", "INSUFFICIENT", "OK")
    return sorted(
        job_verdicts,
        key=lambda job_verdict: (
            order.index(job_verdict.verdict.status),
            job_verdict.job,
            job_verdict.hardware or "",
            job_verdict.n_ranks,
            job_verdict.metric,
        ),
    )


def without_job(con: duckdb.DuckDBPyConnection) -> int:
    """Return the number of captures without a job, which cannot be compared."""
    return con.execute("SELECT count(*) FROM captures WHERE job IS NULL").fetchall()[0][0]


def newest_incomplete(con: duckdb.DuckDBPyConnection, job: str | None = None) -> dict[str, int]:
    """Return for each job (or one job) the number of captures after its newest complete capture.

    These captures have missing ranks or a truncated trace, so they cannot be compared. The job's verdict is about older
    captures.
    """
    rows = con.execute(
        """
        WITH placed AS (
            SELECT c.job, s.began_at, s.is_whole,
                max(CASE WHEN s.is_whole THEN s.began_at END) OVER (PARTITION BY c.job) AS newest_at
            FROM captures AS c
            JOIN capture_summary AS s ON s.capture_id = c.capture_id
            WHERE c.job IS NOT NULL
        )
        SELECT job, count(*) FROM placed
        WHERE NOT is_whole AND (newest_at IS NULL OR began_at > newest_at)
        GROUP BY job ORDER BY job
        """
    ).fetchall()
    return {name: n for name, n in rows if job in (None, name)}
