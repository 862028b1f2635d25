"""`tracelake what-if` on the folder of a capture: all its ranks retimed together."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from pipelines.base import units
from pipelines.base.foreign_text import visible
from pipelines.faces.cli.console import new_table, out, print_json, styled
from pipelines.faces.cli.fleet.opened_capture import opened_capture
from pipelines.faces.cli.trace.path_tables import tell_inferred

if TYPE_CHECKING:
    from pipelines.critical_path.whatif.scenario import Scenario
    from pipelines.fleet.path.retimed import CaptureGain

_RANKS = 16


def capture_what_if(folder: str, lake: Path | str, scenarios: list[Scenario], json: bool) -> None:
    """Print the gain of each scenario for the whole capture, and when each rank ends. Exit if there is no answer."""
    from pipelines.fleet.collectives.evidence import evidence_in_words
    from pipelines.fleet.path.answer import find_capture
    from pipelines.fleet.path.load_capture import TABLES, load_capture
    from pipelines.runs.store import open_store

    with opened_capture([folder], lake, TABLES) as (con, id_prefix):
        # A lake that was just created from files has no stored graphs.
        graph_lake = open_store(lake).lake if id_prefix else None
        capture = load_capture(con, find_capture(con, id_prefix), graph_lake, scenarios)
        gains = [capture.gain(scenario) for scenario in scenarios]
    if json:
        documents = [gain.as_json() for gain in gains]
        print_json(
            documents[0]
            if len(documents) == 1
            else [{"name": g.scenario.name, **t} for g, t in zip(gains, documents, strict=True)]
        )
        return
    for gain in gains:
        out.print(_table(folder, gain))
    for caveat in dict.fromkeys(caveat for gain in gains for caveat in gain.caveats):
        out.print(styled("[yellow]caveat[/]: {}", caveat))
    if gains[0].matched_by:
        out.print(evidence_in_words(gains[0].matched_by))
    tell_inferred(gains[0].inferred_waits)


def _table(folder: str, gain: CaptureGain) -> Table:
    scenario_name = f", {gain.scenario.name}" if gain.scenario.name else ""
    change = f" ({100 * (gain.after_us / gain.before_us - 1):+.1f} %)" if gain.before_us else ""
    heading = f"{visible(Path(folder).name + scenario_name)}: the capture takes {units.time_us(gain.after_us)} instead of {units.time_us(gain.before_us)}{change}"
    table = new_table(">rank", ">ends before", ">ends after", title=heading, min_width=len(heading))
    for rank, (before, after) in list(gain.ranks.items())[:_RANKS]:
        table.add_row(str(rank), units.time_us(before), units.time_us(after))
    n_more = len(gain.ranks) - _RANKS
    if n_more > 0:
        table.caption = f"and {n_more} more ranks"
    return table
