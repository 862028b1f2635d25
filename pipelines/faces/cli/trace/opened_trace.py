"""One trace, from a file or from the lake, opened for a command."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.faces.cli import caveats
from pipelines.faces.cli.console import progress

if TYPE_CHECKING:
    from pipelines.faces.subject import Subject

_LONG = 1_000_000  # events
_LONG_GB = 0.2  # GB; initial memory limit of their models: run_models gives more to a model that fails


@contextmanager
def opened(
    trace: str,
    lake: Path | str,
    tables: Iterable[str] = (),
    *,
    with_arguments: bool = False,
    process: str | None = None,
) -> Iterator[Subject]:
    """Yield the `subject` of a command. Show the progress of reading a file, and note the caveat of an incomplete trace."""
    from pipelines.faces.subject import subject

    def reading(file: Path) -> Any:
        return progress(file.stat().st_size, f"reading {file.name}")

    with subject(
        trace, lake, tables, with_arguments=with_arguments, process=process, reading=reading
    ) as opened_subject:
        caveats.note(opened_subject.con)
        yield opened_subject


def use_memory(con: Any, trace_id: str) -> int:
    """Give an opened trace the memory that its models need. Return how many of its models run concurrently.

    Each model of a short trace runs on one core, because on two cores a model of few rows takes a fifth more CPU time
    and is not faster. The models of a long trace run one after another on all cores, because two of them would need too
    much memory.
    """
    from pipelines.base.database import at_most, give_back
    from pipelines.models.sqltext import quoted

    rows = con.execute(f"SELECT n_events FROM traces WHERE trace_id = {quoted(trace_id)}").fetchall()
    if not rows or rows[0][0] >= _LONG:
        give_back(con)  # memory that reading the file took
        _keep_tables_in_file(con)
        # Otherwise, DuckDB would soon keep as much memory in addition to its tables as the tables take.
        con.execute(f"SET memory_limit = '{at_most(_LONG_GB)}'; SET allocator_flush_threshold = '32MB'")
        con.execute("SET enable_external_file_cache = false")
        return 1
    con.execute("SET threads = 1")
    return 2


def _keep_tables_in_file(con: Any) -> None:
    """Store new tables and views of an opened trace in a file, which is deleted when the trace is closed.

    DuckDB compresses tables in a file, but not in memory, so the tables of a long trace take a quarter of the memory.
    Evicted tables need not be written again. Cursors of `con` do not find the tables, because each cursor has its own
    search path.
    """
    from pipelines.models.sqltext import quoted

    ((folder,),) = con.execute("SELECT current_setting('temp_directory')").fetchall()
    con.execute(f"ATTACH {quoted(Path(folder, 'tables.duckdb'))} AS kept (RECOVERY_MODE no_wal_writes)")
    con.execute("SET search_path = 'kept.main,memory.main'")
