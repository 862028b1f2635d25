"""Importing this loads what a run needs. The processes of runs are copies of one that has imported it: see code_server.py.

Nothing here may start a thread, or open a file, a database or a connection: a copy would share it.
"""

import gc
import importlib
from contextlib import suppress

# Imported by a run when it comes to them.
LATER = (
    "dagster._cli.api",
    "dagster._grpc.server",
    "sqlalchemy.dialects.sqlite.pysqlite",
    "alembic.command",
    "pipelines.critical_path.graph.windows",
    "pipelines.runs.materialize.per_capture",
)


def load() -> None:
    """Import it, and resolve the largest job."""
    from dagster_project.definitions import defs
    from dagster_project.jobs import ingest_and_analyse

    defs.resolve_job_def(ingest_and_analyse.name)
    for name in LATER:
        importlib.import_module(name)


with suppress(Exception):  # the run, which does the same, says what is wrong
    load()
gc.collect()
gc.freeze()  # so that collecting garbage in a copy does not copy all of this
