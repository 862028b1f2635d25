"""Section on the steps of an inference server: rates and times by phase and batch size."""

from __future__ import annotations

import duckdb

from pipelines.base.units import count, time
from pipelines.base.units import ratio as rate
from pipelines.faces.report.blocks import Column, Section, more, paragraph, section, table
from pipelines.faces.report.formats import meter
from pipelines.faces.report.subject import Subject, of_shown
from pipelines.faces.words import in_words
from pipelines.models.questions import rows_of_question

_SHOWN = 20
_COLUMNS = [
    *(Column("phase", "phase", in_words), Column("n_requests", "batch size", count, "Requests in the step.")),
    Column("n_steps", "steps", count, "How many steps of this phase and batch size."),
    Column("p50_ns", "median", time, "Half of the steps took no longer, ns."),
    Column("p99_ns", "p99", time, "99 of 100 steps took no longer, ns."),
    Column("steps_per_s", "steps per second", rate, "While such steps ran: without the pauses between steps."),
    Column("tokens_per_s", "tokens per second", count, "Tokens that went into the model, while such steps ran."),
    Column("earlier_percent", "earlier work", meter, "Time that goes to GPU work from before the trace, in percent."),
    Column("gpu_busy_percent", "GPU busy", meter, "Of the time until the step's GPU work was done, in percent."),
]


def serving(con: duckdb.DuckDBPyConnection, subject: Subject) -> Section | None:
    """Return the section on the shown rank's serving steps by phase and batch size, or None if it has none."""
    rows = rows_of_question(con, "serving-steps", trace=subject.shown["trace_id"])
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
        summary += f" The phase of {n_unknown:,} is not known: neither their names nor their kernels tell it."
    if any(row["caveat"] for row in rows):
        summary += " Part of their time goes to GPU work from before the trace: the rates are lower for it."
    return section(
        "serving",
        "Serving steps",
        paragraph(summary),
        table("serving_steps", _COLUMNS, rows[:_SHOWN]),
        more(rows, _SHOWN, "rows of `tracelake ask serving-steps`"),
        note=f"{of_shown(subject)}A step is one forward pass over a batch of requests. It takes until its GPU work is done, or "
        "until the next step begins.",
        docs=("modelling.md", "serving steps"),
    )
