"""Flight Recorder dumps → the lake: all dumps of a folder are one set, which comes in once by its content."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import duckdb

from pipelines import database
from pipelines.flight_recorder.dump import Dump, DumpError, is_dump, read_dump
from pipelines.flight_recorder.rows import dump_rows, entry_rows, verdict_rows
from pipelines.flight_recorder.verdicts import judge
from pipelines.lake.commit import commit_tables
from pipelines.lake.layout import DUMP_MARK, Batch
from pipelines.lake.rows import all_or_nothing, create_empty, insert_rows, unforeseen
from pipelines.lake.store import Lake
from pipelines.models.catalog import load_catalog
from pipelines.models.header import DUMP
from pipelines.origin import job_from_path
from pipelines.paths import path_text


@dataclass(frozen=True)
class SetRow:
    """What became of a folder's dumps, or of one that could not be read. `status`: ok, known or rejected."""

    path: Path
    status: str
    set_id: str | None = None
    n_entries: int | None = None
    seconds: float = 0.0
    reason: str | None = None


def dump_files(files: Iterable[Path]) -> dict[Path, list[Path]]:
    """The dumps among the files by folder. One that came alone brings the others of its folder: they are one set."""
    folders = dict.fromkeys(path.parent for path in files if is_dump(path))
    return {
        folder: [path for path in sorted(folder.iterdir()) if path.name[:1] != "." and is_dump(path)]
        for folder in folders
    }


def ingest_dumps(folders: dict[Path, list[Path]], lake: Lake, job: str | None = None) -> list[SetRow]:
    """Put sets into the lake, all that are new in one batch.

    A dump that cannot be read is a row of its own, and the set goes in without it: its verdicts say that it is missing.
    Raises duckdb.IOException or OSError if the lake cannot be written.
    """
    catalog = load_catalog()
    batch = lake.new_batch()
    rows: list[SetRow] = []
    with database.connect() as con:
        create_empty(con, catalog, DUMP)
        known = set(lake.known(DUMP_MARK))
        for folder, files in folders.items():
            rows += _add(con, folder, files, batch, known, job)
        if any(row.status == "ok" for row in rows):
            already_committed = commit_tables(con, lake, batch, DUMP)
            rows = [SetRow(row.path, "known", row.set_id) if row.set_id in already_committed else row for row in rows]
    return rows


def _add(
    con: duckdb.DuckDBPyConnection, folder: Path, files: list[Path], batch: Batch, known: set[str], job: str | None
) -> list[SetRow]:
    started = time.perf_counter()
    dumps: list[Dump] = []
    rejected: list[SetRow] = []
    for path in files:
        try:
            dumps.append(read_dump(path))
        except (DumpError, OSError) as error:
            rejected.append(SetRow(path, "rejected", reason=str(error)))
        except Exception as error:
            rejected.append(SetRow(path, "rejected", reason=unforeseen(error)))
    if not dumps:
        return rejected
    set_id = content_id(dumps)
    if set_id in known:
        return [SetRow(folder, "known", set_id, seconds=time.perf_counter() - started), *rejected]
    common = {"set_id": set_id, "batch_id": batch.batch_id}
    of_set = {
        **common,
        "job": job or job_from_path(files[0]),
        "folder": path_text(folder.absolute()),
        "ingested_at": datetime.now(UTC),
    }
    try:
        verdict = judge(dumps)
        with all_or_nothing(con):
            insert_rows(con, DUMP_MARK, [{**row, **of_set} for row in dump_rows(dumps, verdict)])
            insert_rows(con, "flight_recorder_entries", [{**row, **common} for row in entry_rows(dumps)])
            insert_rows(con, "flight_recorder_verdicts", [{**row, **common} for row in verdict_rows(verdict)])
    except DumpError as error:
        return [SetRow(folder, "rejected", seconds=time.perf_counter() - started, reason=str(error)), *rejected]
    except Exception as error:
        return [SetRow(folder, "rejected", seconds=time.perf_counter() - started, reason=unforeseen(error)), *rejected]
    known.add(set_id)
    n_entries = sum(len(dump.entries) for dump in dumps)
    return [SetRow(folder, "ok", set_id, n_entries, time.perf_counter() - started), *rejected]


def content_id(dumps: Iterable[Dump]) -> str:
    """16 hex digits over the ranks and the contents of a set's files."""
    digest = hashlib.sha256()
    for dump in sorted(dumps, key=lambda dump: (dump.rank, dump.path)):
        digest.update(f"{dump.rank}\0".encode() + hashlib.sha256(dump.path.read_bytes()).digest())
    return digest.hexdigest()[:16]
