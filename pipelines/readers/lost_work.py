"""Findings about launches without GPU work in a trace. Every interface shows the first finding next to its numbers."""

from __future__ import annotations

from typing import Any

import duckdb

from pipelines.base import database
from pipelines.base.datafiles import threshold
from pipelines.models.catalog import Catalog
from pipelines.models.rule_tables import create_missing_rules
from pipelines.readers.kineto.reading_result import Finding

LOST = "lost_kernels"
UNLINKED = "unlinked_launches"
BY_KINETO = "the profiler lost it (PyTorch issue 192021)"
BY_OTHERS = "the profiler lost it, or the file has only a part of the work"
_LAUNCHES, _LOST_WORK = "_workless_launches", "_lost_work"
_FEW = threshold("lost_work_percent")
_SHOWN = 10  # steps in a sentence


def lost_work(con: duckdb.DuckDBPyConnection, catalog: Catalog, why: str) -> tuple[Finding, ...]:
    """Return the findings about launches without GPU work in the view `events` of one trace.

    `why`: BY_KINETO or BY_OTHERS, depending on the tool that wrote the file.
    """
    create_missing_rules(con, catalog, [_LAUNCHES, _LOST_WORK])
    counts = con.execute(f"CREATE OR REPLACE TABLE {_LAUNCHES} AS {catalog.models[_LAUNCHES].sql}").fetchall()
    rows = (
        database.rows_of(con, catalog.models[_LOST_WORK].sql) if counts[0][0] else []
    )  # few traces have such launches
    return tuple(_findings(rows, why))


def _findings(rows: list[dict[str, Any]], why: str) -> list[Finding]:
    # The steps of unlinked kernels are unknown, and so are the steps without kernels.
    is_linked = not any(row["n_unlinked"] for row in rows)
    steps = sorted(row["step"] for row in rows if row["step"] is not None and is_linked)
    findings = []
    for row in rows:
        if row["n_unlinked"]:
            findings.append(Finding(UNLINKED, "warning", row["n_unlinked"], _unlinked_sentence(row["n_unlinked"])))
        if row["step"] is None and row["n_lost"]:
            is_minor = not steps and 100 * row["n_lost"] < _FEW * row["n_launches"]
            findings.append(
                Finding(LOST, "warning" if is_minor else "error", row["n_lost"], _sentence(row, steps, why))
            )
        if row["step"] is None and row["n_at_end"]:
            detail = "launches at the end of the trace without GPU work: that runs later, or the profiler lost it"
            findings.append(Finding("launches_at_end", "info", row["n_at_end"], detail))
    return findings


def _unlinked_sentence(n: int) -> str:
    launches = "1 launch and 1 kernel" if n == 1 else f"{n:,} launches and {n:,} kernels"
    return (
        f"{launches} are not linked: the profiler wrote correlation id 0 or that of another launch (roctracer issue "
        "100), so these kernels depend only on their stream, and launch delays may be of another launch"
    )


def _sentence(row: dict[str, Any], steps: list[int], why: str) -> str:
    message = (
        f"{row['n_lost']:,} of {row['n_launches']:,} launches have no GPU work: {why}, so GPU times are "
        "too small and the GPU seems idle"
    )
    if not steps:
        return message
    suffix = f" and {len(steps) - _SHOWN:,} more" if len(steps) > _SHOWN else ""
    return f"{message}; steps without any: {', '.join(f'ProfilerStep#{step}' for step in steps[:_SHOWN])}{suffix}"
