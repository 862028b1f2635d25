"""Compares the newest captures of each job with those before: sql/fleet/trends/regression_samples.sql, judged by
regression.py.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import duckdb

from pipelines.fleet.trends.regression import LEAST_BASE, LEAST_NEW, Verdict, judge
from pipelines.models.sqltext import quoted

TABLES = ("captures", "capture_ranks", "capture_metrics")  # tables that view regression_samples reads besides traces
MOST_BASE = 20


@dataclass(frozen=True)
class JobVerdict:
    """The test's verdict on one metric of a job on one hardware; `newest` is the job's last capture."""

    job: str
    hardware: str | None
    n_ranks: int
    metric: str
    unit: str
    newest: str
    verdict: Verdict


def regressions(
    con: duckdb.DuckDBPyConnection, job: str | None = None, n_new: int = LEAST_NEW, most_base: int = MOST_BASE
) -> list[JobVerdict]:
    """Returns a verdict on every tested metric of every job (or one job), the worst first.

    The new side is the last `n_new` good captures, the base up to `most_base` captures before them, at least 10. `con`
    has the view regression_samples. Metrics of one job are tested together, so that many metrics do not cause many
    false alarms.
    """
    only = f"AND job = {quoted(job)}" if job is not None else ""
    rows = con.execute(
        "SELECT job, hardware, n_ranks, metric, unit, ordinal, value, capture_id FROM regression_samples "
        f"WHERE ordinal <= {n_new + most_base} {only} ORDER BY ordinal"
    ).fetchall()
    histories: defaultdict[tuple, defaultdict[tuple, tuple[list, list]]] = defaultdict(
        lambda: defaultdict(lambda: ([], []))
    )
    newest: dict[tuple, str] = {}
    for *key, metric, unit, ordinal, value, capture_id in rows:
        newest.setdefault(tuple(key), capture_id)
        histories[tuple(key)][metric, unit][0 if ordinal > n_new else 1].append(value)
    found = []
    for key, samples in histories.items():
        job_name, hardware, n_ranks = key
        verdicts = judge({f"{metric}\n{unit}": both for (metric, unit), both in samples.items()}, LEAST_BASE, n_new)
        for name, verdict in verdicts.items():
            metric, unit = name.split("\n")
            found.append(JobVerdict(job_name, hardware, n_ranks, metric, unit, newest[key], verdict))
    order = ("REGRESSION", "SUSPECT", "INSUFFICIENT", "OK")
    return sorted(found, key=lambda f: (order.index(f.verdict.status), f.job, f.hardware or "", f.n_ranks, f.metric))


def without_job(con: duckdb.DuckDBPyConnection) -> int:
    """Returns how many captures have no job and so cannot be compared."""
    return con.execute("SELECT count(*) FROM captures WHERE job IS NULL").fetchall()[0][0]
