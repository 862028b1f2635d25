"""`tracelake ask`: common questions, as saved queries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.faces.cli.console import err, fail, out, print_json, styled
from pipelines.faces.cli.lake.query import Format, MasterOption, SqlEngine, SqlEngineOption, answer_query
from pipelines.faces.cli.options import DEFAULT_LAKE, JobOption, LakeOption

if TYPE_CHECKING:
    from pipelines.lake import Lake
    from pipelines.models.questions import Limit, Question

_ROWS = 20
"""Rows of a table, unless --top is set."""
_NAMES = 5


def ask(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Name of a saved question, or a search term such as leak or 'launch bound'. Lists all questions if omitted."
        ),
    ] = None,
    lake: LakeOption = DEFAULT_LAKE,
    job: JobOption = None,
    capture: Annotated[str | None, typer.Option(help="Show only captures with this id prefix.")] = None,
    trace: Annotated[
        str | None,
        typer.Option(help="Show only traces with this id prefix or file name (also with its path)."),
    ] = None,
    rank: Annotated[int | None, typer.Option(help="Show only this rank.")] = None,
    top: Annotated[
        int | None,
        typer.Option(
            help="Show at most this many rows; 0 for all.", min=0, show_default=f"{_ROWS} in a table, else all"
        ),
    ] = None,
    format: Annotated[Format, typer.Option(help="Output format; everything goes to stdout.")] = Format.table,
    show_sql: Annotated[bool, typer.Option("--sql", help="Print the query instead of running it.")] = False,
    engine: SqlEngineOption = SqlEngine.duckdb,
    master: MasterOption = "",
) -> None:
    """Ask one of the saved questions, such as "which kernels take the most GPU time?".

    Example: `tracelake ask top-kernels --job llama --rank 3`
    """
    from pipelines.faces.cli import caveats
    from pipelines.faces.cli.refresh_tables import open_analyst
    from pipelines.faces.limiting_findings import LimitingFinding, query_of_part
    from pipelines.models.questions import load_questions, question_named, questions_about
    from pipelines.runs.store import open_store

    # The lake stores names of files without folders. An id has no folder, so it stays.
    file_or_id = trace and (Path(trace).name or trace)
    limits: dict[str, Limit] = {"job": job, "capture": capture, "trace": file_or_id, "rank": rank}
    questions = load_questions()
    listed = list(questions.values()) if name is None else [] if name in questions else questions_about(name)
    if name is None or listed:
        of_answers = {**limits, "top": top, "sql": show_sql or None}
        _list(listed, format, [f"--{option}" for option, value in of_answers.items() if value is not None])
        return
    saved_question = question_named(name)
    is_table = format is Format.table
    most = top if top is not None else _ROWS if is_table else 0
    if show_sql:
        print(saved_question.asked(most, **limits))
        return
    # Query one row more than a table shows, to detect further rows.
    query = saved_question.asked(most + 1 if is_table and most else most, **limits)
    if local_lake := open_store(lake).lake:
        _refuse_unknown(local_lake, {"job": job, "capture_id": capture, "trace": trace, "rank": rank})
    is_of_part = any(value is not None for value in limits.values())
    if is_of_part:
        with open_analyst(lake, ["findings"]) as con:
            findings = [LimitingFinding(*row) for row in con.execute(query_of_part(limits)).fetchall()]
        for line in caveats.lines_of(findings):
            err.print(line, soft_wrap=True)
    if is_table:
        out.print(styled("[bold]{}[/]", saved_question.question))
    answer_query(query, lake, format, most, "--top 0 shows all", engine=engine, master=master, is_of_part=is_of_part)
    if is_table:
        err.print(styled("[dim]{}[/]", saved_question.reading))


def _refuse_unknown(local_lake: Lake, filters: dict[str, str | int | None]) -> None:
    """Exit if the lake has no such job, capture, trace or rank, because an empty table would be misleading."""
    from pipelines.base.close_names import meant
    from pipelines.lake.read.one_trace import NoSuchTrace, find_trace

    if not local_lake.exists or not any(value is not None for value in filters.values()):
        return
    if (trace := filters.pop("trace")) is not None and not any(
        trace_id.startswith(str(trace)) for trace_id in local_lake.known_traces()
    ):
        try:
            find_trace(local_lake, str(trace))
        except NoSuchTrace as error:
            if not error.has_several:  # the name of several files is a valid filter
                raise
    with local_lake.connect(["traces"]) as con:
        for column, value in filters.items():
            names = [
                str(name)
                for (name,) in con.execute(f"SELECT DISTINCT {column} FROM traces").fetchall()
                if name is not None
            ]
            is_known = any(
                name.startswith(str(value)) if column == "capture_id" else name == str(value) for name in names
            )
            if value is not None and not is_known:
                noun = column.removesuffix("_id")
                raise fail(
                    f"no {noun} {value!r} in the lake {local_lake.root}: {meant(str(value), sorted(names)[:50]) if names else 'no trace has one'}"
                )


def _list(questions: Sequence[Question], format: Format, options: list[str]) -> None:
    """Print the questions. Exit if `options` or the format only apply to an answer."""
    if format in (Format.csv, Format.parquet):
        options = [*options, f"--format {format.value}"]
    if options:
        names = ", ".join(question.name for question in questions[:_NAMES])
        more = ", …" if len(questions) > _NAMES else ""
        raise fail(f"{', '.join(options)}: only for the answer to a question: name one of {names}{more}")
    if format is Format.json:
        keys = ("topic", "name", "question", "words")
        print_json([{key: getattr(question, key) for key in keys} for question in questions])
        return
    topic = ""
    for question in questions:
        if question.topic != topic:
            out.print(styled("\n[bold]{}[/]" if topic else "[bold]{}[/]", topic := question.topic))
        words = f" ({question.words})" if question.words else ""
        out.print(styled("  [cyan]{}[/] {}[dim]{}[/]", f"{question.name:<22}", question.question, words))
