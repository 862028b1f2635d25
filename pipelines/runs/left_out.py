"""The traces missing from tables because a model failed on them, for both kinds of lake."""

from __future__ import annotations

from collections.abc import Iterable

from pipelines.lake.commit.model_failures import LeftOut
from pipelines.models.catalog import load_catalog
from pipelines.runs.materialize.per_capture import trace_tables
from pipelines.runs.materialize.per_trace import requested_tables
from pipelines.runs.store import open_store


def left_out_at(address: str, tables: Iterable[str] | None = None) -> list[LeftOut]:
    """Return the traces that are currently missing from these tables (by default all) of the lake at an address.

    A trace that is missing from a source table of captures is also missing from the table of captures. Raise
    StoreError, or BrokenFiles for a lake that has lost its marker files.
    """
    catalog = load_catalog()
    requested = [*catalog.materialized, *catalog.of_captures] if tables is None else list(tables)
    of_captures = [name for name in catalog.of_captures if name in requested]
    of_traces = [name for name in requested if name not in of_captures]
    read = requested_tables(catalog, [*of_traces, *trace_tables(catalog, of_captures)])
    return open_store(address).left_out(read)
