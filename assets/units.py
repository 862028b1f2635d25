"""Work on a lake in units, for a lake at an address, whose files Dagster cannot write in place.

Units are committed to that lake. Dagster's own record of finished files is in a folder on this machine.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import dagster as dg

from pipelines.base.foreign_text import visible
from pipelines.base.paths import path_text
from pipelines.engines.in_process import InProcess
from pipelines.engines.isolated import ingest_in_child
from pipelines.engines.run import Followed, ingest_on, materialize_on
from pipelines.engines.work_units import groups_of
from pipelines.lake import Lake
from pipelines.lake.commit.ingested_files import settle, states_of
from pipelines.readers.ingest import outcomes
from pipelines.readers.inputs import TraceRow


def ingest_units(
    address: str, folder: Lake, files: Sequence[Path], job: str | None, isolate: bool, log: Callable[[TraceRow], None]
) -> Followed:
    """Ingest files and compute the tables of their traces. A unit of files is one transaction.

    `folder`: contains the record of finished files. `isolate`: ingest each group of related files in a separate
    process.
    """
    states, run = states_of(files), Followed()
    if files and isolate:
        for group in groups_of(files):
            part = ingest_in_child(address, group.items, job)
            run.rows += part.rows
            run.failed += part.failed
    elif files:
        run = ingest_on(InProcess(), address, files, job)
    for row in run.rows:
        log(row)
    _settle(folder, states, run)
    return run


def materialize_units(address: str, tables: Sequence[str]) -> Iterator[dg.MaterializeResult]:
    """Update the tables that are missing or were computed by another version of their models.

    Yield one result per table. Fail the step if a unit failed.
    """
    run = materialize_on(InProcess(), address, tables)
    fail_units(run, allow_retries=True)
    for name in tables:
        yield dg.MaterializeResult(name, metadata={"units": run.n_done, "worker_cpu_seconds": run.cpu_seconds})


def fail_units(run: Followed, allow_retries: bool) -> None:
    """Fail the Dagster step if a unit of the run failed."""
    if run.failed:
        message = f"{len(run.failed)} units failed, the first: {visible(run.failed[0].error)}"
        raise dg.Failure(message, allow_retries=allow_retries)


def _settle(lake: Lake, states: dict[Path, str], run: Followed) -> None:
    """Record which files are done. Files of failed units are not recorded, so the next run repeats them."""
    failed = {item for unit in run.failed for item in unit.items}
    lake.root.mkdir(parents=True, exist_ok=True)
    done = {path: state for path, state in states.items() if path_text(path) not in failed}
    settle(lake, outcomes(done, run.rows))
