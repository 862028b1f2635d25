"""Truncated files.

Every interface prints the caveat that its numbers cover only a part, and `ingest` gives it as the reason for partial.
"""

from __future__ import annotations

import gzip
import html
import json
import warnings
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from pipelines.faces.cli.app import COMMANDS, app
from pipelines.faces.mcp_tools import tools as mcp_tools
from pipelines.faces.mcp_tools.tools import Served, make_tools
from pipelines.faces.notebook import TraceAnalysis, restore_cpgraph
from pipelines.lake.read.sandbox import Limits
from pipelines.synthetic import CaptureSpec, write_capture
from tests.effort import first_of
from tests.faces.mcp_tools.test_tools import answer

SAID = "caveat: cut.json is truncated: all numbers cover only the part that was read, not the whole run"
OF_A_TRACE = {
    "why": [],
    "breakdown": [],
    "graphs": [],
    "critical-path": [],
    "what-if": ["--scale", "*=0.5"],
    "overlay": ["--out", "OUT"],
    "stragglers": [],
    "capture-path": [],
    "timeline": ["--out", "OUT/timeline.json"],
    "slice": ["--sql", "SELECT trace_id, event_id FROM kernels", "--out", "OUT/slice.json"],
    "report": ["--out", "OUT/report.html"],
    "compare": ["WHOLE", "--out", "OUT/compared.html"],
}
"""The commands that accept a trace's file, with their other arguments. Each prints JSON, too."""
OTHERS = {
    *("ingest", "sql", "ask", "tables", "materialize", "fleet", "metrics", "regressions", "compact", "retention"),
    *(
        "status",
        "check",
        "forget",
        "demo",
        "serve",
        "mcp",
        "ui",
        "op-job",
        "gantt",
        "flight-recorder",
        "memory",
        "flame",
        "baseline",
        "skill",
    ),
}
"""The commands that accept a lake or other files."""


def run(*words: object, code: int = 0) -> Result:
    done = CliRunner().invoke(app, [*map(str, words)])
    assert done.exit_code == code, (words, done.output)
    return done


def cut(data: bytes, to: Path) -> Path:
    """Write the first 95 % of a trace to `to`."""
    to.write_bytes(data[: len(data) * 95 // 100])
    return to


@pytest.fixture(scope="module")
def files(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a trace, and its first 95 %."""
    folder = tmp_path_factory.mktemp("early")
    data = (shared / "traces" / "critical_path" / "simple_add.json.gz").read_bytes()
    (folder / "whole.json.gz").write_bytes(data)
    return folder / "whole.json.gz", cut(gzip.decompress(data), folder / "cut.json")


def test_every_command_is_known_here() -> None:
    assert {*OF_A_TRACE, *OTHERS} == {*COMMANDS}


@pytest.mark.parametrize("command", first_of(["breakdown", "why", "graphs", "capture-path", "compare"], 1))
def test_each_command_says_so_beside_its_numbers(files: tuple[Path, Path], tmp_path: Path, command: str) -> None:
    """Each command prints the caveat about a truncated file once with its numbers.

    test_limiting_findings.py tests other commands, and asks `why`, `breakdown` and `graphs` by id.
    """
    whole, part = files
    more = [word.replace("OUT", str(tmp_path)).replace("WHOLE", str(whole)) for word in OF_A_TRACE[command]]
    if command == "capture-path":  # one rank has no path through its ranks, so there is no number
        assert SAID in run(command, part, code=1).stderr
        return
    # drawing is expensive, so commands that draw only run once, below
    n_files = 2 if command == "breakdown" else "--out" not in more
    for file, n in ((part, 1), (whole, 0))[:n_files]:
        done = run(command, file, *more)
        assert (done.stdout.count(SAID), done.stderr.count("is truncated")) == (n, 0), done.output
    answers = json.loads(run(command, part, *more, "--json").stdout)
    (answer,) = [answers] if isinstance(answers, dict) else answers
    caveats = [caveat for caveat in answer["caveats"] if "is truncated" in caveat["detail"]]
    assert [caveat["severity"] for caveat in caveats] == ["error"], answer["caveats"]
    assert caveats[0]["detail"].startswith(SAID.removeprefix("caveat: "))
    pages = [page.read_text() for page in tmp_path.glob("*.html")]
    assert all("cut.json is truncated: all numbers cover only the part" in page for page in pages)
    assert len(pages) == (command == "compare")


@pytest.mark.slow
def test_answers_about_a_trace_of_a_lake_say_so_and_print_commands_for_it(
    files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers of `ask`, the tools for agents, and a page have the caveat and commands for the trace in the lake.

    The trace's file may no longer exist, and the lake's path has a blank.
    """
    monkeypatch.chdir(tmp_path)
    (row,) = json.loads(run("ingest", files[1], "--lake", "my lake", "--json").stdout)
    asked = run("ask", "top-kernels", "--trace", row["trace_id"], "--lake", "my lake", "--format", "json")
    assert SAID in asked.stderr and json.loads(asked.stdout)
    tools = make_tools(Served("my lake", Limits(30, 0, "500MB", "1GB")))
    said = SAID.removeprefix("caveat: ")
    assert said in answer(tools["ask"], name="top-kernels", trace=row["trace_id"])["caveats"]
    with monkeypatch.context() as patch:
        patch.setattr(mcp_tools, "_MOST_FINDINGS", 0)
        caveats = answer(tools["ask"], name="top-kernels", trace=row["trace_id"])["caveats"]
    (caveat,) = (caveat for caveat in caveats if caveat.startswith("of what limits this answer: "))
    assert "there are more" in caveat
    nothing = answer(tools["ask"], name="top-kernels", job="nightly")
    assert nothing["rows"] == [] and nothing["caveats"][-1].startswith("no rows for job 'nightly'; ")
    page = json.loads(run("report", row["trace_id"], "--lake", "my lake", "--out", "page.html", "--json").stdout)
    why = answer(tools["why"], trace=row["trace_id"])
    of_lake = f"--lake '{tmp_path / 'my lake'}'"
    for document in (page, why):
        assert any(caveat["detail"].startswith(said) for caveat in document["caveats"])
        commands = [cause["command"] for cause in document["causes"]]
        assert commands and all(row["trace_id"] in command and command.endswith(of_lake) for command in commands)
    assert html.escape(f"{row['trace_id']} --remove cause:") in Path("page.html").read_text()
    (of_file,) = {
        cause["command"].split()[2] for cause in json.loads(run("report", files[1], "--json").stdout)["causes"]
    }
    assert of_file == str(files[1])


@pytest.mark.slow  # 2 s; commands print it, see above
def test_a_saved_path_says_it_without_its_trace(files: tuple[Path, Path], tmp_path: Path) -> None:
    saved = tmp_path / "path.zip"
    for file, n in zip(files, (0, 1), strict=True):
        run("critical-path", file, "--save", saved)
        for words in (("critical-path", saved), ("what-if", saved, "--scale", "*=0.5")):
            assert run(*words).stdout.count(SAID) == n
            caveats = json.loads(run(*words, "--json").stdout)["caveats"]
            assert sum("is truncated" in caveat["detail"] for caveat in caveats) == n
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            path = restore_cpgraph(saved)
        assert sum("is truncated" in str(warning.message) for warning in warned) == n
        assert [caveat["severity"] for caveat in path.caveats if "is truncated" in caveat["detail"]] == ["error"] * n


@pytest.mark.slow  # ingestion of four ranks; a file's caveats are tested above
def test_a_capture_of_a_lake_says_it_of_its_own_ranks_only(tmp_path: Path) -> None:
    capture = write_capture(CaptureSpec(ranks=2, steps=2, gz=False), tmp_path / "job")
    cut(capture.paths[1].read_bytes(), tmp_path / "job" / "rank1.json")
    write_capture(CaptureSpec(ranks=2, steps=2, seed=5), tmp_path / "other")
    lake = tmp_path / "lake"
    rows = json.loads(run("ingest", tmp_path / "job", tmp_path / "other", "--lake", lake, "--json").stdout)
    (reason,) = [row["reason"] for row in rows if row["status"] == "partial"]
    assert reason.startswith("the file is truncated; everything readable before that is kept")
    done = run("sql", "FROM capture_ranks SELECT capture_id, trace_id, rank", "--lake", lake, "--format", "json")
    ranks = json.loads(done.stdout)
    cuts = {row["trace_id"] for row in rows if row["status"] == "partial"}
    of_cut = {row["capture_id"] for row in ranks if row["trace_id"] in cuts}
    for capture_id in {row["capture_id"] for row in ranks}:
        said = run("stragglers", capture_id, "--lake", lake).stdout
        assert said.count("caveat: rank1.json is truncated") == (capture_id in of_cut)
    shown = json.loads(run("breakdown", "--lake", lake, "--json").stdout)
    assert {row["trace_id"] for row in shown if row["caveats"]} == cuts and len(shown) == 4


@pytest.mark.slow  # 2 s; commands print it, see above
def test_a_notebook_says_so_as_it_reads_and_beside_its_answers(files: tuple[Path, Path]) -> None:
    with pytest.warns(UserWarning, match=r"cut\.json is truncated"), TraceAnalysis(str(files[1])) as analysis:
        answer = analysis.sql("SELECT count(*) AS n FROM traces")
        assert repr(answer).startswith(SAID) and "<b>caveat:</b> cut.json is truncated" in answer._repr_html_()
        assert str(analysis.why()).startswith("error: the file is truncated")
