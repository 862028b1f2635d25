"""Ctrl-C and SIGTERM at random moments of commands.

Each command must stop within 2 s with the signal's status (130, 143), leave no temporary file, and record no trace as
failed. Every tenth command is run again and must finish.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bench.attack.children import ROOT, TRACELAKE
from bench.attack.tally import Tally
from pipelines.lake.commit.manifest import shown
from pipelines.lake.lake import Lake
from pipelines.synthetic import CaptureSpec, write_capture

LIMIT_S = 2.0
_EVERY = 10
_SPEC = CaptureSpec(ranks=1, steps=60, layers=8, ops_per_layer=6, seed=3)


@dataclass(frozen=True)
class World:
    """A trace file, a lake with this trace but without tables, and the commands to stop."""

    folder: Path
    trace: Path

    @property
    def prepared(self) -> Path:
        return self.folder / "prepared"

    @property
    def temporary(self) -> Path:
        """Return the TMPDIR of the stopped commands."""
        return self.folder / "tmp"

    def commands(self, lake: Path) -> dict[str, list[str]]:
        """Return the commands to stop by name, each on `lake`."""
        said = {
            "materialize": ["materialize"],
            "ingest": ["ingest", str(self.trace)],
            "report": ["report", str(self.trace), "--out", str(self.folder / "report.html")],
            "critical-path": ["critical-path", str(self.trace)],
        }
        return {name: [*words, "--lake", str(lake)] for name, words in said.items()}


def attack(n: int, seed: int, limit_s: float = LIMIT_S) -> Tally:
    """Stop n commands, each of which must end within `limit_s`."""
    # A process that a shell starts in the background ignores SIGINT, and so do its children.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    tally, choice = Tally("stops at random moments"), random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        world = prepared(Path(folder))
        lasting = {name: _seconds(world, name) for name in world.commands(world.prepared)}
        for i in range(n):
            name = choice.choice(list(lasting))
            number, at = choice.choice((signal.SIGINT, signal.SIGTERM)), choice.uniform(0.05, lasting[name])
            stop_once(world, name, number, at, tally, limit_s, is_repeated=i % _EVERY == 0)
    return tally


def prepared(folder: Path) -> World:
    """Create the trace and the lake in a folder."""
    (rank,) = write_capture(_SPEC, folder / "in").ranks
    world = World(folder, rank.path)
    world.temporary.mkdir()
    _run([*world.commands(world.prepared)["ingest"]])
    return world


def stop_once(
    world: World, name: str, number: int, at: float, tally: Tally, limit_s: float, *, is_repeated: bool
) -> None:
    """Send signal `number` to a command `at` seconds after its start, in a separate lake, and count the result.

    If `is_repeated`, then run the command to its end.
    """
    lake = _lake(world, name)
    words = world.commands(lake)[name]
    process = subprocess.Popen(
        [*TRACELAKE, *words],
        **{"cwd": ROOT, "text": True, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE},
        env={**os.environ, "TMPDIR": str(world.temporary)},
    )
    ends = {0, 128 + number}
    try:
        process.wait(at)
    except subprocess.TimeoutExpired:
        if not _handles(process.pid, number):  # Python itself is starting; a shell has the same status for both ends
            ends.add(-number)
        process.send_signal(number)
    began = time.monotonic()
    _, stderr = process.communicate()
    took = time.monotonic() - began
    tally.tried += 1
    where = f"{name}, {signal.Signals(number).name} after {at:.2f} s"
    if "Traceback" in stderr:
        tally.tracebacks += 1
        tally.notes.append(f"{where}: a traceback: {stderr[-300:]}")
        return
    if process.returncode not in ends or took > limit_s or len(stderr.splitlines()) > 1:
        tally.silent += 1
        tally.notes.append(f"{where}: ended with {process.returncode} after {took:.1f} s and said {stderr[-300:]!r}")
        return
    if leftovers := sorted(world.temporary.iterdir()):
        tally.silent += 1
        tally.notes.append(f"{where}: left {', '.join(path.name for path in leftovers)} in TMPDIR")
        shutil.rmtree(world.temporary)
        world.temporary.mkdir()
        return
    blamed = [failure for entry in shown(lake).values() for of in entry.failures.values() for failure in of]
    why = f"blamed {blamed}" if blamed else _why_unfinished(words, lake) if is_repeated else ""
    if why:
        tally.lost += 1
        tally.notes.append(f"{where}: {why}")
        return
    tally.survived += 1


def _handles(pid: int, number: int) -> bool:
    """Return whether a process has a handler for the signal."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return bool(int(fields["SigCgt"], 16) >> (number - 1) & 1)


def _why_unfinished(words: list[str], lake: Path) -> str:
    """Run a stopped command to its end. Return the problem, or "" if there is none."""
    again = _run(words)
    rows = _run(["sql", "SELECT count(*) AS n FROM kernels", "--lake", str(lake), "--format", "json"])
    if again.returncode or not json.loads(rows.stdout)[0]["n"] or Lake(lake).broken(["kernels"]):
        return f"run again, it ended with {again.returncode}: {again.stderr[-300:]!r}"
    return ""


def _lake(world: World, name: str) -> Path:
    lake = world.folder / "lake"
    shutil.rmtree(lake, ignore_errors=True)
    if name != "ingest":
        shutil.copytree(world.prepared, lake)
    return lake


def _seconds(world: World, name: str) -> float:
    words = world.commands(_lake(world, name))[name]
    began = time.monotonic()
    _run(words)
    return time.monotonic() - began


def _run(words: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*TRACELAKE, *words], cwd=ROOT, text=True, capture_output=True, check=False)
