"""One asset a SQL model, generated from the folder `sql/`: a new file there is a new asset here, with its lineage.

One step and one connection run them all: a step each would cost seconds a model, and every private table anew.
"""

from collections.abc import Iterator

import dagster as dg

from assets.common import DAYS, WHOLE_RANGE, Span, markdown_table, table_spec
from assets.critical_path import python_spec
from assets.results import results
from pipelines.datafiles import rule_rows
from pipelines.lake import Lake
from pipelines.materialize.per_trace import materialize
from pipelines.models.catalog import load_catalog


def rule_assets() -> list[dg.AssetSpec]:
    """The rules (`sql/rules/*.csv`): written by people, so Dagster shows them and does not make them."""
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
    """The specs of every public model, upstream first."""
    catalog = load_catalog()
    return [
        python_spec(name) if catalog.models[name].kind == "python" else table_spec(name, {"duckdb", "sql", "parquet"})
        for name in catalog.materialized
    ]


@dg.multi_asset(name="models", specs=model_specs(), can_subset=True, partitions_def=DAYS, backfill_policy=WHOLE_RANGE)
def models(context: dg.AssetExecutionContext, lake: dg.ResourceParam[Lake]) -> Iterator[dg.MaterializeResult]:
    """Bring the selected tables of the run's batches up to date; what is up to date already is not computed again."""
    selected = {key.to_user_string() for key in context.selected_asset_keys}
    tables = [name for name in load_catalog().materialized if name in selected]
    span = Span.of(context)
    done = materialize(lake, tables, span.batches(lake), on_step=lambda text: context.log.info(f"model {text}"))
    yield from results(lake, tables, span, done)
