"""One trace, from a file or from the lake, opened for a command."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines.faces.cli import caveats
from pipelines.faces.cli.console import progress

if TYPE_CHECKING:
    from pipelines.faces.subject import Subject

_LONG = 1_000_000  # events
_LONG_GB = 0.2  # what their models may use at first: run_models gives more to one that fails
TraceArgument = Annotated[
    str, typer.Argument(help="A trace file, or a trace id or unique prefix of one.", metavar="TRACE")
]
ProcessOption = Annotated[
    str | None,
    typer.Option(
        "--process", metavar="PID", help="Of a file with several processes (Nsight Systems, rocpd): this one."
    ),
]


@contextmanager
def opened(
    trace: str,
    lake: Path | str,
    tables: Iterable[str] = (),
    *,
    with_arguments: bool = False,
    process: str | None = None,
) -> Iterator[Subject]:
    """Yields the `subject` of a command, which shows how far a file is read; that a file ends early is noted."""
    from pipelines.faces.subject import subject

    def reading(file: Path) -> Any:
        return progress(file.stat().st_size, f"reading {file.name}")

    with subject(trace, lake, tables, with_arguments=with_arguments, process=process, reading=reading) as found:
        caveats.note(found.con)
        yield found


def use_memory(con: Any, trace_id: str) -> int:
    """Give an opened trace the memory that its models need; returns how many of them run beside each other.

    Each on one core; a long trace has one after another on all cores. On two cores, a model of few rows costs a fifth more CPU
    time and is no faster. Two models of a long trace at once would need too much memory.
    """
    from pipelines.base.database import at_most, give_back
    from pipelines.models.sqltext import quoted

    found = con.execute(f"SELECT n_events FROM traces WHERE trace_id = {quoted(trace_id)}").fetchall()
    if not found or found[0][0] >= _LONG:
        give_back(con)  # what reading the file took
        _keep_tables_in_file(con)
        # What DuckDB keeps beyond its tables is soon as much as they are.
        con.execute(f"SET memory_limit = '{at_most(_LONG_GB)}'; SET allocator_flush_threshold = '32MB'")
        con.execute("SET enable_external_file_cache = false")
        return 1
    con.execute("SET threads = 1")
    return 2


def _keep_tables_in_file(con: Any) -> None:
    """From here on, new tables and views of an opened trace are in a file beside it, which goes when the trace is closed.

    DuckDB compresses the tables of a file, which in memory it does not: those of a long trace take a quarter, and what
    there is no room for need not be written again. Cursors of `con` do not find them: each has a search path of its own.
    """
    from pipelines.models.sqltext import quoted

    ((folder,),) = con.execute("SELECT current_setting('temp_directory')").fetchall()
    con.execute(f"ATTACH {quoted(Path(folder, 'tables.duckdb'))} AS kept (RECOVERY_MODE no_wal_writes)")
    con.execute("SET search_path = 'kept.main,memory.main'")
