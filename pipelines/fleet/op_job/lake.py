"""The ingestion of op-level job traces into the lake, with the results of the what-if model.

A job with known content is not ingested again.
"""

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
    """Return the jobs (Parquet files), each with the files in `files` that belong to it.

    A YAML file also adds the Parquet file that it describes, because the YAML file may arrive later.
    """
    files_by_job: dict[Path, set[Path]] = {}
    for path in files:
        for job in (path, *_described(path)):
            if is_job_file(job):
                files_by_job.setdefault(job, set()).add(path)
    return files_by_job


def _described(path: Path) -> list[Path]:
    """Return the existing Parquet files that the YAML file `path` may describe."""
    if path.suffix not in (".yaml", ".yml"):
        return []
    candidates = [path.with_suffix(".parquet"), path.with_name(f"trace-{path.stem.removeprefix('meta-')}.parquet")]
    return [job for job in candidates if job.is_file() and path.name in meta_names(job)]


def stage_job(reading: Reading, path: Path, _: Collection[Path]) -> Read:
    """Stage one job. Raise JobRejected, or OSError if a file cannot be read."""
    job_id = content_id(path, meta_file(path))
    if job_id in reading.known:
        return Read(job_id, status="known")
    result = what_if(read_job(path))
    for table, rows in _tables(result, reading.job).items():
        reading.add_rows(table, rows)
    return Read(job_id, result.job.n_ops)


def content_id(path: Path, meta: Path) -> str:
    """Return 16 hex digits of a hash over the content of both files."""
    digest = hashlib.sha256()
    for file in (path, meta):
        with file.open("rb") as content:
            digest.update(hashlib.file_digest(content, "sha256").digest())
    return digest.hexdigest()[:16]


def _tables(result: WhatIf, name: str | None) -> dict[str, list[Row]]:
    job = job_row(result) | ({"job": name} if name else {})
    parts = [{**row, "job": job["job"]} for row in part_rows(result)]
    ingested = {"ingested_at": datetime.now(UTC).replace(tzinfo=None)}  # as in Reading.file_columns
    return {
        JOB_MARK: [{**job, **ingested}],
        "op_job_what_if": parts,
        "op_job_steps": step_rows(result),
        "op_job_rank_scores": score_rows(result),
    }


INPUT = SetInput(
    scope="job",
    suffixes=(".parquet", ".yaml", ".yml"),
    recognise=job_files,
    read=stage_job,
    refusals=(JobRejected,),
)
