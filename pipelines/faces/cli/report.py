"""`tracelake report`: a capture or a trace as one HTML page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from pipelines.faces.cli import caveats
from pipelines.faces.cli.console import out, print_json
from pipelines.faces.cli.fleet.opened_capture import is_several, keep_trace, opened_capture, processes_of
from pipelines.faces.cli.options import DEFAULT_LAKE, JsonOption, LakeOption, out_option
from pipelines.faces.cli.trace.opened_trace import opened, use_memory


def report(
    what: Annotated[
        list[str],
        typer.Argument(
            help="A trace file, the folder or files of a capture, or the id of a trace or capture in the lake.",
            metavar="CAPTURE|TRACE",
        ),
    ],
    to: Annotated[Path, out_option("The page to write.")] = Path("report.html"),
    rank: Annotated[
        int | None,
        typer.Option(help="Show the spans and path of this rank in detail. Default: the straggler, or the first rank."),
    ] = None,
    lake: LakeOption = DEFAULT_LAKE,
    json: JsonOption = False,
) -> None:
    """Write one self-contained page: breakdown, critical path, spans, utilization, memory, collectives, stragglers, hangs.

    Example: `tracelake report /fleet/job42/ --out job42.html`
    """
    from pipelines.faces.report.page import page
    from pipelines.faces.report.subject import find_subject
    from pipelines.faces.subject import process_of
    from pipelines.faces.why import why
    from pipelines.runs.store.open_store import absolute_address

    with _opened(what, lake) as (con, id_prefix):
        keep_trace(con, to)
        subject = find_subject(con, id_prefix, rank, absolute_address(lake) if id_prefix else "")
        if subject.capture_id and not id_prefix:
            processes = processes_of(Path(subject.shown["path"]))
            subject = replace(subject, process=process_of(con, subject.shown["trace_id"], processes))
        html = page(subject, caveats.notices())
        answer = why(con, subject.shown["trace_id"]) if json else None
        of_capture = subject.capture_answer
    to.write_text(html, encoding="utf-8")
    if json:
        document = answer.as_json(subject.named, subject.options) if answer else {}
        if of_capture:
            # Several files have no common name that `what-if` accepts.
            of_files, options = what[0] if len(what) == 1 else "FOLDER", subject.options if subject.lake else []
            document["capture"] = of_capture.as_json("" if subject.lake else of_files, options)
        print_json({"path": str(to), "bytes": len(html.encode())} | document)
    else:
        out.line("open in a browser: [bold]{}[/]", to)


@contextmanager
def _opened(subjects: list[str], lake: Path | str) -> Iterator[tuple[Any, str]]:
    """Yield a connection with the tables of the page, and the id prefix that the user gave ('' for files).

    A single trace file is opened without a lake: creating one, with the tables of a capture, took a third of the time.
    """
    from pipelines.base import database
    from pipelines.faces.report.subject import CAPTURE_TABLES, TABLES, compute_tables

    if len(subjects) == 1 and Path(subjects[0]).is_file() and not is_several(subjects[0]):
        with opened(subjects[0], lake, with_arguments=True) as (con, trace_id):
            n_concurrent = use_memory(con, trace_id)
            con.execute(f"SET memory_limit = '{database.for_models()}'")
            compute_tables(con, trace_id, n_concurrent)
            yield con, ""
        return
    from pipelines.lake.publish.prices import PRICE_TABLE

    with opened_capture(subjects, lake, (*TABLES, *CAPTURE_TABLES, PRICE_TABLE), only=True) as con_and_prefix:
        yield con_and_prefix
