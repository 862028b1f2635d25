"""Hints for a wrong name or a misplaced option: the message gives the right name, or the right position."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipelines.faces.cli.app import app
from pipelines.lake import Lake
from pipelines.readers.ingest import ingest
from tests.harness import call, kernel, x


def output_of(*words: object, code: int) -> str:
    done = CliRunner().invoke(app, [*map(str, words)], env={"COLUMNS": "200", "TERM": "dumb"})
    assert done.exit_code == code, done.output
    return re.sub(r"[\s│╭╮╰╯─]+", " ", done.output)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["tables", "kernel"], 1, "no table 'kernel' did you mean kernels or"),
        (["--lake", "x", "sql", "FROM kernels"], 2, "put options after the command: tracelake sql --lake …"),
        (["--json", "breakdown"], 2, "put options after the command: tracelake breakdown --json …"),
        (["--nonsense"], 2, "No such option: --nonsense"),
        (["serving-steps"], 2, "'serving-steps' is a saved question: tracelake ask serving-steps"),
        (["materialise"], 2, "no command 'materialise': did you mean materialize"),
    ],
)
def test_a_name_that_is_nearly_one_gets_a_hint(words: list[str], code: int, said: str) -> None:
    assert said in output_of(*words, code=code)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a lake with a trace of steps 5, 6 and 7, each with its own kernel."""
    events = []
    for step in (5, 6, 7):
        at = 1000 * step
        events += [x("user_annotation", f"ProfilerStep#{step}", at, 500), call("cudaLaunchKernel", at + 10, 5, step)]
        events.append(kernel(f"gemm_{step}", at + 20, 30, step))
    path = tmp_path_factory.mktemp("steps") / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    ingest([path], Lake(path.parent / "lake"))
    return path.parent / "lake"


@pytest.mark.parametrize(
    ("words", "drawn", "said"),
    [
        (["--step", 6], "gemm_6", ""),
        (["--step", 2], "gemm_6", "there is no step 2: step 6 is drawn, number 2 of those in the trace"),
        pytest.param(["--step", 2, "--trace", "trace.json"], "gemm_6", "step 6 is drawn", marks=pytest.mark.slow),
    ],
)
def test_a_step_by_its_number_or_its_place(
    lake: Path, tmp_path: Path, words: list[object], drawn: str, said: str
) -> None:
    output = output_of("slice", lake, *words, "--out", tmp_path / "slice.json", code=0)
    names = {event.get("name") for event in json.loads((tmp_path / "slice.json").read_text())["traceEvents"]}
    assert {name for name in names if name and name.startswith("gemm")} == {drawn}
    assert said in output and ("there is no step" in output) == bool(said)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--step", 9], "there is no step 9: the trace has steps 5, 6, 7"),
        (["--step", 0], "there is no step 0: the trace has steps 5, 6, 7"),
        (
            ["--step", 5, "--trace", "other.json"],
            "no such trace: --trace accepts an id prefix or a file name",
        ),
    ],
)
def test_a_step_or_trace_that_there_is_not(lake: Path, tmp_path: Path, words: list[object], said: str) -> None:
    assert said in output_of("slice", lake, *words, "--out", tmp_path / "slice.json", code=1)
