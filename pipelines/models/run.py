"""Execution of models in a DuckDB connection: the requested models and all that they read, each once, in order."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from types import MappingProxyType

import duckdb

from pipelines.base import database
from pipelines.base.stopping import raise_if_stopped
from pipelines.models.catalog import Catalog, Model
from pipelines.models.errors import CatalogError
from pipelines.models.rule_functions import create_function
from pipelines.models.rule_tables import create_rules

_log = logging.getLogger("tracelake")
_SORTS_OR_SUMS = re.compile(r"\b(OVER|GROUP BY|DISTINCT|UNION(?! ALL)|INTERSECT|EXCEPT|ORDER BY)\b")


@dataclass(frozen=True)
class ModelRun:
    """A model that ran, and its duration in seconds. `plain_for`: why DuckDB's optimizer was off; "" if it was on."""

    name: str
    seconds: float
    plain_for: str = ""


def run_models(
    con: duckdb.DuckDBPyConnection,
    catalog: Catalog,
    targets: Iterable[str],
    have: frozenset[str] = frozenset(),
    on_model: Callable[[str], None] | None = None,
    at_once: int = 1,
    without_rows: frozenset[str] = frozenset(),
    write: Callable[[str, str], None] | None = None,
    plain: Mapping[str, str] = MappingProxyType({}),
) -> list[ModelRun]:
    """Create the targets and the tables that they read in `con`. With `write`, pass the targets on instead.

    - `have`: existing tables or views, in addition to the lake tables (`events`, `traces`, `findings`) and the tables
      of `request_windows`.
    - An intermediate table is dropped after its last reader. `on_model(name)` is called before each model.
    - `at_once`: maximum number of models that run concurrently. Each has a cursor of `con`, which sees tables and
      views, but not temporary tables or registered objects.
    - `without_rows`: models that are created with their columns only, because their rows are not needed.
    - `write(name, rows)`, not with `at_once` above 1, is called once per target with the SQL of its rows. A target that
      no other model reads gets no table in `con`, which would only be a copy.
    - A model on which DuckDB fails with an INTERNAL error runs once more with the optimizer off. The models in `plain`
      (name → reason) run without it from the start.

    Raise CatalogError for a model whose SQL DuckDB rejects, and duckdb.FatalException if DuckDB invalidates the
    database, and `con` with it.
    """
    if write and at_once > 1:
        raise ValueError("targets are written one after another: leave at_once at 1")
    target_names = set(targets)
    present = {*have, *(name for name, model in catalog.models.items() if model.kind == "lake")}
    known = (name for name in target_names if name in catalog.models)
    needed = catalog.closure(known, through=lambda model: model.name not in present)
    order = [name for name in needed if name not in present]
    plan = _Plan(catalog, order, target_names, without_rows, write is None, plain)
    runs: list[ModelRun] = []

    def started(name: str) -> None:
        if on_model:
            on_model(name)

    def ended(run: ModelRun) -> None:
        runs.append(run)
        for source in plan.done(run):
            con.execute(f"DROP {'VIEW' if source in plan.views else 'TABLE'} {source}")

    if at_once > 1:
        _run_at_once(con, plan, at_once, started, ended)
    else:
        _run_in_order(con, plan, target_names, write, started, ended)
    return runs


def _run_in_order(
    con: duckdb.DuckDBPyConnection,
    plan: _Plan,
    target_names: set[str],
    write: Callable[[str, str], None] | None,
    started: Callable[[str], None],
    ended: Callable[[ModelRun], None],
) -> None:
    called: set[str] = set()
    for name in plan.order:
        started(name)
        if write and name in target_names:
            ended(_timed(con, plan, name, partial(_write, con, plan, name, called, write)))
        else:
            ended(_timed(con, plan, name, _creates(con, plan, name, called)))


class _Plan:
    """The models that have not run yet, and the tables that are no longer needed."""

    def __init__(
        self,
        catalog: Catalog,
        order: list[str],
        wanted: set[str],
        without_rows: frozenset[str],
        keeps: bool,
        plain: Mapping[str, str],
    ) -> None:
        self.order, self.plain = order, plain
        models = {name: catalog.models[name] for name in order}
        self.models = models | {name: _columns_only(models[name]) for name in without_rows & models.keys()}
        planned = set(order)
        self._sources = {name: {s for s in catalog.models[name].dependencies if s in planned} for name in order}
        first_by_function: dict[str, str] = {}  # one call of a function creates all its tables
        for name in order:
            if (function := catalog.models[name].function) and (
                first := first_by_function.setdefault(function, name)
            ) != name:
                self._sources[name].add(first)
        # The union of all parts is a view, because a table would be a copy. A part that only selects is also a view,
        # and so is a model that only such a part reads. A reader of a view also reads the view's sources.
        parts = [name for name in order if catalog.models[name].part_of]
        self.views = {part for name in parts if (part := catalog.models[name].part_of)}
        self.views |= {name for name in parts if name not in without_rows and only_selects(catalog.models[name])}
        self.views |= {name for name in order if _only_for(catalog, name, order, self.views, without_rows)}
        self.views &= planned - wanted
        for name in order:  # in order, each model after its sources
            for view in self._sources[name] & self.views:
                self._sources[name] |= self._sources[view]
        self._readers = {name: {r for r in order if name in self._sources[r]} for name in order}
        self.unread = {name for name in order if not self._readers[name]}
        self.kept = {name for name in order if catalog.models[name].kind == "rules"} | (wanted if keeps else set())
        # Length of the longest chain of readers from each model on. The longest chain determines the total time.
        self._ahead: dict[str, int] = {}
        for name in reversed(order):
            self._ahead[name] = 1 + max((self._ahead[r] for r in self._readers[name]), default=0)

    def ready(self, begun: set[str]) -> list[str]:
        """Return the models that can start now, those with the longest chain of readers first."""
        return sorted(
            (name for name in self.order if name not in begun and not self._sources[name]),
            key=lambda n: -self._ahead[n],
        )

    def done(self, run: ModelRun) -> list[str]:
        """Record that a model has run. Return the tables that have no readers left."""
        name, unread = run.name, []
        for source in [s for s in self.order if name in self._readers[s]]:
            self._readers[source].discard(name)
            if not self._readers[source] and source not in self.kept:
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
    """Run the models of a plan in threads. After a failure no model starts, and running models are interrupted."""
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
                    running[pool.submit(_timed, cursor, plan, name, _creates(cursor, plan, name, called))] = cursor
                    begun.add(name)
                if not running:
                    break
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    idle.append(running.pop(future))
                    ended(future.result())
        finally:
            # Interrupt repeatedly, because an interrupt between two statements has no effect.
            while not all(future.done() for future in running):
                for cursor in running.values():
                    cursor.interrupt()
                wait(running, timeout=0.1)
    for cursor in idle:
        cursor.close()


def _timed(con: duckdb.DuckDBPyConnection, plan: _Plan, name: str, run: Callable[[], None]) -> ModelRun:
    start = time.perf_counter()
    reason = plan.plain.get(name, "")
    try:
        with database.without_optimizer(con) if reason else nullcontext():
            _with_enough_memory(con, run)
    except duckdb.InternalException as error:
        if reason:
            raise
        reason = _run_again(con, name, run, error)
    return ModelRun(name, time.perf_counter() - start, reason)


def _with_enough_memory(con: duckdb.DuckDBPyConnection, run: Callable[[], None]) -> None:
    """Call `run`. If memory runs out, double the limit and call it again, up to the maximum.

    A long trace starts with little memory, because few of its models need more.
    """
    while True:
        try:
            run()
            return
        except duckdb.OutOfMemoryException as error:
            if database.DISK_FULL in str(error) or not database.more_memory(con):
                raise


def _run_again(
    con: duckdb.DuckDBPyConnection, name: str, run: Callable[[], None], error: duckdb.InternalException
) -> str:
    """Call `run` without the optimizer, the cause of nearly all INTERNAL errors. Return the reason.

    Raise `error` if `run` fails again.
    """
    try:
        with database.without_optimizer(con):
            _with_enough_memory(con, run)
    except duckdb.FatalException:
        raise
    except Exception as second_error:
        raise_if_stopped(second_error)
        raise error from None
    reason = why_plain(error)
    _log.warning("%s: %s", name, reason)
    return reason


def why_plain(error: Exception) -> str:
    """Return the message for a model that runs without the optimizer because of this error."""
    error_text = (str(error).strip().splitlines() or [""])[0]
    return f"DuckDB {duckdb.__version__} failed, and the model was run again with the optimizer off. {error_text}"[:500]


def _write(
    con: duckdb.DuckDBPyConnection, plan: _Plan, name: str, called: set[str], write: Callable[[str, str], None]
) -> None:
    """Pass a target to `write`, and create its table if other models read it or a function creates it."""
    model, is_unread = plan.models[name], name in plan.unread
    if is_unread and model.kind == "sql":
        with _rejections(model):
            write(name, model.sql)
        return
    _create(con, model, called)
    write(name, f"FROM {name}")
    if is_unread:
        con.execute(f"DROP TABLE {name}")


def only_selects(model: Model) -> bool:
    """Return whether each row comes from one source row, without sorting or aggregation that a table would save."""
    return not _SORTS_OR_SUMS.search(model.sql)


def _only_for(catalog: Catalog, name: str, order: list[str], views: set[str], without_rows: frozenset[str]) -> bool:
    """Return whether a model only selects and has a single reader, which is in `views`.

    Readers in `without_rows` do not count.
    """
    model = catalog.models[name]
    readers = {r for r in order if name in catalog.models[r].dependencies} - without_rows
    return model.kind == "sql" and len(readers) == 1 and readers <= views and only_selects(model)


def _columns_only(model: Model) -> Model:
    return replace(model, sql=f"SELECT * FROM (\n{model.sql}\n) AS model WHERE FALSE")


def _creates(con: duckdb.DuckDBPyConnection, plan: _Plan, name: str, called: set[str]) -> Callable[[], None]:
    return partial(_create, con, plan.models[name], called, "VIEW" if name in plan.views else "TABLE")


def _create(con: duckdb.DuckDBPyConnection, model: Model, called: set[str], how: str = "TABLE") -> None:
    """Create the table or view of a model.

    `called`: functions that already ran for another of their tables. The function of this table is added.
    """
    if model.kind == "rules":
        create_rules(con, model)
        create_function(con, model.name)
    elif model.kind == "python":
        if model.function not in called:
            module, function = model.function.split(":")
            getattr(import_module(module), function)(con)
            called.add(model.function)
    else:
        with _rejections(model):
            con.execute(f"CREATE OR REPLACE {how} {model.name} AS {model.sql}")


@contextmanager
def _rejections(model: Model) -> Iterator[None]:
    """Raise CatalogError with the model's file for errors in its SQL, which the data cannot cause."""
    try:
        yield
    except (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException) as error:
        raise CatalogError(f"{model.place}: DuckDB rejects {model.name}: {str(error).strip()}") from None
