"""One asset per SQL model, generated from the folder `sql/`. A new file there becomes a new asset with its lineage.

One step with one connection computes all models. Separate steps would cost seconds per model and recompute every private
table.
"""

from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter

import dagster as dg

from assets.critical_path import python_spec
from assets.metadata import AGAIN, DAYS, WHOLE_RANGE, Span, markdown_table, table_spec, upstreams
from assets.results import fail, is_checked, left_out, observe_left, results, with_note
from assets.units import materialize_units
from pipelines.base.datafiles import rule_rows
from pipelines.lake.publish.analyst_file import publish
from pipelines.models.catalog import load_catalog
from pipelines.runs.materialize.per_trace import materialize
from pipelines.runs.store import Store


def rule_assets() -> list[dg.AssetSpec]:
    """Return the specs of the rules (`sql/rules/`). They are written by hand, so Dagster shows them but does not compute them."""
    models = load_catalog().models.values()
    return [_rule_asset(model.name) for model in models if model.kind == "rules" and not model.private]


def _rule_asset(name: str) -> dg.AssetSpec:
    rows = [row.values() for row in rule_rows(name)]
    header = [column.name for column in load_catalog().models[name].columns]
    spec = table_spec(name, {"csv"})
    return spec.merge_attributes(
        metadata={"dagster/row_count": len(rows), "preview": dg.MetadataValue.md(markdown_table(header, rows[:30]))}
    )


def model_specs() -> list[dg.AssetSpec]:
    """Return the specs of every public model, upstream first.

    `longest_path` counts as computed by Python: SQL only adds names to the path that networkx computed.
    """
    catalog = load_catalog()
    by_python = {"longest_path", *(name for name, model in catalog.models.items() if model.kind == "python")}
    return [
        with_note(python_spec(name) if name in by_python else table_spec(name, {"duckdb", "sql", "parquet"}))
        for name in catalog.materialized
    ]


@cache
def upstream_first() -> list[str]:
    """Return the names of the models, each after its upstream assets, because Dagster expects results in that order.

    The upstream assets may include more than the tables that the SQL reads (see `python_spec`).
    """
    deps = {spec.key.to_user_string(): [dep.asset_key.to_user_string() for dep in spec.deps] for spec in model_specs()}
    return [name for name in TopologicalSorter(deps).static_order() if name in deps]


@dg.multi_asset(
    name="models",
    specs=model_specs(),
    can_subset=True,
    partitions_def=DAYS,
    backfill_policy=WHOLE_RANGE,
    retry_policy=AGAIN,
)
def models(context: dg.AssetExecutionContext, store: dg.ResourceParam[Store]) -> Iterator[dg.MaterializeResult]:
    """Update the selected tables of the run's batches. Tables that are up to date are not recomputed.

    Only one run computes at a time, batch by batch, and other runs wait. If the run also computes tables of captures
    afterwards, all tables are published with them.
    """
    selected = {key.to_user_string() for key in context.selected_asset_keys}
    tables = [name for name in load_catalog().materialized if name in selected]
    span = Span.of(context)
    names = [name for name in upstream_first() if name in selected]
    if store.lake is None:
        yield from materialize_units(store.address, names)
    else:
        done = materialize(
            store.lake,
            tables,
            span.batches(store.lake),
            on_step=lambda text: context.log.info(f"model {text}"),
            and_publish=not _captures_follow(context, tables),
        )
        yield from results(store.lake, names, span, done)
        observe_left(context, store.lake, load_catalog().materialized, span, span.batches(store.lake))
    if not is_checked(context) and (missing := left_out(store.address, span, tables)):
        if store.lake:
            publish(store.lake)  # the later step that would publish does not run after this failure
        fail(missing, store.address)


def _captures_follow(context: dg.AssetExecutionContext, tables: list[str]) -> bool:
    """Return whether the same run later computes tables of captures that read some of these tables."""
    catalog = load_catalog()
    in_run = context.job_def.asset_layer.executable_asset_keys
    capture_tables = [name for name in catalog.of_captures if dg.AssetKey(name) in in_run]
    return any(not set(tables).isdisjoint(upstreams(catalog, name)) for name in capture_tables)
