"""Entry point for a trace that a user names by its file or by the prefix of its id in a lake."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pipelines.base import database
from pipelines.base.errors import TracelakeError

if TYPE_CHECKING:
    import duckdb

    from pipelines.lake import Lake
    from pipelines.models.catalog import Catalog

MEMORY_GB = 0.5


class NotATrace(TracelakeError, ValueError):
    """Raised if the user's argument is not a single trace.

    The message states what it is, `hint` what to pass instead.
    """


class Subject(NamedTuple):
    """A trace in a private connection.

    `con` has its `events`, `traces` and `findings`. Schema `stored` has the tables that need not be computed
    (`pipelines/lake/read/one_trace.py`).
    """

    con: duckdb.DuckDBPyConnection
    trace_id: str


def subject(
    trace: str | Path,
    lake: Path | str,
    tables: Iterable[str] = (),
    *,
    with_arguments: bool = False,
    process: str | None = None,
    reading: Callable[[Path], AbstractContextManager[Any]] = lambda _: nullcontext(lambda *_: None),
) -> AbstractContextManager[Subject]:
    """Open a trace from its file, or from a lake, with the tables among `tables` that are up to date in the lake.

    `with_arguments`: also read the text of all arguments of a file, which no model needs. `process`: the process to read from a
    file. `reading(file)` yields a callback that gets the number of bytes read. Raise NotATrace, TraceRejected if the file is not
    a trace, or the errors of `of_lake`.
    """
    path = Path(trace)
    if path.is_dir():
        raise NotATrace(
            f"{trace} is a folder, not a trace",
            f"Give one of its files. The path through all ranks: tracelake capture-path {shlex.quote(str(trace))}",
        )
    if path.is_file():
        return _of_file(path, with_arguments, process, reading)
    if process:
        raise NotATrace(
            "--process is only for files: a trace of a lake is one process", f"Omit it, or pass a file: {trace}"
        )
    return of_lake(str(trace), lake, tables)


@contextmanager
def of_lake(
    beginning: str, lake: Lake | Path | str, tables: Iterable[str], memory_gb: float = MEMORY_GB
) -> Iterator[Subject]:
    """Open the trace of a lake with this id prefix. Beyond `memory_gb`, DuckDB spills to disk.

    `lake` may be the address of a DuckLake, whose rows are copied. Raise NoSuchTrace, BrokenFiles or StoreError, and
    OnlyDigest if the body of the `with` reads the events of a trace of which only a digest is kept.
    """
    from pipelines.lake.read.one_trace import DIGEST_ONLY, OnlyDigest
    from pipelines.runs.store import open_store

    store = open_store(lake)
    with tempfile.TemporaryDirectory() as folder, database.private(folder, memory_gb) as con:
        try:
            yield Subject(con, store.show_trace(con, beginning, tables))
        except Exception as error:  # of DuckDB, or of a model
            if DIGEST_ONLY in str(error):
                raise OnlyDigest(f"{beginning}: {DIGEST_ONLY}") from None
            raise


@contextmanager
def _of_file(
    file: Path,
    with_arguments: bool,
    process: str | None,
    reading: Callable[[Path], AbstractContextManager[Any]],
) -> Iterator[Subject]:
    from pipelines.readers.inputs.single_trace import load_trace

    with tempfile.TemporaryDirectory() as folder, database.private(folder, MEMORY_GB) as con:
        with reading(file) as advance:
            lean = not with_arguments
            read = load_trace(con, file, on_bytes=advance, folder=Path(folder), lean=lean, process=process)
        yield Subject(con, read.trace_id)


def catalog_of(trace: str | Path, lake: Path | str) -> Catalog:
    """Return the models for a trace that a user names.

    A file uses the shipped models. A trace of a lake also uses the lake's own formulas.
    """
    if Path(trace).exists():
        from pipelines.models.catalog import load_catalog

        return load_catalog()
    from pipelines.runs.store import open_store

    return open_store(lake).catalog()


def process_of(con: duckdb.DuckDBPyConnection, trace_id: str, processes: Sequence[str]) -> str | None:
    """Return the process of a file that a trace belongs to, or None for a file with one process.

    Only host events have the name of the process. In GPU work, the process is the device (table `events`).
    """
    from pipelines.base.datafiles import rule_rows
    from pipelines.models.sqltext import quoted, row

    if not processes:
        return None
    trace_clause = f"WHERE trace_id = {quoted(trace_id)}"
    elsewhere = row(side["cat"] for side in rule_rows("category_sides") if side["side"] != "cpu")
    on_host = f"duration_ns IS NOT NULL AND coalesce(cat, '') NOT IN {elsewhere}"  # metadata events also name devices
    label = f"SELECT metadata ->> '$.distributedInfo.label' FROM traces {trace_clause}"  # of a rank of a merged file
    rows = con.execute(f"SELECT DISTINCT pid FROM events {trace_clause} AND {on_host} UNION {label}").fetchall()
    return next((process for process in processes if (process,) in rows), None)
