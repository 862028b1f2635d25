"""Section on how far the host is ahead of the GPU: launches waiting in the queues, and their delay."""

from __future__ import annotations

import duckdb

from pipelines.base.units import time
from pipelines.faces.report.blocks import Section, section
from pipelines.faces.report.macros import macros
from pipelines.faces.report.pictures.curve import carried, curve
from pipelines.faces.report.subject import Subject, of_shown
from pipelines.faces.report.tables import table
from pipelines.models.questions import rows_of_question


def launches(subject: Subject) -> Section:
    """Return the section on the queue over time and the launch calls of the shown rank."""
    title = "Launches and queue"
    rows = subject.rows("launch-calls")
    if not rows:
        return section("launches", title, macros.missing(f"{subject.label} launches no GPU work"))
    waiting, span_ns = queue(subject.con, subject.shown["trace_id"])
    picture = None
    if any(waiting):
        caption = f"{subject.label}: launches whose work has not started, all streams, the maximum in each interval"
        picture = curve(caption, waiting, [None] * len(waiting), lambda value: f"{value:,.0f}", time(span_ns))
    note = (
        f"{of_shown(subject)}A queue that is empty while the GPU idles means that the host is late; a full one means that the "
        "GPU is the bottleneck."
    )
    parts = (macros.figure(picture, "no launch waited"), table("launch-calls", rows))
    return section("launches", title, *parts, note=note)


def queue(con: duckdb.DuckDBPyConnection, trace_id: str) -> tuple[list[float | None], int]:
    """Return the longest queue in each interval of `queue-over-time`, and the total length of the intervals in ns."""
    rows = rows_of_question(con, "queue-over-time", trace=trace_id)
    return carried(rows, "most_waiting", "last_waiting"), rows[0]["span_ns"] if rows else 0
