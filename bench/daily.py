"""CPU seconds of runs that find nothing new, by number of traces of today: of `daily`, and of the whole job.

`python -m bench.daily FOLDER [--sizes 30 300]`; part of `make growth`. Each trace has its own batch, as in a lake that
the sensor fills. The runs are the ones that Dagster would start, with its records in SQLite, but they run in this
process, without Dagster's start, which does not depend on the lake.
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
_TIMES = 3  # repetitions of steps of a second or less, of which the minimum counts
LIMIT = 2.0  # maximum ratio of costs for ten times the batches, because each asset lists all files of its day
WHOLE = "the whole job, nothing new"
DECIDE = "`daily`: decide what to run"
GROWING = {
    WHOLE: "assets, checks and pictures of the day look at each of its batches",
    DECIDE: "it looks at the name, size and time of each file in the watched folder",
}
"""Rows that may grow by more than LIMIT, with the reason. The command prints it, but does not fail."""


def prepared(folder: Path, n: int) -> Lake:
    """Build and publish a lake of `n` traces of today, or reuse it if it was built today."""
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
    """Yield the name of each run and its CPU seconds. Before that, run the whole job once, so that no file is new."""
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
    """Return a folder with a file for each trace, recorded as ingested. The files are never read."""
    folder.mkdir()
    files = {folder / f"{trace_id}.json": trace_id for trace_id in lake.known_traces()}
    for path in files:
        path.write_text("{}")
    settle(lake, {path: Outcome(state_of(path), "ok", trace_id) for path, trace_id in files.items()})
    return folder


def grown(costs: Mapping[str, Mapping[int, float]]) -> dict[str, float]:
    """Return the rows that cost over LIMIT times as much at the largest size as at the smallest, with the ratio."""
    ratios = {step: row[max(row)] / row[min(row)] for step, row in costs.items()}
    return {step: ratio for step, ratio in ratios.items() if ratio > LIMIT}


def main() -> None:
    """Measure and print the table. Exit with 1 if a row that is not in GROWING grows by more than LIMIT."""
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
