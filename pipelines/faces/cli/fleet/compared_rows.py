"""Output of a comparison: as text and tables in 80 columns, and as one JSON object."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, median
from typing import Any

from rich.table import Table
from rich.text import Text

from pipelines.base import units
from pipelines.base.foreign_text import visible
from pipelines.faces.cli.console import styled
from pipelines.faces.cli.narrow_tables import Kind, fitted_table
from pipelines.fleet.trends.comparison import Comparison, Difference, OnePair, Part, Trace, gpu_time_known, totals
from pipelines.fleet.trends.comparison_verdict import (
    changed_most,
    in_words,
    lengths,
    lengths_of_steps,
    percent,
    sentence,
)

Sides = tuple[str, str]
"""The user's names of control and test."""
_RANKS_SHOWN = 16


def as_json(
    comparison: Comparison, names: Sides, sides: Sequence[Sequence[Trace]], notes: Sequence[str]
) -> dict[str, Any]:
    """Return the comparison with all its rows and, for several ranks, the rows of each rank.

    Times are in ns. The times of rows are sums over all windows.
    """
    answer = {
        **_part(comparison.whole, comparison.by, names, sides),
        "notes": list(notes),
        "steps": [*map(_step, comparison.pairs)],
    }
    if len(comparison.places) > 1:
        answer["ranks"] = [
            {"rank": part.pairs[0].rank, "where": part.pairs[0].where, **_part(part, comparison.by, names, sides)}
            for part in comparison.places
        ]
    return answer


def rows_of(part: Part) -> list[Difference]:
    """Return the rows of GPU work, or the rows of the host if neither side has GPU work."""
    return part.rows or part.host


def _part(part: Part, by: str, names: Sides, sides: Sequence[Sequence[Trace]]) -> dict[str, Any]:
    return {
        "verdict": sentence(part),
        "by": by,
        "windows": [_window(part, names[side], sides[side], side) for side in (0, 1)],
        "rows": [asdict(row) for row in rows_of(part)],
        "host": [asdict(row) for row in part.host] if part.rows else [],
    }


def _window(part: Part, name: str, traces: Sequence[Trace], side: int) -> dict[str, Any]:
    windows = [(pair.control, pair.test)[side] for pair in part.pairs]
    used = {window.trace_id: None for window in windows}
    used_traces = [trace for trace in traces if trace.trace_id in used]
    idle = [window.idle_ns for window in windows]
    host = [window.host_ns for window in windows]
    return {
        "given": name,
        "trace_ids": [*used],
        "ranks": [trace.rank for trace in used_traces],
        "device_name": next((trace.device_name for trace in used_traces if trace.device_name), None),
        "steps": sorted({window.step for window in windows if window.step is not None}),
        "n_windows": len(windows),
        "duration_ns": round(lengths(part.pairs)[side]),
        "median_ns": round(median(step[side] for step in lengths_of_steps(part.pairs))),
        "host_ns": None if None in host else round(fmean(ns for ns in host if ns is not None)),
        "worst_ns": max(window.duration_ns for window in windows),
        "gpu_ns": totals(part.categories)[side] if gpu_time_known(part.pairs)[side] else None,
        "idle_ns": None if None in idle else sum(ns for ns in idle if ns is not None),
        "earlier_ns": sum(window.earlier_ns for window in windows),
        "is_partial": any(trace.is_cut for trace in used_traces),
    }


def _step(compared: OnePair) -> dict[str, Any]:
    pair = compared.pair
    has_control, has_test = gpu_time_known([pair])
    has_grown = has_control and has_test and compared.gpu.grown_ns > 0
    return {
        "rank": pair.rank,
        "where": pair.where,
        "control_step": pair.control.step,
        "test_step": pair.test.step,
        "control_ns": pair.control.duration_ns,
        "test_ns": pair.test.duration_ns,
        "control_host_ns": pair.control.host_ns,
        "test_host_ns": pair.test.host_ns,
        "control_gpu_ns": compared.gpu.control_ns if has_control else None,
        "test_gpu_ns": compared.gpu.test_ns if has_test else None,
        "grew_most": compared.gpu.grown_name if has_grown else None,
    }


def lines(
    comparison: Comparison, names: Sides, sides: Sequence[Sequence[Trace]], notes: Sequence[str], limit: int, width: int
) -> Iterator[Text | Table]:
    """Yield the verdict, the two sides, the notes, a table of ranks if there are several, and the table of rows."""
    yield from _wrapped(sentence(comparison.whole), width, "bold")
    for side, name in enumerate(("control", "test")):
        yield from _wrapped(
            f"{name}: {_described(_window(comparison.whole, names[side], sides[side], side))}", width, ""
        )
    for note in notes:
        yield from _wrapped(f"note: {note}", width, "yellow")
    if len(comparison.places) > 1:
        yield _rank_table(comparison, width)
        if (more := len(comparison.places) - _RANKS_SHOWN) > 0:
            yield styled("[dim]{:,} more: --json and --out have them all[/]", more)
    rows = rows_of(comparison.whole)
    yield _table(comparison, rows[: limit or None], width)
    if 0 < limit < len(rows):
        rest_ns = sum(row.diff_ns for row in rows[limit:]) / len(comparison.pairs)
        yield styled(
            "[dim]{:,} more, {} together: --limit 0 shows them[/]", len(rows) - limit, units.difference(rest_ns)
        )


def _wrapped(text: str, width: int, style: str) -> Iterator[Text]:
    for line in textwrap.wrap(visible(text), width, subsequent_indent="  ", break_on_hyphens=False):
        yield Text(line, style=style)


def _described(window: dict[str, Any]) -> str:
    """Return the description of a side: its file, its device, its windows, and the windows' mean times.

    The id of a trace in a lake is omitted, because the user named it.
    """
    steps, traces = window["steps"], len(window["trace_ids"])
    path = Path(window["given"])
    name = f"{path.name}, " if path.exists() else ""
    device = f"{window['device_name']}, " if window["device_name"] else ""
    steps_text = f"step{'s' if len(steps) > 1 else ''} {_numbers(steps)}" if steps else "the whole trace"
    count_text = f" of {traces} traces" if traces > 1 else ""
    idle = "" if window["idle_ns"] is None else f", {units.time(window['idle_ns'] / window['n_windows'])} idle"
    work = f"; GPU time {units.time(window['gpu_ns'] / window['n_windows'])}{idle}" if window["gpu_ns"] else ""
    return f"{name}{device}{steps_text}{count_text}: {units.time(window['duration_ns'])}{work}"


_STEPS_NAMED = 5


def _numbers(steps: Sequence[int]) -> str:
    """Return the numbers as text: a range if there is no gap, else the first few."""
    if len(steps) > 2 and steps[-1] - steps[0] == len(steps) - 1:
        return f"{steps[0]} to {steps[-1]}"
    n_named = min(_STEPS_NAMED, len(steps) - 1)
    last = str(steps[-1]) if n_named == len(steps) - 1 else f"{len(steps) - n_named} more"
    return " and ".join(filter(None, (", ".join(map(str, steps[:n_named])), last)))


def _rank_table(comparison: Comparison, width: int) -> Table:
    rows = []
    for part in comparison.places[:_RANKS_SHOWN]:
        control, test = lengths(part.pairs)
        gpu = totals(part.categories)
        change = (units.difference((gpu.test_ns - gpu.control_ns) / len(part.pairs)), visible(changed_most(part)))
        times = (units.time(control), units.time(test), percent(control, test))
        rows.append((visible(part.pairs[0].where), *times, *(change if part.has_gpu_time else ("", ""))))
    headings = ("", ">control", ">test", ">change", ">GPU time", "of that most")
    return fitted_table(headings, rows, [Kind.NAME, *[Kind.WHOLE] * 4, Kind.NAME], width)


def _table(comparison: Comparison, rows: Sequence[Difference], width: int) -> Table:
    windows = len(comparison.pairs)
    heading = comparison.by if comparison.whole.rows else "own time on the host"
    cells = []
    for row in rows:
        n = _count(row.control_n, windows)
        n += "" if row.diff_n == 0 else f" → {_count(row.test_n, windows)}"
        times = (
            units.time(row.control_ns / windows),
            units.time(row.test_ns / windows),
            units.difference(row.diff_ns / windows),
        )
        cells.append((visible(in_words(row, comparison.by)), n, *times))
    window_noun = "step" if comparison.pairs[0].pair.control.step is not None else "trace"
    title = f"per {window_noun}, mean of {windows}" if windows > 1 else None
    kinds = [Kind.NAME, *[Kind.WHOLE] * 4]
    return fitted_table((heading, ">n", ">control", ">test", ">diff"), cells, kinds, width, title=title)


def _count(n: int, windows: int) -> str:
    return f"{n // windows:,}" if n % windows == 0 else f"{n / windows:,.1f}"
