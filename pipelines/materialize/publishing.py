"""What a run makes, and where it ends: everything is published, once.

A run that is killed before it publishes leaves the old analysts' file; the next run or the next look at the lake publishes
(see `is_published` in pipelines/lake/publish.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pipelines.lake.layout import Batch
from pipelines.lake.publish import publish
from pipelines.lake.store import Lake


@dataclass(frozen=True)
class Materialized:
    """A table's file that was written: its rows and the seconds its own model took."""

    table: str
    batch: Batch
    n_rows: int
    seconds: float


def run_and_publish(lake: Lake, steps: Iterator[Materialized]) -> list[Materialized]:
    """Take all steps, then publish; where one fails, what was made before it is published all the same.

    Raises what the steps and `publish` raise.
    """
    done: list[Materialized] = []
    try:
        for step in steps:
            done.append(step)
    except Exception:
        if done:
            publish(lake)
        raise
    publish(lake)
    return done
