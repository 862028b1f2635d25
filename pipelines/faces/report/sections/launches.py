"""Section on how far the host is ahead of the GPU: launches waiting in the queues, and their delay."""

from __future__ import annotations

import duckdb

from pipelines.base.units import count, time
from pipelines.faces.report.blocks import Column, Section, figure, missing, section, table
from pipelines.faces.report.pictures.curve import carried, curve
from pipelines.faces.report.subject import Subject, label, of_shown
from pipelines.models.questions import rows_of_question

_SHOWN = 12
_COLUMNS = [
    *(Column("name", "call"), Column("n", "times", count, "Launches by this call.")),
    *(
        Column("duration_ns", "on the host", time, "Time in the calls, ns."),
        Column("median_ns", "median", time, "Of a call, ns."),
    ),
    Column(
        "median_delay_ns", "median until start", time, "From the end of the call to the start of its first work, ns."
    ),
]


def launches(con: duckdb.DuckDBPyConnection, subject: Subject) -> Section:
    """Return the section on the queue over time and the launch calls of the shown rank."""
    title = "Launches and queue"
    rows = rows_of_question(con, "launch-calls", _SHOWN, trace=subject.shown["trace_id"])
    if not rows:
        return section("launches", title, missing(f"{label(subject.shown)} launches no GPU work"))
    waiting, span_ns = queue(con, subject.shown["trace_id"])
    picture = None
    if any(waiting):
        caption = f"{label(subject.shown)}: launches whose work has not started, all streams, the most in each stretch"
        picture = curve(caption, waiting, [None] * len(waiting), lambda value: f"{value:,.0f}", time(span_ns))
    note = (
        f"{of_shown(subject)}A queue that is empty while the GPU idles means that the host is late; a full one means that the "
        "GPU is the bottleneck."
    )
    return section("launches", title, figure(picture, "no launch waited"), table("launches", _COLUMNS, rows), note=note)


def queue(con: duckdb.DuckDBPyConnection, trace_id: str) -> tuple[list[float | None], int]:
    """Return the longest queue in each interval of `queue-over-time`, and the total length of the intervals in ns."""
    rows = rows_of_question(con, "queue-over-time", trace=trace_id)
    return carried(rows, "most_waiting", "last_waiting"), rows[0]["span_ns"] if rows else 0
