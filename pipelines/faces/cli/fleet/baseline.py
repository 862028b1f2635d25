"""`tracelake baseline`: names for the traces and captures with which others are compared."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from pipelines.faces.cli.console import fail, new_table, out, print_json
from pipelines.faces.cli.options import DEFAULT_LAKE, JsonOption, folder_option


class Action(StrEnum):
    """Action on a baseline."""

    set = "set"
    list = "list"
    remove = "remove"


def baseline(
    action: Annotated[Action, typer.Argument(help="set, list or remove.")],
    name: Annotated[str, typer.Argument(help="The name, such as main.")] = "",
    trace: Annotated[
        str, typer.Argument(help="A trace file, which is ingested, or the id of a trace or a capture.", metavar="TRACE")
    ] = "",
    lake: Annotated[Path, folder_option("baselines are kept in the lake's folder")] = DEFAULT_LAKE,
    json: JsonOption = False,
) -> None:
    """Name a trace or a capture as a baseline, for `tracelake compare --baseline NAME TEST`.

    Example: `tracelake baseline set main rank0.json.gz --lake /data/lake`
    """
    from pipelines.lake.baselines import baselines, set_baseline

    if (action is Action.list) != (not name) or (action is Action.set) != bool(trace):
        raise fail(
            "baseline expects `set NAME TRACE`, `remove NAME` or `list`",
            "For example: tracelake baseline set main 3f2a91",
        )
    if action is not Action.list:
        set_baseline(lake, name, _id(trace, lake) if trace else None)
    ids = baselines(lake)
    if json:
        print_json(ids)
    elif action is Action.list:
        table = new_table("name", "trace or capture")
        for known, trace_or_capture_id in ids.items():
            table.add_row(known, trace_or_capture_id)
        out.print(table)
    else:
        out.line("{} is {}", name, ids.get(name, "no longer a baseline"))


def _id(trace: str, lake: Path) -> str:
    """Return the id of a trace or a capture of the lake. Ingest the trace if it is a file."""
    from pipelines.faces.cli.refresh_tables import open_analyst
    from pipelines.fleet.path.answer import NoCapture, find_capture
    from pipelines.lake import Lake
    from pipelines.readers.ingest import ingest
    from pipelines.runs.store import StoreError, open_store

    if Path(trace).is_file():
        rows = [row for row in ingest([trace], Lake(lake)).rows if row.status != "part"]
        ids = [row.trace_id for row in rows if row.trace_id]
        if len(ids) != 1:
            raise fail(f"{trace} is not one trace{': ' + rows[0].reason if rows and rows[0].reason else ''}")
        return ids[0]
    try:
        return open_store(lake).find_trace(trace)
    except (LookupError, StoreError) as no_trace:
        try:
            with open_analyst(lake, ["captures"]) as con:
                return find_capture(con, trace)
        except NoCapture:
            raise no_trace from None
