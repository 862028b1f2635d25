"""Module whose import loads everything that a run needs.

Processes of runs are forked after the import (see code_server.py). So nothing here may start a thread, or open a file,
a database or a connection, because the forked processes would share it.
"""

import gc
import importlib
from contextlib import suppress

# Modules that a run would otherwise import lazily.
LATER = (
    "dagster._cli.api",
    "dagster._grpc.server",
    "sqlalchemy.dialects.sqlite.pysqlite",
    "alembic.command",
    "pipelines.critical_path.graph.windows",
    "pipelines.runs.materialize.per_capture",
)


def load() -> None:
    """Import the definitions and the modules of `LATER`, and resolve the largest job."""
    from dagster_project.definitions import defs
    from dagster_project.jobs import ingest_and_analyse

    defs.resolve_job_def(ingest_and_analyse.name)
    for name in LATER:
        importlib.import_module(name)


with suppress(Exception):  # the run does the same and reports the error
    load()
gc.collect()
gc.freeze()  # so that garbage collection in a forked process does not copy these pages
