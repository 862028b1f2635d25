"""DuckDB connections without a progress bar, which DuckDB would draw on stdout, between the answers, after 2 s."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import duckdb

from pipelines.base.errors import TracelakeError, WrongValue

THREADS = "TRACELAKE_THREADS"
"""Environment variable: number of CPUs that this process may use (default: all). Workers of a cluster set it."""
MEMORY = "TRACELAKE_MEMORY"
"""Environment variable: MiB per DuckDB database (default: MODELS_GB for models, else DuckDB's default)."""
DISK_FULL = "failed to offload data block"
"""Text of DuckDB's error if it runs out of disk space rather than memory."""
# Memory in GB for the models of a group of traces or captures, unless TRACELAKE_MEMORY is set. DuckDB spills the rest.
MODELS_GB = 2
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")  # units of a memory limit, as DuckDB prints it
_numbers = count()
_scratch: dict[tuple[Any, ...], duckdb.DuckDBPyConnection] = {}
_BEFORE_2 = duckdb.__version__.startswith("1.")
# Otherwise DuckDB 2 writes files that 1.5 cannot read.
_WRITING = {} if _BEFORE_2 else {"storage_compatibility_version": "v0.10.2"}
# DuckDB runs an as-of join as a nested loop if it expects at most 64 rows on the left. Its estimates are often too low.
# DuckDB 2 raises an error for 5 // 0 and 5 % 0, which are NULL in DuckDB 1.
# Not passed to duckdb.connect, which requires equal settings of all connections to a file.
_SETTINGS = "SET enable_progress_bar = false; SET asof_loop_join_threshold = 0" + (
    "" if _BEFORE_2 else "; SET error_on_division_by_zero = false"
)
# Minimum values. With 32 MiB, DuckDB cannot even read a rule table.
_LEAST = {THREADS: 1, MEMORY: 64}


class WrongShare(TracelakeError, ValueError):
    """TRACELAKE_THREADS or TRACELAKE_MEMORY has an unusable value. The message lists the valid values."""


class TooLittleMemory(TracelakeError, MemoryError):
    """DuckDB needs more memory than its limit. The message gives the limit and the next step."""


class WrongDuckDB(TracelakeError, RuntimeError):
    """The result would be wrong with the installed DuckDB. The message names its version."""

    hint = "install a version that tracelake is tested with: pip install 'duckdb>=1.5.5,<2'"


def connect(
    path: str | Path = ":memory:", *, read_only: bool = False, config: dict[str, Any] | None = None
) -> duckdb.DuckDBPyConnection:
    """Return a DuckDB connection without a progress bar, limited to this process's share of the machine.

    Raise WrongShare if TRACELAKE_THREADS or TRACELAKE_MEMORY is unusable, or any error of `duckdb.connect`.
    """
    settings = {**({} if read_only else _WRITING), **_share(), **(config or {})}
    return _quiet(duckdb.connect(str(path), read_only=read_only, config=settings))


def private(folder: str | Path, gigabytes: float | None = None) -> duckdb.DuckDBPyConnection:
    """Return an in-memory database for one computation, with rows in any order.

    Data beyond `gigabytes` (see `at_most`, default `for_models`) is spilled to `folder`.
    """
    limit = for_models() if gigabytes is None else at_most(gigabytes)
    con = connect(config={"temp_directory": str(folder), "memory_limit": limit})
    con.execute("SET preserve_insertion_order = false")
    return con


def at_most(gigabytes: float) -> str:
    """Return a `memory_limit` of `gigabytes`, or of this process's share if the share is less."""
    usual = int(gigabytes * 1e9) >> 20
    return f"{min(usual, _env_int(MEMORY) or usual)}MiB"


def for_models() -> str:
    """Return the `memory_limit` for models: TRACELAKE_MEMORY if it is set, else MODELS_GB."""
    return f"{_env_int(MEMORY) or int(MODELS_GB * 1e9) >> 20}MiB"


def threads(usual: int) -> int:
    """Return the number of threads for work that usually uses `usual`, within this process's share."""
    return min(usual, _env_int(THREADS) or usual)


def too_little(limit: str) -> str:
    """Return the error message for a `limit` (as `at_most` returns it) that was not enough."""
    advice = (
        f"raise {MEMORY}={_env_int(MEMORY)}, or unset it"
        if _env_int(MEMORY)
        else "pass fewer or smaller files per command"
    )
    return f"DuckDB needs more memory than the {limit.replace('MiB', ' MiB')} that it may use here; {advice}"


def raise_if_disk_is_full(error: Exception, folder: str | Path) -> None:
    """Raise OSError if DuckDB ran out of disk space in `folder`, to which it spills, rather than out of memory."""
    if isinstance(error, duckdb.OutOfMemoryException) and DISK_FULL in str(error):
        message = "no space left for DuckDB's spill files; free disk space or raise the memory limit"
        raise OSError(errno.ENOSPC, message, str(folder)) from None


def _share() -> dict[str, Any]:
    threads, memory = _env_int(THREADS), _env_int(MEMORY)
    return {**({"threads": threads} if threads else {}), **({"memory_limit": f"{memory}MiB"} if memory else {})}


def _env_int(name: str) -> int | None:
    """Return an environment variable as an integer, or None if it is unset or empty.

    Raise WrongShare for other text, and for a number below the minimum.
    """
    text = os.environ.get(name, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdecimal()) or int(text) < _LEAST[name]:
        unit = " (MiB)" if name == MEMORY else ""
        raise WrongShare(f"{name}={text}: give a whole number from {_LEAST[name]} on{unit}, or unset it")
    return int(text)


def cursor(con: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """Return another connection, without a progress bar, to the database of `con`. It has its own settings."""
    return _quiet(con.cursor())


def scratch() -> duckdb.DuckDBPyConnection:
    """Return a connection to this process's shared database, for SELECTs over files.

    Create only temporary tables in it. A new database takes 7 ms of CPU, a connection to this one takes 0.2 ms.
    """
    key = (os.getpid(), *_share().items())  # a forked process does not have the threads of its parent's database
    with suppress(KeyError, duckdb.Error):  # not yet created, or unusable after an error inside DuckDB
        return cursor(_scratch[key])
    # DuckDB's file cache would hide damage to a file whose size and modification time are unchanged.
    _scratch[key] = connect(config={"enable_external_file_cache": False})
    return cursor(_scratch[key])


@contextmanager
def attached(path: str | Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a read-only connection to a database file.

    The file is attached to the database of `scratch`, because creating a database takes longer. DuckDB raises an error
    for a file that this process has already attached.
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
    """Double the memory limit of the database of `con`, up to the limit for models (`for_models`).

    Return False if it already has that limit.
    """
    current_mib, max_mib = limit_bytes(con) / 2**20, int(for_models().removesuffix("MiB"))
    if current_mib > 0.9 * max_mib:  # the setting is in GiB with one decimal
        return False
    con.execute(f"SET memory_limit = '{min(int(2 * current_mib) + 1, max_mib)}MiB'")
    return True


def change_settings(con: duckdb.DuckDBPyConnection, settings: Mapping[str, str]) -> None:
    """Change settings of `con`. Raise WrongValue for a size that is not in DuckDB's notation."""
    for name, value in settings.items():
        text = value.replace("'", "''")
        try:
            con.execute(f"SET {name} = '{text}'")
        except duckdb.Error:
            raise WrongValue(f"{value!r} is not a size; write it like 512MB or 4GB") from None


def limit_bytes(con: duckdb.DuckDBPyConnection) -> int:
    """Return the memory limit of the database of `con` in bytes, rounded as DuckDB prints it."""
    ((limit_text,),) = con.execute("SELECT current_setting('memory_limit')").fetchall()
    number, unit = limit_text.split()
    return int(float(number) * 1024 ** _UNITS.index(unit))


def give_back(con: duckdb.DuckDBPyConnection) -> None:
    """Return freed memory of the database of `con`, of Arrow and of the C heap to the operating system (about 300 MB).

    DuckDB releases unused memory when its limit changes. Memory in use is not affected.
    """
    limit, used = con.execute(
        "SELECT current_setting('memory_limit'), CAST(sum(memory_usage_bytes) AS BIGINT) >> 20 FROM duckdb_memory()"
    ).fetchall()[0]
    with suppress(duckdb.OutOfMemoryException):  # another thread has allocated more since then
        con.execute(f"SET memory_limit = '{max(used + 8, _LEAST[MEMORY])}MiB'")
    con.execute(f"SET memory_limit = '{limit}'")
    if arrow := sys.modules.get("pyarrow"):
        arrow.default_memory_pool().release_unused()
    trim()


def trim() -> None:
    """Return freed heap memory to the operating system (Linux with `malloc_trim`; musl has none)."""
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)):
        trim(0)


@contextmanager
def without_optimizer(con: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Disable the optimizer for queries on `con` in this block, but not on other connections to its database."""
    con.execute("PRAGMA disable_optimizer")
    try:
        yield
    finally:
        with suppress(duckdb.FatalException):  # nothing to restore: the database is unusable
            con.execute("PRAGMA enable_optimizer")


def arrow_result(con: duckdb.DuckDBPyConnection, query: str) -> Any:
    """Return the result of a query, for `to_arrow_table` or `to_arrow_reader`.

    DuckDB 1.5 plans a relation, which `sql` returns, twice. DuckDB 2 copies the rows of any other result, with a
    warning.
    """
    return con.execute(query) if _BEFORE_2 else con.sql(query)


def rows_of(con: duckdb.DuckDBPyConnection, query: str, values: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """Return the rows of a query as dictionaries by column name. `values`: parameters of the query."""
    cursor = con.execute(query, values or {})
    names = [column[0] for column in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def _quiet(con: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    con.execute(_SETTINGS)
    return con
