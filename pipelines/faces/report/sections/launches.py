"""How far the host is ahead of the GPU: launches waiting in the queues, and how long they wait."""

from __future__ import annotations

import duckdb

from pipelines.base.database import rows_of
from pipelines.base.units import count, time
from pipelines.faces.report.blocks import Column, Section, figure, missing, section, table
from pipelines.faces.report.pictures.curve import curve
from pipelines.faces.report.subject import Subject, label, of_shown

STRETCHES = 400
_QUEUE = """
    WITH changes AS (
        SELECT at_ns, sum(sum(change)) OVER (ORDER BY at_ns) AS waiting
        FROM queue_length WHERE trace_id = {of} GROUP BY at_ns
    ),
    lasting AS (
        SELECT at_ns, coalesce(lead(at_ns) OVER (ORDER BY at_ns), at_ns) AS end_ns, waiting FROM changes
    ),
    whole AS (SELECT min(at_ns) AS start_ns, max(end_ns) - min(at_ns) + 1 AS span_ns FROM lasting),
    placed AS (
        SELECT l.waiting, l.end_ns - l.at_ns AS ns, w.span_ns,
            (l.at_ns - w.start_ns) * {n} // w.span_ns AS first, (l.end_ns - w.start_ns) * {n} // w.span_ns AS last
        FROM lasting AS l, whole AS w
    )
    SELECT place, max(waiting) AS most, any_value(span_ns) AS span_ns
    FROM (SELECT waiting, span_ns, unnest(range(CAST(first AS BIGINT), CAST(last AS BIGINT) + 1)) AS place FROM placed)
    GROUP BY place ORDER BY place
"""
_LAUNCHES = """
    SELECT name, count(*) AS n, sum(duration_ns) AS duration_ns, median(duration_ns) AS median_ns, median(launch_delay_ns) AS delay_ns
    FROM launches WHERE trace_id = {of} GROUP BY name ORDER BY count(*) DESC, name LIMIT 12
"""
_COLUMNS = [
    *(Column("name", "call"), Column("n", "times", count, "Launches by this call.")),
    *(
        Column("duration_ns", "on the host", time, "Time in the calls, ns."),
        Column("median_ns", "median", time, "Of a call, ns."),
    ),
    Column("delay_ns", "median until start", time, "From the end of the call to the start of its first work, ns."),
]


def launches(con: duckdb.DuckDBPyConnection, subject: Subject) -> Section:
    """The queue over time and the launch calls of the shown rank."""
    title = "Launches and queue"
    rows = rows_of(con, _LAUNCHES.format(of=subject.shown_id))
    if not rows:
        return section("launches", title, missing(f"{label(subject.shown)} launches no GPU work"))
    waiting, span_ns = queue(con, subject.shown_id)
    picture = None
    if any(waiting):
        said = f"{label(subject.shown)}: launches whose work has not started, all streams, the most in each stretch"
        picture = curve(said, waiting, [None] * len(waiting), lambda value: f"{value:,.0f}", time(span_ns))
    note = (
        f"{of_shown(subject)}A queue that is empty while the GPU idles means that the host is late; a full one means that the "
        "GPU is the bottleneck."
    )
    return section("launches", title, figure(picture, "no launch waited"), table("launches", _COLUMNS, rows), note=note)


def queue(con: duckdb.DuckDBPyConnection, trace: str) -> tuple[list[float | None], int]:
    """Returns the longest queue in each of STRETCHES equal stretches from the first launch on, and their length, ns.

    `trace` is SQL text. A length holds until the next change, so it counts in every stretch that it reaches into.
    """
    rows = rows_of(con, _QUEUE.format(of=trace, n=STRETCHES))
    most = {row["place"]: float(row["most"]) for row in rows}
    return [most.get(place, 0.0) for place in range(STRETCHES)], rows[0]["span_ns"] if rows else 0
