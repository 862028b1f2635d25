"""Texts of ranges, for `sql/ingest/traces/_range_names.sql`, which distinguishes operators from annotations by name."""

from __future__ import annotations

import duckdb

from pipelines.models.catalog import load_catalog
from pipelines.models.python_tables import create_table, input_table
from pipelines.models.run import run_models


@input_table(
    "_range_texts",
    layer="ingest",
    doc="One row: a text of ranges and marks.",
    columns=(("text", "VARCHAR", "The name as recorded."),),
)
def stage_range_texts(con: duckdb.DuckDBPyConnection, model: str) -> None:
    """Fill `_range_texts` from the column `text` of a tool's model. The tables that the model reads must be staged."""
    catalog = load_catalog()
    create_table(con, "_range_texts")
    run_models(con, catalog, [model], frozenset(catalog.inputs))
    con.execute(f"INSERT INTO _range_texts SELECT text FROM {model}")
    con.execute(f"DROP TABLE {model}")
