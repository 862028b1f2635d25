"""`tracelake report`: a capture or a trace as one HTML page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from pipelines.faces.cli.console import DEFAULT_LAKE, AnyLakeOption, JsonOption, new_file, out, print_json, styled
from pipelines.faces.cli.fleet.opened_capture import is_several, keep_trace, opened_capture
from pipelines.faces.cli.trace.opened_trace import opened, use_memory


def report(
    what: Annotated[
        list[str],
        typer.Argument(
            help="A trace file, the folder or files of a capture, or the id of a trace or capture in the lake.",
            metavar="CAPTURE|TRACE",
        ),
    ],
    to: Annotated[Path, typer.Option("--out", metavar="FILE", parser=new_file, help="The page to write.")] = Path(
        "report.html"
    ),
    rank: Annotated[
        int | None,
        typer.Option(help="The rank whose spans and path to show in detail; by default the straggler, or the first."),
    ] = None,
    lake: AnyLakeOption = DEFAULT_LAKE,
    json: JsonOption = False,
) -> None:
    """Write one self-contained page: breakdown, critical path, spans, utilization, memory, collectives, stragglers, hangs.

    Example: `tracelake report /fleet/job42/ --out job42.html`
    """
    from pipelines.faces.report.page import page
    from pipelines.faces.report.subject import find_subject
    from pipelines.faces.why import why

    with _opened(what, lake) as (con, beginning):
        keep_trace(con, to)
        subject = find_subject(con, beginning, rank)
        html = page(con, subject)
        answer = why(con, subject.shown["trace_id"]) if json else None
    to.write_text(html, encoding="utf-8")
    if json:
        print_json({"path": str(to), "bytes": len(html.encode())} | (answer.as_json() if answer else {}))
    else:
        out.print(styled("open in a browser: [bold]{}[/]", to), soft_wrap=True)


@contextmanager
def _opened(what: list[str], lake: Path | str) -> Iterator[tuple[Any, str]]:
    """Yields a connection with the tables of the page, and the beginning of the id that was named ('' for files). One trace file
    needs no lake: making one, and the tables of a capture in it, took a third of the time.
    """
    from pipelines.base import database
    from pipelines.faces.report.subject import CAPTURE_TABLES, TABLES, compute_tables

    if len(what) == 1 and Path(what[0]).is_file() and not is_several(what[0]):
        with opened(what[0], lake, with_arguments=True) as (con, trace_id):
            at_once = use_memory(con, trace_id)
            con.execute(f"SET memory_limit = '{database.for_models()}'")
            compute_tables(con, trace_id, at_once)
            yield con, ""
        return
    from pipelines.lake.publish.prices import PRICE_TABLE

    with opened_capture(what, lake, (*TABLES, *CAPTURE_TABLES, PRICE_TABLE), only=True) as found:
        yield found
