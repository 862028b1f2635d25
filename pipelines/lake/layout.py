"""Names in a lake: where a table's batch is, what is not yet visible, what marks a batch as committed.

`<lake>/<table>/day=YYYY-MM-DD/<batch_id>.parquet`. A file is written under `.staging/` and renamed into place; the
file of `traces` comes last and is the commit mark: rows of other tables count only where their (trace_id, batch_id) is
in it. `rejects` has no mark: its rows are about files that did not become traces. A batch named in `.retired/` is hidden.
"""

from __future__ import annotations

import glob
import re
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

MARK = "traces"
RUN_MARK = "schedule_runs"
JOB_MARK = "op_jobs"
JOB_TABLES = (JOB_MARK, "straggler_what_if", "straggler_steps", "straggler_rank_scores")
DUMP_MARK = "flight_recorder_dumps"
DUMP_TABLES = (DUMP_MARK, "flight_recorder_entries", "flight_recorder_verdicts")
RECORDING_MARK = "recordings"
RECORDING_TABLES = (
    RECORDING_MARK,
    "host_samples",
    "gpu_samples",
    "net_samples",
    "stack_samples",
    "span_samples",
    "span_sample_operators",
)
# Tables of captures are computed after ingestion, for a capture anew when late ranks come: its newest batch counts.
# Which these are is told by the folder and the headers of its files: a new file needs no line here.
CAPTURE_MARK = "captures"
CAPTURE_RANKS = "capture_ranks"
_CAPTURE_SQL = Path(__file__).resolve().parents[2] / "sql" / "fleet"
_VIEW = re.compile(r"^-- scope: lake$", re.MULTILINE)
CAPTURE_TABLES = tuple(
    path.stem for path in sorted(_CAPTURE_SQL.glob("[!_]*.sql")) if not _VIEW.search(path.read_text(encoding="utf-8"))
)
KEYS = {
    MARK: "trace_id",
    RUN_MARK: "run_id",
    JOB_MARK: "job_id",
    DUMP_MARK: "set_id",
    RECORDING_MARK: "recording_id",
    CAPTURE_MARK: "capture_id",
}
REJECTS = "rejects"
STAGING = ".staging"
RETIRED = ".retired"  # batches that are hidden, to be removed; in `removed/` those that are gone (retention.py)
MANIFEST = ".manifest"  # what was written of each batch (manifest.py)
QUARANTINE = ".quarantine"  # broken files that `tracelake check --repair` took out
OVERLAYS = "overlays"
ANALYST = "analyst.duckdb"
ANALYST_TEMP = ".analyst-"
PUBLISHED = ".published.json"
_BATCH = re.compile(r"^(\d{4})(\d{2})(\d{2})T\d{12}-[0-9a-f]{8}$")


@dataclass(frozen=True, order=True)
class Batch:
    """One ingest run's traces. The id begins with its UTC time to the microsecond, so batches sort by it:
    `20261121T053000123456-1f2e3d4c`.
    """

    batch_id: str

    @classmethod
    def new(cls) -> Batch:
        """A batch of now."""
        return cls(f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}-{secrets.token_hex(4)}")

    @property
    def next(self) -> Batch:
        """A batch of a microsecond later."""
        at = datetime.strptime(self.batch_id.partition("-")[0], "%Y%m%dT%H%M%S%f") + timedelta(microseconds=1)
        return Batch(f"{at:%Y%m%dT%H%M%S%f}-{secrets.token_hex(4)}")

    @property
    def is_valid(self) -> bool:
        """Whether the id has a lake's format."""
        return _BATCH.match(self.batch_id) is not None

    @property
    def day(self) -> str:
        """The ingest day, `YYYY-MM-DD` (UTC). Raises ValueError for an invalid id."""
        match = _BATCH.match(self.batch_id)
        if not match:
            raise ValueError(f"{self.batch_id!r} is not a batch id")
        return "-".join(match.groups())


def mark_of(table: str) -> str:
    """The table whose file commits a batch of this table."""
    if table in JOB_TABLES:
        return JOB_MARK
    if table in DUMP_TABLES:
        return DUMP_MARK
    if table in RECORDING_TABLES:
        return RECORDING_MARK
    if table in CAPTURE_TABLES:
        return CAPTURE_MARK
    return RUN_MARK if table.startswith("schedule_") else MARK


def table_file(root: Path, table: str, batch: Batch) -> Path:
    """Where a table's rows of a batch lie once they are visible."""
    return root / table / f"day={batch.day}" / f"{batch.batch_id}.parquet"


def table_files(root: Path, table: str) -> list[Path]:
    """All visible files of a table, oldest batch first. Files that are not named by a batch are left out."""
    hidden = retired_batches(root)
    found = (path for path in root.joinpath(table).glob("day=*/*.parquet") if path.stem not in hidden)
    found = (path for path in found if _BATCH.match(path.stem))  # others are none of the lake's
    return sorted(found, key=lambda path: path.name)


def batch_files(root: Path, name: str = "*") -> list[Path]:
    """The files of all tables whose name matches, whether a mark commits them or not.

    Folders that begin with a dot are skipped: they belong to other processes and may vanish at any moment.
    """
    # pathlib's glob looks into those, too, and raises where one goes meanwhile.
    found = glob.iglob(f"*/day=*/{name}.parquet", root_dir=root)
    return [root / path for path in found]


def retired_batches(root: Path) -> set[str]:
    """The ids of batches that no new reader sees and whose files are about to be removed."""
    return {path.stem for path in root.joinpath(RETIRED).glob("*.json")}


def batch_of(path: Path) -> Batch:
    """The batch that a table's file belongs to."""
    return Batch(path.stem)
