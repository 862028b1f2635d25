"""The whole job in this process, for `make demo`, without daemon and logs, and with callbacks for a progress bar.

The run is in the history that `tracelake ui` shows for the lake.
"""

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from uuid import uuid4

QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


def materialize_all(
    lake_path: str | Path,
    inbox_files: Iterable[str | Path],
    on_step: Callable[[str], Any],
) -> bool:
    """Ingest files into a lake and materialize every asset. Return whether every step succeeded.

    Without files, use the traces in the lake. A failed asset check is a finding about the traces, not a failure.

    `on_step(name)` is called for each finished asset (`asset_names()` lists them).
    """
    # Importing Dagster takes two seconds, so it is imported only when needed.
    import dagster as dg

    from assets.metadata import today
    from dagster_project.definitions import definitions
    from dagster_project.serve import prepare
    from pipelines.lake.status import DAGSTER

    def heard(entry: dg.EventLogEntry) -> None:
        event = entry.dagster_event
        if event and event.is_step_materialization and event.asset_key:
            on_step(event.asset_key.to_user_string())

    run_id = str(uuid4())
    files = [str(Path(file).absolute()) for file in inbox_files]
    ops = {"ingest": {"config": {"files": files}}, "overlay": {"config": {"of": "all"}}}
    config: dict[str, Any] = {"ops": ops, **QUIET}
    whole_job = definitions(str(Path(lake_path).absolute())).resolve_job_def("ingest_and_analyse")
    home = Path(lake_path).absolute() / DAGSTER
    os.environ["DAGSTER_HOME"] = str(home)  # dagster.yaml reads it
    prepare(home)
    with dg.DagsterInstance.from_config(str(home)) as instance:
        instance.add_event_listener(run_id, heard)
        result = whole_job.execute_in_process(
            run_config=config, instance=instance, partition_key=today(), raise_on_error=False, run_id=run_id
        )
    return result.success


def asset_names() -> list[str]:
    """Return the names of the assets that a run materializes, sorted."""
    from dagster_project.definitions import defs
    from dagster_project.jobs import ingest_and_analyse

    graph = defs.resolve_asset_graph()
    chosen = ingest_and_analyse.selection.resolve(graph) & graph.materializable_asset_keys
    return sorted(key.to_user_string() for key in chosen)


if __name__ == "__main__":
    done = materialize_all(sys.argv[1], [], on_step=lambda name: print(name, flush=True))
    raise SystemExit(0 if done else 1)
