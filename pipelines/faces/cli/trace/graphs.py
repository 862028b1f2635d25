"""`tracelake graphs`: what ran in replays of CUDA and HIP graphs, by operator, module and layer."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table

from pipelines.base import units
from pipelines.base.kernel_names import short_names
from pipelines.base.paths import path_text
from pipelines.faces.advice import REPLAY_INPUTS
from pipelines.faces.cli.console import new_table, out, print_json, styled
from pipelines.faces.cli.options import DEFAULT_LAKE, JsonOption, LakeOption, ProcessOption, TraceArgument
from pipelines.faces.cli.trace.graph_inputs import AnnotationsOption, CaptureOption, GraphInputs, opened_with_graphs
from pipelines.faces.words import in_words

TABLES = ("graph_kernels", "kernels")
_NAME = 32


def graphs(
    trace: TraceArgument,
    capture: CaptureOption = None,
    annotations: AnnotationsOption = None,
    top: Annotated[int, typer.Option(help="Show at most this many kernels; 0 for all.", min=0)] = 20,
    process: ProcessOption = None,
    lake: LakeOption = DEFAULT_LAKE,
    json: JsonOption = False,
) -> None:
    """What ran in replays of CUDA and HIP graphs, by operator, module and layer, as far as the trace shows it.

    Example: `tracelake graphs decode.json.gz --capture-trace startup.json.gz`
    """
    from pipelines.faces.subject import catalog_of

    with opened_with_graphs(trace, lake, capture, annotations, process, TABLES) as (con, trace_id, inputs):
        answer = _answer(con, catalog_of(trace, lake), trace_id, inputs) | _inputs_as_json(inputs)
    if json:
        print_json({**answer, "caveats": _unknown_caveats(answer)})
        return
    if not answer["n_kernels"]:
        out.print(styled("{} has no replays of CUDA or HIP graphs", trace))
        return
    out.print(
        styled(
            "{} of {} of GPU time ran in {:,} replay{}; the operator or module of {:.1f} % of that is known",
            units.time(answer["graph_ns"]),
            units.time(answer["gpu_ns"]),
            answer["n_replays"],
            "" if answer["n_replays"] == 1 else "s",
            100 * answer["known_ns"] / max(answer["graph_ns"], 1),
        )
    )
    if answer["known_ns"] < answer["graph_ns"]:
        out.line("the rest would be known from {}", REPLAY_INPUTS)
    if inputs.capture_trace_id:
        reason = "the nearest of its job and rank that captured graphs" if inputs.is_nearest else "as asked for"
        out.print(styled("looked up in trace {}, too: {}", inputs.capture_trace_id, reason))
    if inputs.annotations:
        out.print(styled("names of graph nodes are from {}", inputs.annotations))
    out.print(_table(answer["kernels"], top, answer["graph_ns"]))


def _inputs_as_json(inputs: GraphInputs) -> dict[str, Any]:
    named = None if inputs.annotations is None else path_text(inputs.annotations)
    return {"capture_trace_id": inputs.capture_trace_id, "annotations": named}


def _unknown_caveats(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a caveat about unknown operators, with the inputs that would identify them, or [] if all are known."""
    unknown = answer["graph_ns"] - answer["known_ns"]
    if not unknown:
        return []
    detail = f"operator and module of {units.time(unknown)} of replays are unknown; what would identify them: {REPLAY_INPUTS}"
    return [{"severity": "info", "detail": detail}]


def _answer(con: Any, catalog: Any, trace_id: str, inputs: GraphInputs) -> dict[str, Any]:
    from pipelines.critical_path.graph.stored_window import use_stored
    from pipelines.critical_path.graph.windows import WindowRequest, request_windows
    from pipelines.models.questions import rows_of_question
    from pipelines.models.run import run_models

    # Launches are computed only for traces with a window. The trace with the capture gets one, because its launches are
    # also needed.
    traces = con.execute("SELECT trace_id FROM traces ORDER BY trace_id").fetchall()
    request_windows(con, [WindowRequest(loaded_id) for (loaded_id,) in traces])
    is_usual = not (inputs.capture_trace_id or inputs.annotations)
    stored = use_stored(con, catalog, WindowRequest(trace_id)) if is_usual else frozenset()
    run_models(con, catalog, TABLES, stored)

    def rows_of(question: str) -> list[dict[str, Any]]:
        rows = rows_of_question(con, question, trace=trace_id)
        return [{name: value for name, value in row.items() if name not in ("job", "rank")} for row in rows]

    (totals,) = rows_of("graph-time")
    return {
        "trace_id": trace_id,
        **totals,
        "kernels": rows_of("graph-kernels"),
        "repetitions": rows_of("graph-repetitions"),
    }


def _table(rows: list[dict[str, Any]], top: int, graph_ns: int) -> Table:
    top_rows = rows[:top] if top else rows
    names = short_names((row["name"] for row in top_rows), _NAME)
    more = f"; {len(rows) - len(top_rows)} more rows: --top 0" if len(rows) > len(top_rows) else ""
    headings = ("~kernel", "~class", "~operator", "~module", "~known from")
    table = new_table(*headings, title=f"kernels of graph replays{more}")
    for heading in ("times", "layers", "GPU time", "%"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, row in zip(names, top_rows, strict=True):
        table.add_row(
            name,
            in_words(row["class"] or ""),
            *(row[key] or "" for key in ("op", "module")),
            in_words(row["source"] or ""),
            f"{row['n']:,}",
            f"{row['n_repetitions']:,}",
            units.time(row["duration_ns"]),
            f"{100 * row['duration_ns'] / max(graph_ns, 1):.1f}",
        )
    return table
