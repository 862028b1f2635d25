"""Connections to DuckDB that print nothing: answers go to stdout, where DuckDB would draw a progress bar after 2 s."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import duckdb

from pipelines.base.errors import TracelakeError

THREADS = "TRACELAKE_THREADS"
"""Environment variable: how many CPUs this process may use; by default all. A cluster's workers set it."""
MEMORY = "TRACELAKE_MEMORY"
"""Environment variable: how many MiB each of DuckDB's databases may use; by default what DuckDB takes, and MODELS_GB for models."""
DISK_FULL = "failed to offload data block"
"""What DuckDB says where it runs out of disk rather than memory."""
MODELS_GB = (
    2  # what models may use of one group of traces or captures, unless TRACELAKE_MEMORY is set; the rest is spilled
)
_UNITS = {"bytes": 2**-20, "KiB": 2**-10, "MiB": 1, "GiB": 2**10, "TiB": 2**20}  # in MiB
_numbers = count()
_scratch: dict[tuple[Any, ...], duckdb.DuckDBPyConnection] = {}
_BEFORE_2 = duckdb.__version__.startswith("1.")
# DuckDB 2 would write files that 1.5 cannot read.
_WRITING = {} if _BEFORE_2 else {"storage_compatibility_version": "v0.10.2"}
# DuckDB runs an as-of join as a nested loop where it expects at most 64 rows on the left; its estimates are often far too low.
# DuckDB 2 refuses 5 // 0 and 5 % 0, which were NULL.
# Not given to duckdb.connect, which wants the same of all that open a file.
_SETTINGS = "SET enable_progress_bar = false; SET asof_loop_join_threshold = 0" + (
    "" if _BEFORE_2 else "; SET error_on_division_by_zero = false"
)
_LEAST = {THREADS: 1, MEMORY: 64}  # below it, DuckDB cannot even read a table of rules (measured: 32 MiB is too little)


class WrongShare(TracelakeError, ValueError):
    """TRACELAKE_THREADS or TRACELAKE_MEMORY has a value that nothing can work with; the message says what to set."""


class TooLittleMemory(TracelakeError, MemoryError):
    """DuckDB needs more memory than it may use; the message says how much that is, and what to do."""


class WrongDuckDB(TracelakeError, RuntimeError):
    """What is asked for would be wrong on the DuckDB that is installed; the message names its version."""

    hint = "install a version that tracelake is tested with: pip install 'duckdb>=1.5.5,<2'"


def connect(
    path: str | Path = ":memory:", *, read_only: bool = False, config: dict[str, Any] | None = None
) -> duckdb.DuckDBPyConnection:
    """Returns `duckdb.connect`, quiet, within this process's share of the machine. Raises what it raises, and WrongShare."""
    settings = {**({} if read_only else _WRITING), **_share(), **(config or {})}
    return _quiet(duckdb.connect(str(path), read_only=read_only, config=settings))


def private(folder: str | Path, gigabytes: float | None = None) -> duckdb.DuckDBPyConnection:
    """Returns a database in memory for one computation: what exceeds so much (`at_most`, by default `for_models`) is spilled to
    `folder`, and rows come in any order.
    """
    limit = for_models() if gigabytes is None else at_most(gigabytes)
    con = connect(config={"temp_directory": str(folder), "memory_limit": limit})
    con.execute("SET preserve_insertion_order = false")
    return con


def at_most(gigabytes: float) -> str:
    """Returns a `memory_limit` of so much, or of this process's share if that is less."""
    usual = int(gigabytes * 1e9) >> 20
    return f"{min(usual, _told(MEMORY) or usual)}MiB"


def for_models() -> str:
    """Returns the `memory_limit` of models: what TRACELAKE_MEMORY says, be it more or less than MODELS_GB."""
    return f"{_told(MEMORY) or int(MODELS_GB * 1e9) >> 20}MiB"


def threads(usual: int) -> int:
    """Returns how many threads this process may use for work that usually takes so many."""
    return min(usual, _told(THREADS) or usual)


def too_little(limit: str) -> str:
    """Returns what to say where `limit` (as `at_most` returns it) was not enough."""
    told = f"raise {MEMORY}={_told(MEMORY)}, or unset it" if _told(MEMORY) else "give fewer or smaller files at once"
    return f"DuckDB needs more memory than the {limit.replace('MiB', ' MiB')} that it may use here; {told}"


def raise_if_disk_is_full(error: Exception, folder: str | Path) -> None:
    """Raise OSError where DuckDB ran out of disk rather than memory: `folder`, to which it spills, has no room left."""
    if isinstance(error, duckdb.OutOfMemoryException) and DISK_FULL in str(error):
        told = "no room left on its disk, to which DuckDB writes what does not fit into memory"
        raise OSError(errno.ENOSPC, told, str(folder)) from None


def _share() -> dict[str, Any]:
    threads, memory = _told(THREADS), _told(MEMORY)
    return {**({"threads": threads} if threads else {}), **({"memory_limit": f"{memory}MiB"} if memory else {})}


def _told(name: str) -> int | None:
    """Returns the value of an environment variable; None where it is not set, or empty. Raises WrongShare."""
    text = os.environ.get(name, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdecimal()) or int(text) < _LEAST[name]:
        unit = " (MiB)" if name == MEMORY else ""
        raise WrongShare(f"{name}={text}: give a whole number from {_LEAST[name]} on{unit}, or unset it")
    return int(text)


def cursor(con: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """Returns another connection to the database of `con`, with its own settings. Also quiet."""
    return _quiet(con.cursor())


def scratch() -> duckdb.DuckDBPyConnection:
    """Returns a connection to a database of this process, for SELECTs over files: nothing but temporary tables may be made in
    it. To open a database of one's own takes 7 ms of CPU, this 0.2.
    """
    key = (os.getpid(), *_share().items())  # a fork has none of the threads that its parent's database has
    with suppress(KeyError, duckdb.Error):  # none yet, or an error inside DuckDB made it unusable
        return cursor(_scratch[key])
    # Without its cache of files: one that was damaged since, but has the same size and time, is read as it is.
    _scratch[key] = connect(config={"enable_external_file_cache": False})
    return cursor(_scratch[key])


@contextmanager
def attached(path: str | Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yields a connection that only reads a database file: of the database of `scratch`, as to open another takes longer.

    DuckDB refuses a file that this process has attached already.
    """
    name, file = f"attached_{next(_numbers)}", str(path).replace("'", "''")
    with scratch() as con:
        con.execute(f"ATTACH '{file}' AS {name} (READ_ONLY)")
        try:
            con.execute(f"USE {name}")
            yield con
        finally:
            con.execute("USE memory")
            con.execute(f"DETACH {name}")


def more_memory(con: duckdb.DuckDBPyConnection) -> bool:
    """Let the database of `con` use twice as much, within what models may use (`for_models`); False: it has that already."""
    ((said,),) = con.execute("SELECT current_setting('memory_limit')").fetchall()
    number, unit = said.split()
    has, most = float(number) * _UNITS[unit], int(for_models().removesuffix("MiB"))
    if has > 0.9 * most:  # it is said in GiB with one decimal
        return False
    con.execute(f"SET memory_limit = '{min(int(2 * has) + 1, most)}MiB'")
    return True


def give_back(con: duckdb.DuckDBPyConnection) -> None:
    """Return to the system what the database of `con`, Arrow and C have freed and still hold: some 300 MB, in which Python can
    compute. DuckDB does so where its limit changes; what it uses stays where it is.
    """
    limit, used = con.execute(
        "SELECT current_setting('memory_limit'), CAST(sum(memory_usage_bytes) AS BIGINT) >> 20 FROM duckdb_memory()"
    ).fetchall()[0]
    with suppress(duckdb.OutOfMemoryException):  # another thread has taken more meanwhile
        con.execute(f"SET memory_limit = '{max(used + 8, _LEAST[MEMORY])}MiB'")
    con.execute(f"SET memory_limit = '{limit}'")
    if arrow := sys.modules.get("pyarrow"):
        arrow.default_memory_pool().release_unused()
    trim()


def trim() -> None:
    """Return what was freed to the system, where the C library keeps it."""
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)):  # not in musl's
        trim(0)


@contextmanager
def without_optimizer(con: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Queries on `con` run as they are written; other connections to its database are as before."""
    con.execute("PRAGMA disable_optimizer")
    try:
        yield
    finally:
        with suppress(duckdb.FatalException):  # nothing to restore: the database is gone
            con.execute("PRAGMA enable_optimizer")


def arrow_result(con: duckdb.DuckDBPyConnection, query: str) -> Any:
    """Returns the result of a query, for `to_arrow_table` or `to_arrow_reader`. DuckDB 1.5 plans a relation twice, and DuckDB 2
    copies the rows of anything else once more, with a warning.
    """
    return con.execute(query) if _BEFORE_2 else con.sql(query)


def rows_of(con: duckdb.DuckDBPyConnection, query: str, values: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """Returns the rows of a query by column name; `values`: those of its parameters."""
    found = con.execute(query, values or {})
    names = [column[0] for column in found.description or ()]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def _quiet(con: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    con.execute(_SETTINGS)
    return con
