"""Op-level job traces → the lake, once by content, together with the results of the what-if model."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from pathlib import Path

from pipelines.fleet.op_job.job import JobRejected
from pipelines.fleet.op_job.ops_file import is_job_file, read_job
from pipelines.fleet.op_job.result_rows import Row, job_row, part_rows, score_rows, step_rows
from pipelines.fleet.op_job.sizes import meta_file, meta_names
from pipelines.fleet.op_job.whatif import WhatIf, what_if
from pipelines.lake.names import JOB_MARK
from pipelines.readers.inputs import Read, Reading, SetInput


def job_files(files: Iterable[Path]) -> dict[Path, set[Path]]:
    """Returns the jobs, each with those of its two files that were given.

    A YAML file that is given alone, after its Parquet file, brings that file with it.
    """
    found: dict[Path, set[Path]] = {}
    for path in files:
        for job in (path, *_described(path)):
            if is_job_file(job):
                found.setdefault(job, set()).add(path)
    return found


def _described(path: Path) -> list[Path]:
    """Returns the Parquet files that a YAML file may describe."""
    if path.suffix not in (".yaml", ".yml"):
        return []
    beside = [path.with_suffix(".parquet"), path.with_name(f"trace-{path.stem.removeprefix('meta-')}.parquet")]
    return [job for job in beside if job.is_file() and path.name in meta_names(job)]


def stage_job(reading: Reading, path: Path, _: Collection[Path]) -> Read:
    """Stage one job. Raises JobRejected, or OSError if a file cannot be read."""
    job_id = content_id(path, meta_file(path))
    if job_id in reading.known:
        return Read(job_id, status="known")
    found = what_if(read_job(path))
    for table, rows in _tables(found, reading.job).items():
        reading.add_rows(table, rows)
    return Read(job_id, found.job.n_ops)


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


INPUT = SetInput(
    scope="job",
    suffixes=(".parquet", ".yaml", ".yml"),
    recognise=job_files,
    read=stage_job,
    refusals=(JobRejected,),
)
