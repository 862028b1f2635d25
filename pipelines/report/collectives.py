"""How fast a rank's collectives went: by kind and size, against what the links carry."""

from __future__ import annotations

import duckdb

from pipelines.report.html import Column, count, missing, ratio, section, share, size, table, text, time, words
from pipelines.report.subject import Subject, label, rows_of

_SHOWN = 24

# Sums first, then their ratios: never a mean of bandwidths. A group of one has no bus bandwidth.
_BY_SIZE = """
    WITH summed AS (
        SELECT kind, bytes, group_size, spans_nodes, limit_gbps, count(*) AS n, CAST(sum(dur_ns) AS BIGINT) AS dur_ns,
            sum(ideal_ns) AS ideal_ns, CAST(sum(bytes) AS DOUBLE) AS moved,
            CASE WHEN group_size > 1 THEN any_value(factor) END AS factor
        FROM collective_bandwidth
        WHERE trace_id = $trace
        GROUP BY kind, bytes, group_size, spans_nodes, limit_gbps
    )
    SELECT *, moved / nullif(dur_ns, 0) AS algbw_gbps, moved * factor / nullif(dur_ns, 0) AS busbw_lower_gbps,
        moved * factor / nullif(dur_ns, 0) / limit_gbps AS link_utilization,
        coalesce(moved * factor / nullif(dur_ns, 0) / limit_gbps > 1.05, FALSE) AS suspect
    FROM summed
    ORDER BY dur_ns - coalesce(ideal_ns, 0) DESC, kind, bytes, group_size
"""
_COLUMNS = [
    *(Column("kind", "collective", words), Column("bytes", "size", size), Column("group_size", "ranks", count)),
    Column("spans_nodes", "across nodes", lambda value: "yes" if value else "no"),
    *(Column("n", "times", count, "Communication kernels."), Column("dur_ns", "GPU time", time)),
    *(Column("ideal_ns", "with full links", time), Column("algbw_gbps", "algorithm GB/s", ratio)),
    *(Column("busbw_lower_gbps", "bus GB/s, at least", ratio), Column("limit_gbps", "links GB/s", ratio)),
    Column("link_utilization", "of the links", share),
]


def collectives(con: duckdb.DuckDBPyConnection, subject: Subject) -> str:
    """The shown rank's communication kernels summed by kind and size, most time beyond the ideal first."""
    trace = subject.shown["trace_id"]
    rows = rows_of(con, _BY_SIZE, {"trace": trace})
    if not rows:
        return section("collectives", "Collectives", missing(f"{label(subject.shown)} ran no communication kernels"))
    body = [table("collective_bandwidth", _COLUMNS, rows[:_SHOWN])]
    if len(rows) > _SHOWN:
        body.append(f"<p>{len(rows) - _SHOWN} more kinds and sizes in table collective_bandwidth</p>")
    if all(row["bytes"] is None for row in rows):
        body.append(missing("sizes: the trace does not tell them, so there are no bandwidths"))
    elif all(row["limit_gbps"] is None for row in rows):
        body.append(missing("shares of the links: the device's links, or the network between nodes, are not known"))
    note = (
        (f"Of {text(label(subject.shown))}, {text(subject.why_shown)}. " if subject.why_shown else "")
        + "Most time beyond full links first (all of it where these are not known). "
        "A kernel's time holds waiting for late ranks, so its bandwidth is a lower bound."
    )
    return section("collectives", "Collectives", *body, note=note)
