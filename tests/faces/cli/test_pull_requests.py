"""A comparison in a pull request: Markdown that a trace's names cannot break, baselines by name, and the action."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.faces.cli import caveats
from pipelines.faces.cli.fleet.compare import _print_markdown, _where_to_look
from pipelines.faces.cli.fleet.compared_markdown import markdown
from pipelines.faces.cli.fleet.compared_rows import _rank_table, as_json
from pipelines.faces.report.comparison import _place, page, waterfall_of
from pipelines.fleet.trends.comparison import Comparison, Difference, OnePair, Pair, Part, Short, Window
from pipelines.lake import Lake
from pipelines.lake.baselines import FILE, NoBaseline, baseline, baselines, set_baseline
from pipelines.readers.ingest import ingest
from tests.effort import first_of
from tests.harness import call, kernel, op, x

from .test_early_ends import run

ROOT = Path(__file__).parents[3]


def trace(folder: Path, name: str, length: float, operator: str = "aten::mm") -> Path:
    events: list[dict[str, Any]] = []
    for i in range(6):
        at = 300.0 * i
        events.append(x("user_annotation", f"ProfilerStep#{i}", at, 299))
        events += [op(operator, at + 1, 20), call("cudaLaunchKernel", at + 5, 10, i + 1)]
        events += [kernel("gemm", at + 30, length, i + 1), call("cudaDeviceSynchronize", at + 40, length - 10, 100 + i)]
    path = folder / name
    path.write_text(json.dumps({"traceEvents": events}))
    return path


@pytest.mark.slow  # 7 s
def test_markdown_has_verdict_causes_work_and_where_to_look(tmp_path: Path) -> None:
    control, test = trace(tmp_path, "a.json", 100), trace(tmp_path, "b.json", 200)
    text = run("compare", control, test, "--format", "markdown", "--fail-on", "500%").stdout
    lines = text.splitlines()
    assert lines[0].startswith("### The step takes ") and lines[2].startswith("**") and "500 % allowed" in lines[2]
    assert "| GPU time | 100.0 us | 200.0 us | +100.0 % |" in lines
    for heading in (
        "**Where the time goes**, by cause, a step",
        "**GPU time**, by operator, a step",
        "**Where to look**",
    ):
        assert heading in lines
    assert f"tracelake why {test}" in lines
    tables = [line for line in lines if line.startswith("|")]
    assert {line.count("|") for line in tables} == {5}


def without_gpu_work(*, control: bool, test: bool) -> Comparison:
    """Return a comparison of two ranks.

    `control`, `test`: whether this side has no GPU work. Otherwise rank 0 has 5 ms.
    """
    sides = [Window("t", 3, 0, 10**7, 10**7, None if lacks else 5 * 10**6, 0) for lacks in (control, test)]
    times = [0 if lacks else 5 * 10**6 for lacks in (control, test)]
    pair, gpu_time = Pair("rank 0", 0, *sides), Short(*times, "mm", times[1] - times[0], "mm", times[1] - times[0])
    work = Difference("gpu", "gemm", "mm", None, None, 4, 4, 0, *times, times[1] - times[0], "decreased")
    host = Difference("cpu", None, "sort", None, None, 1, 1, 0, 7000, 8000, 1000, "increased")
    part = Part([pair], *(([work], [work], [work]) if any(times) else ()), host=[host])
    return Comparison("operator", part, [part, part], [OnePair(pair, gpu_time, Short(), Short())])


@pytest.mark.parametrize("lacking", [(False, False), (False, True), (True, False), (True, True)])
def test_gpu_time_that_was_not_recorded_is_unknown(lacking: tuple[bool, bool]) -> None:
    """The change of GPU time that a side did not record is unknown. It is neither 0 nor 100 % less."""
    comparison, is_known = without_gpu_work(control=lacking[0], test=lacking[1]), not any(lacking)
    text = markdown(comparison, replace(comparison, by="cause"), ("a", "b"), [], 15)
    cells = ["not recorded" if lacks else "5.00 ms" for lacks in lacking]
    assert f"| GPU time | {cells[0]} | {cells[1]} | {'+0.0 %' if is_known else ''} |" in text
    assert ("**GPU time**" in text, "**Own time on the host**" in text) == (is_known, not is_known)
    answer = as_json(comparison, ("a", "b"), ((), ()), [])
    expected = [None if lacks else 5 * 10**6 for lacks in lacking]
    assert [window["gpu_ns"] for window in answer["windows"]] == expected
    (step,) = answer["steps"]
    assert [step["control_gpu_ns"], step["test_gpu_ns"], step["grew_most"]] == [*expected, None]
    assert _place(comparison.whole)["diff_ns"] == (0 if is_known else None)
    assert (waterfall_of(comparison) is not None) == is_known
    cells = [next(iter(column.cells)) for column in _rank_table(comparison, 80).columns]
    assert [str(cell) for cell in cells[4:]] == (["0", "0 mm"] if is_known else ["", ""])


def test_what_the_tables_lack_is_in_the_comment(capsys: pytest.CaptureFixture[str]) -> None:
    """The comment contains the caveats, because stderr is not in the comment."""
    comparison = without_gpu_work(control=False, test=False)
    caveats.print_caveat("left out", "rank3.json is damaged")
    _print_markdown(comparison, replace(comparison, by="cause"), ("a", "b"), ["step 8 is left out"], 15, None, [])
    printed = capsys.readouterr()
    assert "> left out: rank3.json is damaged\n> step 8 is left out\n" in printed.out
    assert printed.err == "left out: rank3.json is damaged\n" and not caveats.notices()


def test_causes_divide_all_time_not_gpu_time() -> None:
    """Causes divide all time even in traces without GPU work."""
    comparison = without_gpu_work(control=True, test=True)
    row = Difference(None, None, "data_loading", None, None, 1, 1, 0, 9 * 10**6, 5 * 10**6, -4 * 10**6, "decreased")
    part = replace(comparison.whole, rows=[row], causes=[row])
    by_cause = replace(comparison, by="cause", whole=part, places=[part])
    text = markdown(by_cause, by_cause, ("a", "b"), [], 15)
    assert re.findall(r"\*\*(.*?)\*\*", text) == ["Where the time goes", "Where to look"]
    html = page(by_cause, ("a", "b"), ((), ()), [])
    assert "<h2>Time by cause" in html and "from the time of control to that of test" in html
    assert "GPU time" not in html


def test_where_to_look_is_what_was_compared(tmp_path: Path) -> None:
    names, lake = ("ce56", "6729"), Path("/data/a lake")
    assert _where_to_look("kernel", names, ["--step", "first"], lake, None) == [
        "tracelake compare ce56 6729 --by operator --step first --lake '/data/a lake'",
        "tracelake why 6729 --lake '/data/a lake'",
    ]
    files = (str(tmp_path), str(tmp_path))
    assert not any("--lake" in command for command in _where_to_look("cause", files, [], lake, None))
    (_, why) = _where_to_look("cause", files, ["--process", "1", "--process", "2"], lake, "2")
    assert why == f"tracelake why {tmp_path} --process 2"


@pytest.mark.slow  # 6 s
def test_caveats_are_in_the_comment_once(tmp_path: Path) -> None:
    control, test = trace(tmp_path, "a.json", 100), trace(tmp_path, "b.json", 200)
    events = json.loads(test.read_text())["traceEvents"]
    test.write_text(json.dumps({"traceEvents": events * 2}))
    text = run("compare", control, test, "--format", "markdown").stdout
    assert text.count("repeat another one") == 1 and text.startswith("###")


@pytest.mark.slow  # 5 s
def test_names_of_a_trace_cannot_break_the_comment(tmp_path: Path) -> None:
    evil = "a|b<img src=x>`@team`[l](http://x)\n# h"
    control, test = trace(tmp_path, "a.json", 100, evil), trace(tmp_path, "b.json", 200, evil)
    text = run("compare", control, test, "--format", "markdown", "--by", "operator").stdout
    assert "<img" not in text.replace("\\<", "") and "\n# h" not in text
    rows = [line for line in text.splitlines() if "img" in line and line.startswith("|")]
    assert rows and all(line.replace("\\|", "").count("|") == 5 for line in rows)


@pytest.mark.slow  # 11 s
def test_a_baseline_is_the_control(tmp_path: Path) -> None:
    control, test, lake = trace(tmp_path, "a.json", 100), trace(tmp_path, "b.json", 200), tmp_path / "lake"
    run("baseline", "set", "main", control, "--lake", lake)
    (trace_id,) = json.loads(run("baseline", "list", "--lake", lake, "--json").stdout).values()
    by_name = json.loads(run("compare", "--baseline", "main", test, "--lake", lake, "--json").stdout)
    by_file = json.loads(run("compare", control, test, "--json").stdout)
    assert by_name["verdict"] == by_file["verdict"] and by_name["windows"][0]["trace_ids"] == [trace_id]
    run("baseline", "set", "other", trace_id[:6], "--lake", lake)
    assert baselines(lake) == {"main": trace_id, "other": trace_id}
    run("baseline", "remove", "main", "--lake", lake)
    assert "did you mean other" in run("compare", "--baseline", "othr", test, "--lake", lake, code=1).output


@pytest.mark.parametrize(
    "words", first_of([["set", "a", "none"], ["set", "main"], ["list", "main"], ["remove"], ["set", "a b", "1"]], 1)
)
def test_a_baseline_needs_its_words(words: list[str], tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    ingest([trace(tmp_path, "a.json", 100)], Lake(lake))
    assert "Traceback" not in run("baseline", *words, "--lake", lake, code=1).output
    assert baselines(lake) == {}


def test_the_file_of_baselines_may_be_damaged(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("[")
    with pytest.raises(NoBaseline, match=f"{FILE} is damaged"):
        baseline(tmp_path, "main")


@pytest.mark.slow  # three processes
def test_many_may_set_baselines_at_once(tmp_path: Path) -> None:
    program = "import sys; from pathlib import Path; from pipelines.lake.baselines import set_baseline as s\n"
    program += "for i in range(20): s(Path(sys.argv[1]), f'{sys.argv[2]}-{i}', 'id')"
    setters = [subprocess.Popen([sys.executable, "-c", program, str(tmp_path), str(n)], cwd=ROOT) for n in range(3)]
    assert [setter.wait() for setter in setters] == [0, 0, 0]
    assert len(baselines(tmp_path)) == 60
    set_baseline(tmp_path, "0-0", None)
    assert len(baselines(tmp_path)) == 59


@pytest.mark.slow  # 8 s each
@pytest.mark.parametrize(("fail_on", "status"), [("5%", "3"), ("", "0")])
def test_the_action_compares_and_says_how_it_ended(fail_on: str, status: str, tmp_path: Path) -> None:
    control, test = trace(tmp_path, "a.json", 100), trace(tmp_path, "b.json", 200)
    assert action(tmp_path, CONTROL=str(control), TEST=str(test), FAIL_ON=fail_on) == 0
    outputs = dict(line.split("=", 1) for line in (tmp_path / "output").read_text().splitlines())
    assert outputs["status"] == status and Path(outputs["markdown"]).read_text().startswith("### ")
    assert (tmp_path / "summary").read_text() == Path(outputs["markdown"]).read_text()


@pytest.mark.slow  # a process
def test_an_error_of_the_action_is_its_status(tmp_path: Path) -> None:
    assert action(tmp_path, CONTROL="absent.json", TEST="absent.json") == 1
    assert not (tmp_path / "output").exists()


def action(folder: Path, **inputs: str) -> int:
    program = folder / "tracelake"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tracelake "$@"\n')
    program.chmod(0o755)
    environment = {
        **os.environ,
        **dict.fromkeys(("CONTROL", "TEST", "BASELINE", "LAKE", "FAIL_ON", "BY"), ""),
        **inputs,
        "PATH": f"{folder}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "RUNNER_TEMP": str(folder),
        "GITHUB_OUTPUT": str(folder / "output"),
        "GITHUB_STEP_SUMMARY": str(folder / "summary"),
    }
    return subprocess.run([ROOT / "action" / "compare.sh"], env=environment, cwd=folder, check=False).returncode


@pytest.mark.parametrize("ours", ["", "7\n"], ids=["first push", "next push"])
def test_the_action_comments_once_and_leaves_other_comments_alone(ours: str, tmp_path: Path) -> None:
    """The action updates its own comment and leaves other comments unchanged.

    `gh` is a program that records its arguments. The `--jq` of the real `gh` selects our comment.
    """
    gh = tmp_path / "gh"
    gh.write_text(
        f'#!/bin/sh\nprintf "%s|" "$@" >> {tmp_path}/calls\ncase "$*" in *--jq*) printf "%s" "{ours}";; esac\n'
    )
    gh.chmod(0o755)
    (tmp_path / "text.md").write_text("### slower `$(touch evil)`\n")
    environment = {"MARKDOWN": str(tmp_path / "text.md"), "NUMBER": "12", "GITHUB_REPOSITORY": "a/b"}
    environment |= {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run([ROOT / "action" / "comment.sh"], env=environment, cwd=tmp_path, check=True)
    _, _, written = (tmp_path / "calls").read_text().partition("| .id|")
    target = "PATCH|repos/a/b/issues/comments/7" if ours else "POST|repos/a/b/issues/12/comments"
    body = "body=<!-- tracelake compare -->\n### slower `$(touch evil)`"
    assert written == f"api|--method|{target}|--raw-field|{body}|"
    assert not (tmp_path / "evil").exists()


def test_the_action_hands_its_inputs_over_as_variables() -> None:
    """The action passes its inputs to scripts as variables. A script that contains an input would execute it."""
    text = yaml.safe_load((ROOT / "action" / "action.yml").read_text())
    assert text["runs"]["using"] == "composite"
    for step in text["runs"]["steps"]:
        assert "${{" not in step["run"]
        for value in step["env"].values():
            name = value.removeprefix("${{ inputs.").removesuffix(" }}")
            assert not value.startswith("${{ inputs.") or name in text["inputs"]
