"""Twenty questions through the tools, with what an agent has to conclude and what it must not (twenty_questions.toml)."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from pipelines.faces.capture_why import TABLES as CAPTURE_TABLES
from pipelines.faces.mcp_tools.tools import Served, Tool, make_tools
from pipelines.faces.untrusted_queries import QueryFailed
from pipelines.faces.why import TABLES
from pipelines.lake import Lake
from pipelines.lake.read.sandbox import Limits
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize.run_order import materialize_all

QUESTIONS: list[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("twenty_questions.toml").read_text())[
    "questions"
]
FILES = {question[key] for question in QUESTIONS for key in ("trace", "control", "test") if key in question}
_MINUS = "\N{MINUS SIGN}"
POINTS = 5
"""Percent of a step that a savings may be off its second run."""


@pytest.fixture(scope="module")
def ids(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Tool], dict[str, str]]:
    """The tools of a lake with all files of the questions, and the id of each trace or capture."""
    lake, ids = Lake(tmp_path_factory.mktemp("questions") / "lake"), {}
    for name in sorted(FILES):
        path = shared / "traces" / name
        report = ingest(sorted(path.glob("*.json.gz")) if path.is_dir() else [path], lake, job=path.name)
        ids[name] = report.rows[0].trace_id or ""
    materialize_all(lake, [*TABLES, *CAPTURE_TABLES, "captures"])
    tools = make_tools(Served(lake.root, Limits()))
    captures = answer(tools["sql"], query="SELECT capture_id, job FROM captures")["rows"]
    return tools, ids | {
        name: capture
        for name in ids
        for capture, job in captures
        if job == Path(name).name and (shared / "traces" / name).is_dir()
    }


def answer(tool: Tool, **arguments: Any) -> dict[str, Any]:
    start, _ = tool.start(**tool.checked(arguments))
    return json.loads(start())


def conclusion(tool: str, document: dict[str, Any]) -> str:
    """What a reader takes from an answer at once."""
    match tool:
        case "why":
            return document["sentence"]
        case "fixes":
            return "; ".join(fix["change"] for fix in document["fixes"])
        case "compare":
            return document["verdict"].partition(":")[0]
        case "sql":
            return json.dumps(document["rows"])
    return ""


def percent(tool: str, document: dict[str, Any]) -> float:
    """The change of the window or the step that an answer states."""
    if tool == "what_if":
        return 100 * (document["after"]["length_us"] / document["before"]["length_us"] - 1)
    return float(re.findall(rf"([-+{_MINUS}][\d.]+) %", document["verdict"])[0].replace(_MINUS, "-"))


def test_there_are_twenty() -> None:
    assert len(QUESTIONS) == 20 and len({question["question"] for question in QUESTIONS}) == 20
    assert all(question.keys() & {"truth", "expected"} for question in QUESTIONS)


@pytest.mark.slow
@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question["question"])
def test_a_question(question: dict[str, Any], ids: tuple[dict[str, Tool], dict[str, str]], shared: Path) -> None:
    tools, id_of = ids
    tool = question["tool"]
    arguments = {key: id_of.get(value, value) for key, value in question.items() if key in tools[tool].parameters}
    try:
        document = answer(tools[tool], **arguments)
        concluded = conclusion(tool, document)
    except QueryFailed as refused:
        document, concluded = {}, str(refused)
    for pattern in question.get("expected", ()):
        assert re.search(pattern, concluded), concluded
    for pattern in question.get("forbidden", ()):
        assert not re.search(pattern, concluded), concluded
    if "truth" in question:
        measured = json.loads((shared / "traces" / "h100_pairs" / "truth.json").read_text())["programs"][
            question["truth"]
        ]
        true = 100 * (measured["B"]["traced_step_s"] / measured["A"]["traced_step_s"] - 1)
        assert percent(tool, document) == pytest.approx(true, abs=POINTS)
