"""Nsight Systems exports in the commands: a single file, and a lake that also contains Kineto traces."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pipelines.faces.cli.app import app
from pipelines.synthetic import CaptureSpec, write_capture
from tests.readers.nsys.small import PID, kernel, small, written
from tests.readers.nsys.writer import document_of, export_of


def run(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done.stdout


def path_of(text: str) -> dict[str, Any]:
    said = json.loads(text)
    return {key: said[key] for key in ("success", "summary", "path_length_us") if key in said}


@pytest.mark.slow
def test_the_path_of_a_file(tmp_path: Path) -> None:
    (rank,) = write_capture(CaptureSpec(ranks=1, steps=1, layers=2, gz=False), tmp_path).ranks
    export = export_of(document_of(rank.path)).write(tmp_path / "rank0.sqlite")
    answers = [path_of(run("critical-path", str(path), "--json")) for path in (rank.path, export)]
    assert answers[0] == answers[1] and answers[0]["success"]
    parts = [json.loads(run("breakdown", str(path), "--json"))[0] for path in (rank.path, export)]
    assert [part.pop("path") for part in parts] == [str(rank.path), str(export)]
    assert parts[0].pop("trace_id") != parts[1].pop("trace_id")
    assert parts[0] == parts[1]


@pytest.mark.slow  # test_processes.py checks the rows of each process
def test_ingest_shows_a_line_for_each_process(tmp_path: Path) -> None:
    export = small()
    small(PID + (1 << 24), into=export)
    files = [str(written(export, tmp_path, "both.sqlite")), str(tmp_path / "old.nsys-rep")]
    Path(files[1]).write_bytes(b"\0")
    lake = str(tmp_path / "lake")
    rows = json.loads(run("ingest", *files, "--lake", lake, "--json", code=1))
    assert [(Path(row["path"]).name, row["status"]) for row in rows] == [
        ("both.sqlite", "ok"), ("both.sqlite", "ok"), ("old.nsys-rep", "rejected"),
    ]  # fmt: skip
    query = "SELECT format, n_events FROM traces"
    assert (
        json.loads(run("sql", query, "--lake", lake, "--format", "json"))
        == [{"format": "sqlite/nsys", "n_events": 10}] * 2
    )
    table = run("ingest", files[0], "--lake", str(tmp_path / "other"))
    assert table.count("both.sqlite") == 2


def both(folder: Path) -> str:
    """Return an export of processes 4000 and 4100, of which the second has an additional kernel."""
    export = small()
    second = PID + (100 << 24)
    small(second, into=export)
    kernel(export, "only_in_the_second", 70_000, 71_000, 30, 7, pid=second)
    return str(written(export, folder, "both.sqlite"))


def spans(path: str, *pids: str) -> list[int]:
    return [json.loads(run("breakdown", path, "--process", pid, "--json"))[0]["span_ns"] for pid in pids]


def refused(command: str, path: str, *more: str) -> str:
    done = CliRunner().invoke(app, [command, path, *more])
    assert done.exit_code == 1, done.output
    return " ".join(done.output.split())


def test_a_process_of_several_is_named(tmp_path: Path) -> None:
    path = both(tmp_path)
    assert spans(path, "4100") == [63_000]
    assert "--process PID" in refused("breakdown", path)


@pytest.mark.slow  # a test above covers the same option
def test_a_capture_of_one_process(tmp_path: Path) -> None:
    out = tmp_path / "t.json"
    run("timeline", both(tmp_path), "--process", "4100", "--out", str(out))
    assert {"gemm": 1, "only_in_the_second": 1}.items() <= Counter(
        event.get("name") for event in json.loads(out.read_text())["traceEvents"]
    ).items()


def test_a_file_of_several_processes_is_a_capture(tmp_path: Path) -> None:
    path = both(tmp_path)
    assert "all ranks of the capture together" in refused("what-if", path, "--sensitivity")
    assert "is a capture" in refused("why", path, "--step", "1")


@pytest.mark.slow  # a test above checks the rejection of options for a single process
def test_processes_without_ranks_have_a_path_each(tmp_path: Path) -> None:
    path = both(tmp_path)
    assert "--process PID" in refused("what-if", path, "--remove", "launch_overhead")
    output = run("why", path)  # in sequence
    assert "--process 4000" in output and "--process 4100" in output
    output_of_second = run("why", path, "--process", "4100")
    assert "--process 4100" in output_of_second and "--process 4000" not in output_of_second


@pytest.mark.slow  # tests/faces/report/test_verdict.py tests the options
def test_commands_of_a_report_are_of_the_shown_process(tmp_path: Path) -> None:
    path = both(tmp_path)
    document = json.loads(run("report", path, "--out", str(tmp_path / "page.html"), "--json"))
    commands = [row["cause_command"] for row in document["causes"]] + [row["command"] for row in document["fixes"]]
    assert commands and all(command.endswith(" --process 4000") for command in commands)
    first = document["causes"][0]
    answer = json.loads(run(*shlex.split(first["cause_command"])[1:], "--json"))
    assert answer["before"]["length_us"] - answer["after"]["length_us"] == pytest.approx(first["cause_saves_us"])
    assert "--process 4000" in (tmp_path / "page.html").read_text()


@pytest.mark.slow
def test_every_command_on_a_file_takes_a_process(tmp_path: Path) -> None:
    path = both(tmp_path)
    assert spans(path, "4000", "4100") == [52_000, 63_000]
    for command in ("critical-path", "breakdown", "overlay", "what-if", "graphs"):
        more = ["--remove", "launch_overhead"] if command == "what-if" else []
        assert "--process PID" in refused(command, path, *more), command
        assert "no process 7 to choose: it has 4000, 4100" in refused(command, path, "--process", "7", *more), command


def _grown(*arguments: str) -> dict[str, int]:
    """Return the differences that `compare` reports in the number of GPU activities, by name."""
    return {
        row["name"]: row["test_n"] - row["control_n"]
        for row in json.loads(run("compare", *arguments, "--json", "--step", "all", "--by", "kernel"))["rows"]
    }


def test_compare_takes_no_third_process(tmp_path: Path) -> None:
    path = both(tmp_path)
    assert "more than twice" in refused("compare", path, path, *["--process", "4000"] * 3)


@pytest.mark.slow  # test_a_process_of_several_is_named checks that --process selects
def test_a_process_that_compare_was_told_once(tmp_path: Path) -> None:
    """A single --process applies to the file with several processes, on either side.

    A file with one process does not need the option.
    """
    path, other = both(tmp_path), tmp_path / "one"
    other.mkdir()
    alone = str(written(small(), other))
    grown = _grown(path, path, "--process", "4000", "--process", "4100")
    assert grown["only_in_the_second"] == 1 and sum(map(abs, grown.values())) == 1
    assert set(_grown(path, path, "--process", "4100").values()) == {0}
    assert _grown(alone, path, "--process", "4100") == grown
    assert _grown(path, alone, "--process", "4100") == {name: -n for name, n in grown.items()}
    assert "omit --process" in refused("compare", alone, alone, "--process", "4000")
    assert "is not a file" in refused("compare", path, str(other), "--process", "4000", "--process", "4000")


def test_a_file_of_one_process_has_none_to_choose(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["breakdown", str(written(small(), tmp_path)), "--process", "4000"])
    assert done.exit_code == 1 and "omit --process" in " ".join(done.output.split())
