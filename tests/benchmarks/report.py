"""The benchmark's tables."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from tests.benchmarks.processes import Runs

# The widest table has ten columns. Where the output is no terminal (CI, a pipe) rich takes it for 80 columns and folds
# every cell; a narrow terminal wraps lines, which keeps the numbers whole.
_WIDTH = 150
console = Console()
if console.width < _WIDTH:
    console = Console(width=_WIDTH)


@dataclass(frozen=True)
class Floor:
    """A bound that the issue sets; `at_least` False: the value may not be larger. Nothing else depends on it."""

    bound: float
    at_least: bool = True
    unit: str = "x"

    def mark(self, value: float) -> str:
        """The bound with a mark: held or not."""
        if math.isnan(value):
            return "[dim]not measured[/]"
        held = value >= self.bound if self.at_least else value <= self.bound
        sign, colour = ("✓", "green") if held else ("✗", "red")
        return f"[{colour}]{sign} {'≥' if self.at_least else '≤'} {self.bound:g}{self.unit}[/]"


@dataclass(frozen=True)
class Line:
    """One comparison of two commands on one file."""

    what: str
    theirs: Runs
    ours: Runs
    speed_floor: Floor | None = None
    memory_floor: Floor | None = None


def seconds(value: float) -> str:
    """A time in seconds, or `failed`."""
    return "[red]failed[/]" if math.isnan(value) else f"{value:.2f} s"


def mebibytes(value: float) -> str:
    """A size, or `failed`."""
    return "[red]failed[/]" if math.isnan(value) else f"{value:,.0f} MiB"


def times(value: float) -> str:
    """A ratio, or nothing."""
    return "" if math.isnan(value) else f"{value:.2f}x" if value < 10 else f"{value:.1f}x"


def against_hta(title: str, lines: list[Line]) -> None:
    """Print HTA's and our wall time and peak memory side by side."""
    columns = ("task", "runs", "HTA", "tracelake", "faster", "floor", "HTA peak", "tracelake peak", "smaller", "floor")
    table = _table(title, columns)
    for line in lines:
        faster = line.theirs.seconds / line.ours.seconds
        smaller = line.theirs.rss_mib / line.ours.rss_mib
        table.add_row(
            line.what,
            str(len(line.theirs.runs)),
            seconds(line.theirs.seconds),
            seconds(line.ours.seconds),
            times(faster),
            line.speed_floor.mark(faster) if line.speed_floor else "",
            mebibytes(line.theirs.rss_mib),
            mebibytes(line.ours.rss_mib),
            times(smaller),
            line.memory_floor.mark(smaller) if line.memory_floor else "",
        )
    console.print(table)
    failures(*(runs for line in lines for runs in (line.theirs, line.ours)))


def against_gzip(title: str, lines: list[Line]) -> None:
    """Print what ingestion takes against unpacking alone, and its peak memory."""
    table = _table(title, ("file", "runs", "gzip -dc", "ingest", "ingest / gzip", "floor", "ingest peak", "floor"))
    for line in lines:
        ratio = line.ours.seconds / line.theirs.seconds
        table.add_row(
            line.what,
            str(len(line.ours.runs)),
            seconds(line.theirs.seconds),
            seconds(line.ours.seconds),
            times(ratio),
            line.speed_floor.mark(ratio) if line.speed_floor else "",
            mebibytes(line.ours.rss_mib),
            line.memory_floor.mark(line.ours.rss_mib) if line.memory_floor else "",
        )
    console.print(table)
    failures(*(runs for line in lines for runs in (line.theirs, line.ours)))


def longest_path(title: str, rows: list[tuple[str, dict[str, float], float]]) -> None:
    """Print networkx's own longest path and ours: (name, what it said, peak MiB)."""
    table = _table(title, ("graph", "build", "longest path", "nodes", "edges", "peak"))
    for name, said, rss in rows:
        sizes = (f"{said['nodes']:,}", f"{said['edges']:,}")
        table.add_row(name, seconds(said["build_s"]), seconds(said["path_s"]), *sizes, mebibytes(rss))
    console.print(table)
    (_, first, _), (_, second, _) = rows
    ratio = first["path_s"] / second["path_s"]
    same = "[green]the same path[/]" if first["hash"] == second["hash"] else "[red]DIFFERENT paths[/]"
    console.print(f"{same}; ours {times(ratio)} faster, not counting the graph that networkx has to build")


def failures(*all_runs: Runs) -> None:
    """Print why commands failed."""
    for runs in all_runs:
        if runs.failed:
            console.print(f"[red]failed:[/] {runs.failed}", markup=True, highlight=False)


def _table(title: str, columns: tuple[str, ...]) -> Table:
    table = Table(title=title, title_justify="left")
    for n, name in enumerate(columns):
        table.add_column(name, justify="left" if n == 0 else "right", overflow="fold")
    return table
