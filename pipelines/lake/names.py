"""Names in a lake: paths of a table's batches, hidden folders, and commit markers.

The path of a file is `<lake>/<table>/day=YYYY-MM-DD/<batch_id>.parquet`. A file is written under `.staging/` and
renamed into place. The file of `traces` comes last and is the commit marker. A row of another table counts only if its
(trace_id, batch_id) is in the file of `traces`. `rejects` has no commit marker, because its rows are about files that
did not become traces. The catalog lists the files.
"""

from __future__ import annotations

import glob
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pipelines.base.datafiles import SQL_DIR
from pipelines.models import header
from pipelines.models.header import stored_tables

# The headers of sql/ declare the stored tables and their marker tables (see pipelines/models/header.py).
_STORED = stored_tables(SQL_DIR)
_MARKS = {scope: table for table, (scope, key) in _STORED.items() if key}
KEYS = {table: key for table, (_, key) in _STORED.items() if key}
MARK, RUN_MARK, JOB_MARK = _MARKS[header.TRACE], _MARKS[header.RUN], _MARKS[header.JOB]
DUMP_MARK, RECORDING_MARK, CAPTURE_MARK = _MARKS[header.DUMP], _MARKS[header.RECORDING], _MARKS[header.CAPTURE]
COUNTER_MARK = _MARKS["counters"]
"""Marker table of sets of hardware counters. The set that comes from a trace has the trace's id."""
# The sources of these tables may grow, so grown sources are ingested again. The newest batch of a key counts.
GROWING = (RECORDING_MARK, _MARKS["inspector"], _MARKS["compile_provenance"])


def tables_of(scope: str) -> tuple[str, ...]:
    """Return the stored tables of a scope, its marker table first."""
    return tuple(
        sorted((t for t, (table_scope, _) in _STORED.items() if table_scope == scope), key=lambda t: (t not in KEYS, t))
    )


# Tables of captures are computed after ingestion, and recomputed for a capture when late ranks arrive. The newest batch
# of a capture counts.
CAPTURE_TABLES = tables_of(header.CAPTURE)
CAPTURE_RANKS = "capture_ranks"
REJECTS = "rejects"
EVENTS = "events"
STAGING = ".staging"
RETIRED = ".retired"  # lists of removed traces, which are not ingested again (retention.py)
QUARANTINE = ".quarantine"  # broken files that `tracelake check --repair` moved away
OVERLAYS = "overlays"
PAGES = "pages"  # the fleet's page for today (assets/today.py)
ANALYST = "analyst.duckdb"
ANALYST_TEMP = ".analyst-"
VERSION_KEY = "tracelake_version"  # metadata key of a Parquet file for the version of the model that computed the file
DIGEST = "digest"
"""The version of a digest's tables, whose rows remain although no model can recompute them (digest_files.py)."""
REDUCED = "reduced_to_digest"  # check_name in `findings` of a trace with only a digest
_BATCH = re.compile(r"^(\d{4})(\d{2})(\d{2})T\d{12}-[0-9a-f]{8}$")


@dataclass(frozen=True, order=True)
class Batch:
    """The files that one run commits together, such as the traces of an ingest run, identified by `batch_id`.

    The id begins with the UTC time of the run in microseconds, so batches sort by time:
    `20261121T053000123456-1f2e3d4c`.
    """

    batch_id: str

    @classmethod
    def new(cls) -> Batch:
        """Return a batch whose id begins with the current time."""
        return cls(f"{time_in_id(datetime.now(UTC))}-{secrets.token_hex(4)}")

    @property
    def next(self) -> Batch:
        """Return a batch one microsecond later."""
        time = datetime.strptime(self.batch_id.partition("-")[0], "%Y%m%dT%H%M%S%f") + timedelta(microseconds=1)
        return Batch(f"{time:%Y%m%dT%H%M%S%f}-{secrets.token_hex(4)}")

    @property
    def is_valid(self) -> bool:
        """Return whether the id has a lake's format."""
        return _BATCH.match(self.batch_id) is not None

    @property
    def day(self) -> str:
        """Return the ingest day, `YYYY-MM-DD` (UTC). Raise ValueError for an invalid id."""
        match = _BATCH.match(self.batch_id)
        if not match:
            raise ValueError(f"{self.batch_id!r} is not a batch id")
        return "-".join(match.groups())


def time_in_id(moment: datetime) -> str:
    """Return a UTC time in the format of batch ids. `%Y` is too short for it before the year 1000."""
    return f"{moment.year:04d}{moment:%m%dT%H%M%S%f}"


def mark_of(table: str) -> str:
    """Return the marker table whose file commits a batch of this table."""
    return _MARKS.get(_STORED.get(table, (header.TRACE, None))[0], MARK)


def table_file(root: Path, table: str, batch: Batch) -> Path:
    """Return the path of a batch's file of a table. The file exists there only when readers may see it."""
    # A single string, because joining a path part by part takes four times as long, and a lake has many files.
    return Path(f"{root}/{table}/day={batch.day}/{batch.batch_id}.parquet")


def table_of(path: Path) -> str:
    """Return the table that a file in a lake belongs to."""
    return path.parts[-3]


def file_names(root: Path, name: str = "*") -> Iterator[str]:
    """Yield the files of all tables whose batch id matches `name`, relative to the lake's folder, committed or not.

    Skip folders whose name begins with a dot, because they belong to other processes and may disappear at any time.
    """
    # pathlib's glob also descends into hidden folders, and raises if a folder disappears during the scan.
    return glob.iglob(f"*/day=*/{name}.parquet", root_dir=root)


def batch_files(root: Path, name: str = "*") -> list[Path]:
    """Return the paths of the files that `file_names` yields. Building the paths takes three times as long."""
    return [root / path for path in file_names(root, name)]


def batch_of(path: Path) -> Batch:
    """Return the batch that a table's file belongs to."""
    return Batch(path.stem)
