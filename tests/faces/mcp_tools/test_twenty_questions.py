"""Twenty questions, each with the conclusions that an agent has to draw and must not draw (twenty_questions.toml).

They are asked over the protocol, or directly of the tools if the extra mcp is not installed.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from pipelines.faces.capture_why import TABLES as CAPTURE_TABLES
from pipelines.faces.mcp_tools.tools import Served, make_tools
from pipelines.faces.untrusted_queries import QueryFailed
from pipelines.faces.why import TABLES
from pipelines.lake import Lake
from pipelines.lake.read.sandbox import Limits
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize.run_order import materialize_all
from tests.faces.mcp_tools.test_server import new_client

QUESTIONS: list[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("twenty_questions.toml").read_text())[
    "questions"
]
FILES = {question[key] for question in QUESTIONS for key in ("trace", "control", "test") if key in question}
JUDGED = {"question", "tool", "expected", "forbidden", "truth"}
"""Keys of a question that are not arguments of its tool."""
_MINUS = "\N{MINUS SIGN}"
POINTS = 5
"""Percent of a step by which a saving may differ from its second run."""


Ask = Callable[..., tuple[bool, str]]
"""Calls a tool by name, with its arguments. Returns whether the tool refuses, and its text."""


@contextmanager
def over_protocol(lake: Path) -> Iterator[Ask]:
    """Yield a function that asks through a client of a lake's server."""
    with (
        import_module("anyio.from_thread").start_blocking_portal() as portal,
        portal.wrap_async_context_manager(new_client(lake)) as client,
    ):

        def ask(tool: str, **arguments: Any) -> tuple[bool, str]:
            result = portal.call(client.call_tool, tool, arguments)
            return result.is_error, result.content[0].text

        yield ask


@contextmanager
def of_tools(lake: Path) -> Iterator[Ask]:
    """Yield a function that calls the tools of a lake directly, which needs no extra."""
    tools = make_tools(Served(lake, Limits()))

    def ask(tool: str, **arguments: Any) -> tuple[bool, str]:
        try:
            start, _ = tools[tool].start(**tools[tool].checked(arguments))
            return False, start()
        except QueryFailed as error:
            return True, f"error: {error} {error.hint}"

    yield ask


@pytest.fixture(scope="module")
def asked(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Ask, dict[str, str]]]:
    """Yield a function that asks about a lake with all files of the questions, and the id of each trace or capture."""
    lake, ids = Lake(tmp_path_factory.mktemp("questions") / "lake"), {}
    for name in sorted(FILES):
        path = shared / "traces" / name
        report = ingest(sorted(path.glob("*.json.gz")) if path.is_dir() else [path], lake, job=path.name)
        ids[name] = report.rows[0].trace_id or ""
    materialize_all(lake, [*TABLES, *CAPTURE_TABLES, "captures"])
    with (of_tools if find_spec("mcp") is None else over_protocol)(lake.root) as ask:
        _, captures = ask("sql", query="SELECT capture_id, job FROM captures")
        jobs = {job: capture for capture, job in json.loads(captures)["rows"]}
        yield ask, ids | {name: jobs[Path(name).name] for name in ids if (shared / "traces" / name).is_dir()}


def conclusion(tool: str, document: dict[str, Any]) -> str:
    """Return the part of an answer that a reader sees first."""
    match tool:
        case "why":
            return document["sentence"]
        case "fixes":
            return "; ".join(fix["change"] for fix in document["fixes"])
        case "compare":
            return document["verdict"].partition(":")[0]
        case "what_if":
            return f"{percent(tool, document):+.0f} %"
        case "sql":
            return json.dumps(document["rows"])
    raise ValueError(tool)


def percent(tool: str, document: dict[str, Any]) -> float:
    """Return the change of the window or the step that an answer states, in percent."""
    if tool == "what_if":
        return 100 * (document["after"]["length_us"] / document["before"]["length_us"] - 1)
    return float(re.findall(rf"([-+{_MINUS}][\d.]+) %", document["verdict"])[0].replace(_MINUS, "-"))


def test_there_are_twenty() -> None:
    assert len(QUESTIONS) == 20 and len({question["question"] for question in QUESTIONS}) == 20
    assert all(question.keys() & {"truth", "expected"} and question["forbidden"] for question in QUESTIONS)


@pytest.mark.slow
@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question["question"])
def test_a_question(question: dict[str, Any], asked: tuple[Ask, dict[str, str]], shared: Path) -> None:
    ask, id_of = asked
    tool = question["tool"]
    arguments = {key: id_of.get(value, value) for key, value in question.items() if key not in JUDGED}
    is_refused, text = ask(tool, **arguments)
    document = {} if is_refused else json.loads(text)
    concluded = text if is_refused else conclusion(tool, document)
    for pattern in question.get("expected", ()):
        assert re.search(pattern, concluded), concluded
    for pattern in question["forbidden"]:
        assert not re.search(pattern, concluded), concluded
    if "truth" in question:
        measured = json.loads((shared / "traces" / "h100_pairs" / "truth.json").read_text())["programs"][
            question["truth"]
        ]
        true = 100 * (measured["B"]["traced_step_s"] / measured["A"]["traced_step_s"] - 1)
        assert percent(tool, document) == pytest.approx(true, abs=POINTS)
