"""Kills at system calls: SIGKILL when a verb makes its n-th rename, fsync, write, …, in Python, DuckDB or pyarrow."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

from bench.attack.breaks import try_once
from bench.attack.children import calls_of, inject, why_no_strace
from bench.attack.tally import Tally
from bench.attack.verbs import SCENES, stage

CALLS = ("rename", "fsync", "fdatasync", "ftruncate", "unlink", "unlinkat", "mkdir", "rmdir", "pwrite64", "openat")
# Rare calls get a higher weight than their share of all calls. Renames make files visible, so they are tried most.
_WEIGHTS = {"rename": 6, "fsync": 4, "pwrite64": 4, "unlink": 3}


def attack(n: int, seed: int) -> Tally:
    """Run the commands n times in total, and kill each run at a random system call."""
    return at_calls("kills at system calls", CALLS, lambda _: ("signal=KILL", ""), n, seed)


def at_calls(what: str, calls: tuple[str, ...], how, n: int, seed: int) -> Tally:
    """Run the commands of all scenes n times in total, and interrupt each run at a random system call.

    `how(choice)` returns strace's action (a signal or an error), and the suffix of its `when`.
    """
    tally, choice = Tally(what), random.Random(seed)
    if why := why_no_strace():
        tally.notes.append(f"not tried: {why}")
        return tally
    for number, scene in enumerate(SCENES):
        share = n // len(SCENES) + (number < n % len(SCENES))
        if not share:
            continue
        with tempfile.TemporaryDirectory() as folder:
            ready = stage(scene, Path(folder))
            ready.reset()
            counts = calls_of(scene.verb, ready.lake, ready.source, calls=calls)
            names = list(counts)
            weights = [_WEIGHTS.get(name, 1) for name in names]
            for _ in range(share):
                call = choice.choices(names, weights)[0]
                action, tail = how(choice)
                try_once(ready, inject(call, action, f"{choice.randint(1, counts[call])}{tail}"), tally)
    return tally
