"""Dagster steps that run work units on a cluster, one for files and one for captures.

The engine retries failed units.
"""

import dagster as dg

from assets.metadata import markdown_table
from assets.results import fail
from assets.traces import REJECTED_TAG, files_to_read
from pipelines.base.foreign_text import visible
from pipelines.base.paths import text_path
from pipelines.engines.engine import Done
from pipelines.engines.open_engine import open_engine
from pipelines.engines.run import Followed, ingest_on, materialize_on
from pipelines.lake.publish.analyst_file import publish
from pipelines.runs.left_out import left_out_at
from pipelines.runs.store import Store


class EngineConfig(dg.Config):
    """The engine that runs the units, and the `store` they are committed to (an address, by default the lake's)."""

    engine: str = "in-process"
    address: str | None = None
    store: str | None = None


class FilesConfig(EngineConfig):
    """The files to use, as `path_text` writes them. Without `files`, the files in the watched folder."""

    files: list[str] | None = None
    job: str | None = None


@dg.op(out=dg.Out(dg.Nothing))
def ingest_units(context: dg.OpExecutionContext, config: FilesConfig, store: dg.ResourceParam[Store]) -> None:
    """Ingest and model files in units on an engine. Fail the step if a unit failed, after all others are committed."""
    files = [text_path(name) for name in config.files] if config.files is not None else list(files_to_read())
    with open_engine(config.engine, config.address) as engine:
        _tell(context, ingest_on(engine, config.store or store.address, files, config.job, on_unit=_log(context)))


@dg.op(ins={"after": dg.In(dg.Nothing)}, out=dg.Out(dg.Nothing))
def capture_units(context: dg.OpExecutionContext, config: EngineConfig, store: dg.ResourceParam[Store]) -> None:
    """Compute the tables of captures that changed, in units on an engine, and publish a folder lake.

    Fail the step at its end if a unit failed, or if a trace is missing from a table because a model failed on it.
    """
    with open_engine(config.engine, config.address) as engine:
        run = materialize_on(engine, config.store or store.address, on_unit=_log(context))
    if config.store is None and store.lake:
        publish(store.lake)
    _tell(context, run)
    address = config.store or store.address
    if missing := left_out_at(address):
        fail(missing, address)


def _log(context: dg.OpExecutionContext):
    def on_unit(so_far: Followed, done: Done) -> None:
        ended = "done" if done.error is None else f"failed after {done.attempts} attempts: {visible(done.error)}"
        context.log.info(f"unit {done.unit.name} {ended}; {so_far.n_done} of {so_far.n_units}")

    return on_unit


def _tell(context: dg.OpExecutionContext, run: Followed) -> None:
    n_rejected = sum(row.status == "rejected" for row in run.rows)
    if n_rejected:  # shown in the list of runs
        context.instance.add_run_tags(context.run_id, {REJECTED_TAG: str(n_rejected)})
    failed = [(failure.unit, len(failure.items), failure.attempts, failure.error) for failure in run.failed]
    context.add_output_metadata(
        {
            "units": run.n_done,
            "failed": len(failed),
            "files_rejected": n_rejected,
            "worker_cpu_seconds": run.cpu_seconds,
            "list": dg.MetadataValue.md(markdown_table(["unit", "files or captures", "attempts", "error"], failed)),
        }
    )
    if failed:
        raise dg.Failure(f"failed units: {len(failed)}, the first: {visible(failed[0][-1])}", allow_retries=False)
