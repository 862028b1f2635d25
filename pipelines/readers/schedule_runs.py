"""Runs of schedules: folders of Parquet files written by `python -m pipelines.schedule.run`.

A run is ingested once per run_id. All its rows become visible together, with the file of `schedule_runs`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

import duckdb

from pipelines.lake.lake import Lake
from pipelines.lake.names import RUN_MARK, tables_of
from pipelines.models.header import RUN
from pipelines.models.sqltext import parquet_rows
from pipelines.readers.inputs import Read, Reading, Rejected, SetInput

RUN_TABLES = tables_of(RUN)
_NEEDED = ("schedule_runs", "schedule_plans", "schedule_task_timings")


def run_folders(files: Iterable[Path]) -> dict[Path, list[Path]]:
    """Return the folders that contain a run, each with its tables among the files.

    The commit marker need not be among the files, because a table may be copied into the folder later.
    """
    tables = [path for path in files if path.suffix == ".parquet" and path.stem in RUN_TABLES]
    folders = sorted({path.parent for path in tables if path.with_stem(RUN_MARK).exists()})
    return {folder: [path for path in tables if path.parent == folder] for folder in folders}


def read_run(reading: Reading, folder: Path, _: Collection[Path]) -> Read:
    """Stage the tables of one run.

    Raise Rejected if the folder is incomplete, has rows of another run, or is from another version of tracelake.
    """
    missing = [table for table in _NEEDED if not (folder / f"{table}.parquet").exists()]
    if missing:
        raise Rejected(f"incomplete run: {', '.join(missing)} missing; run the schedule again with --out")
    for table in reading.tables:
        reading.add_files(table, [path for path in [folder / f"{table}.parquet"] if path.exists()])
    mark = parquet_rows(folder / f"{RUN_MARK}.parquet")
    if "jitter_ns" not in {name for name, *_ in reading.con.execute(f"DESCRIBE FROM {mark}").fetchall()}:
        raise Rejected("another version of tracelake wrote it: run the schedule again with --out")
    runs = reading.con.execute(f"SELECT run_id, plan_hash FROM one.{RUN_MARK}").fetchall()
    if len(runs) != 1:
        raise Rejected(f"{RUN_MARK}.parquet holds {len(runs)} runs; a folder may hold only one")
    run_id, plan_hash = runs[0]
    if not run_id:
        raise Rejected(f"the run in {RUN_MARK}.parquet has no run_id; run the schedule again with --out")
    if run_id in reading.known:
        return Read(run_id, status="known")
    _check_rows(reading, run_id, plan_hash)
    return Read(run_id, reading.count("schedule_task_timings"))


def _check_rows(reading: Reading, run_id: str, plan_hash: str | None) -> None:
    """Raise Rejected if a table has rows of another run or plan. `Reading.keep` would make them rows of this run."""
    remedy = "copy the whole folder of one run, or run the schedule again with --out"
    for table in reading.tables:
        runs = f"SELECT run_id FROM one.{table} WHERE run_id <> $run LIMIT 1"
        for (other,) in reading.con.execute(runs, {"run": run_id}).fetchall():
            raise Rejected(f"{table}.parquet has rows of run {other} in the folder of run {run_id}; {remedy}")
    plans = "SELECT plan_hash FROM one.schedule_plans WHERE plan_hash IS DISTINCT FROM $plan LIMIT 1"
    for (other,) in reading.con.execute(plans, {"plan": plan_hash}).fetchall():
        raise Rejected(f"schedule_plans.parquet has plan {other}, but run {run_id} has plan {plan_hash}; {remedy}")


def _forget_known_plans(con: duckdb.DuckDBPyConnection, lake: Lake) -> None:
    """Delete plans that the lake already has, because a plan's tasks are stored once, with its first run."""
    con.execute(
        "DELETE FROM schedule_plans WHERE (plan_hash, run_id) NOT IN "
        "(SELECT plan_hash, min(run_id) FROM schedule_plans GROUP BY plan_hash)"
    )
    if files := lake.committed_files("schedule_plans"):
        known_hashes = f"SELECT plan_hash FROM {parquet_rows(files)}"
        con.execute(f"DELETE FROM schedule_plans WHERE plan_hash IN ({known_hashes})")


INPUT = SetInput(
    scope="run",
    suffixes=(".parquet",),
    recognise=run_folders,
    read=read_run,
    before_put=_forget_known_plans,
)
