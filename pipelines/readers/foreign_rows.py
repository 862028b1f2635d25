"""Findings about rows of several ranks and rows that no model reads. Every interface shows them with its answers."""

from __future__ import annotations

from typing import Any

import duckdb

from pipelines.base import database
from pipelines.base.datafiles import threshold
from pipelines.models.catalog import Catalog
from pipelines.models.rule_tables import create_missing_rules
from pipelines.readers.kineto.reading_result import Finding

UNREAD, MERGED = "unread_events", "merged_processes"
_SHARED_IDS = threshold("merged_shared_ids")
_SHOWN = 3  # processes in a sentence
_JAX = "/device:"  # prefix of the names of devices' processes in JAX's trace.json.gz
_ROCPROF = {"hip_api", "kernel_dispatch", "memory_copy"}  # categories in rocprofv3's Perfetto files


def foreign_rows(con: duckdb.DuckDBPyConnection, catalog: Catalog, counts: dict[str, Any]) -> tuple[Finding, ...]:
    """Return the findings about the view `events` of one trace. `counts`: its row of `_event_counts`."""
    findings = [
        _merged(con, catalog) if counts["least_calling_pid"] != counts["greatest_calling_pid"] else None,
        _unread(con, catalog) if not counts["n_kernels"] else None,
    ]
    return tuple(finding for finding in findings if finding)


def _merged(con: duckdb.DuckDBPyConnection, catalog: Catalog) -> Finding | None:
    for row in database.rows_of(con, catalog.models["_shared_ids"].sql):
        remedy = "numbers are of all ranks together: give the file of each rank, or the folder with them"
        if row["n_ranks"] > 1:
            sentence = f"the traces of {row['n_ranks']:,} ranks were merged into the file (argument rank), so {remedy}"
            return Finding(MERGED, "error", row["n_ranks"], sentence)
        if row["n_shared"] >= _SHARED_IDS:
            sentence = (
                f"calls of {row['n_processes']:,} processes have {row['n_shared']:,} correlation ids in common, as "
                "where traces of several ranks were merged into one file: calls have the GPU work of other ranks, and "
                f"{remedy}"
            )
            return Finding(MERGED, "error", row["n_shared"], sentence)
    return None


def _unread(con: duckdb.DuckDBPyConnection, catalog: Catalog) -> Finding | None:
    create_missing_rules(con, catalog, ["_unread_events"])
    rows = database.rows_of(con, catalog.models["_unread_events"].sql)
    n = sum(row["n"] for row in rows)
    return Finding(UNREAD, "warning", n, _unread_sentence(rows, n)) if rows else None


def _unread_sentence(rows: list[dict[str, Any]], n: int) -> str:
    n_without = sum(row["n_without"] for row in rows)
    lack = "no category" if n_without == n else "no category, or an unknown one" if n_without else "no known category"
    of_processes = ", ".join(f"{row['n']:,} of {_process(row)}" for row in rows[:_SHOWN])
    n_more = len(rows) - _SHOWN
    more = f" and {n_more:,} more process{'es' if n_more > 1 else ''}" if n_more > 0 else ""
    is_jax = any((row["process_name"] or "").startswith(_JAX) for row in rows)
    remedy = "; of JAX, give the *.xplane.pb next to it" if is_jax else ""
    if any(row["cat"] in _ROCPROF for row in rows):
        remedy += "; of rocprofv3, give its database, JSON or CSV files"
    events = "1 event has" if n == 1 else f"{n:,} events have"
    return (
        f"no GPU work is read, but {events} {lack} ({of_processes}{more}): if these are the device's work, it is "
        f"missing from all numbers{remedy}"
    )


def _process(row: dict[str, Any]) -> str:
    name = row["process_name"] or (f"process {row['pid']}" if row["pid"] is not None else "no process")
    return f"{name} ({row['cat']})" if row["cat"] else name
