"""Entry point for queries on Spark. DuckDB checks a query and names its columns, and Spark computes the rows."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipelines.base import database
from pipelines.base.errors import WrongValue
from pipelines.engines.spark.same_functions import unlike
from pipelines.engines.spark.session import connect
from pipelines.engines.spark.tables import NotOnSpark, Tables, read_by
from pipelines.lake.lake import Lake
from pipelines.lake.read.query_tree import named_in
from pipelines.lake.read.sandbox import Answer, LimitReached, Limits, LockedLake, QueryRefused
from pipelines.models.catalog import load_catalog
from pipelines.models.sqltext import first_line

if TYPE_CHECKING:
    from ibis.backends.pyspark import Backend

IN_DUCKDB = "Without --engine, DuckDB answers it."
_SIZE = re.compile(r"\s*(\d+)\s*([kmgt])i?b?\s*", re.IGNORECASE)


@dataclass(frozen=True)
class Asker:
    """The Spark cluster for queries (see `connect`), and the tables that it computes.

    `memory`: memory of the driver and of each executor, in DuckDB's notation ("4GB"). `computed`: tables that Spark
    computes instead of reading them.
    """

    master: str = ""
    memory: str = ""
    computed: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Raise NotOnSpark for tables that Spark cannot compute, ValueError for an invalid size."""
        catalog = load_catalog()
        for name in self.computed:
            if name not in catalog.public:
                raise NotOnSpark(f"--compute {name}: there is no such table; `tracelake tables` lists them")
        read_by(catalog, self.computed, self.computed)
        if self.memory:
            spark_size(self.memory)

    def read_for(self, tables: Iterable[str]) -> list[str]:
        """Return the tables that must be up to date in the lake for a query over `tables`."""
        catalog = load_catalog()
        read = read_by(catalog, [*tables, *self.computed], self.computed)
        return [name for name in read if name in catalog.public and name not in self.computed]

    @contextmanager
    def asked(self, locked: LockedLake, lake: Lake, query: str, first: int = 0) -> Iterator[Answer]:
        """Yield the answer as `answer_on_spark` does, in a dedicated session that ends with the answer."""
        memory = {name: spark_size(self.memory) for name in _MEMORY if self.memory}
        backend = connect(self.master, memory)
        try:
            with answer_on_spark(Tables(backend, locked.con, lake, self.computed), locked, query, first) as answer:
                yield answer
        finally:
            backend.disconnect()


_MEMORY = ("spark.driver.memory", "spark.executor.memory")


def spark_size(size: str) -> str:
    """Return a size in Spark's notation, such as "4g" for "4GB". Raise ValueError for any other text."""
    match = _SIZE.fullmatch(size)
    if not match:
        raise WrongValue(f"{size!r} is not a size for Spark; write it like 512MB or 4GB")
    return f"{match[1]}{match[2].lower()}"


@contextmanager
def answer_on_spark(tables: Tables, locked: LockedLake, query: str, first: int = 0) -> Iterator[Answer]:
    """Yield Spark's answer to a query in DuckDB's dialect, with the columns and types of DuckDB's answer.

    `first`: compute at most this many rows, 0 for all. It is ignored if `locked` limits the rows. All limits of
    `locked` apply, except for disk. Raise QueryRefused and duckdb.Error as DuckDB does, before Spark runs the query.
    Raise NotOnSpark if Spark cannot run the query or would compute another answer, LimitReached if the query exceeds a
    limit, and BrokenFiles if a table has damaged files.
    """
    with locked.asked(query) as planned:  # planned, not run
        if planned is None:
            raise QueryRefused("a query on Spark reads the lake's tables, with SELECT")
        columns, types = planned.columns, planned.types
    if reason := unlike(locked.con, query):
        raise NotOnSpark(f"{reason}. {IN_DUCKDB}")
    named = named_in(locked.con, query)
    if named is None or named.functions:
        unsupported = f"{min(named.functions)}() in FROM" if named else "this statement"
        raise NotOnSpark(f"Spark gets queries over the lake's tables only, without {unsupported}. {IN_DUCKDB}")
    if len({name.lower() for name in columns}) < len(columns):
        raise NotOnSpark("two columns of the answer have the same name: name them apart with AS")
    limits = locked.limits
    max_rows = limits.rows + 1 if limits.rows else 0
    with _stopped_in_time(tables.backend, limits), database.connect() as con:
        try:
            tables.make(sorted(named.tables))
            rows = tables.rows(query, max_rows or first)
        except Exception as error:
            raise _as_sentence(error) from None
        casts = ", ".join(
            f'CAST("{index}" AS {kind}) AS {_name(name)}'
            for index, (name, kind) in enumerate(zip(columns, types, strict=True))
        )
        yield Answer(
            con.from_arrow(rows.rename_columns([str(index) for index in range(len(columns))])).project(casts),
            limits.rows,
        )


def _name(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


@contextmanager
def _stopped_in_time(backend: Backend, limits: Limits) -> Iterator[None]:
    """Cancel Spark's jobs when the time limit is reached, and raise LimitReached in that case."""
    late = threading.Event()
    session: Any = backend._session

    def stop() -> None:
        late.set()
        session.sparkContext.cancelAllJobs()

    timer = threading.Timer(limits.seconds, stop)
    if limits.seconds:
        timer.start()
    try:
        yield
    except NotOnSpark:
        if not late.is_set():
            raise
        raise LimitReached(
            f"the query was stopped after {limits.seconds:g} s: raise --timeout, or ask for less"
        ) from None
    finally:
        timer.cancel()


def _as_sentence(error: Exception) -> Exception:
    """Return Spark's error as one sentence, and any other error unchanged."""
    if not type(error).__module__.startswith(("pyspark", "py4j")):
        return error
    text = first_line(error)
    message = re.sub(r"^\[(\w+\.?)+\]\s*|\s*SQLSTATE: \w+.*$", "", text) or text
    return NotOnSpark(f"Spark: {message}. {IN_DUCKDB}")
