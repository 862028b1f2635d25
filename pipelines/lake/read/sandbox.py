"""The sandbox for untrusted queries: one query at a time that only reads the lake's tables, within limits.

DuckDB itself enforces most rules. It can access files only in the folders of the tables, and its configuration is
locked. DuckDB still allows some statements that do more than read tables, such as writing into the tables' folders or
naming files. These statements are rejected before they run. docs/sql.md documents the rules.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from pipelines.base import database
from pipelines.base.errors import TracelakeError
from pipelines.lake.lake import Lake
from pipelines.lake.publish.analyst_file import analyst, connect_attached
from pipelines.lake.read.query_tree import named_in
from pipelines.models.catalog import load_catalog
from pipelines.models.sqltext import file_list, quoted

if TYPE_CHECKING:
    import pyarrow as pa

HINT = "--allow-files lets a query read and write files and change settings."
# Table functions that read only their arguments and the catalog. `query` is excluded, because it runs its argument.
_HARMLESS = frozenset(
    [
        "range",
        "generate_series",
        "unnest",
        "repeat",
        "repeat_row",
        "json_each",
        "json_tree",
        "histogram",
        "histogram_values",
        "summary",
        "test_all_types",
        "icu_calendar_names",
        "pg_timezone_names",
        "pragma_table_info",
        "pragma_show",
        "pragma_version",
        "pragma_platform",
        "duckdb_columns",
        "duckdb_constraints",
        "duckdb_databases",
        "duckdb_dependencies",
        "duckdb_extensions",
        "duckdb_functions",
        "duckdb_indexes",
        "duckdb_keywords",
        "duckdb_memory",
        "duckdb_optimizers",
        "duckdb_schemas",
        "duckdb_sequences",
        "duckdb_settings",
        "duckdb_tables",
        "duckdb_types",
        "duckdb_views",
    ]
)
# The prefix of the error text for an interrupt or lack of memory, in any phase of a query.
_KIND = re.compile(
    r"(?:Invalid Input Error: Attempting to execute an unsuccessful or closed pending query result\nError: )?"
    r"(INTERRUPT|Out of Memory) Error: "
)
_WORD = re.compile(r'"(?:[^"]|"")*"|\w+|\S')
CLOSED: dict[str, Any] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
    "python_enable_replacements": "false",  # otherwise, FROM name reads a variable of this program
}


_parsers: dict[int, duckdb.DuckDBPyConnection] = {}
Connect = Callable[[Mapping[str, str]], duckdb.DuckDBPyConnection]


class QueryRefused(TracelakeError, ValueError):
    """A query that does more than read the lake's tables. The message contains the reason."""


class LimitReached(TracelakeError, RuntimeError):
    """A query that was stopped because it exceeded a limit. The message names the limit and how to raise it."""


class QueryStopped(TracelakeError, RuntimeError):
    """A query that `LockedLake.stop` stopped."""


@dataclass(frozen=True)
class Limits:
    """The resource limits of one query. 0 or "" means no limit."""

    seconds: float = 600.0
    rows: int = 0
    memory: str = ""  # in DuckDB's notation, such as "4GB"; DuckDB's default is 80 % of the machine's memory
    spill: str = "10GB"  # maximum disk space for data that does not fit into memory


class Answer:
    """The rows of a query, readable while its connection is open. More rows than the limit raise LimitReached."""

    def __init__(self, relation: duckdb.DuckDBPyRelation, limit: int) -> None:
        self._relation, self._limit = relation, limit
        self._later: Iterator[tuple[Any, ...]] | None = None
        self.columns: list[str] = relation.columns
        self.types: list[str] = [str(kind) for kind in relation.types]

    def rows(self, first: int = 0) -> list[tuple[Any, ...]]:
        """Return all rows, or the first `first` rows unless it is 0. The limit applies to all rows."""
        if first and not self._limit:
            return self._next(first)
        rows = self._next(self._limit + 1) if self._limit else self._relation.fetchall()
        self._check(len(rows))
        return rows[: first or None]

    def arrow(self) -> pa.Table:
        """Return all rows as an Arrow table."""
        table = (self._relation.limit(self._limit + 1) if self._limit else self._relation).to_arrow_table()
        self._check(table.num_rows)
        return table

    def parts(self, rows: int) -> Iterator[list[tuple[Any, ...]]]:
        """Yield the rows in lists of at most `rows`.

        The limit does not apply, because the caller stops when it has enough rows.
        """
        while part := self._next(rows):
            yield part

    def _next(self, n: int) -> list[tuple[Any, ...]]:
        if hasattr(self._relation, "fetchmany"):  # until DuckDB 2
            return self._relation.fetchmany(n)
        self._later = self._later or iter(self._relation.iter_rows())  # pyright: ignore[reportCallIssue]
        return list(islice(self._later, n))

    def arrow_parts(self, rows: int) -> pa.RecordBatchReader:
        """Return the rows as Arrow record batches of at most `rows` rows, computed as they are read.

        The limit does not apply.
        """
        return self._relation.to_arrow_reader(rows)

    def _check(self, n: int) -> None:
        if self._limit and n > self._limit:
            raise LimitReached(
                f"the answer has more than {self._limit:,} rows: raise --max-rows, or use LIMIT in the query"
            )


class LockedLake:
    """A private connection to a lake's analyst.duckdb, which is published first if necessary. Close it, or use `with`.

    `tables`: model tables that were brought up to date and must be shown in that state. `allow_files` removes the locks
    but not the limits. The file is still opened read-only, but the query may do anything else.
    """

    def __init__(
        self,
        lake: Lake | str | Path | Connect,
        limits: Limits | None = None,
        *,
        allow_files: bool = False,
        tables: Iterable[str] = (),
    ) -> None:
        """Open the connection. `lake` may be a function of settings that returns it, locked unless `allow_files`.

        Raise ValueError for sizes in `limits` that DuckDB cannot parse. Raise duckdb.IOException if the file is not a
        DuckDB file.
        """
        self.limits, self.allow_files = limits or Limits(), allow_files
        self._stopped, self._wake = False, threading.Event()
        self._spill = tempfile.mkdtemp(prefix="tracelake-spill-")
        sizes = {"memory_limit": self.limits.memory, "max_temp_directory_size": self.limits.spill}
        settings = {"temp_directory": self._spill} | {name: size for name, size in sizes.items() if size}
        try:
            if callable(lake):
                self.con = lake(settings)
            else:
                self.con = connect(lake, tables, settings, locked=not allow_files)
        except BaseException:
            shutil.rmtree(self._spill, ignore_errors=True)
            raise

    @contextmanager
    def asked(self, query: str) -> Iterator[Answer | None]:
        """Yield the answer to a query. Read it inside the block.

        Yield None for a statement without rows (with allow_files). Raise QueryRefused, LimitReached, QueryStopped, or
        duckdb.Error for errors in the query.
        """
        if not self.allow_files:
            refuse_but_reading(query, self.con)
        done, late = threading.Event(), threading.Event()
        self._wake = wake = threading.Event()
        if self._stopped:  # `stop` was called before the query began
            wake.set()

        def watch() -> None:
            if not wake.wait(self.limits.seconds or None):
                late.set()
            while not done.wait(0.1):  # repeat, because an interrupt between two steps of the query has no effect
                self.con.interrupt()

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            relation = self.con.sql(query)
            yield None if relation is None else Answer(relation, self.limits.rows)
        except (duckdb.Error, OSError) as error:
            translated = self._translated(error, late.is_set())
            if translated is None:
                raise
            raise translated from None
        finally:
            done.set()
            wake.set()
            watcher.join()  # otherwise its last interrupt could stop the next query

    def stop(self) -> None:
        """Stop the running query and all later queries, from any thread. `asked` then raises QueryStopped."""
        self._stopped = True
        self._wake.set()

    def _translated(self, error: Exception, is_late: bool) -> BaseException | None:
        """Return the error to raise in place of DuckDB's error, or None to raise the original error.

        While rows are read in parts, the exception's type does not identify the kind of error, but its text does.
        """
        text = str(error)
        kind = _KIND.match(text)
        if kind and kind[1] == "INTERRUPT":
            if self._stopped:
                return QueryStopped("the query was stopped")
            if is_late:
                message = f"the query was stopped after {self.limits.seconds:g} s: raise --timeout, or ask for less"
                return LimitReached(message)
            return KeyboardInterrupt()
        if kind:
            return LimitReached(self._too_large(text))
        if isinstance(error, duckdb.PermissionException):
            return QueryRefused(f"{text.splitlines()[0]}: a query may only read the lake's tables")
        return duckdb.Error(text) if isinstance(error, OSError) and error.errno is None else None

    def _too_large(self, text: str) -> str:
        if "max_temp_directory_size" in text:
            return f"the query needs more than {self.limits.spill} of disk in addition to its memory: raise --memory or --spill"
        return f"the query needs more memory than it may use ({self.limits.memory or 'the default'}): raise --memory"

    def close(self) -> None:
        """Close the connection and remove its spilled data."""
        self.con.close()
        shutil.rmtree(self._spill, ignore_errors=True)

    def __enter__(self) -> LockedLake:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def connect(
    lake: Lake | str | Path,
    tables: Iterable[str] = (),
    settings: Mapping[str, str] | None = None,
    *,
    locked: bool = True,
) -> duckdb.DuckDBPyConnection:
    """Open a lake's current file with `connect_attached`, locked by `lock` if requested."""
    lake = lake if isinstance(lake, Lake) else Lake(lake)
    config = CLOSED if locked else None
    con = analyst(lake, tables, connect=lambda file: connect_attached(file, settings, config))
    if locked:
        lock(con, lake.root)
    return con


def lock(con: duckdb.DuckDBPyConnection, root: str | Path | None = None) -> None:
    """Allow only files of the lake's tables (no files without a lake), and no changes of settings, from now on.

    DuckDB still allows writing into the tables' folders. LockedLake refuses such queries.
    """
    if root is not None:
        con.execute(f"SET allowed_directories = {file_list(_table_folders(Path(root).absolute()))}")
    con.execute("SET enable_external_access = false")
    con.execute("SET lock_configuration = true")


def connect_parser() -> duckdb.DuckDBPyConnection:
    """Return a connection without a lake for parsing queries.

    The connection is locked, because parsing IMPORT reads a file.

    All connections of a process share one database, because opening a database takes longer than parsing.
    """
    process = os.getpid()  # by process, because a forked process does not have the threads of its parent's database
    with suppress(KeyError, duckdb.Error):  # no database yet, or an error inside DuckDB made it unusable
        con = _parsers[process].cursor()
        con.execute("SELECT 1")
        return con
    _parsers[process] = database.connect(config=CLOSED)
    lock(_parsers[process])
    return _parsers[process].cursor()


def refuse_but_reading(query: str, con: duckdb.DuckDBPyConnection) -> None:
    """Raise QueryRefused unless the query is exactly one statement that reads tables.

    Raise duckdb.ParserException for invalid SQL. `con`: a locked connection for parsing.
    """
    try:
        statements = _statements(con, query)
        if len(statements) != 1:
            problem = f"{len(statements)} statements: run one at a time" if statements else "there is no query"
            raise QueryRefused(problem)
        kind = statements[0]
        if kind == "EXPLAIN":
            kind = next(iter(_statements(con, _explained(query))), "nothing")
    except duckdb.PermissionException:
        raise QueryRefused("the statement reads files: a query may only read the lake's tables") from None
    if kind == "MULTI":
        unclear = f"DuckDB {duckdb.__version__} does not show what a PIVOT runs to look up its values"
        raise QueryRefused(f"{unclear}: list them, PIVOT … ON column IN (…)")
    words = [word for _, word in _tokens(query)]
    first = next((word for word in words if word != ";"), "")
    if kind != "SELECT" or first == "pragma":
        problem = kind if first in ("explain", "with") else first.upper()
        raise QueryRefused(
            f"{problem}: a query reads the lake's tables, with SELECT, DESCRIBE, SUMMARIZE, SHOW or EXPLAIN"
        )
    if forbidden := sorted(_table_functions(con, query, words) - _HARMLESS):
        raise QueryRefused(
            f"{forbidden[0]}(): a query may only read the lake's tables, not files or text that is run as a query"
        )


def _table_functions(con: duckdb.DuckDBPyConnection, query: str, words: list[str]) -> set[str]:
    """Return the table functions that a query calls.

    Listing all functions takes longer than most queries. Do it only for a query that calls a function in FROM, or for
    which DuckDB has no syntax tree.
    """
    named = named_in(con, query)
    called = [quoted(name) for name, after in pairwise(words) if after == "("]
    if not called or (named is not None and not named.functions):
        return set()
    rows = con.execute(
        "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type IN ('table', 'table_macro') "
        f"AND function_name IN ({', '.join(called)})"
    ).fetchall()
    return {name for (name,) in rows}


def _table_folders(root: Path) -> list[Path]:
    """Return the folders whose files may be read, also resolved, because DuckDB resolves links before it compares."""
    catalog = load_catalog()
    stored = [name for name in catalog.public if catalog.models[name].kind not in ("view", "rules")]
    resolved = root.resolve()
    links = {entry.name for entry in os.scandir(root) if entry.is_symlink()} if root.exists() else ()
    folders = [root / name for name in stored]
    folders += ((root / name).resolve() if name in links else resolved / name for name in stored)
    return [*dict.fromkeys(folders)]


def _statements(con: duckdb.DuckDBPyConnection, query: str) -> list[str]:
    """Return the kinds of the statements, without statements that DuckDB adds itself.

    For example, DuckDB adds a statement to a PIVOT that creates the type of its columns.
    """
    statements = con.extract_statements(query)
    return [s.type.name for s in statements if s.query or s.type.name != "CREATE"]


def _tokens(query: str) -> list[tuple[int, str]]:
    """Return (offset in bytes, text in lower case) of each token of a query. Names are unquoted."""
    text = query.encode()
    # DuckDB 2 also returns comments as tokens.
    tokens = [token for token in duckdb.tokenize(query) if not str(token[1]).endswith("comment")]
    ends = [start for start, _ in tokens[1:]] + [len(text)]
    words = []
    for (start, _), end in zip(tokens, ends, strict=True):
        # The text up to the next token may also contain whitespace and comments.
        if word := _WORD.match(text[start:end].decode("utf-8", "replace")):
            words.append((start, word[0].strip('"').replace('""', '"').lower()))
    return words


def _explained(query: str) -> str:
    """Return the statement after EXPLAIN, ANALYZE and (FORMAT …)."""
    tokens = _tokens(query)
    index = next((i for i, (_, word) in enumerate(tokens) if word == "explain"), -1) + 1
    if index < len(tokens) and tokens[index][1] in ("analyze", "analyse"):
        index += 1
    if (
        index < len(tokens)
        and tokens[index][1] == "("
        and index + 1 < len(tokens)
        and tokens[index + 1][1] in ("format", "analyze")
    ):
        index = next((i for i, (_, word) in enumerate(tokens) if i > index and word == ")"), len(tokens)) + 1
    return query.encode()[tokens[index][0] :].decode("utf-8", "replace") if index < len(tokens) else ""
