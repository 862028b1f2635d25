"""Column lineage of the models from sqlglot, resolved through private models, for Dagster's column view."""

from functools import lru_cache
from importlib.metadata import version

import dagster as dg

from pipelines.models.cache import digest_of, remembered
from pipelines.models.catalog import Model, load_catalog

Columns = dict[str, list[list[str]]]
"""Sources by column, as lists [table, column]. A JSON value."""


@lru_cache
def column_lineage(name: str) -> dg.TableColumnLineage | None:
    """Return the public columns that each column of a SQL model derives from, or None if the table is not a SQL model."""
    model = load_catalog().models[name]
    if model.kind != "sql":
        return None
    deps = {
        column: [
            dg.TableColumnDep(asset_key=dg.AssetKey(table), column_name=source) for table, source in sorted(sources)
        ]
        for column, sources in _sources(name).items()
        if sources
    }
    return dg.TableColumnLineage(deps_by_column=deps)


@lru_cache
def _sources(name: str) -> dict[str, frozenset[tuple[str, str]]]:
    """Return the public (table, column) sources of each column, with private models replaced by their inputs."""
    models = load_catalog().models
    resolved = {}
    for column, inputs in _all_direct().get(name, {}).items():
        public: set[tuple[str, str]] = set()
        for table, source in inputs:
            if table not in models:
                continue  # a table that the caller provides (`window_requests`) is not an asset
            public |= _sources(table).get(source, frozenset()) if models[table].private else {(table, source)}
        resolved[column] = frozenset(public)
    return resolved


@lru_cache
def _all_direct() -> dict[str, Columns]:
    """Return the input columns of each SQL model's columns. Takes two seconds once, until the SQL changes."""
    models = [model for model in load_catalog().models.values() if model.sql]
    digest = digest_of([version("sqlglot"), *(text for model in models for text in (model.name, model.sql))])
    return remembered("column-lineage", digest, lambda: {model.name: _direct(model) for model in models})


def _direct(model: Model) -> Columns:
    from sqlglot import exp, parse_one
    from sqlglot.errors import SqlglotError
    from sqlglot.lineage import lineage
    from sqlglot.optimizer.qualify import qualify
    from sqlglot.optimizer.scope import build_scope

    models = load_catalog().models
    schema: dict[str, object] = {
        n: {c.name: "UNKNOWN" for c in models[n].columns} for n in model.dependencies if n in models
    }
    try:
        query = parse_one(model.sql, dialect="duckdb")
        query = qualify(
            query, dialect="duckdb", schema=schema, validate_qualify_columns=False, identify=False, infer_schema=True
        )
        scope = build_scope(query)
        inputs_by_column: Columns = {}
        for column in model.columns:
            leaves = lineage(column.name, query, scope=scope, dialect="duckdb", copy=False, trim_selects=False).walk()
            sources = {
                (leaf.source.name, leaf.name.split(".")[-1].strip('"'))
                for leaf in leaves
                if isinstance(leaf.source, exp.Table) and not leaf.downstream
            }
            inputs_by_column[column.name] = [list(source) for source in sorted(sources)]
        return inputs_by_column
    except (SqlglotError, ValueError):
        return {}  # lineage is optional, so the table is computed without it
