"""`tracelake what-if` on the command line: shapes of the JSON, scenario files, errors that name the remedy."""

from __future__ import annotations

import json
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from pipelines.critical_path.whatif import before_after
from pipelines.faces.cli.app import app
from pipelines.faces.cli.fleet import whatif_capture
from pipelines.faces.cli.trace import whatif
from tests.critical_path.causes.recorded import COST, document, program
from tests.synthetic.textbook import textbook

EVENT = {"event_id", "name", "time_us"}


def what_if(*words: object) -> Result:
    return CliRunner().invoke(app, ["what-if", *map(str, words)])


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return textbook("two_streams").write(tmp_path)


@pytest.mark.slow  # 6 s
def test_json_of_one_scenario(trace: Path, tmp_path: Path) -> None:
    words = ("--scale", "stream:20=0", "--scale", "nothing?of=this*=1")
    done = what_if(trace, *words[:2], "--redraw", tmp_path / "drawn", "--json")
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)  # the path of the drawing is not part of the output
    assert list(answer) == ["before", "after", "entered", "left", "inferred_waits", "caveats"]
    assert list(answer["before"]) == list(answer["after"]) == ["length_us", "summary"]
    assert (answer["before"]["length_us"], answer["after"]["length_us"]) == (367, 161)
    assert sum(answer["after"]["summary"].values()) == pytest.approx(100)
    assert all(set(event) == EVENT for event in [*answer["entered"], *answer["left"]])
    assert [path.name for path in (tmp_path / "drawn").iterdir()] == [f"overlaid_critical_path_what_if_{trace.name}"]
    assert what_if(trace, *words).exit_code == 1  # the second pattern matches nothing


@pytest.mark.slow
def test_streams_whose_waits_are_not_in_the_trace_are_told_beside_the_number(trace: Path, tmp_path: Path) -> None:
    """The caveat unseen_waits appears for a file and for its saved path, in text and JSON.

    It does not appear if cuda_sync rows record the waits, or if the trace has a single stream.
    """
    document = json.loads(trace.read_text())
    said = []
    for name, without in (("rows", ("none",)), ("no rows", ("cuda_sync",)), ("one stream", ("cuda_sync", "kernel"))):
        kept = [e for e in document["traceEvents"] if e.get("cat") not in without or e["args"]["stream"] == 20]
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps({**document, "traceEvents": kept}))
        said.append(json.loads(what_if(file, "--remove", "cpu", "--json").stdout)["caveats"])
    assert [[caveat["caveat"] for caveat in caveats] for caveats in said] == [[], ["unseen_waits"], ["lost_kernels"]]
    assert said[1][0]["n"] == 2
    saved = tmp_path / "path.zip"
    assert (
        CliRunner().invoke(app, ["critical-path", str(tmp_path / "no rows.json"), "--save", str(saved)]).exit_code == 0
    )
    assert json.loads(what_if(saved, "--remove", "cpu", "--json").stdout)["caveats"] == said[1]
    for words in (("--remove", "cpu"), ("--sensitivity",)):
        assert "which stream or call waited for which work is not in the trace" in " ".join(
            what_if(saved, *words).stdout.split()
        )


@pytest.mark.slow  # 2 s; a quicker test below uses one scenario
def test_scenarios_of_a_file(trace: Path, tmp_path: Path) -> None:
    file = tmp_path / "one.toml"
    file.write_text('remove = ["launch_overhead"]\nperfect_overlap = false\n[scale]\n"ampere_*" = 0.5\n')
    assert json.loads(what_if(trace, "--scenario", file, "--json").stdout)["after"]["length_us"] == 5 + 150 + 25 + 6
    file.write_text('[[scenario]]\nname = "a"\nremove = ["cpu"]\n[[scenario]]\nname = "b"\n[scenario.scale]\ncpu = 2\n')
    both = json.loads(what_if(trace, "--scenario", file, "--remove", "launch_overhead", "--json").stdout)
    assert [(answer["name"], answer["after"]["length_us"]) for answer in both] == [("a", 356), ("b", 366)]
    assert (
        "a: the trace takes 356.0 us instead of 367.0 us (-3.0 %)"
        in what_if(trace, "--scenario", file, "--remove", "launch_overhead").stdout
    )


@pytest.mark.slow  # 5 s
def test_one_answer_of_many_is_in_memory_at_a_time(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only one answer is in memory at a time, because each has arrays as long as the graph.

    If one scenario fails, no answer is shown.
    """
    made: list[weakref.ref[before_after.Comparison]] = []

    def noted(*asked: Any) -> Iterator[before_after.Comparison]:
        for answer in compare(*asked):
            made.append(weakref.ref(answer))
            yield answer
            del answer
            assert sum(ref() is not None for ref in made) <= 1

    compare = before_after.what_if
    monkeypatch.setattr(before_after, "what_if", noted)
    file = tmp_path / "many.toml"
    file.write_text("".join(f'[[scenario]]\nname = "{name}"\nremove = ["cpu"]\n' for name in "abcd"))
    answers = json.loads(what_if(trace, "--scenario", file, "--json").stdout)
    assert [answer.pop("name") for answer in answers] == [*"abcd"] and len(made) == 4 and answers[0] == answers[3]
    file.write_text(f'{file.read_text()}[[scenario]]\nremove = ["nothing like it"]\n')
    done = what_if(trace, "--scenario", file, "--json")
    assert (done.exit_code, done.stdout) == (1, "")


def test_tables_and_sensitivity(trace: Path, tmp_path: Path) -> None:
    """The test uses a saved path, which is read quickly and has the same answers as the trace (test_of_saved.py)."""
    saved = tmp_path / "path.zip"
    assert CliRunner().invoke(app, ["critical-path", str(trace), "--save", str(saved)]).exit_code == 0
    done = what_if(saved, "--scale", "stream:20=0")
    for text in (
        "161.0 us instead of 367.0 us (-56.1 %)",
        "entered the path: 1 event",
        "left the path",
        "GPU computing",
    ):
        assert text in done.stdout
    families = json.loads(what_if(saved, "--sensitivity", "--json").stdout)["families"]
    assert families[0]["class"] == "COMPUTATION" and families[0]["change_us"] == {
        "-10%": -35.0,
        "-50%": -175.0,
        "-100%": -337.0,
    }
    shown = what_if(saved, "--sensitivity").stdout
    assert "computing" in shown and "launch overhead" in shown and "kernel_launch_delay" not in shown


@pytest.mark.slow  # 4 s
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "nothing to change"),
        (("--scale", "gemm"), "PATTERN=FACTOR"),
        (("--scale", "gemm=-1"), "PATTERN=FACTOR"),
        (("--scale", "gemm=much"), "PATTERN=FACTOR"),
        (("--remove", "gemm"), "There are: class:COMPUTATION"),
        (("--remove", "cpu", "--annotation", "nope"), "ProfilerStep#0"),
        (("--remove", "cpu", "--profile", "nope"), "default, hta"),
        (("--remove", "cpu", "--sensitivity"), "without a scenario"),
        (("--scenario", "nowhere.toml"), "nowhere.toml"),
    ],
)
def test_errors_name_the_way_out(trace: Path, words: tuple[str, ...], message: str) -> None:
    done = what_if(trace, *words)
    assert done.exit_code == 1
    assert message in done.stderr


@pytest.mark.slow  # 4 s each
@pytest.mark.parametrize("kernel_us", [1.0, 40.0])
def test_a_drawing_without_the_profiler_is_as_long_as_the_answer(tmp_path: Path, kernel_us: float) -> None:
    """The drawing is as long as the answer, even if the removed event followed the profiler's cost on the path."""
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(document(program(kernel_us, COST), COST)))
    done = what_if(path, "--remove", "ProfilerStep#2", "--without-profiler", "--redraw", tmp_path / "drawn", "--json")
    assert done.exit_code == 0, done.output
    (drawn,) = (tmp_path / "drawn").iterdir()
    events = [e for e in json.loads(drawn.read_text())["traceEvents"] if e.get("cat") in ("cuda_runtime", "kernel")]
    start, end = min(e["ts"] for e in program(kernel_us, COST)), max(e["ts"] + e["dur"] for e in events)
    assert end - start == pytest.approx(json.loads(done.stdout)["after"]["length_us"], abs=0.01)


@pytest.mark.parametrize("words", [("--without-profiler",), ("--untraced", "1ms")])
def test_what_a_capture_cannot_be_asked_is_refused(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = what_if(tmp_path, "--remove", "cpu", *words)
    assert done.exit_code == 1 and "a folder is answered for all ranks of the capture together" in done.stderr


@pytest.mark.parametrize("named", ["c0ffee", "0"])
def test_the_id_of_a_capture_is_a_capture(monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    """The command accepts the id of a capture, because the commands that `why` prints name captures by their ids."""
    monkeypatch.setattr(whatif, "is_capture_id", lambda name, _: name == "c0ffee")
    monkeypatch.setattr(whatif_capture, "capture_what_if", lambda *_: print("of all ranks"))
    done = what_if(named, "--remove", "cpu")
    assert ("of all ranks" in done.stdout) == (named == "c0ffee") == (done.exit_code == 0)


@pytest.mark.parametrize(
    "text",
    ["scale = 3", 'remove = "cpu"', "perfect_overlap = 1", "factor = 2", "[scale]\ncpu = true", "= 1",
     'scenario = "a"', "remove = []\n[[scenario]]\n"],
)  # fmt: skip
def test_a_scenario_file_is_checked(trace: Path, tmp_path: Path, text: str) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text(text)
    done = what_if(trace, "--scenario", file)
    assert done.exit_code == 1 and "wrong.toml" in done.stderr
