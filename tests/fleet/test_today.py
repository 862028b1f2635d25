"""The fleet today: each job's newest capture next to earlier ones, as a table, as metrics, and as a page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import pytest
import yaml
from typer.testing import CliRunner

from pipelines.base.database import rows_of
from pipelines.faces.cli.app import app
from pipelines.faces.cli.caveats import print_caveat
from pipelines.faces.cli.fleet.fleet import _causes, _fixes, _show
from pipelines.faces.cli.options import DEFAULT_LAKE
from pipelines.faces.limiting_findings import LimitingFinding
from pipelines.faces.report.fleet import fleet_page
from pipelines.faces.serve.newest import NEWEST
from pipelines.fleet.trends import fleet_today
from pipelines.fleet.trends.fleet_today import Fleet
from pipelines.fleet.trends.history import JobVerdict
from pipelines.fleet.trends.openmetrics import Family, _scaled, families_of, openmetrics
from pipelines.fleet.trends.regression import Verdict
from pipelines.lake import Lake
from pipelines.lake.retain.compaction import compact
from pipelines.models.questions import question_named
from pipelines.readers.ingest import ingest
from pipelines.synthetic import CaptureSpec, write_capture
from tests.pages import DOCS

NASTY = 'a "quoted" \\ job\n</td><script>'
CAPTURES = [("day", 0), ("day", 1), ("day", 2), (NASTY, 3)]
"""The job and the seed of each capture, in order of time."""
NOTHING = Fleet(
    n_traces=0, n_captures=0, jobs=[], days=[], worse=[], n_rejects=0, rejects=[], n_failures=0, stragglers=[], failures=[],
    causes=[], fixes=[],
)  # fmt: skip
READ_FLEET = "pipelines.fleet.trends.fleet_today.fleet_today"


def run(*words: object) -> str:
    done = CliRunner().invoke(app, list(map(str, words)))
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fleet")
    lake = Lake(folder / "lake")
    base = CaptureSpec(ranks=3, steps=3, layers=2, bucket_layers=1)
    for number, (job, seed) in enumerate(CAPTURES):
        straggler = {"straggler": 1, "straggler_slowdown": 4.0} if number == 2 else {}
        paths = write_capture(replace(base, seed=seed, **straggler), folder / f"capture{number}").paths
        _later(folder / f"capture{number}", number)
        ingest(paths, lake, job=job)
    (folder / "broken.json").write_text("{")
    ingest([folder / "broken.json"], lake)
    compact(lake, older_than=0)  # into one batch, so that the models run once
    return lake.root


def _later(folder: Path, days: int) -> None:
    """Move a capture by whole days, because otherwise all captures would begin at the same time."""
    import gzip

    for file in folder.glob("*.json.gz"):
        trace = json.loads(gzip.decompress(file.read_bytes()))
        trace["baseTimeNanoseconds"] = trace.get("baseTimeNanoseconds", 0) + days * 86_400_000_000_000
        file.write_bytes(gzip.compress(json.dumps(trace).encode(), 1))


@pytest.fixture(scope="module")
def jobs(lake: Path) -> dict[str, dict[str, Any]]:
    return {row["job"]: row for row in json.loads(run("fleet", "--lake", lake, "--json"))["jobs"]}


@pytest.fixture(scope="module")
def con(lake: Path, jobs: Any) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(str(lake / "analyst.duckdb"), read_only=True) as opened:
        yield opened


# 19 s for their lake; test_summaries.py and test_history.py test its tables by hand.
@pytest.mark.slow(together="fleet today")
def test_a_job_is_its_newest_capture_next_to_the_earlier(jobs: dict, con: duckdb.DuckDBPyConnection) -> None:
    rows = con.execute(
        "SELECT m.capture_id, m.metric, m.value FROM capture_metrics AS m JOIN captures AS c USING (capture_id) "
        "WHERE m.rank IS NULL AND m.step IS NULL AND m.name IS NULL AND c.job = 'day' ORDER BY c.started_at"
    ).fetchall()
    order = list(dict.fromkeys(capture for capture, _, _ in rows))
    values = {(capture, metric): value for capture, metric, value in rows}
    day, newest = jobs["day"], order[-1]
    assert (day["capture_id"], day["n_captures"], day["n_ranks"], day["n_earlier"]) == (newest, 3, 3, 2)
    assert day["step_ns"] == round(values[newest, "step"])
    assert day["earlier_step_ns"] == round(median(values[capture, "step"] for capture in order[:2]))
    assert day["step_change_percent"] == pytest.approx(100 * (day["step_ns"] / day["earlier_step_ns"] - 1), abs=0.01)
    assert day["idle_percent"] == pytest.approx(100 * values[newest, "idle"] / values[newest, "span"])
    assert day["straggler_rank"] == 1 and day["straggler_percent"] > 50
    nasty = jobs[NASTY]
    assert (nasty["n_earlier"], nasty["earlier_step_ns"], nasty["step_change_percent"]) == (0, None, None)
    assert nasty["price"] is None


def read_metrics(text: str) -> list[Any]:
    """Parse a text as Prometheus does."""
    parser = pytest.importorskip("prometheus_client.openmetrics.parser", reason="prometheus-client is not installed")
    return list(parser.text_string_to_metric_families(text))


@pytest.mark.slow(together="fleet today")
def test_days_are_the_trend(con: duckdb.DuckDBPyConnection, jobs: dict) -> None:
    rows = con.execute("SELECT job, began_on, n_captures, step_ns FROM job_days ORDER BY began_on").fetchall()
    assert [(job, n) for job, _, n, _ in rows] == [(job, 1) for job, _ in CAPTURES]
    assert [(b - a).days for (_, a, _, _), (_, b, _, _) in pairwise(rows)] == [1, 1, 1]
    assert rows[2][3] == jobs["day"]["step_ns"]


@pytest.mark.slow(together="fleet today")
def test_metrics_are_read_by_prometheus(lake: Path, jobs: dict) -> None:
    text = run("metrics", "--lake", lake)
    families = {family.name: family for family in read_metrics(text)}
    assert {"tracelake_traces", "tracelake_job_step_seconds", "tracelake_job_straggler_wait_ratio"} <= set(families)

    def of(name: str) -> dict[str, float]:
        return {sample.labels.get("job", ""): sample.value for sample in families[f"tracelake_{name}"].samples}

    assert of("traces") == {"": 12} and of("captures") == {"": 4} and of("rejected_files") == {"": 1}
    assert of("job_step_seconds")["day"] == jobs["day"]["step_ns"] / 1e9
    assert list(of("job_earlier_step_seconds")) == ["day"]  # a value that is not measured has no sample
    assert "tracelake_job_price" not in families
    ranks = {
        s.labels["job"]: (s.labels["rank"], s.value) for s in families["tracelake_job_straggler_wait_ratio"].samples
    }
    assert ranks["day"] == ("1", jobs["day"]["straggler_percent"] / 100)


def test_labels_are_escaped() -> None:
    text = openmetrics([Family("x", "", "says", [({"job": NASTY}, 1), ({"job": "b"}, None)])])
    (family,) = read_metrics(text)
    (sample,) = family.samples
    assert sample.labels["job"].startswith('a "quoted" \\ job')


@pytest.mark.slow(together="fleet today")
def test_a_file_is_written_whole(lake: Path, tmp_path: Path) -> None:
    run("metrics", "--lake", lake, "--out", tmp_path / "tracelake.prom")
    assert (tmp_path / "tracelake.prom").read_text().endswith("# EOF\n")
    assert [path.name for path in tmp_path.iterdir()] == ["tracelake.prom"]


@pytest.mark.slow(together="fleet today")
def test_the_page_links_a_report_of_each_newest_capture(lake: Path, jobs: dict, tmp_path: Path) -> None:
    run("fleet", "--lake", lake, "--out", tmp_path / "pages")
    page = (tmp_path / "pages" / "index.html").read_text()
    links = re.findall(r'<a href="([^"]+)"', page)
    assert sorted(links) == sorted(f"{row['capture_id']}.html" for row in jobs.values())
    pages = [(tmp_path / "pages" / link).read_text() for link in links]
    assert all("<h1>" in page for page in pages)
    assert "<script>" not in page
    assert re.search(r'title="[^"]+/broken[^"]*\.json">[^</"]*broken[^</"]*\.json<', page)  # by its name
    assert 'id="trends"' in page and "<svg" in page and 'id="causes"' in page


@pytest.mark.slow(together="fleet today")
def test_people_see_what_is_wrong(lake: Path) -> None:
    said = CliRunner().invoke(app, ["fleet", "--lake", str(lake), "--job", "day"])
    assert re.search(
        r"GPU computing: [\d.]+ ms of [\d.]+ ms of GPU time this week", said.stdout
    )  # rather than 6.9e-07 GPU-hours
    assert "12 traces" not in said.output and "9 traces, 3 captures, 1 job" in said.output
    unknown = CliRunner().invoke(app, ["fleet", "--lake", str(lake), "--job", "dya"])
    assert unknown.exit_code == 1 and "no job 'dya' in the lake: did you mean day" in unknown.output
    assert "rank 1" in said.output and "not read" not in said.output  # a rejected file has no job
    whole = CliRunner().invoke(app, ["fleet", "--lake", str(lake)])
    assert f"1 file was not read: tracelake ask rejected-files --lake {lake}\n" in whole.output


@pytest.mark.parametrize("command", ["fleet", "metrics"])
def test_an_unknown_job_is_an_error_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """An unknown job is an error, and no metrics are written.

    A monitoring system would interpret zeros as a job that stopped.
    """
    with duckdb.connect() as con:
        con.execute("CREATE TABLE traces AS SELECT 'day' AS job")
        monkeypatch.setattr("pipelines.faces.cli.fleet.fleet.open_analyst", lambda *_: con.cursor())
        monkeypatch.setattr(READ_FLEET, lambda *_: NOTHING)
        done = CliRunner().invoke(app, [command, "--job", "dya", "--out", str(tmp_path / "out")])
        assert done.exit_code == 1 and "no job 'dya' in the lake: did you mean day" in done.output
        assert not (tmp_path / "out").exists()
        assert CliRunner().invoke(app, [command, "--job", "day", "--out", str(tmp_path / "out")]).exit_code == 0
        assert (tmp_path / "out").exists()


def test_a_job_has_only_its_own_failures_and_no_rejected_files(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The metrics of a job have only its own failures and no rejected files.

    A rejected file has no job, so each job would show the numbers of the whole lake.
    """
    monkeypatch.setattr(fleet_today, "regressions", lambda *_: [])
    monkeypatch.setattr(fleet_today, "rows_of_question", lambda *_, **__: [])
    of_lake = {"traces", "captures", "rejected_files", "model_failures"}
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE captures AS SELECT unnest(['a', 'b', 'c']) AS trace_id, unnest(['day', 'night', NULL]) AS job;"
            "CREATE TABLE traces AS SELECT *, '' AS path, now() AS ingested_at, '' AS batch_id, '' AS ingest_batch_id FROM captures;"
            "CREATE TABLE jobs AS SELECT *, now() AS began_at FROM captures WHERE false;"
            "CREATE TABLE job_days AS SELECT job, '' AS hardware, 1 AS n_ranks, now() AS began_on FROM jobs;"
            "CREATE TABLE persistent_stragglers AS SELECT job, 1 AS caused_wait_ns, 0 AS rank FROM jobs;"
            "CREATE TABLE rejects AS SELECT 'x' AS path, 0 AS byte_offset, 'no trace' AS reason, now() AS seen_at, 'b' AS batch_id;"
            "CREATE TABLE model_failures AS SELECT unnest(['a', 'a', 'b', 'c']) AS trace_id, 't' AS table_name, 'm' AS model, "
            "'r' AS reason, unnest(['left_out', 'optimizer_off', 'left_out', 'left_out']) AS outcome"
        )
        for job, n_rejects, n_failures in ((None, 1, 3), ("day", None, 1), ("night", None, 1)):
            fleet = fleet_today.fleet_today(con, job)
            assert (fleet.n_rejects, len(fleet.rejects)) == (n_rejects, n_rejects or 0)
            assert (fleet.n_failures, len(fleet.failures)) == (n_failures, n_failures)
            families = {family.name for family in families_of(fleet)}
            assert families & of_lake == (set() if job else of_lake) and "job_captures" in families
            assert ("files not read" in fleet_page(fleet, {}, "now", [])) == (job is None)
            _show(fleet, DEFAULT_LAKE)
            assert ("not read" in capsys.readouterr().err) == (job is None)


def test_what_is_not_printed_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    straggler = {"job": "a", "n_straggler": 3, "n_captures": 4}
    regression = JobVerdict("a", None, 8, "step", "ns", "c", Verdict("REGRESSION", "", 10, 5))
    fleet = Fleet(
        n_traces=1, n_captures=1, jobs=[], days=[], worse=[regression] * 12, n_rejects=0, rejects=[], n_failures=0,
        stragglers=[{**straggler, "rank": rank} for rank in range(11)], failures=[], causes=[], fixes=[],
    )  # fmt: skip
    _show(fleet, "my lake")
    said = capsys.readouterr().out
    assert said.count("REGRESSION") == said.count("straggler: a") == 10
    assert "2 more: tracelake regressions --lake 'my lake'\n" in said
    assert "1 more: tracelake sql \"FROM persistent_stragglers\" --lake 'my lake'\n" in said
    _show(fleet, DEFAULT_LAKE)
    assert "2 more: tracelake regressions\n" in capsys.readouterr().out


def test_what_the_gpu_time_goes_to_and_what_grew_most_since_the_weeks_before() -> None:
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE captures AS SELECT id AS capture_id, job, CAST(day AS TIMESTAMP) AS began_at FROM (VALUES "
            "('a', 'vision', '2026-03-01'), ('b', 'vision', '2026-03-20'), ('c', 'text', '2026-03-19'), "
            "('long ago', 'vision', '2026-01-16')) AS t(id, job, day);"  # nine weeks before
            "CREATE TABLE capture_ranks AS SELECT capture_id, capture_id AS trace_id FROM captures;"
            "CREATE TABLE traces AS SELECT capture_id AS trace_id, 'f' AS file, 'ok' AS status, began_at AS started_at, "
            "began_at AS ingested_at FROM captures;"
            "CREATE VIEW capture_summary AS SELECT capture_id, began_at FROM captures"
        )
        con.execute(
            "CREATE TABLE cause_totals AS SELECT id AS capture_id, cause, cause AS name, "
            "hours * CAST(3600000000000 AS BIGINT) AS duration_ns, duration_ns AS name_ns "
            "FROM (VALUES ('a', 'gpu_computing', 9), ('a', 'data_loading', 1), ('b', 'gpu_computing', 2), ('b', 'data_loading', 4), "
            "('b', 'compilation', 2), ('c', 'gpu_computing', 8), ('long ago', 'data_loading', 90)) AS t(id, cause, hours)"
        )
        rows = rows_of(con, question_named("fleet-causes").asked())
        con.execute("UPDATE captures SET began_at = '2026-01-17' WHERE capture_id = 'long ago'")
        assert rows_of(con, question_named("fleet-causes").asked())[1]["before_percent"] == 91.0
    assert [(row["job"], row["cause"], row["percent"], row["job_percent"], row["before_percent"]) for row in rows] == [
        ("text", "gpu_computing", 50.0, 100.0, None),  # not traced before
        ("vision", "data_loading", 25.0, 50.0, 10.0),
        ("vision", "compilation", 12.5, 25.0, 0.0),  # there was none
        ("vision", "gpu_computing", 12.5, 25.0, 90.0),
    ]
    assert list(_causes(rows)) == [
        "GPU computing: 10.00 GPU-hours of 16.00 this week (62 %), 80 % of it job text",
        "data loading: 4.00 GPU-hours of 16.00 this week (25 %), 100 % of it job vision",
        "compilation and loading: 2.00 GPU-hours of 16.00 this week (12 %), 100 % of it job vision",
        "grew most: data loading of job vision, 50 % of its time this week, 10 % in the weeks before",
    ]
    assert len(list(_causes(rows[:1]))) == 1  # there is nothing to compare it with
    # The other cause takes more of a job's time, but grew less.
    assert "grew most: data loading" in [*_causes([{**rows[0], "before_percent": 90.0}, *rows[1:]])][-1]


def test_what_would_help_is_summed_over_captures_and_the_largest_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    kinds = ("no_gc", "eager", "pin", "rest")
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE captures AS FROM (VALUES ('a', 'vision'), ('b', NULL)) AS v(capture_id, job);"
            "CREATE TABLE traces AS FROM (VALUES ('a0', 'a0.json'), ('b0', 'b0.json')) AS v(trace_id, file);"
            "CREATE TABLE cause_totals AS FROM (VALUES ('a', 36_000_000_000_000), ('b', 4_000_000_000_000)) "
            "AS v(capture_id, duration_ns);"
            "CREATE TABLE fix_totals AS SELECT *, saves_ns AS most_saves_ns FROM (VALUES "
            "('a', 'no_gc', 3, 3_600_000_000_000, 'a0', 'collect seldom', 12.0), "
            "('b', 'no_gc', 1, 3_600_000_000_001, 'b0', 'collect [never]', 90.0), "
            "('b', 'eager', 1, 30_000_000_000, 'b0', 'use a graph', 1.0), ('a', 'pin', 1, 36_000_000, 'a0', 'pin', 0.0), "
            "('a', 'rest', 1, 1, 'a0', 'more', 0.0)) "
            "AS v(capture_id, fix, n_traces, saves_ns, trace_id, change, most_saves_percent)"
        )
        rows = rows_of(con, question_named("fleet-fixes").asked())
        (of_a, *_) = rows_of(con, question_named("fleet-fixes").asked(job="vision"))
    assert [row["fix"] for row in rows] == [*kinds]
    assert (of_a["gpu_hours"], of_a["percent"], of_a["top_job"], of_a["n_traces"]) == (1, 10, "vision", 3)
    assert [*_fixes(rows)] == [
        "would help: collect [never], which saves 2.00 GPU-hours (18 %) in 4 traces, most in a trace of job b0.json",
        "would help: use a graph, which saves 30.00 s (0 %) in 1 trace, most in a trace of job b0.json",
        "would help: pin, which saves 36.00 ms (0 %) in 1 trace, most in a trace of job vision",
    ]
    fleet = replace(NOTHING, fixes=rows)
    _show(fleet, "my lake")
    assert "collect [never], which saves 2.00" in (printed := capsys.readouterr().out)
    assert "1 more would help: tracelake ask fleet-fixes --lake 'my lake'\n" in printed
    page = fleet_page(fleet, {}, "now", [])
    assert "What would help" in page and "2.00 h" in page and "30.00 s" in page
    _show(replace(fleet, fixes=rows[:3]), DEFAULT_LAKE)
    assert "more would help" not in capsys.readouterr().out


def test_the_week_is_the_lakes_and_files_that_form_no_ranks_count() -> None:
    """The week ends with the lake's newest capture, and traces without a rank count.

    Job b was not captured in this week. No trace of captures c and d has a rank.
    """
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE captures AS SELECT * FROM (VALUES ('a', 'a'), ('b', 'b'), ('c', NULL), ('d', 'd')) "
            "AS v(capture_id, job);"
            "CREATE TABLE capture_summary AS SELECT * FROM (VALUES ('a', TIMESTAMP '2026-01-10'), ('b', '2025-12-20')) "
            "AS v(capture_id, began_at);"
            "CREATE TABLE capture_ranks AS SELECT capture_id, capture_id || n AS trace_id FROM captures, range(2) AS r(n);"
            "CREATE TABLE traces AS SELECT trace_id, trace_id || '.json' AS file, 'ok' AS status, "
            "TIMESTAMP '2026-01-09' AS started_at, TIMESTAMP '2026-11-01' AS ingested_at FROM capture_ranks;"
            "CREATE TABLE cause_totals AS SELECT capture_id, 'start' AS cause, 3000000000 AS duration_ns, 'x' AS name, 1 AS name_ns "
            "FROM captures"
        )
        question = question_named("fleet-causes")
        rows = {row["job"]: row for row in rows_of(con, question.asked())}
        (of_b,) = rows_of(con, question.asked(job="b"))
    assert {job: row["gpu_seconds"] for job, row in rows.items()} == {"a": 3, "b": 0, "c0.json": 3, "d": 3}
    assert {job: row["percent"] for job, row in rows.items()} == {"a": 33.3, "b": 0, "c0.json": 33.3, "d": 33.3}
    assert (of_b["gpu_seconds"], of_b["percent"], of_b["before_percent"]) == (0, None, 100)


def test_a_sum_s_last_digits_are_not_told() -> None:
    assert [_scaled(ns, 1e9) for ns in (10009411.999999998, 10009412.000000002, None)] == [
        0.010009412,
        0.010009412,
        None,
    ]


def test_the_dashboard_and_the_page_name_metrics_that_there_are() -> None:
    source = (DOCS.parent / "pipelines" / "fleet" / "trends" / "openmetrics.py").read_text()
    there = {f"tracelake_{name}" for name in re.findall(r'(?:Family|of_jobs)\(\s*"(\w+)"', source)}
    for name in ("monitoring.md", "grafana.json"):
        named = set(re.findall(r"\btracelake_\w+", (DOCS / name).read_text()))
        assert named <= there, named - there
    assert there <= set(re.findall(r"\btracelake_\w+", (DOCS / "monitoring.md").read_text()))
    # For a gauge, `rate` and `increase` treat each decrease, such as by retention, as a restart from 0.
    text = "".join((DOCS / name).read_text() for name in ("monitoring.md", "grafana.json"))
    assert not re.search(r"\b(rate|increase)\(", text)
    panels = json.loads((DOCS / "grafana.json").read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) == 8
    (worse,) = (panel["targets"][0]["expr"] for panel in panels if panel["title"] == "Jobs that got worse")
    assert worse.startswith("count(count by (job) (")  # a job has a sample for each of its metrics


def test_prometheus_keeps_the_label_by_which_alerts_and_dashboard_name_the_job() -> None:
    """The documented configuration keeps the label `job` of the scraped text.

    By default Prometheus renames the label to `exported_job`.
    """
    page = (DOCS / "monitoring.md").read_text()
    blocks = [yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```$", page, re.M | re.S)]
    (scrapes,) = (block["scrape_configs"] for block in blocks if "scrape_configs" in block)
    assert all(scrape["honor_labels"] is True for scrape in scrapes)
    assert "(job)" in page and "exported_job" not in (DOCS / "grafana.json").read_text()


@pytest.mark.slow(together="fleet today")
def test_the_queries_of_the_page_run(con: duckdb.DuckDBPyConnection) -> None:
    queries = re.findall(r"^```sql\n(.*?)^```$", (DOCS / "monitoring.md").read_text(), re.M | re.S)
    assert len(queries) == 4 and all(con.execute(query).fetchall() for query in queries)


@pytest.mark.slow  # 5 CPU s for a separate lake; test_captures.py tests such a file in a capture
def test_a_file_that_ends_early_and_lost_its_clock_is_not_the_newest_of_its_job(tmp_path: Path) -> None:
    """A truncated file without a clock is not the newest of its job, although it was ingested last.

    It also does not belong to the day of its ingestion, and does not count in the week's causes.
    """
    import gzip

    (first, _) = write_capture(CaptureSpec(ranks=2, steps=2, layers=1), tmp_path / "whole").paths
    (tmp_path / "rank0.json").write_bytes(gzip.decompress(first.read_bytes())[:-3000])
    run("ingest", tmp_path / "whole", "--lake", tmp_path / "lake", "--job", "day")
    run("ingest", tmp_path / "rank0.json", "--lake", tmp_path / "lake", "--job", "day")
    answer = json.loads(run("fleet", "--lake", tmp_path / "lake", "--json"))
    (job,) = answer["jobs"]
    assert (job["n_captures"], job["n_ranks"], job["began_at"][:10]) == (2, 2, "2024-04-01")
    assert {(day["n_ranks"], day["began_on"]) for day in answer["days"]} == {(2, "2024-04-01"), (1, None)}
    seconds = json.loads(
        run(
            "sql",
            "SELECT sum(duration_ns) / 1e9 AS s FROM causes JOIN traces USING (trace_id) "
            "WHERE window_id = 'full' AND status = 'ok'",
            "--lake",
            tmp_path / "lake",
            "--format",
            "json",
        )
    )[0]["s"]
    # the values are rounded
    assert sum(row["gpu_seconds"] for row in answer["causes"]) == pytest.approx(seconds, abs=1e-5)
    (newest,) = json.loads(run("sql", NEWEST, "--lake", tmp_path / "lake", "--format", "json"))
    assert newest["file"] == "rank1.json.gz"


def test_what_the_tables_lack_is_on_the_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page itself states what its tables lack, because it is shared without the command's stderr."""
    said = "/mnt/ro cannot be written: the answer is from the tables computed there"

    def opened(*_: object) -> duckdb.DuckDBPyConnection:
        print_caveat("not computed", said)
        return duckdb.connect()

    monkeypatch.setattr(READ_FLEET, lambda *_: replace(NOTHING, jobs=[{"capture_id": "c0ffee"}]))
    monkeypatch.setattr("pipelines.faces.cli.fleet.fleet.open_analyst", opened)
    monkeypatch.setattr("pipelines.faces.cli.fleet.fleet.findings_of_newest", lambda *_: [])
    monkeypatch.setattr("pipelines.faces.report.subject.find_subject", lambda *_, **__: None)
    monkeypatch.setattr("pipelines.faces.report.page.page", lambda _, notices: "; ".join(notices))
    monkeypatch.setattr("pipelines.faces.report.fleet._jobs", lambda *_: None)
    run("fleet", "--out", tmp_path)
    assert (tmp_path / "index.html").read_text().count(f"not computed: {said}") == 1
    assert (tmp_path / "c0ffee.html").read_text() == f"not computed: {said}"


# tests/faces/cli/test_limiting_findings.py tests the findings of real captures.
def test_what_limits_the_newest_captures_stands_beside_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, said = "pipelines.faces.cli.fleet.fleet", "1 of 4 ranks is missing (2)"
    monkeypatch.setattr(READ_FLEET, lambda *_: NOTHING)
    monkeypatch.setattr(f"{module}.open_analyst", lambda *_: duckdb.connect())
    missing = LimitingFinding(None, f"job {NASTY}", "missing_ranks", "warning", said)
    for findings, n in (([], 0), ([missing], 1)):
        monkeypatch.setattr(f"{module}.findings_of_newest", lambda *_, findings=findings: findings)
        text = run("fleet")
        assert text.count(said) == text.startswith("caveat: job ") == n
        caveats = json.loads(run("fleet", "--json"))["caveats"]
        assert [(caveat["caveat"], caveat["severity"]) for caveat in caveats] == [("missing_ranks", "warning")] * n
        run("fleet", "--out", tmp_path)
        page = (tmp_path / "index.html").read_text()
        assert page.count(f"{said}.") == n and "<script>" not in page
        assert said not in run("metrics")
