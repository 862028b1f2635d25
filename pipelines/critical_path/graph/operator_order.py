"""The order of a thread's operators: serial, or by the data dependencies that an execution trace records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb

from pipelines.base.errors import TracelakeError
from pipelines.critical_path.graph.windows import WindowRequest
from pipelines.models.sqltext import quoted

SWITCH = "dependencies"
MODES = ("serial", "data")


class NothingJoined(TracelakeError, LookupError):
    """Data dependencies were requested, but no operator of the trace has a node in an execution trace."""


def serial() -> dict[str, Any]:
    """Return an answer's `dependencies` for serial order, which joins no execution trace."""
    return {"mode": "serial", "method": None, "joined": None, "operators": None, "share": None, "execution_trace": None}


def describe_dependencies(
    con: duckdb.DuckDBPyConnection, request: WindowRequest, overrides: dict[tuple[str, str], str]
) -> dict[str, Any]:
    """Return how operators depend on each other under these switches.

    `share` is the part of the trace's operators (cpu_op) that joins the execution trace, 0 to 1. Raises NothingJoined.
    """
    if overrides.get((request.profile, SWITCH), "serial") == "serial":
        return serial()
    row = con.execute(
        f"SELECT method, n_joined, n_operators, path FROM execution_summary WHERE trace_id = {quoted(request.trace_id)}"
    ).fetchone()
    if row is None:
        raise NothingJoined(
            "data dependencies need an execution trace, and none was read: tracelake critical-path TRACE --dependencies data"
        )
    method, joined, operators, path = row
    if not joined:
        raise NothingJoined(
            f"none of {operators:,} operators is in {path}: check that both files are from the same run and rank, or choose another with --execution-trace"
        )
    return {
        "mode": "data",
        "method": method,
        "joined": joined,
        "operators": operators,
        "share": joined / operators,
        "execution_trace": Path(path).name,
    }
