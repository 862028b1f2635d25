"""The benchmark's tables."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from bench.processes import Runs

# The widest table has ten columns. If the output is not a terminal (CI, a pipe), rich assumes 80 columns and folds
# every cell. A narrow terminal wraps lines instead, which keeps the numbers whole.
_WIDTH = 150
broken: list[str] = []
"""The rows that missed their floor, or were not measured."""
_HTA_SECONDS = 13.3
"""CPU seconds of HTA's path of v100_54mb_rank1 on the machine where the floors in seconds were set (12.9 and 13.8)."""
_slower = 1.0
console = Console()
if console.width < _WIDTH:
    console = Console(width=_WIDTH)


@dataclass(frozen=True)
class Floor:
    """A bound that the issue sets. `at_least`: whether it is a lower bound, else an upper bound.

    `of_the_machine`: whether the bound is in seconds or per second. It is then scaled by how much slower HTA runs on
    this machine than on the machine where the bound was set.
    """

    bound: float
    at_least: bool = True
    unit: str = "x"
    of_the_machine: bool = False

    def mark(self, value: float, what: str) -> str:
        """Return the bound with a mark for whether the value meets it. If not, append `what` to `broken`."""
        bound = self._here()
        held = value >= bound if self.at_least else value <= bound
        if not held:
            broken.append(f"{what}: {value:.2f}{self.unit}, {'at least' if self.at_least else 'at most'} {bound:.3g}")
        if math.isnan(value):
            return "[red]not measured[/]"
        sign, colour = ("✓", "green") if held else ("✗", "red")
        return f"[{colour}]{sign} {'≥' if self.at_least else '≤'} {bound:.3g}{self.unit}[/]"

    def _here(self) -> float:
        if not self.of_the_machine:
            return self.bound
        return self.bound / _slower if self.at_least else self.bound * _slower


@dataclass(frozen=True)
class Line:
    """One comparison of two commands on one file."""

    what: str
    theirs: Runs
    ours: Runs
    speed_floor: Floor | None = None
    memory_floor: Floor | None = None


def calibrate(hta_path: Runs) -> None:
    """Scale floors in seconds by HTA's path of v100_54mb_rank1 on this machine, and print the factor."""
    global _slower
    if hta_path.failed:
        return
    _slower = hta_path.cpu_seconds / _HTA_SECONDS
    console.print(
        f"HTA's path takes {hta_path.cpu_seconds:.1f} CPU s here and {_HTA_SECONDS} where the floors in seconds were set: "
        f"they are taken times {_slower:.2f}"
    )


def seconds(value: float) -> str:
    """Format a time in seconds, or return `failed` for NaN."""
    return "[red]failed[/]" if math.isnan(value) else f"{value:.2f} s"


def mebibytes(value: float) -> str:
    """Format a size in MiB, or return `failed` for NaN."""
    return "[red]failed[/]" if math.isnan(value) else f"{value:,.0f} MiB"


def times(value: float) -> str:
    """Format a ratio, or return an empty text for NaN."""
    return "" if math.isnan(value) else f"{value:.2f}x" if value < 10 else f"{value:.1f}x"


def against_hta(title: str, lines: list[Line]) -> None:
    """Print the wall time and peak memory of HTA and tracelake next to each other."""
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
            line.speed_floor.mark(faster, f"{title}, {line.what}, speed") if line.speed_floor else "",
            mebibytes(line.theirs.rss_mib),
            mebibytes(line.ours.rss_mib),
            times(smaller),
            line.memory_floor.mark(smaller, f"{title}, {line.what}, memory") if line.memory_floor else "",
        )
    console.print(table)
    failures(*(runs for line in lines for runs in (line.theirs, line.ours)))


def against_gzip(title: str, lines: list[Line]) -> None:
    """Print the time of ingestion compared with decompression alone, and its peak memory."""
    table = _table(title, ("file", "runs", "gzip -dc", "ingest", "ingest / gzip", "floor", "ingest peak", "floor"))
    for line in lines:
        ratio = line.ours.seconds / line.theirs.seconds
        table.add_row(
            line.what,
            str(len(line.ours.runs)),
            seconds(line.theirs.seconds),
            seconds(line.ours.seconds),
            times(ratio),
            line.speed_floor.mark(ratio, f"{title}, {line.what}") if line.speed_floor else "",
            mebibytes(line.ours.rss_mib),
            line.memory_floor.mark(line.ours.rss_mib, f"{title}, {line.what}, memory") if line.memory_floor else "",
        )
    console.print(table)
    failures(*(runs for line in lines for runs in (line.theirs, line.ours)))


def longest_path(title: str, theirs: list, ours: list, speed: Floor, memory: Floor) -> None:
    """Print the longest path of plain networkx and of tracelake, as medians over runs.

    `theirs` and `ours` contain for each run the process's JSON output and its peak memory, MiB.
    """
    table = _table(title, ("graph", "runs", "build", "longest path", "together", "nodes", "edges", "peak"))
    totals: list[tuple[float, float]] = []
    for name, runs in (("networkx.DiGraph", theirs), ("tracelake", ours)):
        build, path, total = (
            statistics.median(sum(said[part] for part in parts) for said, _ in runs)
            for parts in (("build_s",), ("path_s",), ("build_s", "path_s"))
        )
        peak = statistics.median(rss for _, rss in runs)
        totals.append((total, peak))
        said = runs[0][0]
        sizes = (f"{said['nodes']:,}", f"{said['edges']:,}", mebibytes(peak))
        table.add_row(name, str(len(runs)), seconds(build), seconds(path), seconds(total), *sizes)
    console.print(table)
    faster, smaller = (a / b for a, b in zip(*totals, strict=True))
    paths = {said["hash"] for said, _ in theirs + ours}
    same = "[green]the same path[/]" if len(paths) == 1 else "[red]DIFFERENT paths[/]"
    console.print(
        f"{same}; ours {times(faster)} faster {speed.mark(faster, title)}, with {times(smaller)} less memory {memory.mark(smaller, f'{title}, memory')}"
    )


def alone(title: str, lines: list[tuple[str, Runs, float, Floor | None]]) -> None:
    """Print CPU time and peak memory of commands that HTA does not have.

    Each line also has a measured value and its floor.

    `lines`: (command, runs, value, floor). The value is CPU time, a ratio of CPU times, or traces per second.
    """
    table = _table(title, ("command", "runs", "CPU", "measured", "floor", "peak"))
    for what, runs, value, floor in lines:
        mark = floor.mark(value, f"{title}, {what}") if floor else ""
        shown = f"{value:.2f}{floor.unit if floor else ''}"
        table.add_row(what, str(len(runs.runs)), seconds(runs.cpu_seconds), shown, mark, mebibytes(runs.rss_mib))
    console.print(table)
    failures(*(runs for _, runs, _, _ in lines))


def failures(*all_runs: Runs) -> None:
    """Print the reason for each command that failed."""
    for runs in all_runs:
        if runs.failed:
            console.print(f"[red]failed:[/] {runs.failed}", markup=True, highlight=False)


def _table(title: str, columns: tuple[str, ...]) -> Table:
    table = Table(title=title, title_justify="left")
    for n, name in enumerate(columns):
        table.add_column(name, justify="left" if n == 0 else "right", overflow="fold")
    return table
