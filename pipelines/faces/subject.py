"""The one door for what a user names as a trace: a file, or the beginning of an id in a lake."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pipelines.base import database
from pipelines.base.errors import TracelakeError
from pipelines.faces.trace_of_store import copy_trace
from pipelines.lake.read.one_trace import find_trace, show_trace

if TYPE_CHECKING:
    import duckdb

    from pipelines.lake import Lake
    from pipelines.models.catalog import Catalog

MEMORY_GB = 0.5


class NotATrace(TracelakeError, ValueError):
    """What was named is not one trace; the message says what it is, `hint` what to give."""


class Subject(NamedTuple):
    """One trace in a private connection: `con` has its `events`, `traces` and `findings`, and in schema `stored` the tables
    that need not be computed (`pipelines/lake/read/one_trace.py`).
    """

    con: duckdb.DuckDBPyConnection
    trace_id: str


def subject(
    given: str | Path,
    lake: Path | str,
    tables: Iterable[str] = (),
    *,
    with_arguments: bool = False,
    process: str | None = None,
    reading: Callable[[Path], AbstractContextManager[Any]] = lambda _: nullcontext(lambda *_: None),
) -> AbstractContextManager[Subject]:
    """Opens a trace: read from its file, or as the lake holds it, with those of its `tables` that are up to date there.

    `with_arguments`: of a file, also the text of all arguments, which no model reads. `process`: which one of a file.
    `reading(file)` yields what is called with the bytes that are read. Raises NotATrace and what `of_lake` raises, and
    TraceRejected for a file that is not a trace.
    """
    path = Path(given)
    if path.is_dir():
        raise NotATrace(
            f"{given} is a folder, not a trace",
            f"Give one of its files. The path through all ranks: tracelake capture-path {given}",
        )
    if path.is_file():
        return _of_file(path, with_arguments, process, reading)
    if process:
        raise NotATrace(
            "--process is for files: a trace of a lake is one process", f"Leave it out, or give a file: {given}"
        )
    return of_lake(str(given), lake, tables)


@contextmanager
def of_lake(
    beginning: str, lake: Lake | Path | str, tables: Iterable[str] = (), memory_gb: float = MEMORY_GB
) -> Iterator[Subject]:
    """Opens the trace of a lake whose id begins so; beyond `memory_gb`, DuckDB spills. `lake`: or the
    address of a DuckLake, whose rows are copied. Raises NoSuchTrace, BrokenFiles, StoreError."""
    from pipelines.lake import Lake
    from pipelines.runs.store.open_store import is_folder_address

    if isinstance(lake, str) and not is_folder_address(lake):
        with tempfile.TemporaryDirectory() as folder, database.private(folder, memory_gb) as con:
            yield Subject(con, copy_trace(con, lake, beginning))
        return
    there = lake if isinstance(lake, Lake) else Lake(lake)
    trace_id, batch = find_trace(there, beginning)
    with tempfile.TemporaryDirectory() as folder, database.private(folder, memory_gb) as con:
        show_trace(con, there, trace_id, batch, tables)
        yield Subject(con, trace_id)


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


def catalog_of(given: str | Path, lake: Path | str) -> Catalog:
    """Returns the models of what a user named: with the lake's own formulas for a trace of it, as shipped for a file."""
    from pipelines.lake import Lake
    from pipelines.lake.publish.user_formulas import catalog_with
    from pipelines.models.catalog import load_catalog
    from pipelines.runs.store.open_store import is_folder_address, open_store

    if Path(given).exists():
        return load_catalog()
    if isinstance(lake, str) and not is_folder_address(lake):
        return catalog_with(open_store(lake).formulas())
    return Lake(lake).catalog()
