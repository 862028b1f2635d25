"""`tracelake why`: its arguments, its output, and the arguments that it refuses."""

from __future__ import annotations

import json
import re
import shlex
from functools import cache
from pathlib import Path
from unittest.mock import Mock

import duckdb
import pytest
from typer.testing import CliRunner, Result

from pipelines.faces.cli.app import app
from pipelines.faces.cli.options import DEFAULT_LAKE
from pipelines.faces.cli.trace.why import _NamedAnswer, _print_left_out, _WindowOptions, _windows, _wrapped
from pipelines.faces.why import TABLES, Cause
from pipelines.synthetic import CaptureSpec, write_capture
from tests.critical_path.causes.recorded import COST, document, program
from tests.effort import first_of
from tests.harness import call, kernel, op, x


def run(*words: object, code: int = 0) -> Result:
    done = CliRunner().invoke(app, [*map(str, words)], env={"COLUMNS": "80"})
    assert done.exit_code == code, (done.output, done.exception)
    return done


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = CaptureSpec(ranks=1, steps=3, first_step=5, shape="planted", plant="loader", sync_each_step=False)
    return write_capture(spec, tmp_path_factory.mktemp("why")).paths[0]


once = cache(run)
"""`run`, cached, for a file that does not change."""


@pytest.mark.slow  # 4 s
def test_it_fits_a_screen_and_a_file_alone_is_the_same_question(trace: Path) -> None:
    said = once("why", trace).stdout
    assert run(trace).stdout == said
    lines = said.splitlines()
    # Commands are not wrapped, however long, so that they can be copied. Caveats are not cut.
    own = [line for line in lines if "tracelake what-if" not in line and not line.startswith(("info", "warning"))]
    assert max(map(len, own)) <= 80 and len(lines) <= 45
    text = " ".join(said.split())
    assert text.startswith("Of each 6.53 ms step the GPU computes 480.0 us; 6.00 ms it waits for data loading")
    assert "91.9 % data loading: 6.00 ms a step; removing it saves 6.00 ms, halving it 3.00 ms" in text
    assert f"tracelake what-if {trace} --remove cause:data_loading" in said


@pytest.mark.slow  # 6 s
def test_its_commands_are_answered(trace: Path) -> None:
    commands = [
        line.strip() for line in once("why", trace).stdout.splitlines() if line.strip().startswith("tracelake ")
    ]
    assert commands
    for command in commands:
        run(*shlex.split(command)[1:])


@pytest.mark.slow  # test_its_commands_are_answered runs the commands
def test_its_commands_speak_of_the_same_window(trace: Path) -> None:
    said = once("why", trace, "--annotation", "ProfilerStep", "--instance", "1").stdout
    (command,) = [
        line.strip() for line in said.splitlines() if "what-if" in line and "--remove cause:data_loading" in line
    ]
    length = re.search(r"Of ([\d.]+ ms)", said)
    assert length and f"instead of {length[1]} " in run(*shlex.split(command)[1:]).stdout


@pytest.mark.slow  # tests/faces/cli/test_meant.py tests --step of `slice`
def test_steps_by_number_and_all_of_them(trace: Path) -> None:
    (whole, *steps) = json.loads(run("why", trace, "--step", "all", "--json").stdout)
    assert [step["window"]["window_id"] for step in steps] == ["ProfilerStep#5", "ProfilerStep#6", "ProfilerStep#7"]
    assert whole == json.loads(once("why", trace, "--json").stdout)
    assert steps[1] == json.loads(once("why", trace, "--step", "6", "--json").stdout)
    second = run("why", trace, "--step", "2", "--json")
    assert steps[1] == json.loads(second.stdout) and "there is no step 2: this is step 6, number 2 of" in second.stderr
    assert "the trace has no step 9: its steps are 5, 6, 7" in run("why", trace, "--step", "9", code=1).output


@pytest.mark.slow  # tests/critical_path/test_windows.py tests windows of annotations
def test_what_runs_under_an_annotation(trace: Path) -> None:
    step = json.loads(once("why", trace, "--step", "6", "--json").stdout)
    named = json.loads(run("why", trace, "--annotation", "ProfilerStep", "--instance", "1", "--json").stdout)
    assert named.pop("window") == {**step.pop("window"), "window_id": "ProfilerStep 1"}
    for row in (*named["causes"], *named["fixes"], *step["causes"], *step["fixes"]):
        for command in ("command", "cause_command"):  # each command names its window as the user did
            row[command] = row.get(command, "").partition(" --annotation ")[0]
    assert named == step
    for more, said in (
        (("--annotation", "Profile_step"), "no event's name contains 'Profile_step'. The trace has these annotations"),
        (("--annotation", "ProfilerStep", "--instance", "7"), "instance 7:7 of annotation 'ProfilerStep' is not in"),
        (("--annotation", "ProfilerStep", "--step", "6"), "--step and --annotation name two windows"),
        (("--instance", "1"), "instance '1' needs an annotation. Pass one"),
    ):
        assert said in run("why", trace, *more, code=1).output


@pytest.mark.slow  # 2 s; faces/test_subject.py tests ids
def test_an_id_is_answered_from_its_tables_and_several_are_named(trace: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    run("ingest", trace, "--lake", lake)
    run("materialize", *TABLES, "--lake", lake)
    (row,) = json.loads(run("sql", "SELECT trace_id FROM traces", "--lake", lake, "--format", "json").stdout)
    printed = run("why", row["trace_id"][:8], "--lake", lake, "--json").stdout
    # Commands name the trace as the user did.
    printed = printed.replace(f"what-if {row['trace_id'][:8]} ", f"what-if {trace} ").replace(f" --lake {lake}", "")
    assert json.loads(printed) == json.loads(once("why", trace, "--json").stdout)
    both = run("why", trace, row["trace_id"], "--lake", lake).stdout
    assert both.count("Of each") == 2 and row["trace_id"] in both
    run("why", "nothing", "--lake", lake, code=1)


def test_commands_of_an_id_name_its_lake(tmp_path: Path) -> None:
    options = _WindowOptions("", "", None, None)
    named, of_file = _NamedAnswer("8a0c18c4", Mock()), _NamedAnswer(str(tmp_path), Mock())
    assert options.options(named, Path("/data/my lake")) == ["--lake", "/data/my lake"]
    assert options.options(named, DEFAULT_LAKE) == options.options(of_file, Path("/data/lake")) == []


def test_an_annotation_called_full_is_not_the_whole_trace() -> None:
    for instance, window_id in ((None, "full 0"), ("2", "full 2")):
        options = _WindowOptions("", "full", instance, None)
        (request,) = _windows(None, "trace", options)
        assert (request.window_id, request.annotation) == (window_id, "full")  # headings and JSON use the window's id
        instances = [] if instance is None else ["--instance", instance]
        assert options.options(_NamedAnswer("a.json", Mock()), DEFAULT_LAKE) == ["--annotation", "full", *instances]


@pytest.mark.slow  # 2 s; refused options are tested below
def test_what_has_no_path_is_told(tmp_path: Path) -> None:
    path = tmp_path / "empty.json"
    path.write_text(json.dumps({"traceEvents": [{"ph": "X", "name": "load", "pid": 1, "tid": 1, "ts": 0, "dur": 10}]}))
    assert "has no critical path" in run("why", path, code=1).output
    path.write_text(json.dumps({"traceEvents": [kernel("gemm", 10, 0, 1)]}))
    assert "has no critical path: all of its events have length 0" in run("why", path, code=1).output


NO_PATH = "has no critical path: the window has no operator and no GPU work"


def test_what_has_no_path_beside_windows_that_have_one_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE critical_path_caveats AS FROM (VALUES ('a', 'full', 'first_step', 'of the whole trace'), "
            "('a', '#1', 'no_critical_path', 'no work'), ('b', '#1', 'no_critical_path', 'a cycle')) "
            "AS rows(trace_id, window_id, caveat, detail)"
        )
        _print_left_out(con, [("step 1", "a", "#1"), ("rank 2", "a", "full")])
    assert capsys.readouterr().err.splitlines() == [
        "left out: step 1 has no critical path: no work",
        "left out: rank 2 has no critical path: it has no GPU work, and no operator or annotation that takes time",
    ]


@pytest.mark.slow  # 2 s; the lines are tested above
def test_a_step_without_a_path_is_named(tmp_path: Path) -> None:
    steps = [x("user_annotation", f"ProfilerStep#{number}", 1000 * number, 900) for number in (1, 2)]
    events = [*steps, op("aten::mm", 1000, 10), call("cudaLaunchKernel", 1002, 5, 1), kernel("gemm", 1020, 30, 1)]
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": events}))
    every = run("why", tmp_path / "trace.json", "--step", "all")
    assert " ".join(every.stderr.split()).count("left out:") == 1
    assert f"left out: ProfilerStep#2 {NO_PATH}" in " ".join(every.stderr.split())
    assert NO_PATH in " ".join(run("why", tmp_path / "trace.json", "--step", "2", code=1).output.split())


def test_what_is_saved_by_gaps_in_which_the_trace_lacks_events_says_so_beside_the_number(tmp_path: Path) -> None:
    events = [call("cudaLaunchKernel", 10 * n, 5, n) for n in (1, 2)]
    events += [kernel("gemm", 20, 100, 1), kernel("gemm", 5120, 100, 2)]
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": events}))
    text = " ".join(run("why", tmp_path / "trace.json").stdout.split())
    saved = text.index("removing it saves")
    doubt = text.index("but 5.0 ms of the path are gaps over 1 ms in which nothing ran", saved)
    assert doubt - saved < 60 and "events are missing from the trace" in text[doubt:]


@pytest.mark.parametrize(
    ("options", "command"), [("--remove cause:start", "what-if job/ --remove cause:start"), (None, "capture-path job/")]
)
def test_the_command_of_a_cause_of_a_capture(options: str | None, command: str) -> None:
    """The command of a cause that was not retimed shows the path. For other causes it retimes the cause."""
    cause = Cause({"cause": "start"}, [{"rank": 1, "name": "outside operators", "cause_options": options}])
    assert cause.command("job/") == f"tracelake {command}"


def test_what_a_late_rank_saves_is_told_of_the_rank_that_is_retimed() -> None:
    """The saving of a late rank is printed with the rank that is retimed.

    Two ranks are late in turn. Without the copies of one rank the other is still late.
    """
    row = {
        "duration_ns": 5000,
        "cause_saves_ns": 2000,
        "halved_saves_ns": None,
        "cause_options": "--remove rank:12:cause:copies",
    }
    rows = [{**row, "rank": rank, "name": f"rank {rank}, copies"} for rank in (3, 12)]
    late = Cause({"cause": "late_rank", "title": "waiting for a late rank"}, rows)
    assert late.description(1) == "waiting for a late rank: 10.0 us; removing it on rank 12 saves 2.0 us"


@pytest.mark.slow  # 11 s
def test_the_profiler_is_taken_away_or_not_as_is_asked(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(document(program(1, COST), COST)))
    said = {option: json.loads(run("why", path, "--json", *option.split()).stdout) for option in PROFILER_OPTIONS}
    windows = {option: answer["window"] for option, answer in said.items()}
    assert [window["causes_without_profiler"] for window in windows.values()] == [True, True, False, True]
    assert windows["--untraced 140us"]["without_profiler_us"] == pytest.approx(4 * 140, rel=0.003)
    assert said[""] == said["--without-profiler"]
    without, traced = said[""], said["--with-profiler"]
    for answer, total in ((without, "without_profiler_us"), (traced, "length_us")):
        assert sum(cause["duration_us"] for cause in answer["causes"]) == pytest.approx(answer["window"][total])
    assert "Of each step of about 150 us without the profiler (" in " ".join(run("why", path).stdout.split())
    assert " us step (about 150 us without the profiler) the GPU" in traced["sentence"]


PROFILER_OPTIONS = ("", "--without-profiler", "--with-profiler", "--untraced 140us")


@pytest.mark.parametrize(
    ("untraced", "said"),
    first_of([("12.3", "give a time with its unit"), ("0ms", "give a time"), ("1us", "it takes from")], 2),
)
def test_a_time_without_the_profiler_that_cannot_be_is_refused(tmp_path: Path, untraced: str, said: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(document(program(1, COST), COST)))
    output = " ".join(run("why", path, "--untraced", untraced, code=1).output.split())
    assert f"--untraced {'1.0 us' if untraced == '1us' else untraced}" in output and said in output


@pytest.mark.slow  # 4 s
def test_what_a_profiler_cost_another_writers_trace_is_not_known(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": program(1, COST)}))
    assert "is unknown" in run("why", path, "--untraced", "1ms", code=1).output
    said = run("why", path, "--without-profiler")
    assert "is unknown" in said.output and "without the profiler" not in said.stdout


@pytest.mark.slow  # 2 s; an impossible time is refused, see above
def test_a_profiler_that_cost_too_little_is_told(trace: Path) -> None:
    assert "the profiler cost too little" in run("why", trace, "--without-profiler").output


def test_a_capture_has_no_profiler_to_take_away(tmp_path: Path) -> None:
    spec = CaptureSpec(ranks=2, steps=2)
    write_capture(spec, tmp_path)
    assert "are for a trace" in run("why", tmp_path, "--untraced", "1ms", code=1).output


def test_a_number_stays_with_its_unit() -> None:
    text = "communication exposed: 1.35 ms; removing it saves 1.10 ms, halving it 675.7 us"
    assert _wrapped(text, len(text) - 1)[1] == "675.7 us" and _wrapped("half of it (50 %)", 15) == [
        "half of it",
        "(50 %)",
    ]
