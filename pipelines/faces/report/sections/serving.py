"""Section on the steps of an inference server: rates and times by phase and batch size."""

from __future__ import annotations

from pipelines.faces.report.blocks import Section, section
from pipelines.faces.report.macros import macros
from pipelines.faces.report.subject import Subject, of_shown
from pipelines.faces.report.tables import table


def serving(subject: Subject) -> Section | None:
    """Return the section on the shown rank's serving steps by phase and batch size, or None if it has none."""
    rows = subject.rows("serving-steps")
    if not rows:
        return None
    for row in rows:
        row |= {f"{name}_ns": 1e6 * row[f"{name}_ms"] for name in ("p50", "p99")}
    n_steps, n_guessed = (sum(row[name] for row in rows) for name in ("n_steps", "n_from_kernels"))
    n_unknown = sum(row["n_steps"] for row in rows if row["phase"] == "unknown")
    summary = f"{n_steps:,} {'step' if n_steps == 1 else 'steps'} of a server."
    if n_guessed:
        summary += f" The phase of {n_guessed:,} is known from their attention kernels only."
    if n_unknown:
        summary += f" The phase of {n_unknown:,} is unknown: neither their names nor their kernels show it."
    if any(row["caveat"] for row in rows):
        summary += " Part of their time goes to GPU work from before the trace: so the rates are lower."
    return section(
        "serving",
        "Serving steps",
        macros.paragraph(summary),
        table("serving-steps", rows),
        note=f"{of_shown(subject)}A step is one forward pass over a batch of requests. It takes until its GPU work is done, or "
        "until the next step begins.",
        docs=("modelling.md", "serving steps"),
    )
