"""The causes of a trace's windows, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipelines.critical_path.graph.windows import WindowRequest, request_windows, usual_windows
from pipelines.faces.why import TABLES, Why, why
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from tests.harness import connect


def answers(trace: list[dict[str, Any]] | dict[str, Any] | Path, *, steps: bool = False) -> list[Why]:
    """The answers for a whole trace and, with `steps`, each of its steps. Closes the trace."""
    con, trace_id = connect(trace)
    with con:
        requests = usual_windows(con, [trace_id]) if steps else [WindowRequest(trace_id)]
        request_windows(con, requests)
        run_models(con, load_catalog(), TABLES)
        found = [why(con, one.trace_id, one.window_id) for one in requests]
        return [one for one in found if one]


def answer(trace: list[dict[str, Any]] | dict[str, Any] | Path) -> Why:
    """The answer for a whole trace."""
    (found,) = answers(trace)
    return found
