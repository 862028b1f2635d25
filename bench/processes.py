"""Whole processes, run in turn, with measurements of their wall time, CPU time and peak memory."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Run:
    """An ended process: wall and CPU seconds, peak RSS in MiB, status and output.

    The peak is that of its children if theirs is larger.
    """

    seconds: float
    cpu_seconds: float
    rss_mib: float
    status: int
    stdout: str
    stderr: str


@dataclass
class Runs:
    """The runs of one command."""

    runs: list[Run] = field(default_factory=list)

    @property
    def failed(self) -> str | None:
        """Return the status and the end of the output of the first failed run, or None."""
        bad = next((run for run in self.runs if run.status), None)
        return None if bad is None else f"status {bad.status}: {(bad.stderr or bad.stdout).strip()[-600:]}"

    @property
    def seconds(self) -> float:
        """Return the median wall time, s, NaN if a run failed."""
        return float("nan") if self.failed else statistics.median(run.seconds for run in self.runs)

    @property
    def cpu_seconds(self) -> float:
        """Return the minimum CPU time, s, because other processes only increase it. NaN if a run failed."""
        return float("nan") if self.failed else min(run.cpu_seconds for run in self.runs)

    @property
    def rss_mib(self) -> float:
        """Return the median peak RSS, MiB, NaN if a run failed."""
        return float("nan") if self.failed else statistics.median(run.rss_mib for run in self.runs)


def measure(command: Sequence[str | Path], *, discard: bool = False) -> Run:
    """Run a command and wait for it. `discard`: send its output to the null device.

    Linux includes the memory of the process that starts a command in the command's peak. So the calling process must be
    small, and must import neither DuckDB nor numpy.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        began = time.perf_counter()
        process = subprocess.Popen(
            [str(part) for part in command], stdout=subprocess.DEVNULL if discard else out, stderr=err, cwd=ROOT
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)  # otherwise Popen would wait for the process again
        rss = usage.ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
        return Run(seconds, usage.ru_utime + usage.ru_stime, rss, process.returncode, _text(out), _text(err))


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")


def in_turn(
    commands: Mapping[str, Callable[[Path], Sequence[str | Path]]],
    runs: int,
    *,
    discard: Sequence[str] = (),
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Runs]:
    """Run commands A B A B …, so that a slow minute of the machine affects all of them. Do not repeat a failed command.

    Each command gets a new folder, which is deleted after the run. The output of commands in `discard` is discarded.
    """
    results = {name: Runs() for name in commands}
    for turn in range(runs):
        for name, make in commands.items():
            if results[name].failed:
                continue
            say(f"{name}, run {turn + 1} of {runs}")
            (ROOT / ".bench").mkdir(exist_ok=True)
            with tempfile.TemporaryDirectory(dir=ROOT / ".bench") as folder:
                results[name].runs.append(measure(make(Path(folder)), discard=name in discard))
    return results


def tracelake(*arguments: str | Path) -> list[str | Path]:
    """Return the command line `tracelake …` with the interpreter that runs the benchmark."""
    return [sys.executable, "-m", "pipelines.faces.cli.app", *arguments]
