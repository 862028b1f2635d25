"""Tables about lakes larger than one machine: `make scale`, or `python -m bench.scale FOLDER [--quick]`.

There are five parts, each a separate program: the cost of another capture in larger lakes, the cost of one trace,
captures of up to 1,000 ranks, work on several nodes of which one is killed, and the SQL on another engine. A part whose
packages are missing names them, and the others run. Exits with 1 if a part fails.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

_MISSING = ("ModuleNotFoundError", "pipelines.base.extras.MissingExtra")
BEFORE = """
| CPU s, by captures in the lake | 1 | 10 | 100 | 1,000 |
|---|---|---|---|---|
| ingest | 0.60 | 0.49 | 0.78 | 1.4 |
| models of the new batch | 2.4 | 2.0 | 2.3 | 1.9 |
| models of the whole lake, nothing to do | 0.06 | 0.27 | 2.7 | 24 |
| publish | 0.8 | 1.2 | 3.7 | 33 |
| captures, one new | 1.8 | 2.1 | 8.8 | 81 |
| captures, nothing to do | 0.9 | 1.8 | 8.2 | 78 |
"""
"""Costs before they were independent of the lake's size, on another machine. Compare columns, not numbers."""


@dataclass(frozen=True)
class Part:
    """A program `bench.NAME`. `folder`: whether it needs a folder. `quick`: its arguments for a short run."""

    name: str
    title: str
    folder: bool = True
    quick: tuple[str, ...] = ("--quick",)


PARTS = (
    Part("growth", "One more capture of 8 traces", quick=("--sizes", "1", "10")),
    Part("scale_sizing", "One trace", quick=("--mb", "2")),
    Part("scale_ranks", "Captures of many ranks", quick=("--ranks", "8", "64")),
    Part("scale_proof", "The work on several nodes, one of them killed", quick=("--traces", "16")),
    Part("scale_engines", "The same SQL on other engines", folder=False),
)


def main() -> None:
    """Run the parts and print their output."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="lakes are made here, and kept")
    parser.add_argument("--quick", action="store_true", help="small sizes: minutes")
    parser.add_argument("--only", nargs="*", choices=[part.name for part in PARTS], help="only these parts")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    chosen = [part for part in PARTS if not options.only or part.name in options.only]
    failed = [part.name for part in chosen if not ran(part, options.folder, options.quick)]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def ran(part: Part, folder: Path, quick: bool) -> bool:
    """Run a part and print its tables. Return False if it fails, but True if a package is missing."""
    print(f"\n## {part.title}\n", flush=True)
    module = f"bench.{part.name}"
    if importlib.util.find_spec(module) is None:
        print(f"not here: {module}")
        return True
    if part.name == "growth":
        print(f"before:\n{BEFORE}\nnow:\n", flush=True)
    words = [str(folder / part.name)] if part.folder else []
    command = [sys.executable, "-m", module, *words, *(part.quick if quick else ())]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    lines: list[str] = []  # lines of a traceback, which are printed unless a package is missing
    for line in process.stderr or ():
        if lines or line.startswith("Traceback"):
            lines.append(line)
        else:
            sys.stderr.write(line)
    if process.wait() == 0:
        return True
    missing = lines[-1].strip() if lines else ""
    if missing.startswith(_MISSING):
        print(f"not run: {missing}")
        return True
    sys.stderr.write("".join(lines))
    print(f"failed with {process.returncode}: {missing}")
    return False


if __name__ == "__main__":
    main()
