"""Tables of a critical path: its caveats, the owners of its time, its boundedness, the next longest paths."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.table import Table
from rich.text import Text

from pipelines.base import units
from pipelines.base.foreign_text import visible
from pipelines.base.kernel_names import short_name
from pipelines.faces.cli.caveats import is_noted
from pipelines.faces.cli.console import new_table, out, styled
from pipelines.faces.cli.narrow_tables import Kind, fitted_table
from pipelines.faces.words import in_words

_WIDTH = 110  # characters, of the table of owners (table critical_path_by_owner contains their full names)
_WORDS = {
    "kernel": "kernel",
    "gpu_memcpy": "copy",
    "gpu_memset": "fill",
    "cpu_op": "operator",
    "cuda_runtime": "call",
    "cuda_driver": "call",
    "user_annotation": "annotation",
    "python_function": "Python",
    None: "gap",
}
"""Display names of the categories."""


def print_caveats(caveats: Iterable[dict[str, Any]]) -> None:
    """Print caveats in their order, except the caveats that are already printed above the answer."""
    for caveat in caveats:
        if is_noted(caveat["detail"]):
            continue
        colour = {"error": "red", "warning": "yellow"}.get(caveat["severity"], "dim")
        out.line(f"[{colour}]{{}}[/]: {{}}", caveat["severity"], caveat["detail"])


def tell_inferred(n: int) -> None:
    """Print below an answer that `n` waits of its graph are inferred. Print nothing if `n` is 0."""
    if n:
        waits = "wait of this graph is" if n == 1 else "waits of this graph are"
        out.print(styled("[yellow]caveat[/]: {:,} {} inferred: no cuda_sync events show them", n, waits))


def owners_table(title: str, answer: Any, owners: list[dict[str, Any]]) -> Table:
    """Return a table of the window's time by owner."""
    rows = [
        (
            visible(row["owner"] or "(no name)"),
            _WORDS.get(row["owner_cat"], row["owner_cat"] or ""),
            in_words(row["bound_by"] or "(none)"),
            f"{row['duration_ns'] / answer.length_us / 10:.2f}" if answer.length_us else "",
            units.time(row["duration_ns"]),
        )
        for row in owners
    ]
    headings = ("~where the time goes", "~is a", "~bound by", ">~percent", ">~time")
    kinds = [Kind.NAME, *[Kind.WHOLE] * 4]
    n_more = owners[0]["n_owners"] - len(owners)
    more_time = units.time_us((owners[0]["all_ns"] - sum(row["duration_ns"] for row in owners)) / 1000)
    more = f"and {n_more:,} more owner{'s' if n_more > 1 else ''}, {more_time}" if n_more else None
    heading = _heading(title, answer)
    options = {"title": heading, "min_width": len(heading), "caption": more}
    return fitted_table(headings, rows, kinds, min(out.width, _WIDTH), **options)


def _heading(title: str, answer: Any) -> str:
    covered = f", {100 * answer.length_us / answer.window_us:.1f} % of the window" if answer.window_us else ""
    return f"critical path of {visible(title)}: {units.time_us(answer.length_us)}{covered}; {answer.nodes:,} nodes, {answer.edges:,} edges"


def path_table(title: str, answer: Any) -> Table:
    """Return a table of the critical path by boundedness. An empty title means that the table of owners precedes it."""
    heading = _heading(title, answer) if title else None
    options = {"min_width": len(heading or ""), "caption": _by_data(answer)}
    table = new_table("bound by", ">percent", ">time", title=heading, **options)
    for bound_by, percent in answer.summary.items():
        if percent:
            table.add_row(
                in_words(bound_by or "(none)"), f"{percent:.2f}", units.time_us(answer.length_us * percent / 100)
            )
    return table


def _by_data(answer: Any) -> str | None:
    dependencies = answer.dependencies
    if dependencies["mode"] == "serial":
        return None
    return (
        f"data dependencies: {dependencies['joined']:,} of {dependencies['operators']:,} operators ({100 * dependencies['share']:.1f} %) joined to "
        f"{dependencies['execution_trace']} by {dependencies['method']}. Optimistic: one thread runs one operator at a time. "
        "The path does not cover the window: see docs/data-dependencies.md."
    )


def alternatives_table(answer: Any) -> Table:
    """Return a table of the next longest paths: how much shorter they are, and which kernels and operators differ."""
    table = new_table(">shorter by", "~with", "~instead of", title="the next longest paths")
    for other in answer.alternatives:
        table.add_row(units.time_us(other["shorter_by_us"]), _most_of(other["entered"]), _most_of(other["left"]))
    return table


def _most_of(events: list[dict[str, Any]], limit: int = 3) -> Text:
    named = ((event["name"] or "(no name)", units.time_us(event["duration_us"])) for event in events[:limit])
    lines = [styled("{} {}", short_name(name), time) for name, time in named]
    if len(events) > limit:
        more = sum(event["duration_us"] for event in events[limit:])
        lines.append(styled("and {} more, {}", len(events) - limit, units.time_us(more)))
    return Text("\n").join(lines)
