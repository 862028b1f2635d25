"""Collectives of a refused group, which count neither as waiting nor as caused waiting."""

from __future__ import annotations

import duckdb
import pytest

from pipelines.models.catalog import load_catalog

MODELS = ("rank_steps", "step_exposure", "straggler_ranks", "capture_metrics")
# Two ranks and four collectives in one step. Rank 1 is last in those of lane 0, rank 0 in that of lane 1.
TABLES = """
CREATE TABLE collectives AS
    SELECT 'c' AS capture_id, n AS collective_id, n // 3 AS lane, 5 AS step, 100 AS wait_ns, 70 AS late_ns, 80 AS late_of_median_ns,
        1 - n // 3 AS culprit_rank, 1 - n // 3 AS culprit_clock_rank, 1 - n // 3 AS root_rank,
        CAST(NULL AS VARCHAR) AS refused_reason, 'allreduce' AS kind, 'group' || n // 3 AS group_name, 8 AS bytes
    FROM range(4) AS r(n);
CREATE TABLE collective_ranks AS
    SELECT 'c' AS capture_id, collective_id, lane, 5 AS step, rank, 't' || rank AS trace_id, collective_id AS event_id,
        1000 * collective_id AS aligned_start_ns, 1000 * collective_id + 300 AS aligned_end_ns, 300 AS duration_ns,
        CASE WHEN rank = culprit_rank THEN 0 ELSE 100 END AS wait_ns, 0 AS wait_clock_ns
    FROM collectives, range(2) AS r(rank);
CREATE TABLE collective_kernels AS
    SELECT trace_id, event_id, 0 AS device, 5 AS step, aligned_start_ns AS start_ns, aligned_end_ns AS end_ns
    FROM collective_ranks;
CREATE TABLE capture_ranks AS
    SELECT DISTINCT capture_id, rank, trace_id, CAST(NULL AS VARCHAR) AS left_out_reason FROM collective_ranks;
CREATE TABLE step_times AS
    SELECT trace_id, 5 AS step, 0 AS device, 5000 AS duration_ns, 4000 AS host_ns, 2000 AS busy_ns, 800 AS compute_ns,
        1200 AS communication_ns
    FROM capture_ranks;
CREATE TABLE merged_intervals AS
    SELECT trace_id, 0 AS device, 'COMPUTATION' AS scope, 0 AS start_ns, 50 AS end_ns FROM capture_ranks;
CREATE TABLE step_pipeline AS
    SELECT trace_id, 5 AS step, 5000 AS duration_ns, 0.5 AS efficiency, 'comp' AS dragging_stage, 800 AS ideal_ns,
        600 AS communication_ideal_ns, 800 AS comp_ideal_ns
    FROM capture_ranks;
CREATE TABLE temporal_breakdown AS
    SELECT trace_id, 0 AS device, 5000 AS span_ns, 2000 AS busy_ns, 3000 AS idle_ns, 800 AS compute_ns,
        1200 AS communication_ns, 0 AS memory_ns, 1200 AS exposed_communication_ns, 0 AS exposed_memory_ns
    FROM capture_ranks;
CREATE TABLE critical_path_summary AS
    SELECT '' AS trace_id, '' AS window_id, '' AS profile, '' AS bound_by, 0.0 AS percent LIMIT 0;
CREATE TABLE ops_by_shape AS SELECT '' AS trace_id, '' AS device, '' AS name, 0 AS duration_ns LIMIT 0;
"""


@pytest.mark.parametrize("model", MODELS)
def test_collectives_of_a_refused_group_count_like_those_that_were_never_matched(model: str) -> None:
    with duckdb.connect() as con:
        con.execute(TABLES)
        answers = []
        for change in (
            "SELECT 1",
            "UPDATE collectives SET refused_reason = 'order_mismatch' WHERE lane = 1",
            "DELETE FROM collectives WHERE lane = 1",
        ):
            con.execute(change)
            answers.append(con.execute(f"FROM ({load_catalog().models[model].sql}) ORDER BY ALL").fetchall())
    with_it, refused, without = answers
    assert len(refused) >= 2 and refused == without and refused != with_it


def test_a_digest_keeps_how_long_collectives_of_a_refused_group_take_and_no_waiting() -> None:
    with duckdb.connect() as con:
        con.execute(TABLES)
        con.execute("UPDATE collectives SET refused_reason = 'noisy_ends: 400 us' WHERE lane = 1")
        query = (
            "SELECT rank, group_name, n, bytes, duration_ns, wait_ns, wait_clock_ns, caused_wait_ns "
            f"FROM ({load_catalog().models['digest_waits'].sql}) ORDER BY ALL"
        )
        answers = con.execute(query).fetchall()
    assert answers == [
        (0, "group0", 3, 24, 900, 300, 0, 0),
        (0, "group1", 1, 8, 300, None, None, None),
        (1, "group0", 3, 24, 900, 0, 0, 300),
        (1, "group1", 1, 8, 300, None, None, None),
    ]


def test_of_ranks_that_are_not_joined_with_the_others_no_gain_is_known() -> None:
    """The gains of ranks whose clocks are not aligned with the others' are unknown, not 0.

    Ranks 0 and 1 meet, and ranks 2 and 3 meet, but no collective joins the two pairs.
    """
    with duckdb.connect() as con:
        con.execute(TABLES)
        con.execute(
            "INSERT INTO collectives SELECT capture_id, collective_id + 4, 2, step, 400, NULL, NULL, culprit_rank + 2, "
            "NULL, NULL, NULL, kind, group_name, bytes FROM collectives WHERE lane = 0;"
            "INSERT INTO collective_ranks SELECT capture_id, collective_id + 4, 2, step, rank + 2, 't' || (rank + 2), "
            "event_id + 4, NULL, NULL, duration_ns, wait_ns, NULL FROM collective_ranks WHERE lane = 0"
        )
        query = (
            "SELECT rank, caused_wait_ns, marginal_ns, late_ns, root_wait_ns, n_last_clock, culprit_uncertain, is_straggler "
            f"FROM ({load_catalog().models['straggler_ranks'].sql}) ORDER BY rank"
        )
        answers = con.execute(query).fetchall()
    assert answers == [
        (0, 100, 70, 80, 100, 1, False, False),
        (1, 300, 210, 240, 300, 3, False, False),
        (2, 0, None, None, None, None, True, False),
        (3, 1200, None, None, None, None, True, None),
    ]
