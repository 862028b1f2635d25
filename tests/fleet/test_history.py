"""Metrics of captures compared with sums on paper, and a job that gets slower, which is reported."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from pathlib import Path

import duckdb
import pytest
from typer.testing import CliRunner

from pipelines.faces.cli.app import app
from pipelines.faces.cli.refresh_tables import open_analyst
from pipelines.fleet.trends.history import TABLES, newest_incomplete, regressions
from pipelines.lake import Lake
from pipelines.models.catalog import load_catalog
from pipelines.models.rule_tables import create_rules
from pipelines.readers.ingest import ingest
from pipelines.runs.store import open_store
from tests.fleet.fleet_world import write_capture


def analyst(lake: Lake) -> duckdb.DuckDBPyConnection:
    """Return a connection to the analysts' file with the tables that the history reads."""
    return open_analyst(lake.root, list(TABLES))


def lake_of(folder: Path, *captures: Path, job: str | None = "train") -> Lake:
    lake = Lake(folder)
    ingest(captures, lake, job)
    return lake


@pytest.mark.slow  # 5 s
def test_metrics_on_paper(tmp_path: Path) -> None:
    """All metrics of a capture of 5 steps equal sums on paper.

    Each step has a gemm of 300 us and an AllReduce of 100 us. On rank 0 the AllReduce takes 150 us, because it waits 50
    us for rank 1.
    """
    con = analyst(lake_of(tmp_path / "lake", write_capture(tmp_path / "a", 0, [1000, 1100, 1300, 1200, 1250])))

    def values(where: str) -> dict:
        query = f"SELECT metric, coalesce(name, CAST(coalesce(rank, step) AS VARCHAR)), value / 1000 FROM capture_metrics WHERE metric <> 'path' AND {where}"
        return {(metric, key): value for metric, key, value in con.execute(query).fetchall()}

    # The span of a rank lasts from the first gemm, at 10 us in step 0, to the end of the last AllReduce, in step 4.
    span = 4600 + 10 + 300 + 20 + 150 - 10
    zero = values("rank = 0 AND step IS NULL AND metric NOT IN ('kernel')")
    assert zero == {
        ("span", "0"): span, ("busy", "0"): 5 * 450, ("idle", "0"): span - 5 * 450, ("compute", "0"): 5 * 300,
        ("communication", "0"): 5 * 150, ("exposed_communication", "0"): 5 * 150, ("memory", "0"): 0,
        ("exposed_memory", "0"): 0, ("wait", "0"): 5 * 50,
    }  # fmt: skip
    assert values("rank = 1 AND step = 2") == {
        ("step", "1"): 1300, ("busy", "1"): 400, ("compute", "1"): 300, ("communication", "1"): 100, ("wait", "1"): 0,
        ("caused_wait", "1"): 50,
    }  # fmt: skip
    assert values("rank = 1 AND metric = 'kernel'") == {
        ("kernel", "gemm"): 1500,
        ("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"): 500,
    }
    assert values("rank IS NULL AND step IS NOT NULL") == {
        ("step", str(n)): length for n, length in enumerate([1000, 1100, 1300, 1200, 1250])
    }
    whole = values("rank IS NULL AND step IS NULL")
    assert whole["step", None] == 1170  # the mean
    assert whole["wait", None] == 25  # 50 on one of two ranks in each step
    assert whole["compute", None] == 300
    assert whole["exposed_communication", None] == 125
    assert whole["kernel", "gemm"] == 300
    shares = con.execute("SELECT sum(value) FROM capture_metrics WHERE metric = 'path' AND rank IS NULL").fetchall()
    assert shares == [(pytest.approx(100),)]


def test_means_are_over_the_ranks_that_have_steps_and_over_those_that_have_a_path() -> None:
    """Means are over the ranks that have the metric.

    Rank 0 has two steps and no path, rank 1 a path and no steps. Both are busy for 600 ns.
    """
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE capture_ranks AS SELECT 'c' AS capture_id, rank, 't' || rank AS trace_id, "
            "CAST(NULL AS VARCHAR) AS left_out_reason FROM range(2) AS r(rank);"
            "CREATE TABLE step_times AS SELECT 't0' AS trace_id, step, 0 AS device, 500 AS duration_ns, "
            "300 AS busy_ns, 300 AS compute_ns, 0 AS communication_ns FROM range(2) AS r(step);"
            "CREATE TABLE temporal_breakdown AS SELECT trace_id, 0 AS device, 1000 AS span_ns, 600 AS busy_ns, "
            "400 AS idle_ns, 600 AS compute_ns, 0 AS communication_ns, 0 AS memory_ns, 0 AS exposed_communication_ns, "
            "0 AS exposed_memory_ns FROM capture_ranks;"
            "CREATE TABLE collective_ranks (capture_id VARCHAR, collective_id BIGINT, rank BIGINT, step BIGINT, "
            "wait_ns BIGINT);"
            "CREATE TABLE collectives (capture_id VARCHAR, collective_id BIGINT, culprit_rank BIGINT, step BIGINT, "
            "wait_ns BIGINT, refused_reason VARCHAR);"
            "CREATE TABLE critical_path_summary AS SELECT 't1' AS trace_id, 'full' AS window_id, 'default' AS profile, "
            "bound_by, 50.0 AS percent FROM (VALUES ('gpu'), ('cpu')) AS v(bound_by);"
            "CREATE TABLE ops_by_shape AS SELECT trace_id, 'gpu' AS device, 'gemm' AS name, 600 AS duration_ns "
            "FROM capture_ranks"
        )
        query = load_catalog().models["capture_metrics"].sql
        rows = con.execute(
            f"SELECT metric, name, value, unit FROM ({query}) WHERE rank IS NULL AND step IS NULL AND value > 0"
        ).fetchall()
    per_step, of_path = "ns per rank and step", "% of a rank's path"
    assert {(metric, name): (value, unit) for metric, name, value, unit in rows} == {
        ("step", None): (500, "ns"), ("span", None): (500, per_step), ("busy", None): (300, per_step),
        ("idle", None): (200, per_step), ("compute", None): (300, per_step), ("kernel", "gemm"): (300, per_step),
        ("path", "gpu"): (50, of_path), ("path", "cpu"): (50, of_path),
    }  # fmt: skip


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Return a lake of 17 days of a job, in which steps take a tenth longer on the last 5 days.

    Another job does not change, but one of its captures has only one rank.
    """
    folder, rng = tmp_path_factory.mktemp("history"), random.Random(7)
    lake, made = Lake(folder / "lake"), defaultdict(list)
    for day in range(17):
        longer = 100 if day >= 12 else 0
        for job, more in (("slower", longer), ("same", 0)):
            steps = [1000 + more + rng.randint(-4, 4) for _ in range(3)]
            ranks = (0,) if day == 14 and job == "same" else (0, 1)
            made[job].append(write_capture(folder / job / f"day{day}", day, steps, ranks=ranks))
    for job, captures in made.items():
        ingest(captures, lake, job)
    ingest([write_capture(folder / "nameless", 3, [5000])], lake)
    return lake


@pytest.mark.slow  # 6 s for the lake of these four; numbers are tested on paper above, verdicts in test_regression.py
def test_the_slower_job_is_found_and_only_its_step(history: Lake) -> None:
    con = analyst(history)
    verdicts = {(verdict.job, verdict.metric): verdict for verdict in regressions(con)}
    slower = verdicts["slower", "step"]
    assert slower.verdict.status == "REGRESSION"
    assert slower.verdict.effect == pytest.approx(0.1, abs=0.005)
    assert slower.verdict.p_value == pytest.approx(1 / 6188)  # C(17, 5): clean separation of 12 and 5
    assert (slower.hardware, slower.n_ranks, slower.verdict.n_base, slower.verdict.n_new) == ("H200", 2, 12, 5)
    newest = con.execute("SELECT arg_max(capture_id, started_at) FROM captures WHERE job = 'slower'").fetchall()
    assert [(slower.newest,)] == newest
    regressed = {key for key, verdict in verdicts.items() if verdict.verdict.status == "REGRESSION"}
    assert {metric for job, metric in regressed if job == "slower"} == {"step", "idle", "span"}


@pytest.mark.slow  # 6 s for the lake of these four; numbers are tested on paper above, verdicts in test_regression.py
def test_the_other_job_is_fine_and_its_half_capture_does_not_count(history: Lake) -> None:
    verdicts = regressions(analyst(history), "same")
    assert {verdict.verdict.status for verdict in verdicts} == {"OK"}
    assert {(verdict.verdict.n_base, verdict.verdict.n_new) for verdict in verdicts} == {(11, 5)}


@pytest.mark.slow  # 6 s for the lake of these four; numbers are tested on paper above, verdicts in test_regression.py
def test_command_line_says_so_and_fails(history: Lake) -> None:
    run = CliRunner().invoke(app, ["regressions", "--lake", str(history.root), "--json"])
    assert run.exit_code == 1
    first = json.loads(run.stdout)[0]
    assert (first["job"], first["status"]) == ("slower", "REGRESSION")
    printed = CliRunner().invoke(app, ["regressions", "--lake", str(history.root)])
    assert "REGRESSION" in printed.stdout
    assert "1 capture has no job and is not compared" in printed.stderr
    fine = CliRunner().invoke(app, ["regressions", "--lake", str(history.root), "--job", "same"])
    assert (fine.exit_code, "REGRESSION" in fine.stdout) == (0, False)


@pytest.mark.slow  # 6 s for the lake of these four; numbers are tested on paper above, verdicts in test_regression.py
def test_the_check_fails_loudly(history: Lake) -> None:
    dg = pytest.importorskip("dagster", reason="the extra dagster is not installed")
    from assets.regressions import no_regression

    analyst(history).close()
    result = no_regression(open_store(history))
    assert isinstance(result, dg.AssetCheckResult)
    assert not result.passed
    assert result.metadata["regression"].value == 3
    assert "slower" in str(result.metadata["found"].value)


@pytest.mark.slow  # test_regression.py tests verdicts of few values
def test_the_check_warns_if_it_judged_nothing(tmp_path: Path) -> None:
    dg = pytest.importorskip("dagster", reason="the extra dagster is not installed")
    from assets.regressions import no_regression

    few = lake_of(tmp_path / "few", *[write_capture(tmp_path / f"day{day}", day, [1000]) for day in range(2)])
    analyst(few).close()
    result = no_regression(open_store(few))
    assert isinstance(result, dg.AssetCheckResult)
    assert (result.passed, result.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert "1 jobs have too few captures: a verdict needs 15" in str(result.metadata["nothing judged"].value)


def test_captures_with_steps_are_not_judged_with_those_of_before() -> None:
    """Captures with steps are not judged together with earlier captures without steps.

    There are 30 captures without steps, the last five of them slower, then 30 with steps. Each metric has one verdict,
    which is about the captures with steps.
    """
    models = load_catalog().models
    with duckdb.connect() as con:
        create_rules(con, models["capture_metric_kinds"])
        con.execute(
            "CREATE TABLE captures AS SELECT 'c' || n AS capture_id, 'j' AS job, 1 AS n_ranks, 1 AS world_size, "
            "1790000000000000000 + n AS capture_start_ns, CAST(NULL AS TIMESTAMP) AS started_at, n FROM range(60) AS r(n);"
            "CREATE TABLE capture_ranks AS SELECT capture_id, 0 AS rank, capture_id AS trace_id, "
            "CAST(NULL AS VARCHAR) AS left_out_reason FROM captures;"
            "CREATE TABLE traces AS SELECT capture_id AS trace_id, CAST(NULL AS VARCHAR) AS device_name, "
            "'ok' AS status, CAST(NULL AS TIMESTAMP) AS ingested_at FROM captures;"
            "CREATE TABLE capture_metrics AS SELECT capture_id, CAST(NULL AS BIGINT) AS rank, "
            "CAST(NULL AS BIGINT) AS step, 'span' AS metric, CAST(NULL AS VARCHAR) AS name, "
            "CASE WHEN n BETWEEN 25 AND 29 THEN 2000 ELSE 1000 END AS value, "
            "CASE WHEN n < 30 THEN 'ns per rank' ELSE 'ns per rank and step' END AS unit FROM captures"
        )
        con.execute(f"CREATE VIEW capture_summary AS {models['capture_summary'].sql}")
        con.execute(f"CREATE VIEW regression_samples AS {models['regression_samples'].sql}")
        (verdict,) = regressions(con)
        assert (verdict.unit, verdict.newest, verdict.verdict.status) == ("ns per rank and step", "c59", "OK")
        assert con.execute("SELECT count(*), max(ordinal) FROM regression_samples").fetchall() == [(30, 30)]


def test_the_newest_capture_is_that_of_the_metrics_own_history() -> None:
    """The newest capture of a metric is the newest that has the metric.

    Of 40 captures, the newest has no step time and the newest 20 have no idle time.
    """
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE regression_samples AS SELECT 'j' AS job, 'H200' AS hardware, 1 AS n_ranks, metric, 'ns' AS unit, "
            "n - lacking AS ordinal, 1e3 AS value, 'c' || n AS capture_id "
            "FROM range(1, 41) AS r(n), (VALUES ('span', 0), ('step', 1), ('idle', 20)) AS v(metric, lacking) "
            "WHERE n > lacking ORDER BY metric"
        )
        newest = {verdict.metric: verdict.newest for verdict in regressions(con)}
    assert newest == {"span": "c1", "step": "c2", "idle": "c21"}


def test_that_a_verdict_leaves_the_newest_captures_out_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """`regressions` states how many of a job's newest captures are excluded because ranks are missing.

    A rank is missing in job a since day 3, in b in its newest capture, in c always, in d only on an earlier day.
    """
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE captures AS SELECT job || n AS capture_id, job, n FROM range(6) AS r(n), "
        "(VALUES ('a'), ('b'), ('c'), ('d'), (NULL)) AS v(job);"
        "CREATE TABLE capture_summary AS SELECT capture_id, TIMESTAMP '2026-11-01' + to_days(CAST(n AS INTEGER)) AS began_at, "
        "CASE job WHEN 'a' THEN n < 3 WHEN 'b' THEN n < 5 WHEN 'd' THEN n <> 3 ELSE FALSE END AS is_whole FROM captures;"
        "CREATE TABLE traces AS SELECT DISTINCT job FROM captures;"
        "CREATE TABLE regression_samples AS SELECT '' AS job, '' AS hardware, 1 AS n_ranks, '' AS metric, '' AS unit, 1 AS ordinal, "
        "1e3 AS value, '' AS capture_id LIMIT 0"
    )
    assert newest_incomplete(con) == {"a": 3, "b": 1, "c": 6}
    assert newest_incomplete(con, "b") == {"b": 1}
    monkeypatch.setattr("pipelines.faces.cli.fleet.regressions.open_analyst", lambda *_: con)
    for more in ([], ["--json"]):
        answer = CliRunner().invoke(app, ["regressions", *more])
        assert "a: its newest 3 captures lack ranks or are truncated, and are not compared" in answer.stderr
        assert "b: its newest capture lacks ranks or is truncated, and is not compared" in answer.stderr


def test_captures_without_a_job_are_no_history() -> None:
    """Captures without a job have no history, because they may be of different jobs.

    They have neither changes from day to day nor persistent stragglers.
    """
    models = load_catalog().models
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE captures AS SELECT 'c' || n || job AS capture_id, nullif(job, '') AS job, 2 AS n_ranks, 2 AS world_size, "
            "1790000000000000000 AS capture_start_ns, TIMESTAMP '2026-11-01' + to_days(CAST(n AS INTEGER)) AS started_at, n "
            "FROM range(3) AS r(n), (VALUES ('j'), ('')) AS v(job);"
            "CREATE TABLE capture_ranks AS SELECT capture_id, 0 AS rank, capture_id AS trace_id, "
            "CAST(NULL AS VARCHAR) AS left_out_reason FROM captures;"
            "CREATE TABLE traces AS SELECT trace_id, 'H200' AS device_name, 'ok' AS status, "
            "CAST(NULL AS TIMESTAMP) AS ingested_at FROM capture_ranks;"
            "CREATE TABLE capture_metrics AS SELECT capture_id, CAST(NULL AS BIGINT) AS rank, CAST(NULL AS BIGINT) AS step, "
            "'step' AS metric, CAST(NULL AS VARCHAR) AS name, 100 * (n + 1) AS value FROM captures;"
            "CREATE TABLE straggler_ranks AS SELECT capture_id, 0 AS rank, TRUE AS is_straggler, 5 AS caused_wait_ns "
            "FROM captures"
        )
        con.execute(f"CREATE VIEW capture_summary AS {models['capture_summary'].sql}")
        late = con.execute(f"SELECT job, n_straggler FROM ({models['persistent_stragglers'].sql})").fetchall()
        days = con.execute(
            f"SELECT job, step_change_percent FROM ({models['job_days'].sql}) ORDER BY job, began_on"
        ).fetchall()
    assert late == [("j", 3)]
    assert days == [("j", None), ("j", 100), ("j", 50), *[(None, None)] * 3]


def test_a_job_whose_files_do_not_say_their_ranks_is_a_job() -> None:
    """Captures whose files have no rank count as captures of their job.

    Job a has two captures, the later one of two files without ranks. Job b only has such a capture.
    """
    models = load_catalog().models
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE captures AS SELECT *, NULL AS world_size, "
            "to_timestamp(capture_start_ns // 1000000000) AS started_at FROM (VALUES ('a1', 'a', 1, 1790000000000000000), ('a2', 'a', 0, NULL), ('b1', 'b', 0, NULL)) "
            "AS v(capture_id, job, n_ranks, capture_start_ns);"
            "CREATE TABLE capture_ranks AS SELECT capture_id, CASE WHEN n_ranks > 0 THEN 0 END AS rank, "
            "capture_id || n AS trace_id, CASE WHEN n_ranks = 0 THEN 'no_rank' END AS left_out_reason "
            "FROM captures, range(2 - n_ranks) AS r(n);"
            "CREATE TABLE traces AS SELECT trace_id, 'H200' AS device_name, 'ok' AS status, "
            "TIMESTAMP '2026-11-01' AS ingested_at FROM capture_ranks;"
            "CREATE TABLE capture_metrics AS SELECT 'a1' AS capture_id, CAST(NULL AS BIGINT) AS rank, "
            "CAST(NULL AS BIGINT) AS step, 'step' AS metric, CAST(NULL AS VARCHAR) AS name, 500.0 AS value;"
            "CREATE TABLE straggler_ranks AS SELECT '' AS capture_id, 0 AS rank, 0 AS caused_wait_ns, "
            "0.0 AS caused_percent, TRUE AS is_straggler LIMIT 0;"
            "CREATE TABLE gpu_time_by_cause AS SELECT * FROM (VALUES ('a1', 3000000000), ('a1', 4000000000), ('a2', 5)) "
            "AS v(capture_id, gpu_ns);"
            "CREATE TABLE job_prices AS SELECT job, 3600 AS price_per_gpu_hour, 'EUR' AS currency FROM (VALUES ('a'), ('b')) "
            "AS v(job)"
        )
        con.execute(f"CREATE VIEW capture_summary AS {models['capture_summary'].sql}")
        columns = "job, capture_id, n_captures, step_ns, gpu_seconds, price, currency"
        jobs = con.execute(f"SELECT {columns} FROM ({models['jobs'].sql}) ORDER BY job").fetchall()
    assert jobs == [("a", "a1", 2, 500, 7, 7, "EUR"), ("b", "b1", 1, None, None, None, None)]
