"""Printed tables of a clocked pipeline."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import groupby
from typing import Any

from pipelines.schedule.engine.order import serial_order, stage_descending
from pipelines.schedule.plan.checked_plan import CheckedPlan


def schedule_table(
    checked: CheckedPlan, order: Iterable[str], streams: Mapping[str, str], skipped: Collection[str], periods: int
) -> str:
    """Return a table as text, with a row per task in submission order and a column per period.

    `streams`: the stream's name of each task. SWPipeline.format_schedule documents the cells.
    """
    head = ["#", "Task", "Thread", "Stream"]
    rows = []
    for i, name in enumerate(order):
        title = f"{name} [skip]" if name in skipped else name
        cells = [cell(period - checked.stage(name), name in skipped) for period in range(periods)]
        rows.append([str(i), title, checked.schedule[name].thread_group, streams[name], *cells])
    widths = [max(len(row[c]) for row in [head, *rows]) for c in range(4)]
    widths = [max(w, minimum) for w, minimum in zip(widths, (2, 24, 7, 7), strict=True)]
    widths += [max([4, len(f"P{p}"), *(len(row[4 + p]) for row in rows)]) for p in range(periods)]
    lines = [_line([*head, *(f"P{p}" for p in range(periods))], widths, "|")]
    lines.append(_line(["-" * w for w in widths], widths, "+"))
    return "\n".join(lines + [_line(row, widths, "|") for row in rows])


def cell(iteration: int, skipped: bool) -> str:
    """Return the cell of a task in a period. A task with a shortcut is `.` in all periods, as in the document."""
    if skipped:
        return "."
    return "--" if iteration < 0 else f"i{iteration}"


def _line(row: list[str], widths: list[int], bar: str) -> str:
    padded = [text.ljust(width) for text, width in zip(row, widths, strict=True)]
    return " ".join([*padded[:4], bar, *padded[4:]]).rstrip()


def stream_names(streams: Mapping[str, Any], name_of: Callable[[Any], str | None]) -> dict[str, str]:
    """Return the stream's name of each task. Unnamed streams are numbered in order of declaration."""
    unnamed: list[Any] = []
    names = {}
    for name, stream in streams.items():
        stream_name = name_of(stream)
        if stream_name is None and stream not in unnamed:
            unnamed.append(stream)
        names[name] = stream_name if stream_name is not None else f"stream{unnamed.index(stream)}"
    return names


def stage_analysis(checked: CheckedPlan) -> str:
    """Return, as text, stages in topological order, and the longest descending subsequence (LDS) of stages.

    The document defines neither LDS nor its sequence. Here, the sequence is the stages in submission order with the
    oldest iteration first. So the LDS has one stage for each iteration on which a period works. If the LDS is shorter
    than the depth, some stage has no task, and the pipeline is deeper than necessary.
    """
    order = serial_order(checked)
    declared = {name: i for i, name in enumerate(checked.schedule)}
    width = max(20, *(len(name) for name in order))
    lines = ["Task schedule (topological order):", f"{'Pos':<5}{'Task':<{width}} {'Idx':>5} {'Stage':>6}  Type"]
    lines.append("-" * max(50, len(lines[-1])))
    for pos, name in enumerate(order):
        kind = "ordered" if checked.schedule[name].globally_ordered else "stream"
        lines.append(f"{pos:<5}{name:<{width}} {declared[name]:>5} {checked.stage(name):>6}  {kind}")
    longest = longest_descending([checked.stage(name) for name in stage_descending(checked)])
    lines.append(f"LDS = {len(longest)} (example: ({', '.join(map(str, longest))}{',' * (len(longest) == 1)}))")
    lines.append(f"Pipeline depth = {checked.depth}")
    if len(longest) == checked.depth:
        lines.append("✓ LDS == depth (Dilworth-optimal)")
    else:
        empty = sorted(set(range(checked.depth)) - set(longest))
        lines.append(f"✗ LDS < depth: no task is in stage {', '.join(map(str, empty))}; renumber the stages")
    return "\n".join(lines)


def longest_descending(stages: list[int]) -> tuple[int, ...]:
    """Return the longest strictly descending subsequence of stages sorted from high to low."""
    return tuple(stage for stage, _ in groupby(stages))
