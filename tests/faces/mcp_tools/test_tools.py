"""The MCP tools without the protocol: their arguments and their answers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipelines.base.errors import TracelakeError
from pipelines.base.foreign_text import visible
from pipelines.faces.cells import Rows
from pipelines.faces.mcp_tools.tools import Served, Tool, make_tools
from pipelines.faces.untrusted_queries import LakeQuery, QueryFailed
from pipelines.lake.read.sandbox import Limits, QueryStopped
from pipelines.models.catalog import load_catalog
from pipelines.models.questions import load_questions
from pipelines.readers.ingest import ingest
from tests.effort import SEED
from tests.faces.serve.world import HOSTILE, hostile_lake, write_hostile

LIMITS = Limits(30, 0, "500MB", "1GB")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Served:
    return Served(hostile_lake(tmp_path_factory.mktemp("tools")).root, LIMITS, rows=3)


@pytest.fixture(scope="module")
def tools(served: Served) -> dict[str, Tool]:
    return make_tools(served)


def answer(tool: Tool, **arguments: Any) -> Any:
    compute, _ = tool.start(**tool.checked(arguments))
    return json.loads(compute())


def test_every_question_is_listed_and_found_with_what_it_takes_and_its_reading(tools: dict[str, Tool]) -> None:
    listed = answer(tools["list_questions"])["questions"]
    questions = load_questions().values()
    assert listed == [
        {"topic": question.topic, "name": question.name, "question": question.question} for question in questions
    ]
    for question, row in zip(questions, listed, strict=True):
        rows = answer(tools["list_questions"], search=question.question)["questions"]
        assert {**row, "limits": question.limits, "how_to_read": question.reading} in rows
        assert {*question.limits, "name", "top"} <= tools["ask"].parameters.keys()


def test_questions_are_found_by_their_words(tools: dict[str, Tool]) -> None:
    def matching(search: str) -> list[str]:
        return [row["name"] for row in answer(tools["list_questions"], search=search)["questions"]]

    # Words of its name, of its question, and of users' searches match, in any case and order.
    assert {"why", "gaps", "launch-delays"} <= set(matching("BOUND launch"))
    assert matching("idle frobnicate") == matching("idle") and {"gaps", "gpu-idle"} < set(matching("idle"))
    assert matching("roofline") == [
        n for n, question in load_questions().items() if "roofline" in f"{question.question}{question.reading}"
    ]
    assert matching(" ") == list(load_questions())


@pytest.mark.slow  # tests/faces/questions asks all of them
@pytest.mark.parametrize("name", [*load_questions()][SEED % 4 :: 4])
def test_every_question_has_an_answer_with_its_reading(tools: dict[str, Tool], name: str) -> None:
    question = load_questions()[name]
    reply = answer(tools["ask"], name=name)
    assert reply["how_to_read"] == question.reading and reply["columns"] and len(reply["rows"]) <= 3
    for limit in ("job", "capture", "trace", "rank"):
        part = {"name": name, limit: 7 if limit == "rank" else "no such"}
        if limit in question.limits:
            assert answer(tools["ask"], **part)["columns"] == reply["columns"]
        else:
            with pytest.raises(QueryFailed, match=f"{name} cannot be limited by {limit}: (only by|not at all)"):
                answer(tools["ask"], **part)


def test_questions_are_asked_of_a_part_and_say_if_there_is_more(served: Served, tools: dict[str, Tool]) -> None:
    ask = tools["ask"]
    reply = answer(ask, name="top-kernels", job="<b>train</b>", top=1)
    assert reply["rows"][0][1] == visible(HOSTILE) and reply["truncated"] is False
    assert answer(ask, name="top-kernels", job="other")["rows"] == []
    first, both = (answer(ask, name="gpu-idle", top=n) for n in (1, 2))  # one row per rank
    assert first["rows"] == both["rows"][:1] and first["truncated"] == "the first row; there are more"
    assert len(both["rows"]) == 2 and both["truncated"] is False
    assert first["how_to_read"] == load_questions()["gpu-idle"].reading
    assert answer(make_tools(replace(served, rows=1))["ask"], name="gpu-idle", top=5) == first
    assert answer(ask, name="gpu-idle", rank=1)["rows"] == both["rows"][1:]


def test_rows_beyond_the_limit_are_announced(tools: dict[str, Tool]) -> None:
    exactly, more = (answer(tools["sql"], query=f"SELECT range AS i FROM range({n})") for n in (3, 4))
    assert exactly["rows"] == more["rows"] == [[0], [1], [2]] and more["columns"] == ["i BIGINT"]
    assert (exactly["truncated"], more["truncated"]) == (False, "the first 3 rows; there are more")


def test_integers_stay_exact_and_names_stay_data(tools: dict[str, Tool]) -> None:
    reply = answer(tools["sql"], query="SELECT 9007199254740993, 'nan'::DOUBLE, NULL, chr(27), [1]")
    assert reply["rows"] == [[9007199254740993, "nan", None, "\\x1b", "[1]"]]


def test_tables_are_listed_found_and_described(tools: dict[str, Tool]) -> None:
    listed = answer(tools["tables"])["tables"]
    assert {row["table"] for row in listed} == set(load_catalog().public)
    columns_by_table = {row["table"]: row["columns"] for row in answer(tools["tables"], search="EXPOSED")["tables"]}
    assert "exposed_communication_ns" in columns_by_table["temporal_breakdown"] and "kernels" not in columns_by_table
    columns = answer(tools["tables"], table="temporal_breakdown", search="EXPOSED")["columns"]
    assert [c["column"] for c in columns] == columns_by_table["temporal_breakdown"]
    described = answer(tools["tables"], table="kernels")
    names = [c["column"] for c in described["columns"]]
    assert names == [c.name for c in load_catalog().models["kernels"].columns]
    assert all(c["type"] and c["meaning"] for c in described["columns"])


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("sql", {}, "sql needs 'query'"),
        ("sql", {"query": 1}, "query is not of type string"),
        ("sql", {"query": "SELECT 1", "limit": 5}, "takes no 'limit': it takes query"),
        ("sql", {"query": "COPY kernels TO 'x.csv'"}, "COPY"),
        ("sql", {"query": "FROM read_text('/etc/passwd')"}, "read_text"),
        ("sql", {"query": "SELECT nope FROM kernels"}, "nope"),
        ("tables", {"table": "kernel"}, "no table 'kernel': did you mean kernels"),
        ("tables", {"table": "???"}, "no table '???': there are: "),
        ("list_questions", {"search": "frobnicate"}, "no question has a word of 'frobnicate'"),
        ("ask", {}, "ask needs 'name'"),
        ("ask", {"name": "top_kernel"}, "no question 'top_kernel': did you mean top-kernels"),
        ("ask", {"name": "???"}, f"no question '???': there are: {', '.join(load_questions())}"),
        ("ask", {"name": "clocks", "rank": 1}, "clocks cannot be limited by rank: only by job, capture"),
        ("ask", {"name": "top-kernels", "ranks": 1}, "takes no 'ranks': it takes name, job, capture, trace, rank, top"),
        ("ask", {"name": "top-kernels", "rank": "1"}, "rank is not of type integer"),
        ("ask", {"name": "top-kernels", "rank": True}, "rank is not of type integer"),
        ("ask", {"name": "top-kernels", "top": 0}, "at least 1 row"),
    ],
)
def test_what_cannot_be_answered_is_told(
    tools: dict[str, Tool], name: str, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(TracelakeError, match=re.escape(message)):
        answer(tools[name], **arguments)


# tests/runs/test_digest.py tests a digest.
def test_why_says_what_limits_the_trace_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """`why` lists each limiting finding once.

    Findings of severity info are not among the path's caveats, but the others are.
    """
    rows = {
        "path": [{"trace_id": "ab", "path": "/x/a.json"}],
        "findings": [
            {"trace_id": "ab", "file": "a.json", "check_name": check, "severity": "info", "detail": check}
            for check in ("reduced_to_digest", "lost_kernels")
        ],
    }

    class Fake(LakeQuery):
        @contextmanager
        def answer(self) -> Iterator[Any]:
            kind = "findings" if "JOIN findings" in self.query else "path" if "starts_with" in self.query else "no"
            yield rows.get(kind, []), []

    def first(result: list[dict[str, Any]], *_: int) -> Rows:
        return Rows([*result[0]] if result else [], [], [tuple(row.values()) for row in result], "")

    class Explanation:
        def as_json(self, *_: object) -> dict[str, Any]:
            return {"caveats": [{"caveat": "lost_kernels", "severity": "warning", "detail": "lost_kernels"}]}

    for name, value in (("LakeQuery", Fake), ("first_rows", first), ("of_rows", lambda *_: Explanation())):
        monkeypatch.setattr(f"pipelines.faces.mcp_tools.tools.{name}", value)
    reply = answer(make_tools(Served(Path("lake"), LIMITS))["why"], trace="ab")
    assert [caveat["detail"] for caveat in reply["caveats"]] == ["lost_kernels", "a.json: reduced_to_digest"]


@pytest.mark.slow  # 4 s
def test_what_a_table_lacks_is_a_caveat(tmp_path: Path) -> None:
    lake = hostile_lake(tmp_path, ranks=1)
    ingest([write_hostile(tmp_path / "more" / "rank7.json", 7)], lake, job="more")
    sql = make_tools(Served(lake.root, LIMITS))["sql"]
    ((caveat,), rows) = (answer(sql, query="SELECT count(*) FROM kernels")[name] for name in ("caveats", "rows"))
    assert rows == [[4]] and caveat.startswith("kernels is not computed, or of an older model, for 1 of 2 batches")
    assert answer(sql, query="SELECT count(*) FROM traces")["caveats"] == []


def test_a_stopped_query_is_not_answered(served: Served) -> None:
    compute, stop = make_tools(served)["sql"].start(query="SELECT 1")
    stop()
    with pytest.raises(QueryStopped):
        compute()
