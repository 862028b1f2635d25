"""What runs cost that find nothing new, by how many traces came today: CPU seconds of `daily`, and of the whole job.

`python -m bench.daily FOLDER [--sizes 30 300]`; part of `make growth`. Each trace came alone, so each has a batch of
its own, as in a lake that the sensor fills. The runs are those that Dagster would start, with its records in SQLite, but in this
process: without its start, which does not depend on the lake.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, time
from pathlib import Path
from typing import Any

import dagster as dg

from bench.growth import cloned, cpu, seed_lake
from pipelines.lake import Lake
from pipelines.lake.commit.ingested_files import Outcome, settle, state_of
from pipelines.runs.materialize.run_order import materialize_all

SIZES = (30, 300)
_TIMES = 3  # of what takes a second or less, the least counts
LIMIT = 2.0  # times, for ten times the batches: each asset names all files of its day
WHOLE = "the whole job, nothing new"
DECIDE = "`daily`: decide what to run"
GROWING = {
    WHOLE: "assets, checks and pictures of the day look at each of its batches",
    DECIDE: "it looks at the name, size and time of each file in the watched folder",
}
"""What does not hold: said, and not held against the others."""


def prepared(folder: Path, n: int) -> Lake:
    """Returns the lake of `n` traces that came today, published; made anew if it is of another day."""
    seed, root = seed_lake(folder / "seed1", ranks=1), folder / f"day{n}"
    made = folder / f"day{n}.made"
    midnight = datetime.combine(datetime.now(UTC).date(), time())
    if not made.exists() or made.read_text() != f"{midnight}":
        print(f"making a lake of {n} traces of today", file=sys.stderr)
        cloned(seed, root, n, midnight)
        made.write_text(f"{midnight}")
    materialize_all(Lake(root))
    return Lake(root)


def measured(lake: Lake, home: Path) -> Iterator[tuple[str, float]]:
    """Yields what runs, and its CPU seconds. The whole job runs once before, so that its checks have seen all files."""
    from dagster_project.definitions import definitions
    from dagster_project.demo import QUIET
    from dagster_project.sensors import daily_schedule
    from dagster_project.serve import prepare

    shutil.rmtree(home, ignore_errors=True)
    os.environ["DAGSTER_HOME"], os.environ["TRACELAKE_LAKE"] = str(home), str(lake.root)
    home.mkdir(parents=True)
    os.environ["TRACELAKE_INBOX"] = str(_inbox(lake, home / "inbox"))
    prepare(home)
    at = datetime.now(UTC)
    with dg.DagsterInstance.get() as instance:
        context = dg.build_schedule_context(instance=instance, scheduled_execution_time=at)
        job = definitions(str(lake.root)).resolve_job_def("ingest_and_analyse")
        whole: dict[str, Any] = {"instance": instance, "partition_key": f"{at:%Y-%m-%d}", "run_config": QUIET}
        job.execute_in_process(**whole)
        yield WHOLE, cpu(lambda: job.execute_in_process(**whole))
        schedule = daily_schedule(str(lake.root))
        yield DECIDE, min(cpu(lambda: schedule(context)) for _ in range(_TIMES))
        request = schedule(context)
        assert isinstance(request, dg.RunRequest)
        asked = {"run_config": {**request.run_config, **QUIET}, "asset_selection": request.asset_selection}
        yield (
            "`daily`, nothing new",
            min(cpu(lambda: job.execute_in_process(**{**whole, **asked})) for _ in range(_TIMES)),
        )


def _inbox(lake: Lake, folder: Path) -> Path:
    """Returns a folder with a file for each trace, which counts as ingested; nobody reads it."""
    folder.mkdir()
    files = {folder / f"{trace_id}.json": trace_id for trace_id in lake.known_traces()}
    for path in files:
        path.write_text("{}")
    settle(lake, {path: Outcome(state_of(path), "ok", trace_id) for path, trace_id in files.items()})
    return folder


def grown(costs: Mapping[str, Mapping[int, float]]) -> dict[str, float]:
    """Returns the rows that cost more than LIMIT times as much at the largest size as at the smallest."""
    ratios = {step: row[max(row)] / row[min(row)] for step, row in costs.items()}
    return {step: ratio for step, ratio in ratios.items() if ratio > LIMIT}


def main() -> None:
    """Measure and print the table; ends with 1 where a row grows by more than LIMIT that is not in GROWING."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="the lakes are made here, and kept for the day")
    parser.add_argument("--sizes", type=int, nargs="*", default=list(SIZES))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    costs: dict[str, dict[int, float]] = {}
    for size in options.sizes:
        for step, seconds in measured(prepared(options.folder.absolute(), size), options.folder.absolute() / "home"):
            costs.setdefault(step, {})[size] = seconds
            print(f"{size:5} {step:42} {seconds:8.2f}", file=sys.stderr, flush=True)
    print("| CPU s, by traces that came today | " + " | ".join(f"{size:,}" for size in options.sizes) + " |")
    print("|---|" + "---|" * len(options.sizes))
    for step, row in costs.items():
        print(f"| {step} | " + " | ".join(f"{row[size]:.2f}" for size in options.sizes) + " |")
    ratios = grown(costs)
    for step, ratio in ratios.items():
        known = GROWING.get(step, f"at most {LIMIT}")
        print(f"{step}: {ratio:.1f} times as much for {max(options.sizes)} traces as for {min(options.sizes)}; {known}")
    sys.exit(not ratios.keys() <= GROWING.keys())


if __name__ == "__main__":
    main()
