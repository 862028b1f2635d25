"""Ends of commands: a reader that stops early, a full disk behind stdout, a closed stdout."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from pipelines.faces.cli.app import app
from pipelines.lake import Lake
from pipelines.readers.ingest import ingest
from tests.effort import slow_if
from tests.lake.world import write_trace

ROOT = Path(__file__).parents[3]
TRACELAKE = ["-m", "pipelines.faces.cli.app"]
ENTRY_POINTS = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "pipelines").rglob("*.py")
    if '__name__ == "__main__"' in path.read_text()
)
PRINTING = [
    [*TRACELAKE, "tables"],
    [*TRACELAKE, "tables", "--json"],
    [*TRACELAKE, "--help"],
    [*TRACELAKE, "compare", "--help"],
    ["-m", "pipelines.schedule.run", "--list"],
    ["-m", "pipelines.record.peaks", "--help"],
    ["-m", "pipelines.record.profiler.cost", "--help"],
    ["-m", "pipelines.record.counters", "--help"],
    ["-m", "pipelines.record.stacks", "--help"],
]


def _parameters(commands: list[list[str]]) -> list[Any]:
    """Return the commands as parameters. All but the first command of each package are slow."""
    first = {command[1].split(".")[1]: command for command in reversed(commands)}.values()
    return [
        pytest.param(command, marks=slow_if(command not in first), id=" ".join(command[1:])) for command in commands
    ]


def start(words: list[object], stdout: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, *map(str, words)]
    return subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, cwd=ROOT, pipesize=4096)


def end_of(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    _, err = process.communicate()
    return process.returncode, err.decode()


@pytest.mark.parametrize("words", _parameters(PRINTING))
def test_nobody_reads(words: list[object]) -> None:
    """A process whose stdout has no reader, as with `| head -0`, ends by SIGPIPE and prints nothing."""
    read, write = os.pipe()
    os.close(read)
    process = start(words, write)
    os.close(write)
    assert end_of(process) == (-signal.SIGPIPE, "")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    folder = tmp_path_factory.mktemp("lake")
    lake = Lake(folder / "lake")
    ingest([write_trace(folder / "a.json", 1)], lake)
    return lake


@pytest.mark.parametrize(
    "format", ["csv", *(pytest.param(name, marks=pytest.mark.slow) for name in ("json", "parquet"))]
)
def test_the_reader_stops_in_the_middle(lake: Lake, format: str) -> None:
    """A process ends like other Unix tools if its reader closes the pipe early, as with `| head -1`.

    The output is longer than the pipe's buffer.
    """
    query = "SELECT range::VARCHAR || 'x' AS x FROM range(3000)"
    words = [*TRACELAKE, "sql", query, "--lake", lake.root, "--format", format]
    process = start(words, subprocess.PIPE)
    assert process.stdout is not None and process.stdout.read(10)
    process.stdout.close()
    process.stdout = None
    assert end_of(process) == (-signal.SIGPIPE, "")


def test_a_failure_is_one_whoever_reads(lake: Lake) -> None:
    """The exit status of a failure is that of the failure even if stdout has no reader."""
    read, write = os.pipe()
    os.close(read)
    process = start([*TRACELAKE, "sql", "SELECT nothing", "--lake", lake.root], write)
    os.close(write)
    status, said = end_of(process)
    assert status == 1 and said.startswith("error: ")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has /dev/full")
@pytest.mark.parametrize("words", _parameters(PRINTING[:4]))
def test_the_answer_cannot_be_written(words: list[object]) -> None:
    with open("/dev/full", "wb") as full:
        status, said = end_of(start(words, full.fileno()))
    assert status == 1
    assert re.fullmatch(r"error: .*No space left on device\n", said)


def test_stdout_is_closed() -> None:
    command = f"exec {sys.executable} -m pipelines.faces.cli.app tables >&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stderr) == (1, "error: stdout is closed, so there is nowhere to print the answer\n")


def test_every_entry_point_is_tested() -> None:
    """A new `python -m pipelines.…` must end as the others do, or be excepted here.

    bench prints only after it has measured for minutes. child_processes and isolated print to their parent. deliver is
    a child of a training process. reference and flow write a file. deliver, reference and flow print nothing but
    errors.
    """
    assert {words[1] for words in PRINTING} | {
        "pipelines.record.bench",
        "pipelines.readers.child_processes",
        "pipelines.engines.isolated",
        "pipelines.faces.flow",
        "pipelines.faces.reference",
        "pipelines.faces.training.deliver",
    } == set(ENTRY_POINTS)
    text = (ROOT / "pipelines" / "record" / "bench.py").read_text()
    assert "signal.signal(signal.SIGPIPE, signal.SIG_DFL)" in text


def test_every_command_ends_so() -> None:
    from pipelines.faces.cli.commands import Command, Commands, Later

    assert app.info.cls is Commands
    group: Any = typer.main.get_command(app)
    assert all(isinstance(command, Later) for command in group.commands.values())
    contexts = [command.make_context(name, [], resilient_parsing=True) for name, command in group.commands.items()]
    assert len(contexts) > 20 and all(type(context.command) is Command for context in contexts)
