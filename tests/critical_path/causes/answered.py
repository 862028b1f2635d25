"""Helpers that return the causes of a trace's windows."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pipelines.critical_path.graph.windows import WindowRequest, request_windows, usual_windows
from pipelines.faces.why import TABLES, Why, why
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from tests.harness import connect_all

Trace = list[dict[str, Any]] | dict[str, Any] | Path


def answers(trace: Trace, *, steps: bool = False) -> list[Why]:
    """Return the answer for the whole trace as recorded, and, with `steps`, for each of its steps."""
    return answers_of_all([trace], steps=steps)


def answers_of_all(traces: Iterable[Trace], *, steps: bool = False) -> list[Why]:
    """Return the results of `answers` for all traces, in their order; the models run once."""
    con, trace_ids = connect_all(traces)
    with con:
        requests = usual_windows(con, trace_ids) if steps else [WindowRequest(trace_id) for trace_id in trace_ids]
        request_windows(con, requests)
        run_models(con, load_catalog(), TABLES)
        whys = [why(con, request.trace_id, request.window_id, without_profiler=False) for request in requests]
        return [w for w in whys if w]


def answer(trace: Trace) -> Why:
    """Return the answer for the whole trace."""
    (whole,) = answers(trace)
    return whole
