"""The marker rows of all batches, from the analysts' file and from marker files committed since.

So not every marker file must be opened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import duckdb

from pipelines.lake.lake import Lake
from pipelines.lake.names import ANALYST, CAPTURE_MARK, MARK, REJECTS
from pipelines.lake.publish.analyst_file import valid_record
from pipelines.lake.publish.empty_file import BATCHES, HIDDEN
from pipelines.lake.read.snapshot import Now, look
from pipelines.lake.read.views import file_rows
from pipelines.models.sqltext import quoted, row

_TRACE = (
    "trace_id, batch_id, ingest_batch_id, path, capture_id, group_id, job, rank, world_size, status, n_events, "
    "trace_start_ns, trace_end_ns, format, ingested_at"
)
_SHOWN = "_shown"


@dataclass(frozen=True)
class Marks:
    """SELECTs of marker rows, valid while the connection has the analysts' file attached."""

    now: Now
    stay: str  # a condition that selects rows of unchanged batches
    added: frozenset[str]

    def traces(self) -> str:
        """Return the SELECT of every committed trace, including superseded traces."""
        columns = f"SELECT {_TRACE} FROM"
        published = (
            f"{columns} {_SHOWN}.traces WHERE {self.stay} UNION ALL {columns} {_SHOWN}.{HIDDEN} WHERE {self.stay}"
        )
        files = [path for name, path in self.now.marks[MARK].items() if name in self.added]
        return f"{published} UNION ALL {columns} ({file_rows(files)})" if files else published

    def captures(self) -> str:
        """Return the SELECT of the newest row of each capture. Rows of captures that no longer exist may be missing."""
        columns = "SELECT capture_id, batch_id, content, is_gone FROM"
        published = f"{columns} {_SHOWN}.captures WHERE {self.stay}"
        files = [path for name, path in self.now.marks[CAPTURE_MARK].items() if name in self.added]
        rows = f"{published} UNION ALL {columns} ({file_rows(files)})" if files else published
        return f"SELECT * FROM ({rows}) QUALIFY row_number() OVER (PARTITION BY capture_id ORDER BY batch_id DESC) = 1"

    def rejects(self) -> str:
        """Return the SELECT of every rejected file."""
        columns = "SELECT path, byte_offset, reason, seen_at, batch_id FROM"
        published = f"{columns} {_SHOWN}.rejects WHERE {self.stay}"
        files = [path for name, path in self.now.marks[REJECTS].items() if name in self.added]
        return f"{published} UNION ALL {columns} ({file_rows(files)})" if files else published


@contextmanager
def recent_marks(con: duckdb.DuckDBPyConnection, lake: Lake) -> Iterator[Marks | None]:
    """Attach the analysts' file to `con` and yield its marks, or None if all files must be read.

    All files must be read if the analysts' file was never published or is damaged, or if captures have changed since.
    """
    record = valid_record(lake)
    if record is None:
        yield None
        return
    con.execute(f"ATTACH {quoted(lake.root / ANALYST)} AS {_SHOWN} (READ_ONLY)")
    try:
        yield _marks(con, look(lake.root))
    finally:
        con.execute(f"DETACH {_SHOWN}")


def _marks(con: duckdb.DuckDBPyConnection, now: Now) -> Marks | None:
    n_tables = con.execute(  # without bound parameters, because DuckDB imports pandas for them
        f"SELECT count(*) FROM duckdb_tables() WHERE database_name = '{_SHOWN}' AND table_name IN ('traces', 'captures', "
        "'rejects', 'superseded', 'batches')"
    ).fetchall()[0][0]
    if n_tables < 5:
        return None
    before = dict(con.execute(f"SELECT batch_id, stamp FROM {_SHOWN}.{BATCHES}").fetchall())
    changed = [name for name, stamp in before.items() if now.stamps.get(name) != stamp]
    added = frozenset(name for name, stamp in now.stamps.items() if before.get(name) != stamp)
    if any(CAPTURE_MARK in before[name].split(" ") for name in changed):
        return None
    return Marks(now, f"batch_id NOT IN {row(['', *changed])}", added)


def read_marks(con: duckdb.DuckDBPyConnection, lake: Lake, query: Callable[[Marks], str]) -> list[tuple] | None:
    """Return the rows of a query over the marks, or None if `recent_marks` yields None or a file cannot be read."""
    with recent_marks(con, lake) as marks:
        if marks is None:
            return None
        try:
            return con.execute(query(marks)).fetchall()
        except duckdb.Error:  # the caller then reads all files and reports the damaged file
            return None
