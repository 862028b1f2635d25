"""Processes that ingest files. A file with "kills" in its name kills its reader, as running out of memory would."""

import os
import signal
import sys

import pipelines.readers.kineto.events_file
from pipelines.readers.inputs import EventInput

_read = pipelines.readers.kineto.events_file.load_events


def _read_or_die(request):
    if "kills" in request.path.name:
        os.kill(os.getpid(), signal.SIGKILL)
    if "raises" in request.path.name:
        raise RuntimeError("as no reader should")
    return _read(request)


pipelines.readers.kineto.events_file.INPUT = EventInput((), _read_or_die)


def run(lake: str, request: str) -> int:
    """Execute a run as the daemon would. `request` is the RunRequest as JSON. Return the exit status."""
    import json

    import dagster as dg

    import pipelines.readers.child_processes
    from tests.dagster.conftest import only_ingest

    pipelines.readers.child_processes._CHILD = ("-m", "tests.dagster.dying")
    asked = json.loads(request)
    with dg.DagsterInstance.ephemeral() as instance:
        job = only_ingest(lake).resolve_job_def("ingest_and_analyse")
        done = job.execute_in_process(instance=instance, raise_on_error=False, **asked)
    return 0 if done.success else 1


if __name__ == "__main__":
    if sys.argv[1] == "run":
        raise SystemExit(run(*sys.argv[2:]))
    from pipelines.readers.child_processes import main

    raise SystemExit(main())
