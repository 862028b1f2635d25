"""The saved questions: all run, on the whole lake and on a part of it, and the site's page shows their answers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import duckdb
import pytest
from typer.testing import CliRunner

from pipelines.faces.cli.app import app
from pipelines.lake import Lake
from pipelines.lake.publish.analyst_file import publish
from pipelines.lake.read.sandbox import LockedLake
from pipelines.models import questions as saved
from pipelines.models.catalog import load_catalog
from pipelines.models.errors import CatalogError
from pipelines.models.questions import NotAsked, load_questions, page_questions
from tests.effort import first_of
from tests.faces.questions.page import HEAD, make_lake, page


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return make_lake(tmp_path_factory.mktemp("questions"))


@pytest.fixture(scope="module")
def locked(lake: Lake):
    with LockedLake(lake) as connection:
        yield connection


def answer(locked: LockedLake, sql: str) -> list[dict]:
    with locked.asked(sql) as result:
        assert result is not None
        return [dict(zip(result.columns, row, strict=True)) for row in result.rows()]


def test_each_can_be_asked_of_an_empty_lake(tmp_path: Path) -> None:
    """Every question runs on an empty lake, so the tables and columns that it reads exist."""
    lake = Lake(tmp_path / "lake")
    lake.root.mkdir()
    with duckdb.connect(str(publish(lake)), read_only=True) as con:
        for question in (*load_questions().values(), *page_questions().values()):
            assert con.execute(question.asked()).fetchall() == [], question.name


@pytest.mark.slow(together="questions")
def test_the_page_shows_what_they_answer(lake: Lake) -> None:
    """The page has each question once, its query, and the columns and first rows of its answer.

    `make docs` builds the page.
    """
    built = page(lake)
    sections = {text.partition("\n")[0]: text for text in built.split("\n### ")[1:]}
    assert sections.keys() == {question.question for question in load_questions().values()}
    for question in load_questions().values():
        text = sections[question.question]
        assert f"`tracelake ask {question.name}`" in text and f"```sql\n{question.sql}\n```" in text, question.name
        rows = re.findall(r"^\| .* \|$", text.rpartition("```")[2], re.M)
        assert len(rows) >= 2 or "*No rows:" in text, question.name
    assert "| llama-70b | 2 | 3 |" in sections[load_questions()["persistent-stragglers"].question]
    assert "erDiagram" in built


@pytest.mark.slow(together="questions")
def test_limits_choose_the_rows_that_they_name(locked: LockedLake) -> None:
    rank = answer(locked, load_questions()["step-times"].asked(rank=2, job="llama-70b"))
    assert {(row["job"], row["rank"]) for row in rank} == {("llama-70b", 2)} and len(rank) == 1
    (capture, *_) = answer(locked, "SELECT capture_id FROM captures WHERE n_ranks = 4 ORDER BY capture_id")
    rows = answer(locked, load_questions()["stragglers"].asked(capture=capture["capture_id"]))
    assert {row["capture_id"] for row in rows} == {capture["capture_id"]} and len(rows) == 4
    for question in load_questions().values():
        whole = answer(locked, question.asked())
        assert answer(locked, question.asked(top=1)) == whole[:1], question.name
        nobody = {name: -1 if name == "rank" else "it's nobody" for name in question.limits}
        for name, value in nobody.items():
            assert answer(locked, question.asked(**{name: value})) == [], (question.name, name)
        if question.limits:
            part = answer(locked, question.asked(job="llama-70b"))
            assert len(part) <= len(whole)
        with pytest.raises(NotAsked, match="cannot be limited by step"):
            question.asked(step=3)


@pytest.mark.slow(together="questions")
def test_the_straggler_and_the_damaged_file_are_found(locked: LockedLake) -> None:
    worst, *_ = answer(locked, load_questions()["persistent-stragglers"].sql)
    assert (worst["job"], worst["rank"], worst["n_straggler"]) == ("llama-70b", 2, 3)
    assert [Path(row["path"]).name for row in answer(locked, load_questions()["rejected-files"].sql)] == ["notes.json"]
    assert "truncated" in [row["check_name"] for row in answer(locked, load_questions()["quality"].sql)]


@pytest.mark.slow(together="questions")
@pytest.mark.parametrize(
    ("dtype", "mfu", "tf32", "why"),
    [
        ("bf16", 0.6, 0.6, None),
        ("fp32", 1.3, 0.2, "TF32? Against the peak of TF32 it is 20.0 %"),
        ("fp32", 9.0, 1.2, "impossible"),
        ("bf16", 1.01, 1.01, "impossible"),
        ("fp32", None, None, None),
    ],
)
def test_no_question_shows_more_than_the_hardware_can_without_saying_why(
    dtype: str, mfu: float | None, tf32: float | None, why: str | None
) -> None:
    """A share of more than 100 % of the hardware is shown with its reason.

    This includes shares up to 105 %, above which the tables call a value suspect.
    """
    with duckdb.connect() as con:
        con.execute("CREATE TABLE traces AS SELECT 't' AS trace_id, 'j' AS job, 'f' AS file, 0 AS rank")
        columns = {column.name: "NULL" for column in load_catalog().models["family_utilization"].columns}
        values = {"trace_id": "'t'", "dtype": f"'{dtype}'", "mfu": str(mfu or "NULL"), "mfu_tf32": str(tf32 or "NULL")}
        listed = ", ".join(f"{value} AS {name}" for name, value in (columns | values).items())
        con.execute(f"CREATE TABLE family_utilization AS SELECT {listed}")
        con.execute(
            "CREATE TABLE op_kernels (trace_id VARCHAR, op_event_id BIGINT, not_modelled VARCHAR, duration_ns BIGINT)"
        )
        reason = con.sql(load_questions()["mfu"].sql).to_arrow_table().to_pylist()[0]["why"]
    assert (reason is None) == (why is None) and (why or "") in (reason or "")
    shown = [question.name for question in load_questions().values() if re.search(r"\bmfu\b", question.sql)]
    assert shown == ["mfu"], "a question that shows MFU needs its `why`"


def relations() -> list[tuple[str, str, str, dict[str, str]]]:
    """Return the parts of each line of the diagram.

    These are the first table, the number of rows of the other table, its name, and the equal columns.
    """
    lines = re.findall(r'^    (\w+) \|\|--(o[{|]) (\w+) : "(.*)"$', HEAD, re.M)
    return [(a, many, b, {c.split(" = ")[0]: c.split(" = ")[-1] for c in by.split(", ")}) for a, many, b, by in lines]


@pytest.mark.slow(together="questions")
@pytest.mark.parametrize(("table", "many", "other", "columns"), relations(), ids=lambda value: str(value))
def test_the_diagram_tells_the_truth(locked: LockedLake, table: str, many: str, other: str, columns: dict) -> None:
    """The diagram's joins hold in the lake.

    Every row on the right has exactly one row on the left. For `o|`, a row on the left has at most one on the right.
    """
    left, right = (
        ", ".join(f"{alias}.{name}" for name in names) for alias, names in (("a", columns), ("b", columns.values()))
    )
    whole = " AND ".join(f"b.{name} IS NOT NULL" for name in columns.values())
    joined = " AND ".join(f"a.{mine} = b.{theirs}" for mine, theirs in columns.items())
    assert answer(locked, f"SELECT {left} FROM {table} AS a GROUP BY ALL HAVING count(*) > 1") == []
    assert answer(locked, f"SELECT {right} FROM {other} AS b ANTI JOIN {table} AS a ON {joined} WHERE {whole}") == []
    assert answer(locked, f"SELECT count(*) AS n FROM {other} AS b WHERE {whole}")[0]["n"]
    if many == "o|":
        assert answer(locked, f"SELECT {right} FROM {other} AS b WHERE {whole} GROUP BY ALL HAVING count(*) > 1") == []


def test_the_diagram_is_there() -> None:
    assert len(relations()) == HEAD.count(" ||--") > 20
    assert {name for table, _, other, _ in relations() for name in (table, other)} <= set(load_catalog().public)


@pytest.mark.slow(together="questions")
def test_the_command(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACELAKE_LAKE", str(lake.root))
    said = CliRunner().invoke(app, ["ask"])
    assert said.exit_code == 0 and all(name in said.stdout for name in load_questions())
    assert len(json.loads(CliRunner().invoke(app, ["ask", "--format", "json"]).stdout)) == len(load_questions())
    said = CliRunner().invoke(app, ["ask", "stragglers", "--top", "2", "--format", "json"])
    assert [row["rank"] for row in json.loads(said.stdout)] == [2, 2]
    said = CliRunner().invoke(app, ["ask", "stragglers"])
    assert "Which rank do the others wait for?" in said.stdout and "culprit_uncertain" in said.stderr
    said = CliRunner().invoke(app, ["ask", "gpu-idle", "--rank", "3", "--sql"])
    assert said.stdout.startswith("WITH ") and "FROM traces WHERE rank = 3) AS t" in said.stdout
    for words, message in ((["straglers"], "stragglers"), (["schedules", "--job", "x"], "cannot be limited by job")):
        said = CliRunner().invoke(app, ["ask", *words])
        assert (said.exit_code, message in said.stderr) == (1, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["leak", "--rank", "3", "--job", "x"],
            "--job, --rank: only for the answer to a question: name one of memory-over-time, snap",
        ),
        (["--sql"], "--sql: only for the answer to a question: name one of execution-traces, "),
        (["leak", "--top", "0"], "--top: "),
        (["--trace", "x"], "--trace: "),
        (["--format", "csv"], "--format csv: "),
        (["leak", "--format", "parquet"], "--format parquet: "),
    ],
)
def test_a_list_of_questions_ignores_no_option(words: list[str], message: str) -> None:
    said = CliRunner().invoke(app, ["ask", *words], env={"COLUMNS": "300"})
    assert (said.exit_code, said.stdout) == (1, "") and message in said.stderr


def test_tables_are_found_by_what_they_mean() -> None:
    said = CliRunner().invoke(app, ["tables", "--search", "Exposed", "--json"])
    columns = {(row["table"], row["column"]) for row in json.loads(said.stdout)}
    assert {
        ("temporal_breakdown", "exposed_communication_ns"),
        ("step_exposure", ""),
        ("capture_costs", "cause"),
    } <= columns
    assert ("temporal_breakdown", "device") not in columns
    said = CliRunner().invoke(app, ["tables", "step_exposure", "--search", "exposed", "--json"])
    assert {row["table"] for row in json.loads(said.stdout)} == {"step_exposure"}
    assert CliRunner().invoke(app, ["tables", "no_such", "--search", "x"]).exit_code == 1
    nothing = CliRunner().invoke(app, ["tables", "kernels", "--search", "exposed"])
    assert nothing.exit_code == 1 and "no name or meaning of table kernels has 'exposed'" in nothing.stderr
    assert json.loads(CliRunner().invoke(app, ["tables", "kernels", "--search", "exposed", "--json"]).stdout) == []


HEADER = "-- Question: What?\n-- Reading: So.\nSELECT 1\n"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"steps/what.sql": HEADER.replace("-- Reading: So.\n", "")}, r"what\.sql:1: write `-- Question"),
        ({"weather/what.sql": HEADER}, r"what\.sql:1: put the question into one of the folders lake, gpu_time"),
        ({"what.sql": HEADER}, r"what\.sql:1: put the question into one of the folders"),
        (
            {"steps/what.sql": HEADER, "memory/what.sql": HEADER},
            r"steps/what\.sql:1: rename it: 'Memory' has a question",
        ),
    ],
)
def test_a_question_without_a_part_a_topic_or_its_own_name_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], message: str
) -> None:
    for name, text in files.items():
        (tmp_path / "ask" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "ask" / name).write_text(text)
    monkeypatch.setattr(saved, "SQL_DIR", tmp_path)
    saved.load_questions.cache_clear()
    try:
        with pytest.raises(CatalogError, match=message):
            saved.load_questions()
    finally:
        saved.load_questions.cache_clear()


def test_comments_in_a_query_are_no_words_to_search_for() -> None:
    words = {name: load_questions()[name].words for name in ("snapshot-leaks", "hang-dumps")}
    assert words == {"snapshot-leaks": "leak, OOM, out of memory", "hang-dumps": "hang, stuck, NCCL timeout"}


@pytest.mark.parametrize(
    ("word", "names"),
    first_of(
        [
            ("launch-bound", {"why", "gaps", "launch-delays"}),
            ("tokens/s", {"serving-steps"}),
            ("OOM", {"memory-peaks", "snapshot-peak"}),
            ("MFU", {"coverage", "shapes-below-peak"}),
            ("launch bound", {"why", "gaps", "launch-delays"}),
            *((word, {"serving-steps"}) for word in ("prefill", "Decode", "TTFT")),
            ("bubble", {"gaps", "step-losses", "schedules"}),
            ("straggler", {"stragglers", "persistent-stragglers"}),
            ("leak", {"snapshot-leaks", "snapshot-growth"}),
            ("data loader", {"why", "gaps"}),
            ("idle", {"gpu-idle", "gaps", "why"}),
        ],
        4,
    ),
)
def test_questions_are_found_by_the_words_that_people_use(word: str, names: set[str]) -> None:
    """Words that users use find the question in `ask`, `tables --search` and the list of all questions.

    In `ask`, the name of a question answers this question.
    """
    if word.lower() not in load_questions():
        said = CliRunner().invoke(app, ["ask", word, "--format", "json"])
        assert said.exit_code == 0 and names <= {row["name"] for row in json.loads(said.stdout)}
    said = CliRunner().invoke(app, ["tables", "--search", word, "--json"])
    assert {f"ask {name}" for name in names} <= {row["table"] for row in json.loads(said.stdout)}
    listed = CliRunner().invoke(app, ["ask"], env={"COLUMNS": "300"}).stdout.lower()
    word = word.replace("-", " ")
    assert word.lower() in listed
