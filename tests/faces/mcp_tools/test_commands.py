"""MCP tools that run commands (fixes, what-if, compare), and the skill that explains them to a model."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pipelines.faces.cli.app import COMMANDS, app
from pipelines.faces.mcp_tools import commands
from pipelines.faces.mcp_tools.commands import bounded, identifier
from pipelines.faces.mcp_tools.tools import Served, Tool, make_tools
from pipelines.faces.untrusted_queries import QueryFailed
from pipelines.faces.why import TABLES
from pipelines.lake import Lake
from pipelines.lake.read.sandbox import Limits, QueryStopped
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize.run_order import materialize_all
from pipelines.runs.store.folder import FolderStore
from tests.critical_path.causes.fix_traces import FLOAT32, H100, annotation, loading
from tests.faces.cli.test_pull_requests import trace
from tests.harness import call, launched, op

SKILL = Path(commands.__file__).with_name("skill.md").read_text()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Tool], list[str]]:
    """Return the tools of a lake with two traces, and the traces' ids."""
    folder = tmp_path_factory.mktemp("commands")
    files = [trace(folder, "a.json", 100), trace(folder, "b.json", 200)]
    report = ingest(files, Lake(folder / "lake"))
    ids = {Path(row.path).name: row.trace_id or "" for row in report.rows}
    return make_tools(Served(folder / "lake", Limits(), rows=3)), [ids["a.json"], ids["b.json"]]


def answer(tool: Tool, **arguments: Any) -> Any:
    start, _ = tool.start(**tool.checked(arguments))
    return json.loads(start())


@pytest.mark.slow  # 8 s
def test_what_helps_and_its_proof_agree(served: tuple[dict[str, Tool], list[str]]) -> None:
    tools, (_, slow) = served
    helps = answer(tools["fixes"], trace=slow[:8])
    assert helps.keys() == {"sentence", "window", "fixes", "caveats", "truncated"} and helps["fixes"]
    proof = answer(tools["what_if"], trace=slow, scale="kernel:gemm=0.5")
    saved = answer(tools["what_if"], trace=slow, remove="kernel:gemm")
    assert proof != saved
    with pytest.raises(QueryFailed, match="needs a change"):
        answer(tools["what_if"], trace=slow)


@pytest.mark.slow  # 20 s
def test_the_options_of_each_fix_give_what_it_saves(tmp_path: Path) -> None:
    """`what_if` with the options of a fix gains what the fix saves.

    The window has an unpinned loader, float32 kernels, an avoidable wait, and a garbage collection.
    """
    events = [*loading("enumerate(DataLoader)#_SingleProcess"), call("cudaDeviceSynchronize", 412, 830, 8)]
    events += [annotation("gc.collect", 1250, 300), op("aten::mm", 1550, 10), *launched(1552, (1570, 300), 2, FLOAT32)]
    file = tmp_path / "a.json"
    file.write_text(json.dumps({"traceEvents": events, "deviceProperties": [H100]}))
    (row,) = ingest([file], Lake(tmp_path / "lake")).rows
    tools = make_tools(Served(tmp_path / "lake", Limits()))
    fixes = answer(tools["fixes"], trace=row.trace_id)["fixes"]
    assert {"load_ahead", "lower_precision", "no_gc"} <= {fix["fix"] for fix in fixes}
    for fix in fixes:
        proof = answer(tools["what_if"], trace=row.trace_id, options=fix["command"].partition(row.trace_id)[2])
        assert proof["before"]["length_us"] - proof["after"]["length_us"] == pytest.approx(fix["saves_us"], abs=0.0011)


# Prints the words after `-m tracelake` as JSON. A shell starts sooner than Python.
_ECHO = r"""#!/bin/sh
shift 2
printf '{"words": ["%s"' "$1"
shift
printf ', "%s"' "$@"
printf ']}'
"""


@pytest.fixture
def words_of_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Tool]:
    """Return the tools of a lake in /data, whose commands answer with their own words."""
    program = tmp_path / "python"
    program.write_text(_ECHO)
    program.chmod(0o755)
    monkeypatch.setattr(commands.sys, "executable", str(program))
    return make_tools(Served("/data/lake", Limits()))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--ahead 'kernel:Memcpy HtoD*'", ["--ahead=kernel:Memcpy HtoD*"]),
        ("--scale 'kernel:a b=0.5' --scale=kernel:c=0.25", ["--scale=kernel:a b=0.5", "--scale=kernel:c=0.25"]),
        ("--remove --help --without-profiler", ["--remove=--help", "--without-profiler"]),
        ("--perfect-overlap --annotation 'a step' --instance 0:2 --untraced 9ms --lake /data/lake",
         ["--perfect-overlap", "--annotation=a step", "--instance=0:2", "--untraced=9ms"]),
    ],
)  # fmt: skip
def test_printed_options_reach_what_if(options: str, words: list[str], words_of_command: dict[str, Tool]) -> None:
    asked = answer(words_of_command["what_if"], trace="abcd", window="s", options=options)["words"]
    assert asked == ["what-if", "abcd", *words, "--annotation=s", "--json", "--lake", "/data/lake"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--redraw=/etc", "cannot have '--redraw'"),
        ("--scenario /etc/passwd", "cannot have '--scenario'"),
        ("tracelake what-if abcd --remove x", "cannot have 'tracelake'"),
        ("--remove x --lake /other", "'/other' is another lake"),
        ("--remove x --lake /data", "'/data' is another lake"),
        ("--scale", "--scale has no value"),
        ("--remove 'x", "No closing quotation"),
        ("--lake /data/lake", "needs a change"),
        ("", "needs a change"),
    ],
)
def test_other_options_are_refused(options: str, message: str, words_of_command: dict[str, Tool]) -> None:
    with pytest.raises(QueryFailed, match=re.escape(message)):
        answer(words_of_command["what_if"], trace="abcd", options=options)


@pytest.mark.slow  # 9 s
def test_two_traces_are_compared(served: tuple[dict[str, Tool], list[str]]) -> None:
    tools, (fast, slow) = served
    compared = answer(tools["compare"], control=fast, test=slow, by="cause")
    assert compared["verdict"].startswith("The step takes") and compared["by"] == "cause"
    assert len(compared["rows"]) <= 3 and all(len(value) <= 3 for value in compared.values() if isinstance(value, list))


def test_errors_are_the_commands_own(served: tuple[dict[str, Tool], list[str]]) -> None:
    tools, (fast, _) = served
    with pytest.raises(QueryFailed, match=r"unknown --by 'colour'; choose one of"):
        answer(tools["compare"], control=fast, test=fast, by="colour")


@pytest.mark.parametrize("text", ["--help", "a b c d", "/etc/passwd", "ABCDEF", "abc", ""])
def test_only_ids_reach_a_command(text: str) -> None:
    with pytest.raises(QueryFailed, match="is not the id"):
        identifier(text)


def test_lists_are_cut_and_said() -> None:
    document = {"rows": [{"names": list(range(9))}] * 5, "few": [1]}
    assert json.loads(bounded(document, 3)) == {
        "rows": [{"names": [0, 1, 2]}] * 3,
        "few": [1],
        "truncated": {"rows": 5, "rows[].names": 9},
    }
    assert json.loads(bounded([1, 2], 3)) == {"answers": [1, 2], "truncated": False}


def test_an_answer_of_many_nested_lists_is_cut_further() -> None:
    document = {"rows": [{"names": ["x" * 50] * 100}] * 100}
    text = bounded(document, 100)
    assert len(text) <= commands.MOST_CHARACTERS and len(json.loads(text)["rows"]) == 50
    assert json.loads(text)["truncated"] == {"rows": 100, "rows[].names": 100}


@pytest.mark.slow  # 8 s
def test_a_folder_with_the_name_of_an_id_is_not_read(
    served: tuple[dict[str, Tool], list[str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A folder whose name is that of an id is not read. Days of captures have such names, for example 20250131."""
    (tmp_path / "20250131").mkdir()
    trace(tmp_path / "20250131", "rank0.json", 100)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(QueryFailed, match=r"no trace|nothing|20250131"):
        answer(served[0]["fixes"], trace="20250131")


def test_commands_run_in_an_empty_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Commands run in an empty folder. Otherwise a command could read a file or folder whose name is the id."""
    program = tmp_path / "python"
    program.write_text('#!/bin/sh\nprintf \'{"beside": "%s"}\' "$(ls -A)"\n')
    program.chmod(0o755)
    monkeypatch.setattr(commands.sys, "executable", str(program))
    monkeypatch.chdir(tmp_path)
    tools = make_tools(Served("lake", Limits()))
    assert answer(tools["what_if"], trace="20250131", remove="x")["beside"] == ""


@pytest.mark.parametrize("after_s", [0.0, 0.5], ids=["before it starts", "while it runs"])
def test_a_stopped_request_ends_its_process(after_s: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setattr(commands.sys, "executable", str(program))
    start, stop = commands.command("lake", ["why", "abcd"], 3, Limits())
    if after_s:
        threading.Timer(after_s, stop).start()
    else:
        stop()
    with pytest.raises(QueryFailed, match="why ended with -15"):
        start()


@pytest.mark.parametrize("without_broken", [False, True])
def test_commands_leave_out_broken_files_if_the_server_does(
    without_broken: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "python"
    program.write_text('#!/bin/sh\nprintf \'{"env": "%s"}\' "$TRACELAKE_WITHOUT_BROKEN"\n')
    program.chmod(0o755)
    monkeypatch.setattr(commands.sys, "executable", str(program))
    tools = make_tools(Served("lake", Limits(), without_broken=without_broken))
    for name, arguments in (
        ("what_if", {"trace": "abcd", "remove": "x"}),
        ("compare", {"control": "abcd", "test": "abce"}),
    ):
        assert answer(tools[name], **arguments)["env"] == ("1" if without_broken else ""), name


@pytest.mark.parametrize(("memory", "mebibytes"), [("", ""), ("1GiB", "1024"), ("64MiB", "64")])
def test_commands_have_the_memory_of_a_query(
    memory: str, mebibytes: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("TRACELAKE_MEMORY", raising=False)
    program = tmp_path / "python"
    program.write_text('#!/bin/sh\nprintf \'{"env": "%s"}\' "$TRACELAKE_MEMORY"\n')
    program.chmod(0o755)
    monkeypatch.setattr(commands.sys, "executable", str(program))
    tools = make_tools(Served("lake", Limits(memory=memory)))
    assert answer(tools["what_if"], trace="abcd", remove="x")["env"] == mebibytes


@pytest.mark.parametrize("seconds", [0.2, 60.0, 0.0])
def test_commands_have_the_time_of_a_query(seconds: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{'exec sleep 60' if seconds == 0.2 else 'sleep 0.3'}\necho '{{}}'\n")
    program.chmod(0o755)
    monkeypatch.setattr(commands.sys, "executable", str(program))
    start, _ = make_tools(Served("lake", Limits(seconds)))["compare"].start(control="abcd", test="abce")
    if seconds == 0.2:
        with pytest.raises(QueryFailed, match=r"compare was stopped after 0\.2 s: raise --timeout"):
            start()
    else:
        assert json.loads(start()) == {"truncated": False}


def test_the_skill_is_printed_and_names_only_commands_that_are_there() -> None:
    assert CliRunner().invoke(app, ["skill"]).stdout == SKILL
    named = set(re.findall(r"tracelake ([a-z][a-z-]+)", SKILL))
    assert named and named <= COMMANDS.keys()
    assert SKILL.startswith("---\nname: tracelake\ndescription: ")


@pytest.mark.slow  # 3 s
def test_what_is_not_computed_is_not_said_to_be_missing(served: tuple[dict[str, Tool], list[str]]) -> None:
    """`why` does not report an uncomputed path as missing.

    `why` reads tables. If these are not computed, the trace may still have a path.
    """
    tools, (fast, _) = served
    with pytest.raises(QueryFailed, match=r"is unknown: .*not computed.*tracelake materialize") as refused:
        answer(tools["why"], trace=fast)
    assert "no critical path" not in str(refused.value)


def test_why_is_stopped_before_its_first_query(served: tuple[dict[str, Tool], list[str]]) -> None:
    tools, (fast, _) = served
    start, stop = tools["why"].start(trace=fast)
    stop()
    with pytest.raises(QueryStopped):
        start()


@pytest.mark.slow  # 4 s
def test_an_answer_to_why_says_what_is_out_of_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake(tmp_path / "lake")
    (row,) = ingest([trace(tmp_path, "a.json", 100)], lake).rows
    materialize_all(lake, TABLES)
    tool = make_tools(Served(lake.root, Limits()))["why"]
    before = answer(tool, trace=row.trace_id)["caveats"]
    monkeypatch.setattr(FolderStore, "outdated", lambda *_: ["causes are of an earlier version"])
    said = [caveat for caveat in answer(tool, trace=row.trace_id)["caveats"] if caveat not in before]
    assert said == [{"severity": "warning", "detail": "causes are of an earlier version"}]
