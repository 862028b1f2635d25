"""Section on replays of CUDA and HIP graphs, if they take more than half of the GPU time."""

from __future__ import annotations

import duckdb

from pipelines.base.database import rows_of
from pipelines.base.kernel_names import short_names
from pipelines.base.units import count, percent, time, times
from pipelines.faces.advice import REPLAY_INPUTS
from pipelines.faces.report.blocks import Block, Column, Section, more, paragraph, section, table, titled
from pipelines.faces.report.formats import meter, name, short_name
from pipelines.faces.report.subject import Subject, of_shown
from pipelines.faces.words import in_words
from pipelines.models.questions import rows_of_question

_SHOWN, _NAME, _LEAST_PERCENT, _BLOCKS = 20, 72, 50, 3
_PATH = """
    SELECT op, module, layer, source, n_events, duration_ns FROM critical_path_by_operator
    WHERE trace_id = {of} AND window_id = 'full' AND is_replay
    ORDER BY duration_ns DESC, op, module, layer, source
"""
_PATH_COLUMNS = [
    *(Column("op", "operator", name), Column("module", "module", name), Column("layer", "layer", count)),
    *(Column("source", "known from", in_words), Column("n_events", "kernels", count)),
    Column("duration_ns", "on the path", time, "Sum of their time on the critical path, ns."),
]
_COLUMNS = [
    *(
        Column("shown", "kernel", short_name, "Its name."),
        Column("class", "class", in_words),
        *(Column("op", "operator", name), Column("module", "module", name), Column("source", "known from", in_words)),
        Column("n", "times", count, "How often it ran in replays."),
    ),
    Column("duration_ns", "GPU time", time, "Sum of their durations, ns."),
    Column("percent", "of the replays", meter, "In percent of the summed duration of all work in replays."),
]


def graphs(con: duckdb.DuckDBPyConnection, subject: Subject) -> Section | None:
    """Return the section on the shown rank's graph replays, or None if they take at most _LEAST_PERCENT of the GPU time.

    It shows the share of GPU work with a known operator, repeating blocks of kernels, and kernels by operator.
    """
    trace_id = subject.shown["trace_id"]
    (totals,) = rows_of_question(con, "graph-time", trace=trace_id)
    gpu_ns, n_replays, graph_ns, known_ns = (totals[name] for name in ("gpu_ns", "n_replays", "graph_ns", "known_ns"))
    if not n_replays or 100 * graph_ns <= _LEAST_PERCENT * gpu_ns:
        return None
    rows = rows_of_question(con, "graph-kernels", trace=trace_id)
    top_rows = rows[:_SHOWN]
    for row, short in zip(top_rows, short_names((row["name"] for row in top_rows), _NAME), strict=True):
        row["shown"], row["percent"] = (row["name"], short), 100 * row["duration_ns"] / graph_ns
    summary = (
        f"{percent(100 * graph_ns / gpu_ns)} of the GPU time ran in {n_replays:,} replay{'' if n_replays == 1 else 's'} of CUDA or HIP graphs. The "
        f"operator or module of {percent(100 * known_ns / graph_ns) if graph_ns else 'none'} of it is known: that part "
        "counts in the sections by operator and module, the rest in neither, because the trace does not show the capture."
    )
    if known_ns < graph_ns:
        summary += f" `tracelake graphs` tells it from {REPLAY_INPUTS}."
    return section(
        "graphs",
        "Graph replays",
        paragraph(summary),
        _blocks(con, subject),
        table("graph_kernels", _COLUMNS, top_rows),
        more(rows, _SHOWN, "rows in table graph_kernels"),
        *_on_path(con, subject),
        note=of_shown(subject),
        docs=("modelling.md", "graph replays"),
    )


def _on_path(con: duckdb.DuckDBPyConnection, subject: Subject) -> list[Block]:
    """Return the replays' kernels on the critical path, by operator, module and layer."""
    rows = rows_of(con, _PATH.format(of=subject.shown_id))
    if not rows:
        return []
    return [
        *titled("replays on the critical path", "critical_path_by_operator", _PATH_COLUMNS, rows[:_SHOWN], ""),
        *more(rows, _SHOWN, "rows in table critical_path_by_operator"),
    ]


def _blocks(con: duckdb.DuckDBPyConnection, subject: Subject) -> list[Block]:
    """Return a paragraph per graph about the block of kernels that repeats in it, for the _BLOCKS with the most time."""
    return [
        paragraph(
            f"In a graph, the same {row['period']:,} kernels follow one another {times(row['n_repetitions'])}, probably once per layer: "
            f"{time(row['median_ns'])} each (median); the longest, {time(row['longest_ns'])}, is number {row['longest']}."
        )
        for row in rows_of_question(con, "graph-blocks", _BLOCKS, trace=subject.shown["trace_id"])
    ]
