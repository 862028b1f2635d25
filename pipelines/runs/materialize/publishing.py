"""The end of every run, which publishes once.

If a run is killed before it publishes, the old analysts' file stays. The next run, or the next access to the lake,
publishes (see `is_published` in pipelines/lake/publish/analyst_file.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pipelines.base.stopping import raise_if_stopped
from pipelines.lake.lake import Lake
from pipelines.lake.names import Batch
from pipelines.lake.publish.analyst_file import publish
from pipelines.runs.materialize.computed_tables import is_complete, look, note_complete


@dataclass(frozen=True)
class Materialized:
    """A table's written file, with its row count and the seconds for running its model and writing the file."""

    table: str
    batch: Batch
    n_rows: int
    seconds: float


def run_and_publish(
    lake: Lake,
    steps: Iterator[Materialized],
    tables: Sequence[str],
    of_all: bool,
    force: bool,
    and_publish: bool = True,
) -> list[Materialized]:
    """Take all steps, then publish. If a step fails, publish the results of earlier steps.

    `tables`: the tables that the steps update. `of_all`: whether the steps cover the whole lake. If the tables are
    known to be complete, take no step, unless `force` is set. Without `and_publish`, only a failed run publishes,
    because otherwise the caller publishes at its end. Raise the errors of the steps and of `publish`.
    """
    catalog = lake.catalog()
    if not force and is_complete(lake, catalog, tables):
        return []
    before = look(lake) if of_all else None
    done: list[Materialized] = []
    try:
        for step in steps:
            done.append(step)
    except Exception as error:
        raise_if_stopped(error)
        if done:
            publish(lake, catalog)
        raise
    if and_publish:
        publish(lake, catalog)
    if before and (and_publish or not done):  # otherwise the caller has yet to publish the results
        note_complete(lake, catalog, tables, before, [(step.table, step.batch) for step in done])
    return done
