"""Section on the bandwidth of a rank's collectives, by kind and size, compared with the link bandwidth."""

from __future__ import annotations

import duckdb

from pipelines.base.database import rows_of
from pipelines.base.units import count, ratio, share, size, time
from pipelines.faces.report.blocks import Column, Section, missing, more, section, table
from pipelines.faces.report.formats import words
from pipelines.faces.report.subject import Subject, label, of_shown

_SHOWN = 24

_COLUMNS = [
    *(Column("kind", "collective", words), Column("bytes", "size", size), Column("group_size", "ranks", count)),
    Column("spans_nodes", "across nodes", lambda value: "yes" if value else "no"),
    *(Column("n", "times", count), Column("duration_ns", "GPU time", time)),
    *(Column("ideal_ns", "at full link speed", time), Column("algbw_gigabytes_per_s", "algorithm GB/s", ratio)),
    *(
        Column("busbw_lower_gigabytes_per_s", "bus GB/s, at least", ratio),
        Column("limit_gigabytes_per_s", "links GB/s", ratio),
    ),
    Column("link_utilization", "share of links", share),
]


def collectives(con: duckdb.DuckDBPyConnection, subject: Subject) -> Section:
    """Return the section on the shown rank's communication kernels, summed by kind and size, most time beyond the ideal first."""
    rows = rows_of(
        con,
        f"SELECT * FROM collective_bandwidth_by_size WHERE trace_id = {subject.shown_id} "
        "ORDER BY duration_ns - coalesce(ideal_ns, 0) DESC, kind, bytes, group_size",
    )
    if not rows:
        return section("collectives", "Collectives", missing(f"{label(subject.shown)} ran no communication kernels"))
    body = [table("collective_bandwidth_by_size", _COLUMNS, rows[:_SHOWN])]
    body += more(rows, _SHOWN, "kinds and sizes in table collective_bandwidth_by_size")
    if all(row["bytes"] is None for row in rows):
        body.append(missing("sizes: not in the trace, so there are no bandwidths"))
    elif all(row["limit_gigabytes_per_s"] is None for row in rows):
        body.append(missing("shares of the links: the device's links, or the network between nodes, are unknown"))
    note = (
        f"{of_shown(subject)}Sorted by time beyond what full links would take (by time if links are unknown). "
        "A kernel's time includes waiting for late ranks, so its bandwidth is a lower bound."
    )
    return section("collectives", "Collectives", body, note=note)
