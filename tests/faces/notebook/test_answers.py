"""SQL, saved questions and charts in a notebook, which show the rows of the tables."""

from __future__ import annotations

import json
import subprocess
import sys
import types
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from pipelines.base.extras import MissingExtra
from pipelines.faces.notebook import TraceAnalysis, WindowNotFound, answers
from pipelines.faces.notebook.answers import SHOWN, Answer
from pipelines.faces.notebook.plots import Chart, Plots
from pipelines.faces.notebook.sources import RankTrace
from pipelines.faces.why import TABLES as TABLES_OF_WHY
from pipelines.lake import Lake
from pipelines.lake.publish.analyst_file import analyst
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize.run_order import materialize_all
from pipelines.runs.store import folder
from pipelines.runs.store.folder import connect
from pipelines.synthetic import CaptureSpec, write_capture
from tests.effort import first_of

CHARTS = ("breakdown", "kernels", "queue_length", "bandwidth", "overlap", "steps", "roofline", "stragglers")
TABLES = (
    *("temporal_breakdown", "kernels", "queue_length", "step_times", "op_utilization", "op_work", "straggler_ranks"),
    *("capture_quality", "step_losses", "causes", "idle_gaps"),
)
"""The tables that the charts and questions of these tests read."""
QUICK_TABLES = ("temporal_breakdown", "kernels")
"""The tables of quick tests. The other tables are computed when a slow test reads them."""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Return a lake of two jobs: one with two ranks, of which rank 1 is slow, and one with a single rank."""
    folder = tmp_path_factory.mktemp("answers")
    lake = Lake(folder / "lake")
    for job, ranks in (("both", 2), ("alone", 1)):
        write_capture(CaptureSpec(ranks=ranks, steps=3, straggler=ranks - 1, seed=ranks), folder / job)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRACELAKE_JOB_PATTERN", "/(both|alone)/")
        ingest([folder / "both", folder / "alone"], lake)
    materialize_all(lake, QUICK_TABLES)
    return lake


@pytest.fixture(scope="module")
def both(lake: Lake) -> Iterator[TraceAnalysis]:
    with TraceAnalysis(lake=lake, job="both") as analysis:
        yield analysis


def test_sql_sees_the_traces_of_the_analysis(both: TraceAnalysis, lake: Lake) -> None:
    ids = {trace.trace_id for trace in both.traces}
    query = "SELECT DISTINCT k.trace_id, t.rank FROM kernels AS k JOIN traces AS t ON t.trace_id = k.trace_id"
    assert {row["trace_id"] for row in both.sql(query).to_dicts()} == ids and len(ids) == 2
    with TraceAnalysis(lake=lake) as all_of_them:
        assert len(all_of_them.sql(query)) == 3
    nested = "WITH kernels AS (SELECT trace_id FROM events) SELECT count(DISTINCT trace_id) AS n FROM kernels"
    assert both.sql(nested).to_dicts() == [{"n": 2}]
    with pytest.raises(duckdb.Error, match="nothing"):
        both.sql("SELECT * FROM nothing")
    with pytest.raises(duckdb.Error):
        both.sql("DELETE FROM traces")


@pytest.mark.parametrize(
    "query",
    [
        "FROM (PIVOT kernels ON class USING count(*) GROUP BY trace_id)",
        "SELECT DISTINCT trace_id FROM query('FROM kernels')",
        "SELECT DISTINCT trace_id FROM query_table('kernels')",
    ],
)
def test_tables_that_the_tree_does_not_show_have_no_other_traces(both: TraceAnalysis, query: str) -> None:
    assert {row["trace_id"] for row in both.sql(query).to_dicts()} == {trace.trace_id for trace in both.traces}


def test_a_name_that_no_view_hides_is_refused_where_there_are_other_traces(both: TraceAnalysis, lake: Lake) -> None:
    for name in ("analyst.kernels", 'Analyst.main."kernels"', '"analyst" . kernels', "query('FROM analyst.kernels')"):
        with pytest.raises(ValueError, match="FROM kernels"):
            both.sql(f"SELECT count(*) FROM {name}")
    assert both.sql("SELECT analyst FROM (SELECT 1 AS analyst)").to_dicts() == [{"analyst": 1}]
    with TraceAnalysis(lake=lake) as all_of_them:
        query = "SELECT count(DISTINCT trace_id) AS n FROM analyst.kernels"
        assert all_of_them.sql(query).to_dicts() == [{"n": 3}]


def test_ranks_assigned_by_hand_are_in_every_answer(both: TraceAnalysis, lake: Lake) -> None:
    first, second = both.traces
    assert (first.rank, second.rank) == (0, 1)
    expected = {(first.trace_id, 1), (second.trace_id, 0)}
    of_kernels = "SELECT DISTINCT trace_id, rank FROM kernels JOIN traces USING (trace_id)"
    with TraceAnalysis({1: first.path, 0: second.path}, lake=lake) as swapped:
        rows = swapped.sql(of_kernels)
        assert {tuple(row.values()) for row in rows.to_dicts()} == expected and not rows.caveats
        assert {(row["path"], row["rank"]) for row in swapped.sql("FROM traces").to_dicts()} == {
            (first.path, 1),
            (second.path, 0),
        }
        assert {row["rank"] for row in swapped.ask("gpu-parts", rank=1).to_dicts()} == {1}


@pytest.mark.slow  # computes the findings about the capture first
def test_an_answer_about_captures_says_that_it_has_other_ranks(both: TraceAnalysis, lake: Lake) -> None:
    paths = [trace.path for trace in both.traces]
    for files, expected in (({1: paths[0], 0: paths[1]}, 1), ({0: paths[0], 1: paths[1]}, 0)):
        with TraceAnalysis(files, lake=lake) as analysis:
            caveats = analysis.sql("FROM capture_ranks").caveats
        assert sum(caveat.startswith("capture_ranks: ranks are those in the files") for caveat in caveats) == expected


def test_ranks_assigned_by_hand_are_in_tables_of_ibis(both: TraceAnalysis, lake: Lake) -> None:
    pytest.importorskip("ibis", reason="the extra notebook is not installed")
    first, second = both.traces
    with TraceAnalysis({1: first.path, 0: second.path}, lake=lake) as swapped:
        traces = swapped.table("traces")
        assert traces.columns == both.table("traces").columns
        rows = traces.to_pyarrow().to_pylist()
        assert {(row["trace_id"], row["rank"]) for row in rows} == {(first.trace_id, 1), (second.trace_id, 0)}
        with pytest.warns(UserWarning, match="capture_ranks: ranks are those in the files"):
            swapped.table("capture_ranks")


def test_columns_of_equal_names_keep_their_own_values(both: TraceAnalysis) -> None:
    answer = both.sql("SELECT 1 AS a, 2 AS a, 3 AS a_1")
    assert answer.to_dicts() == [{"a": 1, "a_1": 2, "a_1_1": 3}] and "2" in repr(answer)
    for none in ("", "SET threads = 1"):
        with pytest.raises(ValueError, match="give a SELECT"):
            both.sql(none)


def test_a_saved_question_is_of_the_traces_of_the_analysis(both: TraceAnalysis) -> None:
    answer = both.ask("gpu-parts", top=4)
    assert len(answer) == 4 and {row["job"] for row in answer.to_dicts()} == {"both"}
    assert answer.reading in answer._repr_html_()
    assert {row["rank"] for row in both.ask("gpu-parts", rank=1).to_dicts()} == {1}
    with pytest.raises(KeyError, match="gpu-parts"):
        both.ask("nonsense")


def test_an_answer_shows_its_first_rows_and_nothing_runs() -> None:
    rows = pa.table({"name": ["<script>alert(1)</script>\x1b", *"b" * 29], "n": [None, *range(29)]})
    shown = Answer(rows, "SELECT 1")
    page, text = shown._repr_html_(), repr(shown)
    assert "<script>" not in page and "\x1b" not in page and "\x1b" not in text
    assert page.count("<tr>") == SHOWN + 1 and f"the first {SHOWN} of 30 rows" in page and "NULL" in page
    assert len(text.splitlines()) == SHOWN + 2 and text.splitlines()[1].endswith("NULL")
    assert shown.to_pyarrow() is rows and shown.columns == ["name", "n"] and len(shown.to_dicts()) == 30
    assert "1 row<" in Answer(rows.slice(0, 1), "")._repr_html_()


def test_sums_of_integers_are_integers_where_they_fit(both: TraceAnalysis) -> None:
    query = "SELECT sum(n) AS n FROM (VALUES ({most}::HUGEINT), (NULL)) AS t(n) UNION ALL SELECT NULL"
    for most, expected in ((2**63 - 1, pa.int64()), (-(2**63), pa.int64()), (2**63, pa.decimal128(38, 0))):
        rows = both.sql(query.format(most=most)).to_pyarrow()
        assert rows.schema.field("n").type == expected and sorted(map(str, rows["n"].to_pylist())) == [
            str(most),
            "None",
        ]


def with_failures(con: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """Add failures of the model `kernels` on all traces to the connection's lake, and return the connection."""
    con.execute(
        "CREATE TEMP TABLE model_failures AS SELECT trace_id, 'kernels' AS table_name, 'kernels' AS model, "
        "'this trace is odd' AS reason, 'left_out' AS outcome, batch_id FROM traces"
    )
    return con


# tests/runs/test_left_out.py has failures of real models.
def test_an_answer_names_the_traces_of_the_analysis_on_which_a_model_failed(
    both: TraceAnalysis, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "analyst", lambda *words: with_failures(analyst(*words)))
    with TraceAnalysis(lake=lake) as all_of_them:
        for analysis, n in ((both, 2), (all_of_them, 3)):
            for answer in (analysis.sql("SELECT count(*) FROM kernels"), analysis.plot.kernels().data):
                said = [caveat for caveat in answer.caveats if "the model kernels failed on it" in caveat]
                assert len(said) == n and all(trace.trace_id in " ".join(said) for trace in analysis.traces)
            assert not analysis.sql("SELECT count(*) FROM temporal_breakdown").caveats


def test_tables_of_ibis_warn_of_traces_on_which_a_model_failed(
    both: TraceAnalysis, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ibis", reason="the extra notebook is not installed")
    monkeypatch.setattr(folder, "connect", lambda *words, **named: with_failures(connect(*words, **named)))
    with pytest.warns(UserWarning, match=r"kernels lacks 3 traces, such as .* the model kernels failed"):
        both.table("kernels")
    with warnings.catch_warnings(action="error"):
        both.get_temporal_breakdown()


def test_why_says_what_is_not_computed(both: TraceAnalysis, monkeypatch: pytest.MonkeyPatch) -> None:
    """`why` names the tables that are not computed, because a path that was not computed may still exist."""
    first, other = both.traces
    rows: dict[str, list[dict[str, Any]]] = {table: [] for table in TABLES_OF_WHY}
    lacking: list[str] = []

    def answer(lake: Lake, query: str, traces: list[RankTrace]) -> Answer:
        (trace,) = traces
        table = query.partition(" FROM ")[2].split(maxsplit=1)[0]
        return Answer(pa.Table.from_pylist(rows[table]), query, "", lacking if trace == first else [])

    monkeypatch.setattr("pipelines.faces.notebook.analysis.answer", answer)
    with pytest.raises(WindowNotFound, match=r"rank0\.json\.gz has no critical path of window full"):
        both.why(0)
    lacking.append("fixes is not computed")
    with pytest.raises(WindowNotFound, match=r"why .*rank0.json.gz .* is unknown: fixes is not computed$"):
        both.why(0)
    with pytest.raises(WindowNotFound, match=r"rank1\.json\.gz has no critical path"):
        both.why(other.trace_id)
    rows |= {"causes": [{"n": 1}], "window_gpu_time": [{"n": 1}]}
    explanation = both.why(0)
    assert [caveat["detail"] for caveat in explanation.caveats] == lacking and not both.why(1).caveats
    assert (explanation.subject, explanation.of_lake) == (first.trace_id, ("--lake", str(both.lake.root)))


@pytest.mark.slow  # 1 s, for the imports
def test_data_frames(both: TraceAnalysis) -> None:
    answer = both.sql("SELECT rank FROM traces ORDER BY rank")
    pytest.importorskip("pandas")
    assert answer.to_pandas()["rank"].tolist() == [0, 1]
    pytest.importorskip("polars")
    assert answer.to_polars()["rank"].to_list() == [0, 1]


@pytest.mark.slow  # tests/faces/cli/test_start.py tests imports of commands
def test_the_first_answer_needs_no_ibis(lake: Lake) -> None:
    """An answer from stored tables does not import Ibis, which takes two seconds.

    It also imports neither pandas, torch nor dagster.
    """
    materialize_all(lake, TABLES)
    program = (
        "import sys; from pipelines.faces.notebook import TraceAnalysis; "
        f"a = TraceAnalysis(lake={str(lake.root)!r}); a.ask('gaps', top=5)._repr_html_(); a.plot.steps().spec; "
        "print([name for name in ('ibis', 'pandas', 'torch', 'dagster') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_tables_show_their_rows_in_a_notebook(both: TraceAnalysis, monkeypatch: pytest.MonkeyPatch) -> None:
    ibis = pytest.importorskip("ibis", reason="the extra notebook is not installed")

    monkeypatch.setattr(ibis.options, "interactive", False)
    assert "┃" not in repr(both.get_temporal_breakdown())
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: object()))  # pyright: ignore[reportArgumentType]
    assert "┃" in repr(both.get_temporal_breakdown()) and ibis.options.interactive


def test_there_are_eight_charts() -> None:
    assert [name for name in vars(Plots) if not name.startswith("_")] == list(CHARTS)


@pytest.mark.parametrize("name", first_of(CHARTS, 2))
def test_every_chart_names_columns_of_its_rows(both: TraceAnalysis, name: str) -> None:
    chart: Chart = getattr(both.plot, name)()
    spec = json.loads(json.dumps(chart.spec))
    channels = [
        channel
        for encoding in spec["encoding"].values()
        for channel in (encoding if isinstance(encoding, list) else [encoding])
    ]
    assert {channel["field"] for channel in channels} <= set(chart.data.columns)
    assert len(spec["data"]["values"]) == len(chart.data)
    assert len(chart.data) > 0 or name in ("bandwidth", "roofline")
    assert list(chart._repr_mimebundle_()) == ["application/vnd.vegalite.v5+json", "text/plain"]


def drawn_together(chart: Chart, *channels: str) -> dict[tuple, list[dict]]:
    """Group a chart's rows by the values of these channels. A group is a bar, line or point."""
    fields, rows = [chart.spec["encoding"][channel]["field"] for channel in channels], chart.data.to_dicts()
    groups = {tuple(row[field] for field in fields): [] for row in rows}
    for row in rows:
        groups[tuple(row[field] for field in fields)].append(row)
    return groups


def test_no_bar_is_of_two_traces(lake: Lake, both: TraceAnalysis) -> None:
    """No bar or point of a chart mixes two traces. Two of the three traces are of rank 0, but of different jobs."""
    with TraceAnalysis(lake=lake) as analysis:
        breakdown, overlap = analysis.plot.breakdown(), analysis.plot.overlap()
        (alone,) = (trace for trace in analysis.traces if trace.trace_id not in {t.trace_id for t in both.traces})
    bars = drawn_together(breakdown, "y", "row")
    assert len(bars) == 3 and all(sum(row["percent"] for row in rows) == pytest.approx(100) for rows in bars.values())
    assert {trace for trace, _ in bars} == {f"rank 0 of {t}" for t in (alone.trace_id, both.traces[0].trace_id)} | {
        "rank 1"
    }
    bars = drawn_together(overlap, "x")
    assert len(bars) == len(overlap.data) > 0
    assert {row["trace"] for row in both.plot.breakdown().data.to_dicts()} == {"rank 0", "rank 1"}


@pytest.mark.slow  # test_no_bar_is_of_two_traces tests bars
@pytest.mark.parametrize(
    ("name", "channels"),
    [("queue_length", ("row", "color", "x")), ("bandwidth", ("row", "color", "x")), ("steps", ("color", "x"))],
)
def test_no_line_is_of_two_traces_or_devices(lake: Lake, name: str, channels: tuple[str, ...]) -> None:
    with TraceAnalysis(lake=lake) as analysis:
        chart = getattr(analysis.plot, name)()
    points = drawn_together(chart, *channels)
    assert len(points) == len(chart.data) and (name == "bandwidth" or len({place for place, *_ in points}) == 3)


@pytest.mark.slow  # test_every_chart_names_columns_of_its_rows tests the columns
def test_charts_draw_what_the_tables_hold(both: TraceAnalysis, tmp_path: Path) -> None:
    parts = both.plot.breakdown().data.to_dicts()
    for rank in (0, 1):
        assert sum(row["percent"] for row in parts if row["rank"] == rank) == pytest.approx(100)
    steps = {(row["rank"], row["step"]): row["ms"] for row in both.plot.steps().data.to_dicts()}
    rows = both.sql("SELECT rank, step, duration_ns FROM step_times JOIN traces USING (trace_id)").to_dicts()
    assert steps == {(row["rank"], row["step"]): row["duration_ns"] / 1e6 for row in rows}
    [longest] = both.sql("SELECT max(queue_length) AS n FROM queue_length").to_dicts()
    queue = both.plot.queue_length(points=7).data.to_dicts()
    assert max(row["queue_length"] for row in queue) == longest["n"]
    assert all(len({row["ms"] for row in queue if row["rank"] == rank}) <= 8 for rank in (0, 1))
    assert [row["is_straggler"] for row in both.plot.stragglers().data.to_dicts()] == [False, True]
    assert sum(row["percent"] for row in both.plot.kernels(top=10_000).data.to_dicts()) == pytest.approx(100)
    saved = json.loads(Path(both.plot.steps().save(tmp_path / "steps.vl.json")).read_text())
    assert saved["data"]["values"] and saved["mark"] == {"type": "line", "point": True}


@pytest.mark.slow  # tests/modelling/test_utilization.py tests utilization
def test_a_roofline_and_a_bandwidth_of_a_real_trace(shared: Path) -> None:
    with TraceAnalysis(shared / "traces" / "ranks" / "dlrm_8" / "worker0.json.gz") as analysis:
        copies = analysis.plot.bandwidth().data.to_dicts()
        assert copies and all(row["gigabytes_per_s"] > 0 for row in copies)
        roofline = analysis.plot.roofline().data.to_dicts()
        assert roofline and all(row["flops_per_byte"] > 0 and row["suspect"] is not None for row in roofline)


@pytest.mark.slow
def test_altair_draws_them(both: TraceAnalysis) -> None:
    if find_spec("altair") is None:
        with pytest.raises(MissingExtra, match=r"pip install .*\[plots\]'"):
            both.plot.steps().to_altair()
        pytest.skip("altair is not installed")
    for name in CHARTS:
        chart = getattr(both.plot, name)()
        assert chart.to_altair().to_dict()["encoding"].keys() == chart.spec["encoding"].keys()
