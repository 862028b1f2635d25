"""Dagster's code server, but the process of a run is a copy of one that has loaded everything, not a new Python.

Dagster starts a new Python for each run, which imports Dagster and the definitions before the first step: 4 CPU seconds. The
fork server of Python's standard library does that once. All else stays Dagster's: who starts a run, what ends it, and how a
killed one is noticed.
"""

from __future__ import annotations

import multiprocessing
from multiprocessing.context import BaseContext
from multiprocessing.forkserver import ensure_running
from typing import Any

from dagster._cli.api import grpc_command
from dagster._grpc import server

_LOADED = "dagster_project.preload"
_START_BY = "_mp_ctx"  # where Dagster's server keeps how it starts the process of a run


def forks() -> BaseContext:
    """Returns how to start processes as copies of one that has imported `dagster_project.preload`."""
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload([_LOADED])
    return found


class ForkingServer(server.DagsterApiServer):
    """Dagster's server of definitions, which starts the processes of runs by forking."""

    def __init__(self, *given: Any, **named: Any) -> None:
        """As Dagster's."""
        super().__init__(*given, **named)
        if hasattr(self, _START_BY):  # a Dagster without it starts runs in its own way
            setattr(self, _START_BY, forks())
            ensure_running()  # now, not when the first run starts


def main() -> None:
    """`python -m dagster_project.code_server`: `dagster api grpc` with its options."""
    server.DagsterApiServer = ForkingServer
    grpc_command(prog_name="python -m dagster_project.code_server")


if __name__ == "__main__":
    main()
