"""Op-level job traces → the lake: once by content, what the what-if model makes of them with them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import duckdb

from pipelines import database
from pipelines.fleet.straggler.job import JobRejected
from pipelines.fleet.straggler.read import is_job_file, read_job
from pipelines.fleet.straggler.rows import Row, job_row, part_rows, score_rows, step_rows
from pipelines.fleet.straggler.sizes import meta_file, meta_names
from pipelines.fleet.straggler.whatif import WhatIf, what_if
from pipelines.lake.commit import commit_tables
from pipelines.lake.layout import JOB_MARK, Batch
from pipelines.lake.rows import all_or_nothing, create_empty, insert_rows, unforeseen
from pipelines.lake.store import Lake
from pipelines.models.catalog import load_catalog
from pipelines.models.header import JOB


@dataclass(frozen=True)
class JobRow:
    """What became of one job's file. `status`: ok, known (the content of both files is in the lake) or rejected."""

    path: Path
    status: str
    job_id: str | None = None
    n_ops: int | None = None
    seconds: float = 0.0
    reason: str | None = None


def job_files(files: Iterable[Path]) -> dict[Path, set[Path]]:
    """The jobs among the files, each with those of its two files that were given.

    A YAML file that came alone, after its Parquet file, brings that with it.
    """
    found: dict[Path, set[Path]] = {}
    for path in files:
        for job in (path, *_described(path)):
            if is_job_file(job):
                found.setdefault(job, set()).add(path)
    return found


def _described(path: Path) -> list[Path]:
    """The Parquet files whose sizes a YAML file may hold."""
    if path.suffix not in (".yaml", ".yml"):
        return []
    beside = [path.with_suffix(".parquet"), path.with_name(f"trace-{path.stem.removeprefix('meta-')}.parquet")]
    return [job for job in beside if job.is_file() and path.name in meta_names(job)]


def ingest_jobs(paths: Iterable[Path], lake: Lake, name: str | None = None) -> list[JobRow]:
    """Put jobs into the lake, all that are new in one batch; `name`: of the job, instead of the YAML file's.

    Raises duckdb.IOException or OSError if the lake cannot be written.
    """
    catalog = load_catalog()
    batch = lake.new_batch()
    with database.connect() as con:
        create_empty(con, catalog, JOB)
        known = set(lake.known(JOB_MARK))
        rows = [_add(con, path, batch, known, name) for path in paths]
        if any(row.status == "ok" for row in rows):
            already_committed = commit_tables(con, lake, batch, JOB)
            rows = [JobRow(row.path, "known", row.job_id) if row.job_id in already_committed else row for row in rows]
    return rows


def _add(con: duckdb.DuckDBPyConnection, path: Path, batch: Batch, known: set[str], name: str | None) -> JobRow:
    started = time.perf_counter()
    try:
        job_id = content_id(path, meta_file(path))
        if job_id in known:
            return JobRow(path, "known", job_id, seconds=time.perf_counter() - started)
        found = what_if(read_job(path))
        with all_or_nothing(con):
            for table, rows in _tables(found, name).items():
                insert_rows(con, table, [{**row, "job_id": job_id, "batch_id": batch.batch_id} for row in rows])
    except JobRejected as rejection:
        return JobRow(path, "rejected", seconds=time.perf_counter() - started, reason=str(rejection))
    except OSError as error:
        return JobRow(path, "rejected", seconds=time.perf_counter() - started, reason=f"cannot be read: {error}")
    except Exception as error:
        return JobRow(path, "rejected", seconds=time.perf_counter() - started, reason=unforeseen(error))
    known.add(job_id)
    return JobRow(path, "ok", job_id, found.job.n_ops, time.perf_counter() - started)


def content_id(path: Path, meta: Path) -> str:
    """16 hex digits over the content of both files."""
    digest = hashlib.sha256()
    for file in (path, meta):
        with file.open("rb") as content:
            digest.update(hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest()[:16]


def _tables(found: WhatIf, name: str | None) -> dict[str, list[Row]]:
    job = job_row(found) | ({"job": name} if name else {})
    parts = [{**row, "job": job["job"]} for row in part_rows(found)]
    now = {"ingested_at": datetime.now(UTC)}
    return {
        JOB_MARK: [{**job, **now}],
        "op_job_what_if": parts,
        "op_job_steps": step_rows(found),
        "op_job_rank_scores": score_rows(found),
    }
