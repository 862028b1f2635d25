"""Unmatched communication, and communication of a refused lane, which are neither transfer nor waiting.

Contradicting evidence is a finding.
"""

from __future__ import annotations

import duckdb
import pytest

from pipelines.models.catalog import load_catalog
from pipelines.models.rule_tables import create_rules

# Two ranks, each with an all-reduce of group a from 0 to 100 and one of group b from 200 to 300. A gemm overlaps the
# latter from 250.
TABLES = """
CREATE TABLE capture_ranks AS
    SELECT 'c' AS capture_id, rank, 't' || rank AS trace_id, CAST(NULL AS VARCHAR) AS left_out_reason FROM range(2) AS r(rank);
CREATE TABLE traces AS SELECT trace_id, 0 AS trace_start_ns, 400 AS trace_end_ns FROM capture_ranks;
CREATE TABLE merged_intervals AS
    SELECT trace_id, 0 AS device, scope, start_ns, end_ns FROM capture_ranks, (VALUES
        ('all', 0, 100), ('COMMUNICATION', 0, 100), ('all', 200, 300), ('COMMUNICATION', 200, 300), ('COMPUTATION', 250, 300)
    ) AS v(scope, start_ns, end_ns);
CREATE TABLE idle_causes AS SELECT trace_id, 0 AS device, 100 AS start_ns, 200 AS end_ns, 'host' AS cause FROM capture_ranks
    UNION ALL SELECT trace_id, 0, 300, 400, 'host' FROM capture_ranks;
CREATE TABLE collective_kernels AS
    SELECT trace_id, event_id, 0 AS device, start_ns, start_ns + 100 AS end_ns, group_name, group_ranks
    FROM capture_ranks, (VALUES (1, 0, 'a', '[0, 1]'), (2, 200, 'b', NULL)) AS v(event_id, start_ns, group_name, group_ranks);
CREATE TABLE kernels AS
    SELECT trace_id, event_id, device, start_ns, end_ns, 'COMMUNICATION' AS class FROM collective_kernels;
CREATE TABLE span_gpu_work AS SELECT '' AS trace_id, 0 AS event_id, '' AS phase LIMIT 0;
CREATE TABLE collective_ranks AS
    SELECT 'c' AS capture_id, 0 AS collective_id, 0 AS lane, rank, trace_id, 1 AS event_id, 0 AS start_ns,
        100 AS duration_ns, 30 * rank AS wait_ns
    FROM capture_ranks;
CREATE TABLE collective_groups AS
    SELECT 'c' AS capture_id, 0 AS lane, rank, 'a' AS group_name, '[0, 1]' AS group_ranks, CAST(NULL AS VARCHAR) AS refused_reason
    FROM capture_ranks
    UNION ALL SELECT 'c', 1, rank, 'b', '', 'ambiguous_shift: rank 1' FROM capture_ranks;
"""


def spent(con: duckdb.DuckDBPyConnection, rank: int) -> dict[str, int]:
    rows = con.execute(
        f"SELECT cause, gpu_ns FROM ({load_catalog().models['gpu_time_by_cause'].sql}) WHERE rank = {rank}"
    )
    return dict(rows.fetchall())


def lose_gpu_work(con: duckdb.DuckDBPyConnection, trace_id: str) -> None:
    for table in ("merged_intervals", "kernels", "collective_kernels", "collective_ranks", "idle_causes"):
        con.execute(f"DELETE FROM {table} WHERE trace_id = '{trace_id}'")


@pytest.fixture
def con() -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    con.execute(TABLES)
    create_rules(con, load_catalog().models["class_kinds"])
    return con


def test_a_refused_lane(con: duckdb.DuckDBPyConnection) -> None:
    same = {"idle_host": 200, "compute": 50}
    assert spent(con, 0) == {"exposed_communication": 100, "unsplit_communication": 50, **same}
    assert spent(con, 1) == {"straggler_wait": 30, "exposed_communication": 70, "unsplit_communication": 50, **same}
    refused = spent(con, 1)
    con.execute(
        "INSERT INTO collective_ranks SELECT 'c', 1, 1, rank, trace_id, 2, 200, 100, 40 * rank FROM capture_ranks"
    )
    # The lane is matched, and only its clocks are refused. The ranks do not leave together, so durations do not show
    # waiting.
    assert spent(con, 1) == refused
    con.execute("UPDATE collective_groups SET refused_reason = NULL")
    assert spent(con, 1) == {"straggler_wait": 70, "exposed_communication": 80, **same}
    # The waiting of calls without a partner is unknown as well. An example is the first call of a rank whose profiler
    # began earlier.
    con.execute("DELETE FROM collective_ranks WHERE event_id = 2")
    assert spent(con, 0) == {"exposed_communication": 100, "unsplit_communication": 50, **same}


def test_kernels_without_a_group_and_ranks_alone(con: duckdb.DuckDBPyConnection) -> None:
    con.execute("UPDATE collective_groups SET group_name = NULL, group_ranks = NULL WHERE lane = 1")
    assert "unsplit_communication" not in spent(con, 0)  # the refused lane is a stream, and these kernels have groups
    con.execute("UPDATE collective_kernels SET group_name = NULL WHERE event_id = 2")
    assert spent(con, 0)["unsplit_communication"] == 50
    con.execute("DELETE FROM capture_ranks WHERE rank = 1")
    assert "unsplit_communication" not in spent(con, 0)  # a single rank waits for no other rank of this capture


def test_a_rank_without_gpu_work_spends_nothing_on_its_host(con: duckdb.DuckDBPyConnection) -> None:
    """The time of a rank without GPU work counts as not recorded, not as host time.

    For example, its profiler recorded only the host.
    """
    lose_gpu_work(con, "t1")
    assert spent(con, 1) == {"not_in_trace": 400} and sum(spent(con, 0).values()) == 400
    lose_gpu_work(con, "t0")
    assert spent(con, 0) == spent(con, 1) == {}  # a job without GPUs


def test_contradictions_and_gaps_in_steps_are_findings() -> None:
    models = load_catalog().models
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE _staged_capture_quality AS SELECT '' AS capture_id, '' AS check_name, '' AS severity, 0 AS n, '' AS detail LIMIT 0;"
            "CREATE TABLE _fitted_clocks AS SELECT '' AS capture_id, '' AS refused_reason LIMIT 0;"
            "CREATE TABLE _fitted_kernels AS SELECT '' AS capture_id, 0 AS lane, 0 AS rank, 0 AS instance, TRUE AS kept LIMIT 0;"
            "CREATE TABLE _fitted_lanes AS SELECT * FROM (VALUES ('c', 0, 0, 18, 15, 'step_order', 0, CAST(NULL AS VARCHAR)), "
            "('c', 0, 1, 17, 15, 'step_order', NULL, NULL)) AS t(capture_id, lane, rank, n_kernels, n_matched, matched_by, shift, refused_reason);"
            "CREATE TABLE _fitted_contradictions AS SELECT 'c' AS capture_id, 0 AS lane, 1 AS rank, "
            "'step_order' AS matched_by, 'spread' AS against, 15 AS n"
        )
        query = f"SELECT check_name, severity, n, detail FROM ({models['capture_quality'].sql}) ORDER BY ALL"
        findings = con.execute(query).fetchall()
        con.execute("UPDATE _fitted_lanes SET shift = 0")  # like a rank whose profiler stopped earlier
        at_the_end = con.execute(query).fetchall()[1:]
        con.execute("UPDATE _fitted_lanes SET shift = NULL, matched_by = 'sequence_number'")
        numbered = con.execute(query).fetchall()[1:]
        con.execute("UPDATE _fitted_lanes SET refused_reason = 'noisy_ends: 400 us'")
        refused = con.execute(query).fetchall()
    assert findings == [
        ("contradicting_evidence", "warning", 15,
         "rank 1, lane 0: step_order matches 15 kernels, of which spread says otherwise"),
        ("unmatched_kernels", "info", 2,
         "rank 1, lane 0: in some steps not all ranks have as many kernels, so these are not matched"),
        ("unmatched_kernels", "info", 3,
         "rank 0, lane 0: in some steps not all ranks have as many kernels, so these are not matched"),
    ]  # fmt: skip
    assert [row[3] for row in at_the_end] == [
        f"rank {rank}, lane 0: the first or last kernels have no partner on at least one rank" for rank in (1, 0)
    ]
    assert [row[3] for row in numbered] == [
        f"rank {rank}, lane 0: at least one rank has no kernels with their sequence numbers" for rank in (1, 0)
    ]
    assert refused[0][3].endswith("of which spread says otherwise; the lane is refused")
    assert [row[0] for row in refused] == ["contradicting_evidence", "refused_lane"]
