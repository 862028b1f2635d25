"""The two sides of `tracelake compare`: files, folders of captures, or ids in a lake."""

from __future__ import annotations

import shlex
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.faces.cli import caveats
from pipelines.faces.cli.console import fail
from pipelines.faces.cli.fleet.opened_capture import opened_capture, processes_of
from pipelines.faces.cli.options import lake_option, local
from pipelines.faces.cli.refresh_tables import open_analyst
from pipelines.faces.cli.trace.opened_trace import opened

if TYPE_CHECKING:
    from pipelines.fleet.trends.comparison import Trace


def open_side(con: Any, side: str, lake: Path | str, ranks: int | str, process: str | None) -> list[Trace]:
    """Copy the data of a side that a comparison reads to `con`, and return its traces. Exit if it has no traces.

    A capture has one trace for each rank, a file one for each process. Raise NoSuchTrace if a name is not
    an id, and neither a file nor the file name of a trace in the lake.
    """
    from pipelines.runs.store import open_store

    if process and not Path(side).is_file():
        raise fail(f"--process is only for files with several processes, and {side} is not a file", "Omit it.")
    if not _exists(side):
        is_id = set(side) <= set("0123456789abcdef")
        return _of_lake(con, side if is_id else open_store(lake).find_trace(side), lake, ranks)
    if Path(side).is_file():
        processes = [process] if process else processes_of(Path(side)) or [None]
        of_ranks = _of_folder(con, side, lake, ranks) if len(processes) > 1 else []
        return of_ranks or [_of_file(con, side, lake, pid, len(processes) > 1) for pid in processes]
    return _of_folder(con, side, lake, ranks)


def _of_lake(con: Any, id_prefix: str, lake: Path | str, ranks: int | str) -> list[Trace]:
    from pipelines.fleet.trends.compared_windows import traces_of
    from pipelines.fleet.trends.comparison import DIGEST_TABLES, WITH_CAUSES, CompareError, digests_in, facts_of

    tables = ["capture_ranks", "capture_quality", *WITH_CAUSES]
    side_con = open_analyst(lake, tables, id_prefix, tell_reduced=False)
    caveats.note(side_con, id_prefix)
    caveats.note_captures(side_con, id_prefix)
    try:
        traces, digests = traces_of(side_con, id_prefix, ranks), digests_in(side_con)
        if not digests.isdisjoint(traces):
            side_con.close()
            side_con = open_analyst(lake, [*WITH_CAUSES, *DIGEST_TABLES], id_prefix, tell_reduced=False)
        return facts_of(con, side_con, traces, with_causes=True, digests=digests)
    except CompareError as error:
        lists = shlex.join(["tracelake", "sql", "FROM capture_ranks", *lake_option([id_prefix], lake)])
        raise fail(str(error), f"`{lists}` lists captures and their traces.") from None
    finally:
        side_con.close()


def _of_file(con: Any, path: str, lake: Path | str, process: str | None, is_one_of_several: bool) -> Trace:
    from pipelines.critical_path.graph.windows import request_windows, usual_windows
    from pipelines.fleet.trends.comparison import RULES, WITH_CAUSES, facts_of
    from pipelines.models.catalog import load_catalog
    from pipelines.models.run import run_models

    with opened(path, lake, process=process, with_arguments=True) as (side_con, trace_id):
        request_windows(side_con, usual_windows(side_con, [trace_id]))
        run_models(side_con, load_catalog(), (*WITH_CAUSES, *RULES))
        (trace,) = facts_of(con, side_con, [trace_id], with_causes=True)
    return replace(trace, file=f"process {process}") if is_one_of_several else trace


def _of_folder(con: Any, path: str, lake: Path | str, ranks: int | str) -> list[Trace]:
    """Return the traces of a folder, or of a file with several processes ([] if the file does not record the ranks)."""
    from pipelines.fleet.path.answer import NoCapture, find_capture
    from pipelines.fleet.trends.compared_windows import traces_of
    from pipelines.fleet.trends.comparison import WITH_CAUSES, CompareError, facts_of

    with ExitStack() as stack:
        try:
            tables = ("captures", "capture_ranks", *WITH_CAUSES)
            side_con, _ = stack.enter_context(opened_capture([path], lake, tables))
            if Path(path).is_file() and side_con.execute("SELECT 1 FROM traces WHERE rank IS NULL LIMIT 1").fetchall():
                return []
            return facts_of(con, side_con, traces_of(side_con, find_capture(side_con, ""), ranks), with_causes=True)
        except (CompareError, NoCapture) as error:
            raise fail(f"{path}: {error}", "Pass a trace file, or the folder of one capture.") from None


def _exists(name: str) -> bool:
    """Return whether a name is a file or folder on this machine, or a glob that matches one."""
    from pipelines.readers.ingest import expand

    path = local(name)
    return path.exists() or any(match.exists() for match in expand([name]))
