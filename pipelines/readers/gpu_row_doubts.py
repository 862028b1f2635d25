"""Findings about implausible rows of GPU work. Every interface shows them next to its numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb

from pipelines.base import database, units
from pipelines.base.datafiles import threshold
from pipelines.models.catalog import Catalog
from pipelines.models.rule_tables import create_missing_rules
from pipelines.readers.kineto.reading_result import Finding

_MODEL = "_gpu_row_doubts"
_REPEATED, _WITHOUT_LENGTH = threshold("repeated_rows_percent"), threshold("without_length_percent")
_OVERLAP = threshold("overlap_percent")


def gpu_row_doubts(con: duckdb.DuckDBPyConnection, catalog: Catalog) -> tuple[Finding, ...]:
    """Return the findings about rows of GPU work in the view `events` of one trace."""
    create_missing_rules(con, catalog, [_MODEL])
    rows = database.rows_of(con, catalog.models[_MODEL].sql)
    return tuple(finding for row in rows for finding in _findings(row))


def _findings(row: dict[str, Any]) -> Iterator[Finding]:
    n_rows, n_repeated, n_without_length = row["n_rows"], row["n_repeated"], row["n_without_length"]
    if n_repeated and 100 * n_repeated >= _REPEATED * n_rows:
        detail = (
            f"{n_repeated:,} of {n_rows:,} rows of GPU work repeat another one (same stream, start, length and name): the "
            "file has a profile more than once, and sums of GPU time count it as often"
        )
        yield Finding("repeated_gpu_rows", "error", n_repeated, detail)
    if n_without_length and 100 * n_without_length >= _WITHOUT_LENGTH * n_rows:
        detail = f"{n_without_length:,} of {n_rows:,} rows of GPU work have length 0, so GPU times are too small and the GPU seems idle"
        yield Finding("zero_length_work", "warning", n_without_length, detail)
    overlap_ns, gpu_ns = row["overlap_ns"], row["gpu_ns"]
    if overlap_ns and 100 * overlap_ns >= _OVERLAP * gpu_ns:
        detail = (
            f"GPU work overlaps on its own stream for {units.time(overlap_ns)} of {units.time(gpu_ns)}, which a stream does "
            "not do: sums of GPU time count that twice"
        )
        yield Finding("overlapping_work", "warning", row["n_overlapping"], detail)
