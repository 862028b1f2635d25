"""Models of real traces, computed once over the small traces that a test file names."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import duckdb

from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from tests.effort import LARGE_TRACES
from tests.harness import connect_all, only

TABLES = (
    *("spans", "span_gpu_work", "span_kernels", "span_names", "span_attribution", "unattributed_gpu_work"),
    *("backward_links", "kernels", "op_kernels", "op_work", "op_work_coverage", "op_shape_utilization"),
    *("span_utilization", "span_name_utilization", "family_utilization"),
)
"""Tables of spans and operators that three test files read from the same two small traces, so they share one run."""


def computed(
    shared: Path, name: str, names: Iterable[str], tables: tuple[str, ...] = TABLES
) -> duckdb.DuckDBPyConnection:
    """Return a connection that shows these tables for one of the traces.

    The models run over a large trace alone, and over all small traces together.
    """
    small = tuple(sorted({*names} - {*LARGE_TRACES}))
    together = small if name in small else (name,)
    con, trace_ids = _run(shared / "traces" / "single", together, tables)
    only(con, trace_ids[together.index(name)], tables)
    return con


@lru_cache(maxsize=1)
def _run(folder: Path, names: tuple[str, ...], tables: tuple[str, ...]) -> tuple[duckdb.DuckDBPyConnection, list[str]]:
    con, trace_ids = connect_all([folder / f"{name}.json.gz" for name in names])
    run_models(con, load_catalog(), tables)
    return con, trace_ids
