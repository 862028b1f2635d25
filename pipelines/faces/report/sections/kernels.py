"""Section on the kernels with the most GPU time."""

from __future__ import annotations

import duckdb

from pipelines.base.kernel_names import short_names
from pipelines.base.units import count, time
from pipelines.faces.report.blocks import Column, Section, missing, more, section, table
from pipelines.faces.report.formats import meter, short_name
from pipelines.faces.report.subject import Row, Subject, label, of_shown
from pipelines.faces.words import in_words
from pipelines.models.questions import rows_of_question

_SHOWN, _NAME = 20, 72
_COLUMNS = [
    *(
        Column("shown", "kernel", short_name, "Its name."),
        Column("class", "class", in_words),
        Column("n", "times", count, "How often it ran."),
    ),
    Column("duration_ns", "GPU time", time, "Sum of their durations, ns; kernels of several streams may overlap."),
    Column("percent", "of all", meter, "In percent of the sum over all pieces of GPU work."),
    Column("median_ns", "median", time, "Median duration, ns."),
    Column("max_ns", "longest", time, "Longest duration, ns."),
]


def kernel_rows(con: duckdb.DuckDBPyConnection, subject: Subject) -> list[Row]:
    """Return the shown rank's GPU activities by name, most time first."""
    return rows_of_question(con, "rank-kernels", trace=subject.shown["trace_id"])


def kernels(con: duckdb.DuckDBPyConnection, subject: Subject) -> Section:
    """Return the section with the table of kernels, and the number of names that it omits."""
    rows = kernel_rows(con, subject)
    if not rows:
        return section("kernels", "Top kernels", missing(f"{label(subject.shown)} has no GPU work"))
    top_rows = rows[:_SHOWN]
    for row, name in zip(top_rows, short_names((row["name"] for row in top_rows), _NAME), strict=True):
        row["shown"] = (row["name"], name)
    short = [row for row in rows if row["median_ns"] is not None and row["median_ns"] < 10_000]
    n_short = sum(row["n"] for row in short)
    sentence = (
        f"{n_short:,} of {sum(row['n'] for row in rows):,} pieces of work have a name whose median is below 10 us. "
    )
    return section(
        "kernels",
        "Top kernels",
        table("kernels", _COLUMNS, top_rows),
        more(rows, _SHOWN, "names in table kernels"),
        note=f"{of_shown(subject)}{sentence if n_short else ''}",
    )
