"""Section on the kernels with the most GPU time."""

from __future__ import annotations

from pipelines.faces.report.blocks import Section, section
from pipelines.faces.report.macros import macros
from pipelines.faces.report.subject import Subject, of_shown
from pipelines.faces.report.tables import table


def kernels(subject: Subject) -> Section:
    """Return the section with the table of kernels, and the number of names that it omits."""
    rows = subject.rows("rank-kernels")
    if not rows:
        return section("kernels", "Top kernels", macros.missing(f"{subject.label} has no GPU work"))
    n_short = sum(row["n"] for row in rows if row["median_ns"] is not None and row["median_ns"] < 10_000)
    sentence = (
        f"{n_short:,} of {sum(row['n'] for row in rows):,} GPU activities have a name whose median is below 10 us. "
    )
    note = f"{of_shown(subject)}{sentence if n_short else ''}"
    return section("kernels", "Top kernels", table("rank-kernels", rows), note=note)
