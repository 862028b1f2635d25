"""Models that a table depends on, in the order in which they run, and the cost of each on one trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pipelines.base.close_names import meant
from pipelines.faces.cli.console import fail, out, print_json, print_rows

if TYPE_CHECKING:
    import duckdb

    from pipelines.models.catalog import Catalog, Model

_HEADINGS = ("model", "kind", "access", "file")
_COSTS = ("rows", "seconds")


class Cost(NamedTuple):
    """Cost of a model on one trace. `seconds` is None if ingestion or the function of an earlier table computed it."""

    rows: int
    seconds: float | None


def print_lineage(table: str, trace: str | None, lake: Path | str, process: str | None, json: bool) -> None:
    """Print the models that a table depends on. With a trace, run them all on it, and print their rows and seconds."""
    from pipelines.faces.subject import catalog_of
    from pipelines.models.catalog import load_catalog

    catalog = catalog_of(trace, lake) if trace else load_catalog()
    if table not in catalog.models:
        raise fail(f"no table {table!r}", meant(table, sorted(catalog.models)))
    models = [catalog.models[name] for name in catalog.closure([table])]
    costs = _costs(catalog, table, trace, lake, process) if trace else None
    headings = (*_HEADINGS, *(_COSTS if costs is not None else ()))
    rows = [(*_described(model), *(costs[model.name] if costs is not None else ())) for model in models]
    if json:
        print_json([dict(zip(headings, row, strict=True)) for row in rows])
        return
    print_rows(headings, [tuple(map(_text, row)) for row in rows], json=False)
    if costs is not None:
        out.print(f"{len(models)} models, {sum(cost.seconds or 0 for cost in costs.values()):.2f} s")


def _described(model: Model) -> tuple[str, str, str, str]:
    from pipelines.base.datafiles import SQL_DIR
    from pipelines.models.sources import PACKAGE

    in_sql = model.path.is_relative_to(SQL_DIR)
    file = f"sql/{model.path.relative_to(SQL_DIR)}" if in_sql else str(model.path.relative_to(PACKAGE.parent))
    access = "private" if model.private else "public"
    return model.name, model.kind, access, f"{file}:{model.line}" if model.line > 1 else file


def _costs(catalog: Catalog, table: str, trace: str, lake: Path | str, process: str | None) -> dict[str, Cost]:
    from pipelines.critical_path.graph.windows import request_windows, usual_windows
    from pipelines.faces.cli.progress_steps import model_progress
    from pipelines.faces.cli.trace.opened_trace import opened, use_memory
    from pipelines.models.header import TRACE

    model = catalog.models[table]
    if model.scope != TRACE:
        raise fail(
            f"{table} is not a table of one trace: its scope is {model.scope}", f"Without a trace: tables --of {table}"
        )
    with opened(trace, lake, process=process) as (con, trace_id):
        use_memory(con, trace_id)
        request_windows(con, usual_windows(con, [trace_id]))
        with model_progress(catalog, [table]) as on_model:
            return measured(con, catalog, table, on_model)


def measured(con: duckdb.DuckDBPyConnection, catalog: Catalog, table: str, on_model: Any = None) -> dict[str, Cost]:
    """Compute a table and all its inputs in `con`, and return the cost of each. Keep all tables to count their rows."""
    from pipelines.models.run import run_models

    names = catalog.closure([table])
    seconds: dict[str, float | None] = {}
    called: set[str] = set()
    for run in run_models(con, catalog, names, on_model=on_model):
        function = catalog.models[run.name].function
        seconds[run.name] = None if function in called else run.seconds
        called |= {function} if function else set()
    counts = " UNION ALL ".join(f"SELECT '{name}', count(*) FROM {name}" for name in names)
    return {name: Cost(rows, seconds.get(name)) for name, rows in con.execute(counts).fetchall()}


def _text(value: str | float | None) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.3f}"
    return f"{value:,}" if isinstance(value, int) else value
