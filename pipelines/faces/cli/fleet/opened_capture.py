"""One capture, opened by its id in a lake or from its files."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipelines.faces.cli import caveats
from pipelines.faces.cli.console import err, fail, progress, styled

_REJECTS_SHOWN = 3


@contextmanager
def opened_capture(
    sources: list[str],
    lake: Path | str,
    tables: Iterable[str],
    roles: Path | None = None,
    only: bool = False,
    process: str | None = None,
) -> Iterator[tuple[Any, str]]:
    """Yield a connection with the capture tables, and a prefix of the capture's id ('' for files).

    `sources`, `process`: see `lake_of`. `roles`: a table of roles for a lake of files. `only`: compute only the captures and
    traces whose ids have the prefix. Exit if there is nothing to open. Raise RolesError if `roles` is invalid.
    """
    from pipelines.faces.cli.refresh_tables import open_analyst
    from pipelines.fleet.captures.roles import ROLES, read_roles

    if roles and not roles.is_file():
        raise fail(f"{roles}: there is no such file")
    if roles:
        read_roles(roles)  # raises RolesError, which names the file
    with lake_of(sources, lake, process) as (folder, id_prefix):
        if roles and id_prefix:
            raise fail("--roles is for files", f"A lake has its groups of ranks in {ROLES} of its folder.")
        if roles:
            shutil.copyfile(roles, Path(folder) / ROLES)
        con = open_analyst(folder, [*tables, "capture_quality"], id_prefix if only else "")
        try:
            if id_prefix:
                caveats.note(con, id_prefix)
            caveats.note_captures(con, id_prefix)
            yield con, id_prefix
        finally:
            con.close()


@contextmanager
def lake_of(sources: list[str], lake: Path | str, process: str | None = None) -> Iterator[tuple[Path | str, str]]:
    """Yield the folder or address of the lake to query, and an id prefix in it ('' for the whole lake).

    `sources`: an id prefix, the file name of a trace in the lake, or files, folders and globs, which are ingested into
    a temporary lake. `process`: ingest only this process of files with several.
    """
    if process and not any(Path(name).is_file() for name in sources):
        raise fail("--process is only for files with several processes", "Omit it, or pass such a file.")
    if len(sources) == 1 and not Path(sources[0]).exists() and not set(sources[0]) & set("*?[/."):
        yield lake, sources[0]
        return
    if len(sources) == 1 and not Path(sources[0]).exists() and not set(sources[0]) & set("*?["):
        from pipelines.runs.store import open_store

        yield lake, open_store(lake).find_trace(sources[0])
        return
    with tempfile.TemporaryDirectory(prefix="tracelake-") as folder:
        ingest_files(sources, Path(folder) / "lake", process)
        yield Path(folder) / "lake", ""


def is_several(path: str | Path) -> bool:
    """Return whether a path is a capture of ranks: a folder, or a file with several processes."""
    return Path(path).is_dir() or len(processes_of(Path(path))) > 1


def is_capture_id(id_prefix: str, lake: Path | str) -> bool:
    """Return whether a capture of the lake has this id prefix, and neither a file nor a trace has it."""
    if Path(id_prefix).exists() or not set(id_prefix) <= set("0123456789abcdef"):
        return False
    from pipelines.faces.cli.refresh_tables import open_analyst  # commands on a file do not need a lake
    from pipelines.models.sqltext import quoted
    from pipelines.runs.store import open_store

    local_lake = open_store(lake).lake
    if local_lake is None:
        with open_analyst(lake, []) as con:
            query = "SELECT {0} FROM {1} WHERE starts_with({0}, {2}) LIMIT 1"
            matches = [con.execute(query.format(key, table, quoted(id_prefix))).fetchall()
                  for key, table in (("trace_id", "traces"), ("capture_id", "captures"))]  # fmt: skip
            return not matches[0] and bool(matches[1])
    if not local_lake.exists or any(trace_id.startswith(id_prefix) for trace_id in local_lake.known_traces()):
        return False

    with open_analyst(lake, ["captures"]) as con:
        cursor = con.execute(f"SELECT 1 FROM captures WHERE starts_with(capture_id, {quoted(id_prefix)}) LIMIT 1")
        return bool(cursor.fetchall())


def processes_of(path: Path) -> list[str]:
    """Return the processes of a file with several, each a rank of its capture, or [] for any other file."""
    from pipelines.readers.inputs.find import events_input
    from pipelines.readers.kineto import TraceRejected
    from pipelines.readers.kineto.limits import Limits

    try:
        return list(events_input(path).parts(path, Limits.from_environment())) if path.is_file() else []
    except (TraceRejected, OSError):  # reported when the file is read
        return []


def ingest_files(sources: list[str], folder: Path, process: str | None = None) -> None:
    """Ingest files into a new lake. Exit if no file is a trace."""
    from pipelines.lake import Lake
    from pipelines.readers.ingest import expand, ingest

    files = expand(sources)
    size = sum(path.stat().st_size for path in files if path.is_file())
    with progress(size, "reading") as advance:
        callbacks = {"on_bytes": advance, "on_file": lambda row: advance(0, Path(row.path).name)}
        report = ingest(files, Lake(folder), process=process, **callbacks)
    if any(row.trace_id for row in report.rows):
        with Lake(folder).connect(["traces", "findings"]) as con:
            caveats.note(con)
    for row in report.rejected[:_REJECTS_SHOWN]:
        err.line("[yellow]not read:[/] {}: {}", Path(row.path).name, row.reason)
    if len(report.rejected) > _REJECTS_SHOWN:
        err.print(styled("[yellow]not read:[/] {} more", len(report.rejected) - _REJECTS_SHOWN))
    if not any(row.status in ("ok", "repaired", "partial") for row in report.rows):
        raise fail(f"no trace found in {', '.join(sources)}", "Pass the trace files of one capture, or their folder.")


def keep_trace(con: Any, target: Path) -> None:
    """Exit if a file to write is one of the traces in `con`."""
    from pipelines.models.sqltext import row

    if not target.exists():
        return
    names = row((target.name, target.resolve().name))
    paths = con.execute(f"SELECT path FROM traces WHERE file IN {names}").fetchall()
    if any(Path(path).exists() and Path(path).samefile(target) for (path,) in paths):
        raise fail(f"{target} is one of the traces", "Choose another name for --out.")
