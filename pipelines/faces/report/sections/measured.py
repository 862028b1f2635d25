"""Section on the shown rank's kernels and operators with hardware counters of another run."""

from __future__ import annotations

from pipelines.faces.report.blocks import Section, section
from pipelines.faces.report.subject import Subject, of_shown
from pipelines.faces.report.tables import answer, table
from pipelines.models.questions import rows_of_question


def has_counters(subject: Subject) -> bool:
    """Return whether the lake has counter files.

    Without them, the views of counted kernels would read all kernels in vain.
    """
    return bool(rows_of_question(subject.con, "counter-files"))


def measured(subject: Subject) -> Section | None:
    """Return the section on the shown rank's kernels and operators with hardware counters.

    Return None if the lake has no counter files, or no kernel of the trace has counters.
    """
    rows = subject.rows("counted-kernels") if has_counters(subject) else []
    if not rows:
        return None
    note = (
        f"{of_shown(subject)}Counters are of another run, in which kernels are slower: times here are the trace's. Values "
        "that were not measured are empty."
    )
    return section(
        "measured",
        "Measured kernels",
        table("counted-kernels", rows),
        answer(subject, "counted-bytes"),
        note=note,
        docs=("hardware-counters.md", "hardware counters"),
    )
