"""Dagster's code server, except that the process of a run is forked from a preloaded process.

Dagster starts a new Python for each run, which imports Dagster and the definitions before the first step. That takes 4
CPU seconds. The fork server of Python's standard library imports them once. Dagster still starts and ends runs and
detects killed ones.
"""

from __future__ import annotations

import multiprocessing
import time
from multiprocessing.context import BaseContext
from multiprocessing.forkserver import ensure_running
from typing import Any

from dagster import DagsterInstance
from dagster._cli.api import grpc_command
from dagster._grpc import server

_LOADED = "dagster_project.preload"
_START_BY = "_mp_ctx"  # attribute of Dagster's server with the multiprocessing context that starts runs


def forks() -> BaseContext:
    """Return a context that forks processes from a server that has imported `dagster_project.preload`."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([_LOADED])
    return context


class ForkingServer(server.DagsterApiServer):
    """Dagster's server of definitions, which starts the processes of runs by forking."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        """Accept the same arguments as Dagster's server."""
        super().__init__(*arguments, **named)
        if hasattr(self, _START_BY):  # a Dagster version without the attribute starts runs in its own way
            setattr(self, _START_BY, forks())
            ensure_running()  # start the fork server now instead of with the first run


def main() -> None:
    """Run `dagster api grpc` with its options, as `python -m dagster_project.code_server`.

    Runs are children of the code server, so runs of an earlier code server have ended. Mark them as failed first.
    """
    from dagster_project.runs_in_progress import fail_lost

    server.DagsterApiServer = ForkingServer
    with DagsterInstance.get() as instance:
        fail_lost(instance, time.time())
    grpc_command(prog_name="python -m dagster_project.code_server")


if __name__ == "__main__":
    main()
