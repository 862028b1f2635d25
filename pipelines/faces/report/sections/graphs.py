"""Section on replays of CUDA and HIP graphs, if they take more than half of the GPU time."""

from __future__ import annotations

from pipelines.base.units import percent, time, times
from pipelines.faces.advice import REPLAY_INPUTS
from pipelines.faces.report.blocks import Section, section
from pipelines.faces.report.macros import macros
from pipelines.faces.report.subject import Subject, of_shown
from pipelines.faces.report.tables import answer, table

_LEAST_PERCENT, _BLOCKS = 50, 3


def graphs(subject: Subject) -> Section | None:
    """Return the section on the shown rank's graph replays, or None if they take at most _LEAST_PERCENT of the GPU time.

    It shows the share of GPU work with a known operator, repeating blocks of kernels, and kernels by operator.
    """
    (totals,) = subject.rows("graph-time")
    gpu_ns, n_replays, graph_ns, known_ns = (totals[name] for name in ("gpu_ns", "n_replays", "graph_ns", "known_ns"))
    if not n_replays or 100 * graph_ns <= _LEAST_PERCENT * gpu_ns:
        return None
    rows = subject.rows("graph-kernels")
    for row in rows:
        row["percent"] = 100 * row["duration_ns"] / graph_ns
    summary = (
        f"{percent(100 * graph_ns / gpu_ns)} of the GPU time ran in {n_replays:,} replay{'' if n_replays == 1 else 's'} of CUDA or HIP graphs. The "
        f"operator or module of {percent(100 * known_ns / graph_ns) if graph_ns else 'none'} of it is known: that part "
        "counts in the sections by operator and module, the rest in neither, because the trace does not show the capture."
    )
    if known_ns < graph_ns:
        summary += f" `tracelake graphs` identifies it from {REPLAY_INPUTS}."
    # The repeating blocks of kernels, of the graphs with the most time.
    blocks = [
        f"In a graph, the same {row['period']:,} kernels follow one another {times(row['n_repetitions'])}, probably once per layer: "
        f"{time(row['median_ns'])} each (median); the longest, {time(row['longest_ns'])}, is number {row['longest']}."
        for row in subject.rows("graph-blocks")[:_BLOCKS]
    ]
    return section(
        "graphs",
        "Graph replays",
        *map(macros.paragraph, [summary, *blocks]),
        table("graph-kernels", rows),
        answer(subject, "path-replays"),
        note=of_shown(subject),
        docs=("modelling.md", "graph replays"),
    )
