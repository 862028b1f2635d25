"""HTA's view of a trace as a table `kernels`, so that our models compute over the rows that HTA counts."""

from __future__ import annotations

from collections import Counter

import duckdb

from pipelines.critical_path.graph.windows import WindowRequest, request_windows
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models

_REASONS = """
SELECT
    CASE
        WHEN h.event_id IS NULL THEN 'last step'
        WHEN k.event_id IS NULL THEN h.cat
        ELSE 'class'
    END AS reason, count(*)
FROM _hta_kernels AS h
FULL JOIN kernels AS k ON k.event_id = h.event_id
WHERE h.event_id IS NULL OR k.event_id IS NULL OR h.class <> k.class
GROUP BY reason
"""
# HTA 2.2: if any time is fractional, starts are rounded up and ends down, as doubles in microseconds.
_ROUNDED = """
CREATE OR REPLACE TABLE events AS
SELECT * EXCLUDE (base_ns, ts_us, dur_us) REPLACE (
    base_ns + 1000 * CAST(ceil(ts_us) AS BIGINT) AS start_ns,
    base_ns + 1000 * CAST(floor(ts_us + dur_us) AS BIGINT) AS end_ns,
    1000 * (CAST(floor(ts_us + dur_us) AS BIGINT) - CAST(ceil(ts_us) AS BIGINT)) AS duration_ns
)
FROM (
    SELECT
        e.*, coalesce(CAST(t.metadata ->> '$.baseTimeNanoseconds' AS BIGINT), 0) AS base_ns,
        CAST((e.start_ns - base_ns) // 1000 || '.' || lpad(CAST((e.start_ns - base_ns) % 1000 AS VARCHAR), 3, '0') AS DOUBLE) AS ts_us,
        CAST(e.duration_ns // 1000 || '.' || lpad(CAST(e.duration_ns % 1000 AS VARCHAR), 3, '0') AS DOUBLE) AS dur_us
    FROM events AS e
    JOIN traces AS t ON t.trace_id = e.trace_id
)
"""


def round_like_hta(con: duckdb.DuckDBPyConnection) -> None:
    """Round the times in `events` like HTA."""
    con.execute(_ROUNDED)


def count_like_hta(
    con: duckdb.DuckDBPyConnection, trace_id: str, drop_last_step: bool, own: str
) -> tuple[Counter[str], tuple]:
    """Replace `kernels` with the rows and classes that HTA counts, and run the models that read it.

    `launches` stays unchanged, and `_queue` is that of profile hta.

    Returns how many rows differ from our own `kernels`, by reason, and the columns `own` of our own temporal breakdown.
    The reasons are a category that is not GPU work, the last step, which HTA drops, and another class.
    """
    catalog = load_catalog()
    request_windows(con, [WindowRequest(trace_id)])
    run_models(con, catalog, ["kernels", "launches", "temporal_breakdown"])
    (own_row,) = con.execute(f"SELECT {own} FROM temporal_breakdown").fetchall()
    overrides = {("hta", "drop_last_step"): str(drop_last_step).lower()}
    request_windows(con, [WindowRequest(trace_id, "full", "hta")], overrides)
    run_models(con, catalog, ["_hta_kernels", "_queue"])
    reasons = Counter(dict(con.execute(_REASONS).fetchall()))
    con.execute("CREATE OR REPLACE TABLE kernels AS FROM _hta_kernels")
    run_models(con, catalog, ["merged_intervals", "_class_overlap", "temporal_breakdown"], have=frozenset({"kernels"}))
    return reasons, own_row
