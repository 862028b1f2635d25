"""Full and failing disks: ENOSPC and EIO at the n-th write, rename, fsync, … of a verb, once or from then on."""

from __future__ import annotations

from bench.attack.kills import at_calls
from bench.attack.tally import Tally

CALLS = ("rename", "fsync", "fdatasync", "ftruncate", "mkdir", "pwrite64")


def attack(n: int, seed: int) -> Tally:
    """Run the commands n times in total. In each run, a random system call fails."""
    return at_calls("full and failing disks", CALLS, _how, n, seed)


def _how(choice) -> tuple[str, str]:
    return f"error={choice.choice(('ENOSPC', 'EIO'))}", choice.choice(("", "+"))
