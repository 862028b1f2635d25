"""The page of `tracelake compare --out`: what the comparison comes to, where the GPU time went, each rank and step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipelines.base.units import count, difference, time
from pipelines.faces.report.blocks import Block, Column, Section, figure, lead, more, paragraph, section, table
from pipelines.faces.report.cause_bars import cause_bars
from pipelines.faces.report.formats import words
from pipelines.faces.report.page import render
from pipelines.faces.report.pictures.waterfall import Step, waterfall
from pipelines.fleet.trends.comparison import Comparison, Difference, Part, Trace, totals
from pipelines.fleet.trends.comparison_verdict import (
    changed_most,
    in_words,
    lengths,
    named,
    percent,
    sentence,
)

Sides = Sequence[Sequence[Trace]]
_BARS = 14  # of a waterfall; the rest is one
_ROWS = 200
_DOCS = ("reading-a-fleet.md", "Two captures")


def page(found: Comparison, given: tuple[str, str], sides: Sides, notes: Sequence[str]) -> str:
    """Returns the page of a comparison. `given`: what was compared, as the user named it; `notes`: what to know of it."""
    facts = {}
    for side, what in enumerate(("control", "test")):
        devices = {trace.device_name: None for trace in sides[side] if trace.device_name}
        facts[what] = f"{given[side]} ({', '.join(devices)})" if devices else given[side]
    head = {"title": "Control against test", "kind": "comparison", "facts": facts}
    sections = [_verdict(found, notes), _causes(found), _work(found), _places(found), _steps(found), _host(found)]
    return render(head, [one for one in sections if one])


def _verdict(found: Comparison, notes: Sequence[str]) -> Section:
    said = [lead([sentence(found.whole)]), *(paragraph(f"Note: {note}.") for note in notes)]
    return section("verdict", "What it comes to", said, docs=_DOCS)


def _causes(found: Comparison) -> Section | None:
    """Both sides split by causes, in the order of the control's."""
    if not all(totals(found.whole.causes)):
        return None
    windows = len(found.pairs)
    order = sorted(found.whole.causes, key=lambda one: (-one.control_ns, -one.test_ns))
    sides = [
        (side, [(one.name, ns / windows) for one in order if (ns := getattr(one, f"{side}_ns"))])
        for side in ("control", "test")
    ]
    note = f"Means of {windows} windows." if windows > 1 else ""
    return section("causes", "What the time goes to", cause_bars(sides), note=note, docs=("why.md", "why"))


def _work(found: Comparison) -> Section | None:
    if not found.whole.rows:
        return None
    windows = len(found.pairs)
    return section(
        "work",
        f"GPU time by {found.by}",
        figure(waterfall_of(found)),
        _rows(found.whole.rows, windows),
        note=f"Means of {windows} windows." if windows > 1 else "",
    )


def waterfall_of(found: Comparison) -> str | None:
    """Returns the picture of the largest changes, and the others together; times are means of the windows."""
    windows = len(found.pairs)
    control, test = (ns / windows for ns in totals(found.whole.rows))
    changed = [one for one in found.whole.rows if one.diff_ns]
    steps = [
        Step(in_words(one, found.by), one.diff_ns / windows, difference(one.diff_ns / windows), _says(one, windows))
        for one in changed[:_BARS]
    ]
    if rest := changed[_BARS:]:
        ns = sum(one.diff_ns for one in rest) / windows
        steps.append(Step(f"{len(rest)} others", ns, difference(ns), f"{len(rest)} others: {difference(ns)}"))
    title = f"GPU time by {found.by}: {percent(control, test)}"
    return waterfall(title, (control, time(control)), (test, time(test)), steps)


def _says(one: Difference, windows: int) -> str:
    times = f"{time(one.control_ns / windows)} in control, {time(one.test_ns / windows)} in test"
    return f"{one.name}: {times}; {one.control_n:,} and {one.test_n:,} times"


def _rows(rows: Sequence[Difference], windows: int) -> list[Block]:
    columns = (
        Column("name", "name"),
        Column("input_dims", "shapes", words),
        Column("control_n", "n, control", count),
        Column("test_n", "n, test", count),
        Column("control_ns", "control", time),
        Column("test_ns", "test", time),
        Column("diff_ns", "difference", difference),
        Column("change", "change", words),
    )
    shown = [
        {
            **{column.key: getattr(one, column.key) for column in columns},
            **{key: getattr(one, key) / windows for key in ("control_ns", "test_ns", "diff_ns")},
        }
        for one in rows[:_ROWS]
    ]
    used = [column for column in columns if any(row[column.key] is not None for row in shown)]
    return [table("_comparison", used, shown), *more(rows, len(shown), "rows: `tracelake compare --json`")]


def _places(found: Comparison) -> Section | None:
    if len(found.places) < 2:
        return None
    columns = (
        Column("where", "", words, "The rank or process."),
        Column("control_ns", "control", time, "Mean length of its windows."),
        Column("test_ns", "test", time, "Mean length of its windows."),
        Column("change", "change", words, "Change of that length."),
        Column("diff_ns", "GPU time", difference, "Change of GPU time, mean of its windows."),
        Column("most", "of that most", words, "The largest change of GPU time."),
    )
    return section("ranks", "Rank by rank", table("_comparison", columns, [*map(_place, found.places)]))


def _place(part: Part) -> dict[str, Any]:
    control, test = lengths(part.pairs)
    gpu = totals(part.categories)
    return {
        "where": part.pairs[0].where,
        "control_ns": control,
        "test_ns": test,
        "change": percent(control, test),
        "diff_ns": (gpu.test_ns - gpu.control_ns) / len(part.pairs),
        "most": changed_most(part),
    }


def _steps(found: Comparison) -> Section | None:
    if len(found.pairs) < 2:
        return None
    rows = [
        {
            "window": named(one.pair) or "the whole trace",
            "control_ns": one.pair.control.duration_ns,
            "test_ns": one.pair.test.duration_ns,
            "change": percent(one.pair.control.duration_ns, one.pair.test.duration_ns),
            "gpu": percent(one.gpu.control_ns, one.gpu.test_ns),
            "most": f"{difference(one.gpu.changed_ns)} {one.gpu.changed_name}" if one.gpu.changed_name else "",
        }
        for one in found.pairs
    ]
    columns = (
        Column("window", "window", words, "The step, and its rank where that is known."),
        Column("control_ns", "control", time, "Its length."),
        Column("test_ns", "test", time, "Its length."),
        Column("change", "change", words, "Change of that length."),
        Column("gpu", "GPU time", words, "Change of GPU time."),
        Column("most", "changed most", words, "The largest change of GPU time."),
    )
    return section("steps", "Step by step", table("_comparison", columns, rows))


def _host(found: Comparison) -> Section | None:
    rows = [one for one in found.whole.host if one.change != "unchanged"]
    if not rows:
        return None
    note = "Own time of operators, calls, annotations and Python functions, without what ran inside; all threads."
    return section("host", "On the host", _rows(rows, len(found.pairs)), note=note)
