"""Section on the bandwidth of a rank's collectives, by kind and size, compared with the link bandwidth."""

from __future__ import annotations

from pipelines.faces.report.blocks import Section, section
from pipelines.faces.report.macros import macros
from pipelines.faces.report.subject import Subject, of_shown
from pipelines.faces.report.tables import table


def collectives(subject: Subject) -> Section:
    """Return the section on the shown rank's communication kernels, summed by kind and size.

    The row with the most time beyond the ideal comes first.
    """
    rows = subject.rows("collective-sizes")
    if not rows:
        return section("collectives", "Collectives", macros.missing(f"{subject.label} ran no communication kernels"))
    lacking = ""
    if all(row["bytes"] is None for row in rows):
        lacking = macros.missing("sizes: not in the trace, so there are no bandwidths")
    elif all(row["limit_gigabytes_per_s"] is None for row in rows):
        lacking = macros.missing("shares of the links: the device's links, or the network between nodes, are unknown")
    note = (
        f"{of_shown(subject)}Sorted by time beyond what full links would take (by time if links are unknown). "
        "A kernel's time includes waiting for late ranks, so its bandwidth is a lower bound."
    )
    return section("collectives", "Collectives", table("collective-sizes", rows), lacking, note=note)
