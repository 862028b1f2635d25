"""`tracelake what-if` on the folder of a capture: all its ranks retimed together."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from pipelines.base import units
from pipelines.base.foreign_text import visible
from pipelines.faces.cli.console import is_store, out, print_json, styled
from pipelines.faces.cli.fleet.opened_capture import opened_capture
from pipelines.faces.cli.trace.path_tables import tell_inferred

if TYPE_CHECKING:
    from pipelines.critical_path.whatif.scenario import Scenario
    from pipelines.fleet.path.retimed import CaptureGain

_RANKS = 16


def capture_what_if(folder: str, lake: Path | str, scenarios: list[Scenario], json: bool) -> None:
    """Print what each scenario gains of the whole capture, and when each rank ends; exits where there is no answer."""
    from pipelines.fleet.collectives.evidence import evidence_in_words
    from pipelines.fleet.path.answer import find_capture
    from pipelines.fleet.path.load_capture import TABLES, load_capture
    from pipelines.lake import Lake

    with opened_capture([folder], lake, TABLES) as (con, beginning):
        # Of files a lake was made just now, which has no graphs.
        there = Lake(lake) if beginning and not is_store(lake) else None
        whole = load_capture(con, find_capture(con, beginning), there, scenarios)
        found = [whole.gain(scenario) for scenario in scenarios]
    if json:
        told = [gain.as_json() for gain in found]
        print_json(
            told[0] if len(told) == 1 else [{"name": g.scenario.name, **t} for g, t in zip(found, told, strict=True)]
        )
        return
    for gain in found:
        out.print(_table(folder, gain))
    for caveat in dict.fromkeys(caveat for gain in found for caveat in gain.caveats):
        out.print(styled("[yellow]caveat[/]: {}", caveat))
    if found[0].matched_by:
        out.print(evidence_in_words(found[0].matched_by))
    tell_inferred(found[0].inferred_waits)


def _table(folder: str, gain: CaptureGain) -> Table:
    what = f", {gain.scenario.name}" if gain.scenario.name else ""
    change = f" ({100 * (gain.after_us / gain.before_us - 1):+.1f} %)" if gain.before_us else ""
    heading = f"{visible(Path(folder).name + what)}: the capture takes {units.time_us(gain.after_us)} instead of {units.time_us(gain.before_us)}{change}"
    table = Table(title=heading, title_justify="left", min_width=len(heading))
    for name in ("rank", "ends before", "ends after"):
        table.add_column(name, justify="right")
    for rank, (before, after) in list(gain.ranks.items())[:_RANKS]:
        table.add_row(str(rank), units.time_us(before), units.time_us(after))
    left = len(gain.ranks) - _RANKS
    if left > 0:
        table.caption, table.caption_justify = f"and {left} more ranks", "left"
    return table
