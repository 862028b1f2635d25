"""The files that arrive in the inbox at each tick: captures with some late ranks, duplicate content, broken files."""

from __future__ import annotations

import gzip
import os
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from pipelines.synthetic.capture import CaptureSpec, write_capture

RANKS = 8
LATE, AGAIN, BROKEN = 0.1, 0.1, 0.05
"""Shares of traces that come a tick late, of traces that come twice, and of files that are not traces."""


@dataclass
class Drops:
    """The files to drop. `files`: by tick, (source path, name in the inbox).

    `good`: number of events of each trace, by name. `bad`: names of broken files.
    """

    files: list[list[tuple[Path, str]]]
    good: dict[str, int] = field(default_factory=dict)
    bad: list[str] = field(default_factory=list)
    duplicates: int = 0
    late: int = 0


def make_drops(folder: Path, traces: int, ticks: int, seed: int = 0) -> Drops:
    """Write the files of `ticks` ticks into a folder. Every capture has RANKS ranks, the last possibly fewer."""
    random = Random(seed)
    drops = Drops([[] for _ in range(ticks + 1)])  # the additional tick is for ranks that are late in the last tick
    for number in range(-(-traces // RANKS)):
        tick = number * RANKS * ticks // traces
        ranks = min(RANKS, traces - number * RANKS)
        name = f"job{number % 5}/capture{number:04d}"
        spec = CaptureSpec(ranks=ranks, steps=1, layers=2, ops_per_layer=2, seed=seed + number)
        for rank in write_capture(spec, folder / name).ranks:
            at = tick
            if random.random() < LATE:
                at, drops.late = tick + 1, drops.late + 1
            drops.files[at].append((rank.path, f"{name}/{rank.path.name}"))
            drops.good[f"{name}/{rank.path.name}"] = rank.n_events
            if random.random() < AGAIN:
                drops.duplicates += 1
                copy = rank.path.with_name(f"copy_of_{rank.path.name}")
                copy.write_bytes(gzip.compress(gzip.decompress(rank.path.read_bytes()), 9))  # other bytes, same trace
                drops.files[random.randrange(at, ticks + 1)].append((copy, f"again/{number}_{rank.path.name}"))
            if random.random() < BROKEN:
                _break(folder, random, drops, tick)
    return drops


def _break(folder: Path, random: Random, drops: Drops, tick: int) -> None:
    number = len(drops.bad)
    contents = (b"no trace at all", b"", random.randbytes(2000), b'{"schemaVersion": 1}', b'{"traceEvents": 7}')
    path = folder / f"broken{number}.json"
    path.write_bytes(contents[number % len(contents)])
    drops.bad.append(f"broken/{path.name}")
    drops.files[tick].append((path, drops.bad[-1]))


def drop(files: list[tuple[Path, str]], inbox: Path) -> None:
    """Copy files into the inbox, with modification times of a minute ago."""
    for source, name in files:
        target = inbox / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        then = time.time() - 60
        os.utime(target, (then, then))
