"""Runs of schedules → the lake: folders of Parquet files that `python -m pipelines.schedule.run` wrote.

A run comes in once, by its run_id, and whole: its rows become visible with the file of `schedule_runs`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import duckdb

from pipelines import database
from pipelines.lake.commit import commit_tables
from pipelines.lake.layout import RUN_MARK, Batch, tables_of
from pipelines.lake.rows import all_or_nothing, create_empty, staged_tables, unforeseen
from pipelines.lake.store import Lake
from pipelines.models.catalog import Catalog, Model, load_catalog
from pipelines.models.header import RUN
from pipelines.models.sqlfile import STAGED
from pipelines.sqltext import file_list, first_line, quoted

RUN_TABLES = tables_of(RUN)
_NEEDED = ("schedule_runs", "schedule_plans", "schedule_task_timings")


class RunRejected(Exception):
    """A folder that is not a complete run; the message says what is missing."""


@dataclass(frozen=True)
class RunRow:
    """What became of one run's folder. `status`: ok, known or rejected."""

    folder: Path
    status: str
    run_id: str | None = None
    n_timings: int | None = None
    seconds: float = 0.0
    reason: str | None = None


def run_folders(files: Iterable[Path]) -> list[Path]:
    """The folders among the files' that hold a run."""
    return sorted({path.parent for path in files if path.name == f"{RUN_MARK}.parquet"})


def is_run_table(path: Path) -> bool:
    """A table of a run and no trace."""
    return path.suffix == ".parquet" and path.stem in RUN_TABLES


def ingest_runs(folders: Iterable[Path], lake: Lake) -> list[RunRow]:
    """Put runs into the lake, all that are new in one batch. Raises OSError if the lake cannot be written."""
    catalog = load_catalog()
    batch = lake.new_batch()
    with database.connect() as con:
        create_empty(con, catalog, RUN)
        con.execute("CREATE SCHEMA one")
        rows = [_add(con, catalog, Path(folder), batch) for folder in folders]
        if any(run.status == "ok" for run in rows):
            already_committed = commit_tables(con, lake, batch, RUN, lambda: _forget_known_plans(con, lake))
            rows = [RunRow(r.folder, "known", r.run_id) if r.run_id in already_committed else r for r in rows]
    return rows


def _create(con: duckdb.DuckDBPyConnection, model: Model, folder: Path) -> None:
    """Create a table of runs in schema `one` from its file in a folder (no file: empty), with its columns and types."""
    path = folder / f"{model.name}.parquet"
    columns = list(model.staged)
    if not path.exists():
        given = f"SELECT {', '.join(f'CAST(NULL AS VARCHAR) AS {name}' for name in columns)} LIMIT 0"
    else:
        there = {found[0] for found in con.execute(f"DESCRIBE FROM read_parquet({quoted(path)})").fetchall()}
        chosen = [name if name in there else f"CAST(NULL AS VARCHAR) AS {name}" for name in columns]
        given = f"SELECT {', '.join(chosen)} FROM read_parquet({quoted(path)})"
    con.execute(f"CREATE OR REPLACE TEMP VIEW {STAGED}{model.name} AS {given}")
    con.execute(f"CREATE OR REPLACE TABLE one.{model.name} AS {model.sql}")
    con.execute(f"DROP VIEW {STAGED}{model.name}")


def _add(con: duckdb.DuckDBPyConnection, catalog: Catalog, folder: Path, batch: Batch) -> RunRow:
    started = time.perf_counter()
    try:
        run_id = _read(con, catalog, folder)
        if con.execute(f"SELECT run_id FROM {RUN_MARK} WHERE run_id = {quoted(run_id)}").fetchall():
            return RunRow(folder, "known", run_id, seconds=time.perf_counter() - started)
        with all_or_nothing(con):
            for table in staged_tables(catalog, RUN):
                chosen = f"SELECT * REPLACE ({quoted(run_id)} AS run_id, {quoted(batch.batch_id)} AS batch_id)"
                con.execute(f"INSERT INTO main.{table} {chosen} FROM one.{table}")
        n_timings = con.execute("SELECT count(*) FROM one.schedule_task_timings").fetchall()[0][0]
    except RunRejected as rejection:
        return RunRow(folder, "rejected", reason=str(rejection))
    except duckdb.Error as error:
        return RunRow(folder, "rejected", reason=f"DuckDB cannot read it: {first_line(error)}")
    except Exception as error:
        return RunRow(folder, "rejected", reason=unforeseen(error))
    return RunRow(folder, "ok", run_id, n_timings, time.perf_counter() - started)


def _read(con: duckdb.DuckDBPyConnection, catalog: Catalog, folder: Path) -> str:
    """Create the tables of one run in schema `one`; returns its id. Raises RunRejected."""
    missing = [table for table in _NEEDED if not (folder / f"{table}.parquet").exists()]
    if missing:
        raise RunRejected(f"incomplete run: {', '.join(missing)} missing; run the schedule again with --out")
    for table in staged_tables(catalog, RUN):
        _create(con, catalog.models[table], folder)
    runs = con.execute(f"SELECT run_id FROM one.{RUN_MARK}").fetchall()
    if len(runs) != 1 or not runs[0][0]:
        raise RunRejected(f"{RUN_MARK}.parquet holds {len(runs)} runs; a folder may hold only one")
    return runs[0][0]


def _forget_known_plans(con: duckdb.DuckDBPyConnection, lake: Lake) -> None:
    """A plan's tasks stand once in the lake, with the first run that brought them."""
    con.execute(
        "DELETE FROM schedule_plans WHERE (plan_hash, run_id) NOT IN "
        "(SELECT plan_hash, min(run_id) FROM schedule_plans GROUP BY plan_hash)"
    )
    if files := lake.committed_files("schedule_plans"):
        known = f"SELECT plan_hash FROM read_parquet({file_list(files)})"
        con.execute(f"DELETE FROM schedule_plans WHERE plan_hash IN ({known})")
