"""Tables that `sql/ingest/xplane/_xplane_events.sql` reads, filled from rows in parts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pipelines.models.python_tables import create_table, input_table, insert_parts

if TYPE_CHECKING:
    import duckdb

_ROWS = (
    ("n", "BIGINT", "Position in the file."),
    ("device", "BIGINT", "Number of the device; NULL for the host."),
    ("line", "VARCHAR", "Id of the line: a thread, or work on the device."),
    ("line_name", "VARCHAR", "Its name."),
    ("stream", "BIGINT", "Stream of work on a device; where its name has none, the id of the line, and the core."),
    ("start_ns", "BIGINT", "Start, ns since profiling began."),
    ("duration_ns", "BIGINT", "Duration, ns; NULL if it has none."),
    ("name", "VARCHAR", "Name; NULL where the file does not have it."),
    ("correlation", "BIGINT", "Correlation id that a call and what it launched share."),
    ("step", "BIGINT", "Number of a step."),
    ("details", "VARCHAR", "Details of a launch or a copy, as text."),
    ("args", "VARCHAR", "All stats, as JSON."),
)
_LINES = (
    ("device", "BIGINT", "Number of the device; NULL for the host."),
    ("line", "VARCHAR", "Id of the line."),
    ("name", "VARCHAR", "Its name."),
)
_SESSION = (("start_ns", "BIGINT", "When profiling began, ns since 1970; 0 if unknown."),)


@input_table("_xplane_rows", layer="ingest", doc="One row: an event of an XSpace.", columns=_ROWS)
def stage_rows(con: duckdb.DuckDBPyConnection, rows: Iterable[tuple[Any, ...]]) -> int:
    """Fill the table of rows, and return their number."""
    create_table(con, "_xplane_rows")
    return insert_parts(con, "_xplane_rows", ((n, *row) for n, row in enumerate(rows)))


@input_table("_xplane_lines", layer="ingest", doc="One row: a line of an XSpace.", columns=_LINES)
@input_table("_xplane_session", layer="ingest", doc="One row: the profile.", columns=_SESSION)
def stage_about(con: duckdb.DuckDBPyConnection, lines: Iterable[tuple[Any, ...]], start_ns: int) -> None:
    """Fill the tables of the lines and of the session. `start_ns`: start of the session, ns since 1970."""
    create_table(con, "_xplane_lines")
    create_table(con, "_xplane_session")
    insert_parts(con, "_xplane_lines", lines)
    con.execute(f"INSERT INTO _xplane_session VALUES ({start_ns})")
