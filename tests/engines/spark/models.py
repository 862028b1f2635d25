"""Comparison of every SQL model that Spark runs with DuckDB, row by row. Spark reads inputs that DuckDB computed."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import sqlglot
from sqlglot import exp

from pipelines.critical_path.graph.windows import WindowRequest, request_windows, usual_windows
from pipelines.engines.spark.tables import spark_schema
from pipelines.fleet.captures.input_tables import lake_captures, stage_captures
from pipelines.fleet.trends.comparison import BY
from pipelines.lake import Lake
from pipelines.lake.publish.prices import PRICE_TABLE, add_prices
from pipelines.models.catalog import Catalog, Model, load_catalog
from pipelines.models.dry_run import create_empty
from pipelines.models.rule_functions import FUNCTIONS, first_rule
from pipelines.models.rule_tables import create_rules
from pipelines.models.run import run_models

Run = Callable[[str], pa.Table]
SCOPES = ("capture", "lake")  # DuckDB computes the tables of one trace, which may use all of its SQL
COMPARED = "CREATE TABLE compared (part BIGINT, by_what VARCHAR, side VARCHAR, trace_id VARCHAR, step BIGINT)"


@dataclass(frozen=True)
class Outcome:
    """The result of a model's comparison. `how`: same (bit for bit), near (floats to 9 digits), differs, or error."""

    name: str
    how: str
    why: str = ""
    seconds: float = 0.0

    @property
    def is_equal(self) -> bool:
        return self.how in ("same", "near")


def compared_models(catalog: Catalog) -> list[Model]:
    """Return the models that are a SELECT and that Spark runs: tables of captures, and views."""
    models = (m for m in catalog.models.values() if m.kind in ("sql", "view") and m.scope in SCOPES)
    return [model for model in models if _is_compared(model)]


def text_of(model: Model) -> str:
    """Return the SQL of a model.

    Calls of functions that return the first matching rule (rule_functions.py) are replaced by their CASE.
    """
    tables = [table for table in FUNCTIONS if f"first_{table}(" in model.sql]
    if not tables:
        return model.sql
    tree = sqlglot.parse_one(model.sql, read="duckdb")
    with duckdb.connect() as con:
        for table in tables:
            create_rules(con, load_catalog().models[table])
            for call in list(tree.find_all(exp.Anonymous)):
                if call.name == f"first_{table}":
                    call.replace(_case(con, table, call.expressions))
    return tree.sql(dialect="duckdb")


def _case(con: duckdb.DuckDBPyConnection, table: str, expressions: list[Any]) -> Any:
    """Return the body of a function, with these expressions in place of its arguments."""
    arguments = FUNCTIONS[table]
    columns = {name for name, *_ in con.execute(f"DESCRIBE {table}").fetchall()}
    order = "rule_order" if "rule_order" in columns else "rowid"
    body = sqlglot.parse_one(first_rule(con, table, arguments, order), read="duckdb")
    values = dict(zip(arguments, expressions, strict=True))
    return body.transform(lambda node: values[node.name].copy() if isinstance(node, exp.Column) else node)


def _is_compared(model: Model) -> bool:
    """Return whether a model is compared: every model except tables of the layer `ingest`, which come from files."""
    return model.layer != "ingest" or model.kind == "view"


def reference(lake: Lake, folder: Path) -> dict[str, int]:
    """Compute all tables of a lake in DuckDB, and write each to `<folder>/t<table>.parquet`.

    Private tables are included. Return the number of rows of each table.
    """
    catalog = load_catalog()
    folder.mkdir(parents=True)
    con = duckdb.connect(str(folder / "reference.duckdb"))
    con.execute("SET TimeZone = 'UTC'")
    for scope in {model.scope for model in catalog.models.values() if model.kind == "lake"}:
        create_empty(con, catalog, scope)
    ingested = [name for name, model in catalog.models.items() if model.kind == "lake"]
    with lake.connect(ingested) as there:
        filled = {
            name for (name,) in there.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()
        }
    con.execute("".join(f"DROP TABLE {name};" for name in ingested if name in filled))
    lake.create_views(con, sorted(filled & set(ingested)))
    traces = [name for (name,) in con.execute("SELECT trace_id FROM traces ORDER BY 1").fetchall()]
    windows = [*usual_windows(con, traces), *(WindowRequest(trace, "hta", "hta") for trace in traces)]
    request_windows(con, windows)
    stage_captures(con, lake_captures(lake).values())
    con.execute(COMPARED)
    for side, trace in zip(("control", "test"), traces, strict=False):
        for by in (*BY, "host"):
            con.execute("INSERT INTO compared VALUES (0, ?, ?, ?, NULL)", [by, side, trace])
    create_rules(con, catalog.models[PRICE_TABLE])
    add_prices(con, lake.root)  # before the views that read them
    wanted = [name for name, model in catalog.models.items() if model.kind != "lake" and _is_compared(model)]
    run_models(con, catalog, wanted, frozenset([*ingested, PRICE_TABLE]))
    return {name: _written(con, name, folder) for name in _tables(con)}


def _tables(con: duckdb.DuckDBPyConnection) -> list[str]:
    query = "SELECT table_name FROM information_schema.tables WHERE table_catalog = 'reference' ORDER BY 1"
    return [name for (name,) in con.execute(query).fetchall()]


def _written(con: duckdb.DuckDBPyConnection, name: str, folder: Path) -> int:
    wide = [column for column, kind, *_ in con.execute(f"DESCRIBE {name}").fetchall() if kind == "HUGEINT"]
    cast = ", ".join(f'CAST("{column}" AS DECIMAL(38, 0)) AS "{column}"' for column in wide)
    rows = f"SELECT *{f' REPLACE ({cast})' if wide else ''} FROM {name}"
    # Not the bare name, because Spark treats a file whose name begins with _ as hidden.
    con.execute(f"COPY ({rows}) TO '{folder}/t{name}.parquet' (FORMAT parquet)")
    return con.execute(f"SELECT count(*) FROM {name}").fetchall()[0][0]


def on_spark(backend: Any, folder: Path, dialect: str | None = "duckdb") -> Run:
    """Create views of the reference tables, and return a function that runs a query in `dialect`.

    With `dialect` None, Spark runs the query unchanged.
    """
    session = backend._session
    for file in folder.glob("t*.parquet"):
        with duckdb.connect() as con:
            columns = con.execute(f"DESCRIBE FROM read_parquet('{file}')").fetchall()
        read = session.read.schema(spark_schema((name, kind) for name, kind, *_ in columns))
        read.parquet(str(file)).createOrReplaceTempView(file.stem[1:])
    return lambda text: backend.raw_sql(backend.compile(backend.sql(text, dialect=dialect))).toArrow()


def on_datafusion(backend: Any, folder: Path, dialect: str | None = "duckdb") -> Run:
    """Do the same as `on_spark`, for Ibis over DataFusion."""
    for file in folder.glob("t*.parquet"):
        if file.stem[1:] in backend.list_tables():
            backend.con.deregister_table(file.stem[1:])
        backend.con.register_parquet(file.stem[1:], str(file))
    return lambda text: backend.to_pyarrow(backend.sql(text, dialect=dialect))


def compare(run: Run, folder: Path, models: Iterable[Model], texts: Mapping[str, str]) -> Iterator[Outcome]:
    """Run each model's query with the inputs in `folder`, and compare the rows with the table there."""
    for model in models:
        began = time.perf_counter()
        try:
            rows = run(texts[model.name])
        except Exception as error:  # engines raise any exception, and it is the outcome
            why = re.sub(r"\s+", " ", str(error).split("JVM stacktrace")[0])
            yield Outcome(model.name, "error", why[:600])
            continue
        seconds = time.perf_counter() - began
        how, why = difference(folder / f"t{model.name}.parquet", rows)
        yield Outcome(model.name, how, why, seconds)


def difference(expected: Path, actual: Any) -> tuple[str, str]:
    """Compare with EXCEPT ALL in both directions, first bit for bit, then with floats to 9 digits.

    Return an Outcome's `how` and `why`.
    """
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'UTC'")
        con.register("spark", actual)
        con.execute(f"CREATE VIEW expected AS FROM read_parquet('{expected}')")
        columns = con.execute("DESCRIBE expected").fetchall()
        missing = {name for name, *_ in columns} - {name for name, *_ in con.execute("DESCRIBE spark").fetchall()}
        if missing:
            return "differs", f"no columns {sorted(missing)}"
        for how in ("same", "near"):
            listed = ", ".join(_as_compared(name, kind, how) for name, kind, *_ in columns)
            only = []
            for side, other in (("expected", "spark"), ("spark", "expected")):
                rows = f"SELECT {listed} FROM {side} EXCEPT ALL SELECT {listed} FROM {other}"
                only.append(con.execute(f"SELECT count(*) FROM ({rows})").fetchall()[0][0])
                if only[-1] and how == "near":
                    shown = con.execute(f"SELECT * FROM ({rows}) ORDER BY ALL LIMIT 2").fetchall()
                    only.append(f"{side}: {str(shown)[:500]}")
            if not any(only):
                return how, ""
        return "differs", str(only)


def _as_compared(name: str, kind: str, how: str) -> str:
    value = f'CAST("{name}" AS {kind})'
    if kind in ("DOUBLE", "FLOAT") and how == "near":
        value = f"CASE WHEN {value} = 0 THEN '0' ELSE printf('%.9e', {value}) END"
    return f'{value} AS "{name}"'
