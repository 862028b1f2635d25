"""The tools, without the protocol: what they take and answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.base.foreign_text import visible
from pipelines.faces.asking import NotAnswered
from pipelines.faces.mcp_tools.tools import Served, Tool, make_tools
from pipelines.lake.read.sandbox import Limits, QueryStopped
from pipelines.models.catalog import load_catalog
from pipelines.models.questions import load_questions
from pipelines.readers.ingest import ingest
from tests.faces.serve.world import HOSTILE, hostile_lake, write_hostile

LIMITS = Limits(30, 0, "500MB", "1GB")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Served:
    return Served(hostile_lake(tmp_path_factory.mktemp("tools")).root, LIMITS, rows=3)


@pytest.fixture(scope="module")
def tools(served: Served) -> dict[str, Tool]:
    return make_tools(served)


def answer(tool: Tool, **given: Any) -> Any:
    found, _ = tool.start(tool.checked(given))
    return json.loads(found())


def test_every_question_is_a_tool(tools: dict[str, Tool]) -> None:
    questions = load_questions()
    assert tools.keys() == {
        "list_tables",
        "describe_table",
        "query",
        *(f"ask_{name.replace('-', '_')}" for name in questions),
    }
    for name, one in questions.items():
        tool = tools[f"ask_{name.replace('-', '_')}"]
        assert set(tool.parameters) == {*one.limits, "top"}
        assert one.question in tool.description and one.reading in tool.description


@pytest.mark.slow
def test_every_question_has_an_answer_with_its_reading(tools: dict[str, Tool]) -> None:
    for name, one in load_questions().items():
        found = answer(tools[f"ask_{name.replace('-', '_')}"])
        assert found["how_to_read"] == one.reading and len(found["rows"]) <= 3, name


def test_questions_are_asked_of_a_part_and_say_if_there_is_more(tools: dict[str, Tool]) -> None:
    found = answer(tools["ask_top_kernels"], job="<b>train</b>", top=1)
    assert found["rows"][0][0] == visible(HOSTILE) and found["truncated"] is False
    assert answer(tools["ask_top_kernels"], job="other")["rows"] == []
    one, both = (answer(tools["ask_gpu_idle"], top=n) for n in (1, 2))  # a row per rank
    assert one["rows"] == both["rows"][:1] and one["truncated"] == "the first row; there are more"
    assert len(both["rows"]) == 2 and both["truncated"] is False


def test_rows_beyond_the_limit_are_announced(tools: dict[str, Tool]) -> None:
    exactly, more = (answer(tools["query"], sql=f"SELECT range AS i FROM range({n})") for n in (3, 4))
    assert exactly["rows"] == more["rows"] == [[0], [1], [2]] and more["columns"] == ["i BIGINT"]
    assert (exactly["truncated"], more["truncated"]) == (False, "the first 3 rows; there are more")


def test_integers_stay_exact_and_names_stay_data(tools: dict[str, Tool]) -> None:
    found = answer(tools["query"], sql="SELECT 9007199254740993, 'nan'::DOUBLE, NULL, chr(27), [1]")
    assert found["rows"] == [[9007199254740993, "nan", None, "\\x1b", "[1]"]]


def test_tables_are_listed_found_and_described(tools: dict[str, Tool]) -> None:
    listed = answer(tools["list_tables"])["tables"]
    assert {row["table"] for row in listed} == set(load_catalog().public)
    found = {row["table"]: row["columns"] for row in answer(tools["list_tables"], search="EXPOSED")["tables"]}
    assert "exposed_communication_ns" in found["temporal_breakdown"] and "kernels" not in found
    described = answer(tools["describe_table"], table="kernels")
    names = [c["column"] for c in described["columns"]]
    assert names == [c.name for c in load_catalog().models["kernels"].columns]
    assert all(c["type"] and c["meaning"] for c in described["columns"])


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [
        ("query", {}, "query needs 'sql'"),
        ("query", {"sql": 1}, "sql is not of type string"),
        ("query", {"sql": "SELECT 1", "limit": 5}, "takes no 'limit'"),
        ("query", {"sql": "COPY kernels TO 'x.csv'"}, "COPY"),
        ("query", {"sql": "FROM read_text('/etc/passwd')"}, "read_text"),
        ("query", {"sql": "SELECT nope FROM kernels"}, "nope"),
        ("describe_table", {"table": "nope"}, "no table 'nope'"),
        ("ask_top_kernels", {"rank": "1"}, "rank is not of type integer"),
        ("ask_top_kernels", {"rank": True}, "rank is not of type integer"),
        ("ask_top_kernels", {"top": 0}, "at least 1 row"),
    ],
)
def test_what_cannot_be_answered_is_told(tools: dict[str, Tool], name: str, given: dict[str, Any], told: str) -> None:
    with pytest.raises(NotAnswered, match=told.replace("(", r"\(")):
        answer(tools[name], **given)


def test_what_a_table_lacks_is_a_caveat(tmp_path: Path) -> None:
    lake = hostile_lake(tmp_path, ranks=1)
    ingest([write_hostile(tmp_path / "more" / "rank7.json", 7)], lake, job="more")
    query = make_tools(Served(lake.root, LIMITS))["query"]
    ((caveat,), rows) = (answer(query, sql="SELECT count(*) FROM kernels")[name] for name in ("caveats", "rows"))
    assert rows == [[4]] and caveat.startswith("kernels is not computed, or of an older model, for 1 of 2 batches")
    assert answer(query, sql="SELECT count(*) FROM traces")["caveats"] == []


def test_a_stopped_query_is_not_answered(served: Served) -> None:
    found, stop = make_tools(served)["query"].start({"sql": "SELECT 1"})
    stop()
    with pytest.raises(QueryStopped):
        found()
