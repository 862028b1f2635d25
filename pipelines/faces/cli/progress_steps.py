"""Steps of a computation: their description in words, and their number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pipelines.faces.cli.console import progress

if TYPE_CHECKING:
    from pipelines.models.catalog import Catalog

_WORDS = {
    "ingest": "reading events",
    "canonical": "sorting events into threads and streams",
    "gpu": "linking GPU work to its launches",
    "cpu": "nesting operators into call stacks",
    "sync": "matching waits to what they wait for",
    "critical_path": "building the dependency graph",
    "summary": "summing up",
    "modelling": "counting operations and time of spans",
    "fleet": "comparing ranks",
    "rules": "reading rules",
    "schedule": "following runs of schedules",
}
_OF_TABLES = {
    "longest_path": "finding the longest path",
    "event_slack": "finding out how late events may be",
    "clock_offsets": "aligning the clocks of the ranks",
    "capture_critical_path": "finding the path through the ranks",
    "straggler_ranks": "finding out who waits for whom",
}


@contextmanager
def model_progress(catalog: Catalog, tables: Iterable[str], what: str = "computing") -> Iterator[Callable[[str], None]]:
    """Show the progress of computing these tables. Yield a callback that takes the name of each model that runs."""
    with progress(steps_for(catalog, tables), what) as advance:
        yield lambda step: advance(1, in_words(catalog, step))


def in_words(catalog: Catalog, step: str) -> str:
    """Return the description of a step, with its table: `building the dependency graph (critical_path_edges)`.

    `step`: the table's name, optionally followed by more words. Return it unchanged if it does not begin with a model's name.
    """
    name, _, more = step.partition(" ")
    model = catalog.models.get(name)
    if model is None:
        return step
    description = _OF_TABLES.get(name) or _WORDS.get(model.layer, f"computing {model.layer}")
    return f"{description} ({name.lstrip('_')}{' ' + more if more else ''})"


def steps_for(catalog: Catalog, tables: Iterable[str]) -> int:
    """Return the number of models that run to compute these tables, each counted once."""
    known = (name for name in tables if name in catalog.models)
    names = catalog.closure(known, through=lambda model: model.kind != "lake")
    return sum(catalog.models[name].kind != "lake" for name in names)
