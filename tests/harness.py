"""Run models on a handful of events: input rows and expected rows stand on one screen in each test."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import duckdb

from pipelines.critical_path.windows import WindowRequest, request_windows
from pipelines.ingest import load_trace
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models


def x(cat: str, name: str, ts: float, dur: float, tid: Any = 1, pid: Any = 100, **args: Any) -> dict[str, Any]:
    """A complete event; `args` spells blanks as underscores only where the key has none: pass `**{"External id": 1}`."""
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def op(name: str, ts: float, dur: float, tid: Any = 1) -> dict[str, Any]:
    """A CPU operator."""
    return x("cpu_op", name, ts, dur, tid)


def call(name: str, ts: float, dur: float, correlation: int, tid: Any = 1, cat: str = "cuda_runtime") -> dict[str, Any]:
    """A runtime call with a correlation id."""
    return x(cat, name, ts, dur, tid, correlation=correlation)


def kernel(
    name: str, ts: float, dur: float, correlation: int, stream: int = 7, device: int = 0, cat: str = "kernel"
) -> dict[str, Any]:
    """A piece of GPU work."""
    return x(cat, name, ts, dur, stream, device, correlation=correlation, stream=stream, device=device)


def sync(
    name: str, ts: float, dur: float, correlation: int, stream: int = -1, device: int = 0, **args: Any
) -> dict[str, Any]:
    """The GPU's record of a wait (category cuda_sync)."""
    return x("cuda_sync", name, ts, dur, stream, device, correlation=correlation, stream=stream, device=device, **args)


def connect(trace: list[dict] | dict | Path, *requests: WindowRequest) -> tuple[duckdb.DuckDBPyConnection, str]:
    """A connection with the trace's tables and its windows asked for (the whole trace in `default` without requests)."""
    con = duckdb.connect()
    if isinstance(trace, Path):
        staged = load_trace(con, trace)
    else:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            path.write_text(json.dumps({"traceEvents": trace} if isinstance(trace, list) else trace))
            staged = load_trace(con, path)
    request_windows(con, list(requests) or [WindowRequest(staged.trace_id)])
    return con, staged.trace_id


def rows_of(trace: list[dict] | dict | Path, table: str, columns: str, order: str = "ALL") -> list[tuple]:
    """Rows of a model over the trace."""
    con, _ = connect(trace)
    run_models(con, load_catalog(), [table])
    return con.execute(f"SELECT {columns} FROM {table} ORDER BY {order}").fetchall()
