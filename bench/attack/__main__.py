"""`python -m bench.attack`: run all attacks on a lake and print their results. `make attack` is the middle size."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import resource
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.attack.tally import Tally

# Number of tries of an attack (files, kills, …), for the sensor seconds: short, default, long.
SIZES = {
    "files": (60, 1000, 10_000),
    "tools": (50, 1000, 10_000),
    "kills": (5, 100, 1000),
    "disk": (5, 60, 500),
    "flips": (10, 150, 1200),
    "stops": (6, 2000, 10_000),
    "concurrent_compact": (3, 40, 400),
    "pages": (20, 300, 3000),
    "ranks": (2, 12, 100),
    "sensor": (10, 60, 600),
}
NOTES = 20


def main() -> int:
    """Run the requested attacks. Return 1 if anything was lost or silent, or raised a traceback, else 0."""
    options = _options()
    size = 0 if options.short else 2 if options.long else 1
    table = Table("attack", *("tried", "survived", "lost", "silent", "tracebacks", "CPU s"), title="attacks")
    notes: list[str] = []
    passed = True
    for part, sizes in SIZES.items():
        if (options.only and part not in options.only) or not importlib.util.find_spec(f"bench.attack.{part}"):
            continue
        before = cpu_seconds()
        tally: Tally = importlib.import_module(f"bench.attack.{part}").attack(options.n or sizes[size], options.seed)
        counts = (tally.tried, tally.survived, tally.lost, tally.silent, tally.tracebacks)
        table.add_row(tally.what, *map(str, counts), f"{cpu_seconds() - before:.0f}")
        notes += [f"{part}: {note}" for note in tally.notes[:NOTES]]
        passed = passed and not (tally.lost or tally.silent or tally.tracebacks)
        Console(stderr=True).print(f"{part}: {counts[0]} tried", highlight=False)
    out = Console()
    out.print(table)
    for note in notes:
        out.print(note, markup=False, highlight=False, soft_wrap=True)
    return 0 if passed else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.attack", description=__doc__)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--short", action="store_true", help="a minute or two")
    size.add_argument("--long", action="store_true", help="hours: 10,000 files, 1,000 kills, 10 minutes of the sensor")
    parser.add_argument("--seed", type=int, default=1, help="another seed tries others; the same one the same")
    parser.add_argument("--only", nargs="+", choices=list(SIZES), help="these attacks")
    parser.add_argument("--n", type=int, help="how many of each, whatever the size says")
    return parser.parse_args()


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and its ended children, including the fork server and its children."""
    from multiprocessing.forkserver import _forkserver  # the fork server's children are not children of this process

    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    total = sum(usage.ru_utime + usage.ru_stime for usage in used)
    try:
        fields = Path(f"/proc/{_forkserver._forkserver_pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, AttributeError):
        return total
    return total + sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    raise SystemExit(main())
