"""Tables with one or a few rows per capture, which pages about many captures read instead of the detailed tables."""

from __future__ import annotations

import duckdb
import pytest

from pipelines.base.database import rows_of
from pipelines.models.catalog import load_catalog

DATED, AFTER_BOOT = 1_790_000_000_000_000_000, 5_000_000_000


@pytest.fixture
def con() -> duckdb.DuckDBPyConnection:
    """Return two ranks of a capture with a date, and two of a capture without a date.

    One of the latter is truncated. A further file is unused.
    """
    con = duckdb.connect()
    con.execute(
        f"CREATE TABLE captures AS SELECT *, TIMESTAMP '2026-09-21 10:00:00' AS started_at FROM (VALUES "
        f"('dated', 2, 2, {DATED}), ('booted', 2, NULL, {AFTER_BOOT}), ('few', 1, 8, {DATED}), ('unused', 0, 2, NULL)) "
        "AS v(capture_id, n_ranks, world_size, capture_start_ns);"
        "CREATE TABLE capture_ranks AS FROM (VALUES ('dated', 'd0', NULL), ('dated', 'd1', NULL), ('booted', 'b0', NULL), "
        "('booted', 'b1', NULL), ('booted', 'b2', 'rank_twice'), ('few', 'f0', NULL), ('unused', 'u0', 'no_rank')) "
        "AS v(capture_id, trace_id, left_out_reason);"
        "CREATE TABLE traces AS SELECT *, CASE WHEN trace_id = 'b2' THEN NULL ELSE 'H200' END AS device_name FROM (VALUES "
        "('d0', 'ok', '2026-11-05'), ('d1', 'ok', '2026-11-04'), ('b0', 'partial', '2026-11-01'), "
        "('b1', 'ok', '2026-11-03'), ('b2', 'ok', '2026-11-02'), ('f0', 'ok', '2026-11-06'), ('u0', 'ok', '2026-11-07')) "
        "AS v(trace_id, status, day), LATERAL (SELECT CAST(day AS TIMESTAMP)) AS w(ingested_at);"
        "CREATE TABLE capture_metrics AS FROM (VALUES ('dated', NULL, NULL, NULL, 'step', 700), "
        "('dated', NULL, NULL, NULL, 'span', 900), ('dated', NULL, NULL, NULL, 'idle', 90), "
        "('dated', NULL, NULL, NULL, 'exposed_communication', 9), ('dated', 0, NULL, NULL, 'step', 7000), "
        "('dated', NULL, 3, NULL, 'step', 8000), ('dated', NULL, NULL, 'a kernel', 'step', 9000)) "
        "AS v(capture_id, rank, step, name, metric, value)"
    )
    return con


def test_a_capture_has_its_times_and_the_day_on_which_it_began(con: duckdb.DuckDBPyConnection) -> None:
    rows = {row.pop("capture_id"): row for row in rows_of(con, load_catalog().models["capture_summary"].sql)}
    assert rows.keys() == {"dated", "booted", "few"}
    assert {name: f"{row['began_at']:%m-%d}" for name, row in rows.items()} == {
        "dated": "09-21",
        "booted": "11-03",  # the clock has no date: the time of ingestion, but not of a truncated or an unused file
        "few": "09-21",
    }
    assert {name: row["is_whole"] for name, row in rows.items()} == {"dated": True, "booted": False, "few": False}
    times = ("step_ns", "span_ns", "idle_ns", "exposed_communication_ns")
    assert [rows["dated"][name] for name in times] == [700, 900, 90, 9]
    assert [rows["booted"][name] for name in times] == [None] * 4
    assert {row["hardware"] for row in rows.values()} == {"H200"}


def test_a_capture_with_all_ranks_is_whole_if_none_is_truncated(con: duckdb.DuckDBPyConnection) -> None:
    con.execute("UPDATE traces SET status = 'ok'")
    rows = rows_of(
        con, f"SELECT capture_id FROM ({load_catalog().models['capture_summary'].sql}) WHERE is_whole ORDER BY ALL"
    )
    assert [row["capture_id"] for row in rows] == ["booted", "dated"]


def test_causes_of_all_traces_add_up_and_the_largest_name_is_named() -> None:
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE capture_ranks AS FROM (VALUES ('c', 'a', NULL), ('c', 'b', NULL), ('c', 'twice', 'rank_twice'), "
            "('d', 'e', NULL)) AS v(capture_id, trace_id, left_out_reason);"
            "CREATE TABLE causes AS FROM (VALUES ('a', 'full', 'computing', 'mm', 30), ('a', 'full', 'computing', 'add', 35), "
            "('b', 'full', 'computing', 'mm', 10), ('b', 'full', 'computing', '(other names)', 70), "
            "('b', 'ProfilerStep#1', 'computing', 'add', 1000), ('twice', 'full', 'computing', 'mm', 1), "
            "('a', 'full', 'idle', NULL, 5), ('e', 'full', 'idle', '(other names)', 6)) "
            "AS v(trace_id, window_id, cause, name, duration_ns)"
        )
        rows = con.execute(
            f"SELECT capture_id, cause, duration_ns, name, name_ns FROM ({load_catalog().models['cause_totals'].sql}) ORDER BY ALL"
        ).fetchall()
    assert rows == [
        ("c", "computing", 146, "mm", 41),
        ("c", "idle", 5, None, 5),
        ("d", "idle", 6, "(other names)", 6),
    ]


@pytest.mark.parametrize(("n_steps", "unit"), [(4, "ns per rank and step"), (0, "ns per rank")])
def test_means_cover_the_ranks_that_have_the_metric(n_steps: int, unit: str) -> None:
    """Means are over the ranks that have the metric.

    Rank 1 has no GPU work, for example because its profiler recorded none. Rank 2 has no value for its waiting.
    """
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE capture_ranks AS FROM (VALUES (0, 'a'), (1, 'none'), (2, 'b')) AS v(rank, trace_id), "
            "LATERAL (SELECT 'c' AS capture_id, NULL AS left_out_reason);"
            "CREATE TABLE step_times AS SELECT trace_id, step, NULL AS device, 100 AS duration_ns, 0 AS busy_ns, "
            f"0 AS compute_ns, 0 AS communication_ns FROM capture_ranks, range({n_steps}) AS v(step);"
            "CREATE TABLE temporal_breakdown AS SELECT *, 0 AS device, compute_ns AS busy_ns, 0 AS idle_ns, "
            "0 AS communication_ns, 0 AS memory_ns, 0 AS exposed_communication_ns, 0 AS exposed_memory_ns "
            "FROM (VALUES ('a', 80, 24), ('b', 80, 56)) AS v(trace_id, span_ns, compute_ns);"
            "CREATE TABLE collectives AS SELECT 'c' AS capture_id, 0 AS collective_id, NULL AS refused_reason, "
            "0 AS culprit_rank, NULL::BIGINT AS step, 16 AS wait_ns;"
            "CREATE TABLE collective_ranks AS SELECT 'c' AS capture_id, 0 AS collective_id, NULL::BIGINT AS step, * "
            "FROM (VALUES (0, 16), (2, NULL)) AS v(rank, wait_ns);"
            "CREATE TABLE critical_path_summary (trace_id TEXT, window_id TEXT, profile TEXT, bound_by TEXT, percent DOUBLE);"
            "CREATE TABLE ops_by_shape AS FROM (VALUES ('a', 'gpu', 'gemm', 24), ('b', 'gpu', 'add', 8)) "
            "AS v(trace_id, device, name, duration_ns)"
        )
        rows = con.execute(
            f"SELECT metric, value, unit FROM ({load_catalog().models['capture_metrics'].sql}) WHERE rank IS NULL "
            "AND step IS NULL AND metric IN ('span', 'compute', 'wait', 'kernel') ORDER BY ALL"
        ).fetchall()
    means = [("compute", 40), ("kernel", 4), ("kernel", 12), ("span", 80), ("wait", 16)]
    assert rows == [(metric, mean / (n_steps or 1), unit) for metric, mean in means]


def test_of_several_changes_of_a_kind_in_a_trace_the_largest_counts() -> None:
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE capture_ranks AS FROM (VALUES ('c', 'a'), ('c', 'b'), ('d', 'e')) AS v(capture_id, trace_id);"
            "CREATE TABLE fixes AS FROM (VALUES ('a', 'full', 'wait', 'x', 'not in x', 30, 3e0), "
            "('a', 'full', 'wait', 'y', 'not in y', 20, 2e0), ('b', 'full', 'wait', 'z', 'not in z', 40, 4e0), "
            "('b', 'ProfilerStep#1', 'wait', 'z', 'not in z', 900, 9e0), ('b', 'full', 'gc', '', 'collect', 5, 1e0), "
            "('e', 'full', 'wait', 'q', 'not in q', 7, 7e0), ('e', 'full', 'wait', 'p', 'not in p', 7, 7e0)) "
            "AS v(trace_id, window_id, fix, name, change, saves_ns, saves_percent)"
        )
        rows = con.execute(f"FROM ({load_catalog().models['fix_totals'].sql}) ORDER BY ALL").fetchall()
    assert rows == [
        ("c", "gc", 1, 5, "b", "collect", 5, 1.0),
        ("c", "wait", 2, 70, "b", "not in z", 40, 4.0),
        ("d", "wait", 1, 7, "e", "not in p", 7, 7.0),
    ]
