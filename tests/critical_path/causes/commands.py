"""The results of commands printed next to a saving, computed on windows that are loaded once for all commands."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb

from pipelines.critical_path.causes import of_window
from pipelines.critical_path.causes.of_window import causes_of, without_profiler_of
from pipelines.critical_path.graph.windows import WindowRequest, request_windows, usual_windows
from pipelines.critical_path.whatif.before_after import what_if
from pipelines.critical_path.whatif.scenario import Scenario, of_options
from pipelines.critical_path.whatif.window import Window, load
from pipelines.faces.why import TABLES, Why, why
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from tests.critical_path.whatif.windows import OF_WINDOW, all_made
from tests.harness import connect_all, only

TRACE = "trace.json"
"""The path of the trace in commands."""
_OF_WINDOW = (*OF_WINDOW, "_cause_events", "_event_costs", "_window_steps")
"""Tables from which `load`, `causes_of` and `without_profiler_of` read the rows of one window."""


@dataclass(frozen=True)
class Saving:
    """A saving in us, and the command that is printed next to it."""

    command: str
    saves_us: float


@dataclass
class Asked:
    """A whole trace on which commands run. The connection may contain other traces."""

    con: duckdb.DuckDBPyConnection
    trace_id: str

    @cached_property
    def window(self) -> Window:
        self._show()
        loaded = load(self.con, all_made(), WindowRequest(self.trace_id))
        return replace(loaded, causes=causes_of(self.con, all_made(), loaded))

    @cached_property
    def without_profiler(self) -> Window:
        window = self.window
        self._show()
        return without_profiler_of(self.con, all_made(), window)

    def _show(self) -> None:
        only(self.con, self.trace_id, _OF_WINDOW, "full")

    def why(self, window_id: str = "full", *, without_profiler: bool | None = None) -> Why:
        answer = why(self.con, self.trace_id, window_id, without_profiler=without_profiler)
        assert answer
        return answer

    def whys(self) -> list[Why]:
        """Return the answers for the whole trace and for each step, as recorded."""
        windows = usual_windows(self.con, [self.trace_id])
        answers = [why(self.con, self.trace_id, window.window_id, without_profiler=False) for window in windows]
        return [answer for answer in answers if answer]

    def saves_us(self, command: str) -> float:
        """Return by how much the command of what-if shortens the window, in us."""
        program, subcommand, trace, *words = shlex.split(command)
        assert (program, subcommand, trace) == ("tracelake", "what-if", TRACE)
        window = self.without_profiler if "--without-profiler" in words else self.window
        (answer,) = what_if(window, [scenario_of(shlex.join(words))])
        return answer.before.length_us - answer.after.length_us


def scenario_of(text: str) -> Scenario:
    """Return the scenario that the options of what-if specify."""
    options = _options(shlex.split(text))
    return of_options(options["--scale"], options["--remove"], bool(options["--perfect-overlap"]), options["--ahead"])


def _options(words: list[str]) -> dict[str, list[str]]:
    options: dict[str, list[str]] = {
        name: [] for name in ("--scale", "--remove", "--ahead", "--perfect-overlap", "--without-profiler")
    }
    rest = iter(words)
    for word in rest:
        options[word].append(word if word in ("--perfect-overlap", "--without-profiler") else next(rest))
    return options


@contextmanager
def asked(trace: list[dict] | dict | Path) -> Iterator[Asked]:
    (subject,) = asked_all([trace])
    with subject.con:
        yield subject


def asked_all(
    traces: Iterable[list[dict] | dict | Path], *, steps: bool = False, tables: Iterable[str] = ()
) -> list[Asked]:
    """Return the traces in one connection; the models run once for all of them.

    With `steps`, also request `why` for their steps. `tables` are additional tables to compute.
    """
    con, trace_ids = connect_all(traces)
    if steps:
        request_windows(con, usual_windows(con, trace_ids))
    run_models(con, load_catalog(), {*TABLES, *_OF_WINDOW, *of_window._CAUSE_MODELS, "category_sides", *tables})
    return [Asked(con, trace_id) for trace_id in trace_ids]


def savings(answer: dict[str, Any]) -> Iterator[Saving]:
    """Yield all savings of `why --json` with their commands, each pair once."""
    seen = set[tuple[str, float]]()
    rows = [(row["command"], row["saves_us"]) for row in (*answer["fixes"], *answer["causes"])]
    rows += [(row["cause_command"], row["cause_saves_us"]) for row in answer["causes"]]
    for command, saves_us in rows:
        if saves_us is not None and (command, saves_us) not in seen:
            seen.add((command, saves_us))
            yield Saving(command, saves_us)
