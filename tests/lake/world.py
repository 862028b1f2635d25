"""Small traces on disk, the rows that a lake shows of them, and processes that are killed at a step."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb

from pipelines.lake import Batch, Lake
from pipelines.lake.commit import catalog_file
from pipelines.lake.names import table_file
from pipelines.models.cache import cache_folder
from pipelines.models.catalog import load_catalog
from tests.effort import steps
from tests.harness import call, kernel

# The fork server has the modules loaded and runs no other threads, so a test can start many children cheaply.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    ["pipelines.readers.ingest", "pipelines.runs.materialize.per_trace", "tests.lake.world", "pyarrow"]
)
TABLES = ["kernels", "temporal_breakdown"]


def write_trace(path: Path, seed: int, n: int = 4, **top: Any) -> Path:
    """Write a trace of n launches, each with a kernel. The seed makes its content, and so its id, unique."""
    events: list[dict[str, Any]] = []
    for i in range(n):
        at = 100 * i + seed
        events += [call("cudaLaunchKernel", at, 5, i + 1), kernel(f"gemm_{seed}", at, 20, i + 1)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**top, "traceEvents": events}))
    return path


def capture(folder: Path, ranks: int = 3) -> list[Path]:
    """Write `ranks` traces and one file that is not a trace."""
    files = [write_trace(folder / f"rank{rank}.json", rank, distributedInfo={"rank": rank}) for rank in range(ranks)]
    broken = folder / "broken.json"
    broken.write_text("no trace at all")
    return [*files, broken]


def rot(lake: Lake, table: str, batch: Batch, before: bytes, after: bytes) -> None:
    """Change bytes in a table's file in place like a failing disk. The file keeps its size and can still be read."""
    path = table_file(lake.root, table, batch)
    with duckdb.connect() as con:
        staged = lake.staging(batch) / "uncompressed.parquet"
        con.execute(f"COPY (FROM '{path}') TO '{staged}' (FORMAT parquet, COMPRESSION uncompressed)")
    lake.put(table, batch, staged)
    content = path.read_bytes()
    assert before in content and len(before) == len(after)
    path.write_bytes(content.replace(before, after))
    duckdb.sql(f"FROM '{path}'").fetchall()


@contextmanager
def kept(folder: Path) -> Iterator[Lake]:
    """Yield the lake prepared in `folder`, and restore it afterwards.

    The lake stays at its path, because it records absolute paths.
    """
    before, root = Path(tempfile.mkdtemp(prefix="kept", dir=folder)), folder / "lake"
    shutil.copytree(root, before / "lake")
    yield Lake(root)
    shutil.rmtree(root)
    (before / "lake").rename(root)
    before.rmdir()


def shown(lake: Lake, tables: list[str] | None = None) -> dict[str, list[tuple]]:
    """Return every row that the lake shows, without the columns that vary by run: batch ids and times."""
    tables = tables or [name for name in load_catalog().public if load_catalog().models[name].kind != "rules"]
    rows_by_table = {}
    with lake.connect(tables) as con:
        present = {row[0] for row in con.execute("SHOW TABLES").fetchall()}
        for table in sorted(present):
            left_out = "batch_id|ingest_batch_id|ingested_at|seen_at"
            columns = f"COLUMNS(lambda c: NOT regexp_matches(c, '^({left_out})$'))"
            rows = con.execute(f"SELECT {columns} FROM {table}").fetchall()
            rows_by_table[table] = sorted(rows, key=repr)
    return rows_by_table


def assert_whole(con: duckdb.DuckDBPyConnection) -> int:
    """Assert that every shown trace occurs once and with all its events. Returns the number of traces."""
    traces = con.execute("SELECT trace_id, n_events FROM traces").fetchall()
    assert len({trace_id for trace_id, _ in traces}) == len(traces)
    if traces:
        counted = con.execute("SELECT trace_id, count(*), count(DISTINCT event_id) FROM events GROUP BY 1").fetchall()
        assert sorted(counted) == sorted((trace_id, n, n) for trace_id, n in traces)
    return len(traces)


def run_killed(step: int, verb: Callable[..., object], *args: Any, calls: Sequence[str] = ("replace",)) -> bool:
    """Run `verb(*args)` in a process that kills itself at its step-th step. Returns False if the verb has fewer steps.

    Steps are before and after each call of the `os` functions named in `calls`, and before and after each catalog
    transaction. Only these change what readers see, except for the removal of files.
    """
    return _steps_made(step, verb, args, calls) is None


def steps_of(verb: Callable[..., object], *args: Any, calls: Sequence[str] = ("replace",)) -> int:
    """Run `verb(*args)` to its end and return its number of steps."""
    n = _steps_made(0, verb, args, calls)
    assert n is not None
    return n


def killed(
    folder: Path, least: int, verb: Callable[..., object], *args: Any, calls: Sequence[str] = ("replace",)
) -> Iterator[tuple[int, Lake]]:
    """Yield the lake prepared in `folder` after `verb(root, *args)` was killed at a step, for some of its steps.

    The seed chooses one step. With SLOW=1 there are two, and `make attack` uses all. The verb must have at least
    `least` steps.
    """
    with kept(folder) as lake:
        n = steps_of(verb, lake.root, *args, calls=calls)
    assert n >= least
    for step in steps(n):
        was_killed = False
        while not was_killed:
            with kept(folder) as lake:
                if was_killed := run_killed(step, verb, lake.root, *args, calls=calls):
                    yield step, lake
            step -= 1  # some steps happen only for files that have just changed


def _steps_made(step: int, verb: Callable[..., object], args: tuple[Any, ...], calls: Sequence[str]) -> int | None:
    """Return the number of steps made, or None if the process was killed at its chosen step."""
    ours, its = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=_dying, args=(step, verb, args, calls, its))
    process.start()
    its.close()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL), process.exitcode
    return ours.recv() if process.exitcode == 0 else None


def _dying(step: int, verb: Callable[..., object], args: tuple[Any, ...], calls: Sequence[str], sender: Any) -> None:
    made = 0

    def count() -> None:
        nonlocal made
        made += 1
        if made == step:
            os.kill(os.getpid(), signal.SIGKILL)

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*values: Any, **named: Any) -> Any:
            if str(cache_folder()) in str(values[-1]):  # the cache of all lakes is written only if it is missing
                return call(*values, **named)
            count()
            result = call(*values, **named)
            count()
            return result

        return wrapped

    for name in calls:
        setattr(os, name, counted(getattr(os, name)))
    catalog_file.Writer.commit = counted(catalog_file.Writer.commit)  # type: ignore[method-assign]
    verb(*args)
    sender.send(made)


def do_ingest(root: Path, paths: list[Path]) -> None:
    """Ingest the files. This function may run in a separate process."""
    from pipelines.readers.ingest import ingest

    ingest(paths, Lake(root))


def do_materialize(root: Path) -> None:
    """Compute TABLES. This function may run in a separate process."""
    from pipelines.runs.materialize.per_trace import materialize

    materialize(Lake(root), TABLES)


def do_publish(root: Path) -> None:
    """Publish the analysts' file. This function may run in a separate process."""
    from pipelines.lake.publish.analyst_file import publish

    publish(Lake(root))
