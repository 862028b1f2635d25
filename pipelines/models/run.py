"""Runs models in a DuckDB connection: the requested ones and everything they read, each once, in order."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from importlib import import_module

import duckdb

from pipelines import database
from pipelines.models.catalog import Catalog, Model
from pipelines.models.errors import CatalogError
from pipelines.sqltext import quoted


@dataclass(frozen=True)
class ModelRun:
    """A model that ran: its rows and the seconds it took."""

    name: str
    n_rows: int
    seconds: float


def run_models(
    con: duckdb.DuckDBPyConnection,
    catalog: Catalog,
    targets: Iterable[str],
    have: frozenset[str] = frozenset(),
    on_model: Callable[[str], None] | None = None,
    at_once: int = 1,
) -> list[ModelRun]:
    """Create the targets, and what they read, as tables in `con`.

    `have` are tables or views that already exist, besides the lake tables (`events`, `traces`, `findings`) and what
    `request_windows` makes. An intermediate table is dropped after its last reader. `on_model(name)` is called before
    each model. With `at_once`, that many models run beside each other where neither reads the other, each on a cursor
    of `con`: a cursor sees tables and views, but nothing temporary or registered. Raises CatalogError for a model whose
    SQL DuckDB rejects.
    """
    wanted = set(targets)
    present = {*have, *(name for name, model in catalog.models.items() if model.kind == "lake")}
    plan = _Plan(catalog, _needed(catalog, wanted, present), wanted)
    runs: list[ModelRun] = []

    def started(name: str) -> None:
        if on_model:
            on_model(name)

    def ended(run: ModelRun) -> None:
        runs.append(run)
        for source in plan.done(run.name):
            con.execute(f"DROP {'VIEW' if source in plan.views else 'TABLE'} {source}")

    if at_once > 1:
        _run_at_once(con, plan, at_once, started, ended)
    else:
        called: set[str] = set()
        for name in plan.order:
            started(name)
            ended(_timed(con, catalog.models[name], called, name in plan.views))
    return runs


class _Plan:
    """Which models are left to run, and which tables nobody reads any more."""

    def __init__(self, catalog: Catalog, order: list[str], wanted: set[str]) -> None:
        self.catalog, self.order = catalog, order
        among = set(order)
        self._sources = {name: {s for s in catalog.models[name].dependencies if s in among} for name in order}
        first_of: dict[str, str] = {}  # one call of a function makes all its tables
        for name in order:
            if (function := catalog.models[name].function) and (first := first_of.setdefault(function, name)) != name:
                self._sources[name].add(first)
        # All parts together are a view: a table of them would be a copy. Whoever reads it reads its parts.
        self.views = {part for name in order if (part := catalog.models[name].part_of)} & among - wanted
        for name in order:
            for view in self._sources[name] & self.views:
                self._sources[name] |= {s for s in catalog.models[view].dependencies if s in among}
        self._readers = {name: {r for r in order if name in self._sources[r]} for name in order}
        self._kept = wanted | {name for name in order if catalog.models[name].kind == "rules"}
        # How many models have to run one after another from here on: the longest such row decides when all are done.
        self._ahead: dict[str, int] = {}
        for name in reversed(order):
            self._ahead[name] = 1 + max((self._ahead[r] for r in self._readers[name]), default=0)

    def ready(self, begun: set[str]) -> list[str]:
        """Returns the models that can begin now, those with most to come first."""
        return sorted(
            (name for name in self.order if name not in begun and not self._sources[name]),
            key=lambda n: -self._ahead[n],
        )

    def done(self, name: str) -> list[str]:
        """Notes that a model has run; returns the tables that were read for the last time."""
        unread = []
        for source in [s for s in self.order if name in self._readers[s]]:
            self._readers[source].discard(name)
            if not self._readers[source] and source not in self._kept:
                unread.append(source)
        for sources in self._sources.values():
            sources.discard(name)
        return unread


def _run_at_once(
    con: duckdb.DuckDBPyConnection,
    plan: _Plan,
    at_once: int,
    started: Callable[[str], None],
    ended: Callable[[ModelRun], None],
) -> None:
    """Run the models of a plan in threads. After a failure nothing more begins, and what is running is interrupted."""
    begun: set[str] = set()
    called: set[str] = set()
    running: dict[Future[ModelRun], duckdb.DuckDBPyConnection] = {}
    idle = [database.cursor(con) for _ in range(at_once)]
    with ThreadPoolExecutor(at_once) as pool:
        try:
            while True:
                for name in plan.ready(begun)[: len(idle)]:
                    started(name)
                    cursor = idle.pop()
                    running[pool.submit(_timed, cursor, plan.catalog.models[name], called, name in plan.views)] = cursor
                    begun.add(name)
                if not running:
                    break
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    idle.append(running.pop(future))
                    ended(future.result())
        finally:
            # Again and again: between two statements there is nothing to interrupt.
            while not all(future.done() for future in running):
                for cursor in running.values():
                    cursor.interrupt()
                wait(running, timeout=0.1)
    for cursor in idle:
        cursor.close()


def _timed(con: duckdb.DuckDBPyConnection, model: Model, called: set[str], is_view: bool) -> ModelRun:
    began = time.perf_counter()
    rows = _create(con, model, called, "VIEW" if is_view else "TABLE")
    return ModelRun(model.name, rows, time.perf_counter() - began)


def _needed(catalog: Catalog, wanted: set[str], present: set[str]) -> list[str]:
    needed, todo = set(), [name for name in wanted if name not in present]
    while todo:
        name = todo.pop()
        if name in needed or name in present or name not in catalog.models:
            continue
        needed.add(name)
        todo += catalog.models[name].dependencies
    return [name for name in catalog.models if name in needed]


def _create(con: duckdb.DuckDBPyConnection, model: Model, called: set[str], how: str = "TABLE") -> int:
    """`called`: functions that already ran for another of their tables; this table's function is added."""
    if model.kind == "rules":
        create_rules(con, model)
    elif model.kind == "python":
        if model.function not in called:
            module, function = model.function.split(":")
            getattr(import_module(module), function)(con)
            called.add(model.function)
    else:
        try:
            con.execute(f"CREATE OR REPLACE {how} {model.name} AS {model.sql}")
        except (
            duckdb.BinderException,
            duckdb.CatalogException,
            duckdb.ParserException,
        ) as error:  # not a fault of the data
            raise CatalogError(f"{model.path}: DuckDB rejects it: {str(error).strip()}") from None
    return con.execute(f"SELECT count(*) FROM {model.name}").fetchall()[0][0]


def create_rules(con: duckdb.DuckDBPyConnection, model: Model) -> None:
    """Create a rule table from its CSV.

    The dialect is given: guessed from few rows, quotes would be part of the text. `""` is an empty text, as in HTA's
    label for edges without time; a field with nothing in it is NULL.
    """
    dialect = "header = true, comment = '#', delim = ',', quote = '\"', escape = '\"', allow_quoted_nulls = false"
    rows = f"SELECT * FROM read_csv({quoted(model.path)}, {dialect})"
    try:
        con.execute(f"CREATE OR REPLACE TABLE {model.name} AS {rows}")
    except duckdb.InvalidInputException as error:
        raise CatalogError(f"{model.path}: {str(error).strip()}") from None
