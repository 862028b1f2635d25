"""Bytes per rank and step of the digests of a few small traces, by number of traces and steps.

`python -m bench.digest_small FOLDER [--traces 1 10 36 50] [--steps 1 2 3]`. Each trace is a capture of one rank, with
its own seed. All are of one day and reduced by one run, so their digest has one file per table.
"""

from __future__ import annotations

import argparse
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pipelines.lake import Lake
from pipelines.readers.ingest import ingest
from pipelines.runs.digest import reduce_old
from pipelines.synthetic import CaptureSpec, write_capture


def bytes_per_step(folder: Path, traces: int, steps: int) -> float:
    """Return the bytes of a lake's Parquet files per rank and step, after its traces are reduced to digests."""
    shutil.rmtree(folder, ignore_errors=True)
    lake, paths = Lake(folder / "lake"), []
    for seed in range(1, traces + 1):
        paths += write_capture(CaptureSpec(ranks=1, steps=steps, seed=seed), folder / "in" / f"{seed}").paths
    ingest(paths, lake)
    reduced = reduce_old(lake, 1, timedelta(0), now=datetime.now(UTC) + timedelta(days=3))
    assert sum(len(batch.traces) for batch in reduced if batch.state == "reduced") == traces, reduced
    return sum(path.stat().st_size for path in lake.root.glob("*/day=*/*.parquet")) / traces / steps


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="the lakes are made here")
    parser.add_argument("--traces", type=int, nargs="*", default=[1, 10, 36, 50])
    parser.add_argument("--steps", type=int, nargs="*", default=[1, 2, 3])
    asked = parser.parse_args()
    print("| steps of a trace | " + " | ".join(f"{n:,} traces" if n > 1 else "1 trace" for n in asked.traces) + " |")
    print("|---|" + "---:|" * len(asked.traces))
    for steps in asked.steps:
        sizes = (bytes_per_step(asked.folder / f"{n}-{steps}", n, steps) for n in asked.traces)
        print(f"| {steps} | " + " | ".join(f"{size:,.0f}" for size in sizes) + " |", flush=True)


if __name__ == "__main__":
    main()
