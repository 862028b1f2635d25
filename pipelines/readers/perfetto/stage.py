"""Tables that `sql/ingest/perfetto/_perfetto_events.sql` reads, filled from packets in parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pipelines.models.python_tables import create_table, input_table, insert_parts
from pipelines.readers.perfetto.rows import Row, Track

if TYPE_CHECKING:
    import duckdb

_TIME, _NO_TIME = 4, -(1 << 63)  # index of the time in a row, and its value for NULL
_ROWS = (
    ("n", "BIGINT", "Position in the file."),
    ("at_ns", "BIGINT", "Time, ns; the smallest integer if unknown."),
    ("ph", "VARCHAR", "B begin, E end, X with its duration, i instant."),
    ("run", "BIGINT", "Number of the run: consecutive begin events of a writer and the end events after them."),
    ("place", "BIGINT", "Position among the begin events, or the end events, of the run."),
    ("track", "BIGINT", "Track; NULL for work of a GPU's queue."),
    ("start_ns", "BIGINT", "Time, ns."),
    ("duration_ns", "BIGINT", "Duration, ns."),
    ("category", "VARCHAR", "Category, if the writer records one."),
    ("stage", "VARCHAR", "Render stage of work on a GPU."),
    ("name", "VARCHAR", "Name."),
    ("device", "BIGINT", "GPU of work on one."),
    ("stream", "BIGINT", "Stream of work on a GPU."),
    ("args", "VARCHAR", "Arguments, as JSON."),
    ("flows", "BIGINT[]", "Arrows that start at the event or pass it."),
    ("ended_flows", "BIGINT[]", "Arrows that end at it."),
)
_TRACKS = (
    ("track", "BIGINT", "Track."),
    ("is_thread", "BOOLEAN", "Whether it is a thread's, and not one below it or a process's."),
    ("pid", "VARCHAR", "Process that it belongs to."),
    ("tid", "VARCHAR", "Thread that it belongs to, or the track's own name or number."),
    ("process", "VARCHAR", "Name of the process."),
    ("thread", "VARCHAR", "Name of the thread."),
)


@input_table("_perfetto_rows", layer="ingest", doc="One row: an event of a Perfetto trace.", columns=_ROWS)
def stage_rows(con: duckdb.DuckDBPyConnection, rows: Iterable[Row]) -> int:
    """Fill the table of rows, and return their number."""
    create_table(con, "_perfetto_rows")
    timed = ((i, _NO_TIME if row[_TIME] is None else row[_TIME], *row) for i, row in enumerate(rows))
    return insert_parts(con, "_perfetto_rows", timed)


@input_table("_perfetto_tracks", layer="ingest", doc="One row: a track of a Perfetto trace.", columns=_TRACKS)
def stage_tracks(con: duckdb.DuckDBPyConnection, tracks: dict[int, Track]) -> None:
    """Fill the table of tracks from their descriptors."""
    create_table(con, "_perfetto_tracks")
    insert_parts(con, "_perfetto_tracks", _resolved(tracks))


def _resolved(tracks: dict[int, Track]) -> Iterator[Row]:
    """Yield the rows of tracks. A track without process or thread inherits them from the nearest ancestor."""
    for uuid, track in tracks.items():
        chain = [track]
        parent, visited = track.parent, {uuid}
        while parent in tracks and parent not in visited:
            visited.add(parent)
            chain.append(tracks[parent])
            parent = tracks[parent].parent
        pid = next((ancestor.pid for ancestor in chain if ancestor.pid is not None), None)
        tid = next((ancestor.tid for ancestor in chain if ancestor.tid is not None), None)
        process = next((ancestor.process for ancestor in chain if ancestor.process is not None), None)
        own_name = track.thread or str(uuid)
        yield (
            uuid - (1 << 64) if uuid >= 1 << 63 else uuid, track.tid is not None, None if pid is None else str(pid),
            own_name if tid is None else str(tid), process, track.thread,
        )  # fmt: skip
