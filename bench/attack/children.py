"""Attacked commands ("verbs", verbs.py) in separate processes.

strace may kill them or fail one of their system calls.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.lake.world import PROCESSES

PROCESSES.set_forkserver_preload(["bench.attack.warm"])
Verb = Callable[..., object]
_SECONDS = 300
ROOT = Path(__file__).parents[2]
TRACELAKE = (sys.executable, "-m", "tracelake")
"""The command, which must run in ROOT."""


@dataclass(frozen=True)
class End:
    """The end of a process: its exit status (negative: the signal), and its stderr."""

    code: int
    said: str

    @property
    def has_traceback(self) -> bool:
        """Return whether the process printed a traceback, which a user must never see."""
        return "Traceback (most recent call last)" in self.said


def run(verb: Verb, *args: Any, strace: tuple[str, ...] = ()) -> End:
    """Run `verb(*args)` in a child process, and return how it ended.

    With `strace`, attach strace with these options before the verb begins.
    """
    with tempfile.TemporaryDirectory() as folder:
        said = Path(folder, "stderr")
        ours, theirs = PROCESSES.Pipe()
        process = PROCESSES.Process(target=_child, args=(theirs, str(said), verb, args))
        process.start()
        theirs.close()
        ours.recv()
        tracer = _attach(process.pid or 0, strace) if strace else None
        ours.send("go")
        process.join(_SECONDS)
        if process.is_alive():
            process.kill()
            process.join()
        if tracer:
            tracer.communicate()
        return End(process.exitcode or 0, said.read_text(errors="replace") if said.exists() else "")


def _child(gate: Connection, said: str, verb: Verb, args: tuple[Any, ...]) -> None:
    """Run the verb when the gate opens, with stdout discarded and stderr in the file `said`."""
    handle = os.open(said, os.O_WRONLY | os.O_CREAT)
    os.dup2(handle, 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    gate.send("ready")
    gate.recv()
    verb(*args)  # multiprocessing prints the traceback of an exception, and exits with 1


def _attach(pid: int, options: tuple[str, ...]) -> subprocess.Popen[str]:
    command = ["strace", "-f", "-p", str(pid), *options]
    tracer = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert tracer.stderr
    first = tracer.stderr.readline()
    if "attached" not in first:
        tracer.kill()
        raise RuntimeError(f"strace cannot attach: {first.strip()}")
    return tracer


@lru_cache
def why_no_strace() -> str | None:
    """Return why processes cannot be traced on this machine, or None if they can."""
    if not shutil.which("strace"):
        return "strace is not installed"
    try:
        run(os.getpid, strace=("-o", os.devnull, "-e", "trace=mkdir"))
    except RuntimeError as error:
        return str(error)
    return None


def calls_of(verb: Verb, *args: Any, calls: tuple[str, ...]) -> Counter[str]:
    """Return how often a verb makes each of the system calls `calls`, in the thread with the most calls of that kind.

    The number is per thread, because strace also counts per thread when it injects a fault.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        end = run(verb, *args, strace=("-o", str(log), "-e", f"trace={','.join(calls)}"))
        assert end.code in (0, 1), end.said
        of_threads = Counter(re.findall(r"^(\d+) +(\w+)\(", log.read_text(errors="replace"), re.M))
        counts: Counter[str] = Counter()
        for (_, call), times in of_threads.items():
            counts[call] = max(counts[call], times)
        return counts


def inject(call: str, what: str, when: str) -> tuple[str, ...]:
    """Return strace's options that kill (`signal=KILL`) or fail (`error=ENOSPC`) a call, counted per thread."""
    return ("-o", os.devnull, "-e", f"trace={call}", "-e", f"inject={call}:{what}:when={when}")
