"""Traces and the provenance of their kernels in one connection, with the models over both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import duckdb

from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from pipelines.readers.provenance.lake import INPUT
from tests.harness import connect_all
from tests.readers.inputs.read_tables import loaded

VIEWS = ("compile_provenance_matches", "kernel_provenance")


def joined(
    traces: Mapping[Path, list[dict[str, Any]]], files: Iterable[Path], ranks: Mapping[Path, int | None] | None = None
) -> tuple[duckdb.DuckDBPyConnection, dict[str, Path]]:
    """Return a connection with the traces and files, and the path of each trace by its id.

    `ranks` maps paths of traces to ranks.
    """
    con, ids = connect_all([{"traceEvents": events, "name": str(path)} for path, events in traces.items()])
    paths = dict(zip(ids, traces, strict=True))
    for trace_id, path in paths.items():
        rank = (ranks or {}).get(path)
        changes = f"SET path = '{path}', rank = {'NULL' if rank is None else rank}, job = NULL"
        con.execute(f"UPDATE traces {changes} WHERE trace_id = '{trace_id}'")
    run_models(con, load_catalog(), ["threads", "kernels"])
    of_files = loaded(INPUT, files)
    for table in load_catalog().ingested(INPUT.scope):
        rows = of_files.execute(f"FROM {table}").to_arrow_table()  # noqa: F841
        con.execute(f"CREATE TABLE {table} AS FROM rows")
    for view in VIEWS:
        con.execute(f"CREATE VIEW {view} AS {load_catalog().models[view].sql}")
    return con, paths
