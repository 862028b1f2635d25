"""Captures without some of their ranks. Every answer must name the missing ranks."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import tempfile
from pathlib import Path

from bench.attack.children import ROOT, TRACELAKE
from bench.attack.tally import Tally
from pipelines.synthetic import CaptureSpec, write_capture

COMMANDS = ("why", "stragglers")
_SPEC = CaptureSpec(ranks=4, steps=2, layers=2, seed=7)


def attack(n: int, seed: int) -> Tally:
    """Run a command on `n` folders, each without one or two of its ranks."""
    tally, choice = Tally("folders without a rank"), random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        whole, part = Path(folder, "whole"), Path(folder, "part")
        write_capture(_SPEC, whole)
        for _ in range(n):
            name, ranks = choice.choice(COMMANDS), sorted(choice.sample(range(_SPEC.ranks), choice.choice((1, 1, 2))))
            shutil.rmtree(part, ignore_errors=True)
            shutil.copytree(whole, part)
            for rank in ranks:
                next(part.glob(f"*rank{rank}*")).unlink()
            try_once([name, str(part), "--lake", str(Path(folder, "none")), "--json"], ranks, tally)
    return tally


def try_once(words: list[str], ranks: list[int], tally: Tally) -> None:
    """Run the command `words` on a folder without `ranks`, and check that a caveat names these missing ranks."""
    command = [*TRACELAKE, *words]
    done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, check=False)
    where = f"{words[0]} without rank {', '.join(map(str, ranks))}"
    tally.tried += 1
    if "Traceback" in done.stderr or done.returncode:
        tally.tracebacks += 1
        tally.notes.append(f"{where}: exit {done.returncode} {done.stderr.strip()[-300:]}")
        return
    answer = json.loads(done.stdout)
    caveats = (answer if isinstance(answer, dict) else answer[0])["caveats"]
    details = [str(caveat) for caveat in caveats if caveat.get("caveat") == "missing_ranks"]
    if not any(f"missing ({', '.join(map(str, ranks))})" in text for text in details):
        tally.silent += 1
        tally.notes.append(f"{where}: the caveats are {details}")
        return
    tally.survived += 1
