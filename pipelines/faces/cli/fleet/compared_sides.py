"""Opens the two sides of `tracelake compare`: files, folders of captures, or ids of a lake."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.faces.cli import caveats
from pipelines.faces.cli.console import fail, local
from pipelines.faces.cli.fleet.opened_capture import opened_capture, processes_of
from pipelines.faces.cli.trace.opened_trace import opened
from pipelines.faces.cli.up_to_date import open_analyst

if TYPE_CHECKING:
    from pipelines.fleet.trends.comparison import Trace


def open_side(con: Any, given: str, lake: Path | str, ranks: int | str, process: str | None) -> list[Trace]:
    """Copies what a comparison reads of a side to `con`; returns its traces: those of a capture's ranks, of a file's
    processes. Exits where there are none.
    """
    if process and not Path(given).is_file():
        raise fail(f"--process is for files that hold several, and {given} is none", "Leave it out.")
    if not _exists(given):
        return _of_lake(con, given, lake, ranks)
    if Path(given).is_file():
        processes = [process] if process else processes_of(Path(given)) or [None]
        of_ranks = _of_folder(con, given, lake, ranks) if len(processes) > 1 else []
        return of_ranks or [_of_file(con, given, lake, one, len(processes) > 1) for one in processes]
    return _of_folder(con, given, lake, ranks)


def _of_lake(con: Any, given: str, lake: Path | str, ranks: int | str) -> list[Trace]:
    from pipelines.fleet.trends.compared_windows import traces_of
    from pipelines.fleet.trends.comparison import WITH_CAUSES, CompareError, facts_of

    own = open_analyst(lake, ["capture_ranks", *WITH_CAUSES], given)
    caveats.note(own, given)
    try:
        return facts_of(con, own, traces_of(own, given, ranks), with_causes=True)
    except CompareError as error:
        lists = "`tracelake sql 'SELECT * FROM capture_ranks'` lists captures and their traces."
        raise fail(str(error), lists) from None
    finally:
        own.close()


def _of_file(con: Any, given: str, lake: Path | str, process: str | None, is_one_of_several: bool) -> Trace:
    from pipelines.critical_path.graph.windows import request_windows, usual_windows
    from pipelines.fleet.trends.comparison import RULES, WITH_CAUSES, facts_of
    from pipelines.models.catalog import load_catalog
    from pipelines.models.run import run_models

    with opened(given, lake, process=process, with_arguments=True) as (own, trace_id):
        request_windows(own, usual_windows(own, [trace_id]))
        run_models(own, load_catalog(), (*WITH_CAUSES, *RULES))
        (trace,) = facts_of(con, own, [trace_id], with_causes=True)
    return replace(trace, file=f"process {process}") if is_one_of_several else trace


def _of_folder(con: Any, given: str, lake: Path | str, ranks: int | str) -> list[Trace]:
    """The traces of a folder, or of a file with several processes: [] for one that does not tell their ranks."""
    from pipelines.fleet.path.answer import NoCapture, find_capture
    from pipelines.fleet.trends.compared_windows import traces_of
    from pipelines.fleet.trends.comparison import WITH_CAUSES, CompareError, facts_of

    with ExitStack() as stack:
        try:
            tables = ("captures", "capture_ranks", *WITH_CAUSES)
            own, _ = stack.enter_context(opened_capture([given], lake, tables))
            if Path(given).is_file() and own.execute("SELECT 1 FROM traces WHERE rank IS NULL LIMIT 1").fetchall():
                return []
            return facts_of(con, own, traces_of(own, find_capture(own, ""), ranks), with_causes=True)
        except (CompareError, NoCapture) as error:
            raise fail(f"{given}: {error}", "Give a trace file, or the folder of one capture.") from None


def _exists(given: str) -> bool:
    """Returns whether it is a file, folder or glob rather than an id. Exits if it can only be a file and does not
    exist.
    """
    from pipelines.readers.ingest import expand

    path = local(given)
    if path.exists() or any(found.exists() for found in expand([given])):
        return True
    if set(given) <= set("0123456789abcdef"):
        return False
    raise fail(f"{given}: no such file, and no id starts with it (ids are hexadecimal)")
