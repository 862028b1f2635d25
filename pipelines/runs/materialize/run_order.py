"""The order of a complete run: tables of traces, then the tables of captures that read them, then publishing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pipelines.lake.lake import Lake
from pipelines.runs.materialize.per_capture import OnStep, Part, compute_captures, requested_captures, trace_tables
from pipelines.runs.materialize.per_trace import compute_traces, requested_tables
from pipelines.runs.materialize.publishing import Materialized, run_and_publish


def materialize_all(
    lake: Lake,
    tables: Iterable[str] | None = None,
    force: bool = False,
    on_step: OnStep | None = None,
    part: Part | None = None,
) -> list[Materialized]:
    """Update tables of traces and of captures (all by default), for part or all of the lake, and publish.

    Raise the errors of compute_traces and compute_captures.
    """
    catalog = lake.catalog()
    requested = [*catalog.materialized, *catalog.of_captures] if tables is None else list(dict.fromkeys(tables))
    catalog.closure(requested)  # rejects names that are not tables
    of_captures = [name for name in catalog.of_captures if name in requested]
    of_traces = [name for name in requested if name not in of_captures]

    def steps() -> Iterator[Materialized]:
        if of_traces:
            # Compute inputs of tables of captures in the same pass, unless `force` is set, which applies only to
            # requested tables.
            sources = [] if force else trace_tables(catalog, of_captures)
            batches = sorted(part.batches) if part else None
            yield from compute_traces(lake, [*of_traces, *sources], batches, force, on_step)
        if of_captures:
            yield from compute_captures(lake, of_captures, force, on_step, part)

    stored = [*requested_tables(catalog, of_traces), *(requested_captures(catalog, of_captures) if of_captures else ())]
    return run_and_publish(lake, steps(), stored, of_all=part is None, force=force)
