"""The page of `tracelake compare --out`: the verdict, where the GPU time goes, and tables by rank and step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from pipelines.base.units import difference, time
from pipelines.faces.report.blocks import Section, section
from pipelines.faces.report.cause_bars import cause_bars
from pipelines.faces.report.macros import macros
from pipelines.faces.report.page import render
from pipelines.faces.report.pictures.waterfall import Step, waterfall
from pipelines.faces.report.tables import table
from pipelines.fleet.trends.comparison import CAUSE, Comparison, Difference, Part, Trace, gpu_time_known, totals
from pipelines.fleet.trends.comparison_verdict import (
    changed_most,
    in_words,
    lengths,
    named,
    percent,
    sentence,
)

Sides = Sequence[Sequence[Trace]]
_BARS = 14  # bars of a waterfall before the bar of all other changes
_DOCS = ("reading-a-fleet.md", "Two captures")


def page(comparison: Comparison, names: tuple[str, str], sides: Sides, notes: Sequence[str]) -> str:
    """Return the page of a comparison as HTML. `names`: control and test as the user named them. `notes`: caveats."""
    facts = {}
    for side, name in enumerate(("control", "test")):
        devices = {trace.device_name: None for trace in sides[side] if trace.device_name}
        facts[name] = f"{names[side]} ({', '.join(devices)})" if devices else names[side]
    head = {"title": "Control against test", "kind": "comparison", "facts": facts}
    sections = [
        _verdict(comparison, notes),
        _causes(comparison),
        _work(comparison),
        _places(comparison),
        _steps(comparison),
        _host(comparison),
    ]
    return render(head, [part for part in sections if part])


def _verdict(comparison: Comparison, notes: Sequence[str]) -> Section:
    parts = (macros.lead([sentence(comparison.whole)]), *(macros.paragraph(f"Note: {note}.") for note in notes))
    return section("verdict", "Result", *parts, docs=_DOCS)


def _causes(comparison: Comparison) -> Section | None:
    """Return a bar per side, split by causes in the order of their time in control, or None unless both sides have causes."""
    if not all(totals(comparison.whole.causes)):
        return None
    windows = len(comparison.pairs)
    order = sorted(comparison.whole.causes, key=lambda cause: (-cause.control_ns, -cause.test_ns))
    sides = [
        (side, [(cause.name, ns / windows) for cause in order if (ns := getattr(cause, f"{side}_ns"))])
        for side in ("control", "test")
    ]
    note = f"Means of {windows} windows." if windows > 1 else ""
    return section("causes", "Where the time goes", cause_bars(sides), note=note, docs=("why.md", "why"))


def _work(comparison: Comparison) -> Section | None:
    if not comparison.whole.rows:
        return None
    windows = len(comparison.pairs)
    return section(
        "work",
        f"{_what(comparison)} by {comparison.by}",
        macros.figure(waterfall_of(comparison), "one of the sides was recorded without GPU work"),
        _rows(comparison.whole.rows, windows),
        note=f"Means of {windows} windows." if windows > 1 else "",
    )


def _what(comparison: Comparison) -> str:
    """Return the name of the time that the rows add up to. Causes add up to all time of the windows."""
    return "Time" if comparison.by == CAUSE else "GPU time"


def waterfall_of(comparison: Comparison) -> str | None:
    """Return SVG of the largest changes and of the sum of all others, or None without GPU time on both sides.

    Times are means of the windows.
    """
    if comparison.by != CAUSE and not comparison.whole.has_gpu_time:
        return None
    windows = len(comparison.pairs)
    control, test = (ns / windows for ns in totals(comparison.whole.rows))
    changed = [change for change in comparison.whole.rows if change.diff_ns]
    steps = [
        Step(
            in_words(change, comparison.by),
            change.diff_ns / windows,
            difference(change.diff_ns / windows),
            _says(change, windows),
        )
        for change in changed[:_BARS]
    ]
    if unlisted := changed[_BARS:]:
        ns = sum(change.diff_ns for change in unlisted) / windows
        steps.append(Step(f"{len(unlisted)} others", ns, difference(ns), f"{len(unlisted)} others: {difference(ns)}"))
    what = _what(comparison)
    title = f"{what} by {comparison.by}: {percent(control, test)}"
    return waterfall(title, (control, time(control)), (test, time(test)), steps, what.replace("Time", "time"))


def _says(change: Difference, windows: int) -> str:
    times = f"{time(change.control_ns / windows)} in control, {time(change.test_ns / windows)} in test"
    return f"{change.name}: {times}; {change.control_n:,} and {change.test_n:,} times"


def _rows(rows: Sequence[Difference], windows: int) -> Markup:
    records = [
        {**vars(row), **{key: getattr(row, key) / windows for key in ("control_ns", "test_ns", "diff_ns")}}
        for row in rows
    ]
    return table("compared-work", records)


def _places(comparison: Comparison) -> Section | None:
    if len(comparison.places) < 2:
        return None
    return section("ranks", "Rank by rank", table("compared-ranks", [*map(_place, comparison.places)]))


def _place(part: Part) -> dict[str, Any]:
    control, test = lengths(part.pairs)
    gpu, is_known = totals(part.categories), part.has_gpu_time
    return {
        "where": part.pairs[0].where,
        "control_ns": control,
        "test_ns": test,
        "change": percent(control, test),
        "diff_ns": (gpu.test_ns - gpu.control_ns) / len(part.pairs) if is_known else None,
        "most": changed_most(part) if is_known else "",
    }


def _steps(comparison: Comparison) -> Section | None:
    if len(comparison.pairs) < 2:
        return None
    rows = []
    for step in comparison.pairs:
        control_ns, test_ns, is_known = (
            step.pair.control.duration_ns,
            step.pair.test.duration_ns,
            all(gpu_time_known([step.pair])),
        )
        most = (
            f"{difference(step.gpu.changed_ns)} {step.gpu.changed_name}" if step.gpu.changed_name and is_known else ""
        )
        times = {"control_ns": control_ns, "test_ns": test_ns, "change": percent(control_ns, test_ns)}
        gpu = percent(step.gpu.control_ns, step.gpu.test_ns) if is_known else None
        rows.append({"window": named(step.pair) or "the whole trace", **times, "gpu": gpu, "most": most})
    return section("steps", "Step by step", table("compared-steps", rows))


def _host(comparison: Comparison) -> Section | None:
    rows = [row for row in comparison.whole.host if row.change != "unchanged"]
    if not rows:
        return None
    note = (
        "Self time of operators, calls, annotations and Python functions, without the events inside them; all threads."
    )
    return section("host", "On the host", _rows(rows, len(comparison.pairs)), note=note)
