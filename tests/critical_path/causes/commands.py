"""What the commands beside numbers answer, on a window that is loaded once for all of them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb

from pipelines.critical_path.causes.of_window import causes_of, without_profiler_of
from pipelines.critical_path.graph.windows import WindowRequest
from pipelines.critical_path.whatif.before_after import what_if
from pipelines.critical_path.whatif.scenario import of_options
from pipelines.critical_path.whatif.window import Window, load
from pipelines.faces.why import TABLES, Why, why
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from tests.harness import connect

TRACE = "trace.json"
"""What commands call the trace."""


@dataclass(frozen=True)
class Told:
    """A number that stands beside a command, us."""

    command: str
    saves_us: float


@dataclass
class Asked:
    """A whole trace that is asked by command."""

    con: duckdb.DuckDBPyConnection
    trace_id: str

    @cached_property
    def window(self) -> Window:
        loaded = load(self.con, load_catalog(), WindowRequest(self.trace_id))
        return replace(loaded, causes=causes_of(self.con, load_catalog(), loaded))

    @cached_property
    def without_profiler(self) -> Window:
        return without_profiler_of(self.con, load_catalog(), self.window)

    def why(self, *, without_profiler: bool | None = None) -> Why:
        run_models(self.con, load_catalog(), TABLES)
        answer = why(self.con, self.trace_id, without_profiler=without_profiler)
        assert answer
        return answer

    def saves_us(self, command: str) -> float:
        """What a command of what-if says that the window is shorter by."""
        options = _options(command)
        window = self.without_profiler if options.pop("--without-profiler") else self.window
        scenario = of_options(
            options["--scale"], options["--remove"], bool(options["--perfect-overlap"]), options["--ahead"]
        )
        (answer,) = what_if(window, [scenario])
        return answer.before.length_us - answer.after.length_us


def _options(command: str) -> dict[str, list[str]]:
    program, subcommand, trace, *words = shlex.split(command)
    assert (program, subcommand, trace) == ("tracelake", "what-if", TRACE)
    options: dict[str, list[str]] = {
        name: [] for name in ("--scale", "--remove", "--ahead", "--perfect-overlap", "--without-profiler")
    }
    rest = iter(words)
    for word in rest:
        options[word].append(word if word in ("--perfect-overlap", "--without-profiler") else next(rest))
    return options


@contextmanager
def asked(trace: list[dict] | dict | Path) -> Iterator[Asked]:
    con, trace_id = connect(trace)
    with con:
        yield Asked(con, trace_id)


def told(answer: dict[str, Any]) -> Iterator[Told]:
    """All numbers of `why --json` with the commands that give them, each command once."""
    seen = set[tuple[str, float]]()
    rows = [(row["command"], row["saves_us"]) for row in (*answer["fixes"], *answer["causes"])]
    rows += [(row["cause_command"], row["cause_saves_us"]) for row in answer["causes"]]
    for command, saves_us in rows:
        if saves_us is not None and (command, saves_us) not in seen:
            seen.add((command, saves_us))
            yield Told(command, saves_us)
