"""Asset of the capture tables, which join a job's ranks.

It covers the whole lake, because late ranks complete old captures.
"""

from collections.abc import Iterator

import dagster as dg

from assets.metadata import AGAIN, DAYS, WHOLE_RANGE, Span, table_spec
from assets.results import fail, is_checked, left_out, observe_left, results, with_note
from assets.units import materialize_units
from pipelines.lake.names import CAPTURE_MARK
from pipelines.models.catalog import load_catalog
from pipelines.runs.materialize.per_capture import materialize_captures
from pipelines.runs.store import Store


@dg.multi_asset(
    name="fleet",
    specs=[with_note(table_spec(name, {"duckdb", "sql", "parquet"})) for name in load_catalog().of_captures],
    can_subset=True,
    partitions_def=DAYS,
    backfill_policy=WHOLE_RANGE,
    retry_policy=AGAIN,
)
def captures(context: dg.AssetExecutionContext, store: dg.ResourceParam[Store]) -> Iterator[dg.MaterializeResult]:
    """Update the selected tables for every capture that is new, has new traces or is missing in them.

    The partition is the day on which a capture was last computed.
    """
    selected = {key.to_user_string() for key in context.selected_asset_keys}
    tables = [name for name in load_catalog().of_captures if name in selected]
    span = Span.of(context)
    if store.lake is None:
        yield from materialize_units(store.address, tables)
    else:
        done = materialize_captures(store.lake, tables, on_step=lambda text: context.log.info(f"model {text}"))
        yield from results(store.lake, tables, span, done)
        batches = span.batches(store.lake, CAPTURE_MARK)
        observe_left(context, store.lake, load_catalog().of_captures, span, batches)
    if not is_checked(context) and (missing := left_out(store.address, span, tables)):
        fail(missing, store.address)
