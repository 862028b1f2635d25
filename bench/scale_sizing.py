"""Cost of one trace: CPU seconds to ingest and to compute all tables, and bytes in the lake, for two sizes of trace.

`python -m bench.scale_sizing FOLDER [--mb 2 54]`. `make scale` prints the table, and docs/scaling.md uses its numbers.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import sys
from dataclasses import replace
from pathlib import Path

from bench.scale_ranks import cost_of
from pipelines.lake import Lake
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize.per_trace import materialize
from pipelines.synthetic import CaptureSpec, steps_for, write_capture

_A_DAY = 100_000


def main() -> None:
    """Measure and print the table, or with --step run one step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="traces and lakes are made here")
    parser.add_argument("--mb", type=float, nargs="*", default=[2.0, 54.0], help="sizes of a trace before gzip")
    parser.add_argument("--step", choices=("write", "ingest", "models"))
    options = parser.parse_args()
    if options.step:
        _do(options.step, options.folder, options.mb[0])
        return
    print(
        f"on {platform.machine()}, {platform.processor() or 'processor not named'}, Python {platform.python_version()}\n"
    )
    print("| MB of JSON | events | packed MB | ingest, CPU s | models, CPU s | peak MB | lake MB | a day of 100,000 |")
    print("|---|---|---|---|---|---|---|---|")
    for size in options.mb:
        print(_row(options.folder / f"mb{size:g}", size), flush=True)


def _do(step: str, folder: Path, size: float) -> None:
    lake = Lake(folder / "lake")
    if step == "write":
        spec = CaptureSpec(ranks=1, layers=8, seed=3)
        capture = write_capture(replace(spec, steps=steps_for(spec, int(size * 1e6))), folder / "in")
        (folder / "events").write_text(str(capture.ranks[0].n_events))
    elif step == "ingest":
        ingest([folder / "in"], lake)
    else:
        materialize(lake, and_publish=False)


def _row(folder: Path, size: float) -> str:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    costs = {}
    for step in ("write", "ingest", "models"):
        command = [sys.executable, "-m", __spec__.name, str(folder), "--mb", str(size), "--step", step]
        costs[step] = cost_of(command, folder / "log.txt")
    packed = sum(path.stat().st_size for path in (folder / "in").iterdir()) / 1e6
    stored = sum(path.stat().st_size for path in (folder / "lake").rglob("*.parquet")) / 1e6
    cpu = costs["ingest"].cpu_s + costs["models"].cpu_s
    peak = max(costs["ingest"].peak, costs["models"].peak) / 1e6
    day = f"{cpu * _A_DAY / 3600:,.0f} core hours, {stored * _A_DAY / 1e6:,.2f} TB"
    events = int((folder / "events").read_text())
    cells = [f"{size:g}", f"{events:,}", f"{packed:.1f}"]
    cells += [f"{costs['ingest'].cpu_s:.1f}", f"{costs['models'].cpu_s:.1f}", f"{peak:,.0f}", f"{stored:.1f}", day]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
