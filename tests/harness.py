"""Helpers that run models on a few events, so that input rows and expected rows fit on one screen in each test."""

from __future__ import annotations

import json
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import duckdb

from pipelines.base import database
from pipelines.critical_path.answer.answer import _answer
from pipelines.critical_path.answer.path_answer import PathAnswer
from pipelines.critical_path.graph.windows import WindowRequest, request_windows
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from pipelines.readers.inputs.single_trace import load_trace

_NUMBERS = count()
DUCKDB_2 = not duckdb.__version__.startswith("1.")
ANSWERED = (
    *(
        "critical_path_windows",
        "critical_path_summary",
        "critical_path",
        "critical_path_edges",
        "critical_path_caveats",
    ),
    *("_path_bounds", "_edges", "_edge_counts", "_node_counts", "edge_types"),
)
"""The tables of the answer to a request for a path. The last table is the same for all requests."""


def x(cat: str, name: str, ts: float, dur: float, tid: Any = 1, pid: Any = 100, **args: Any) -> dict[str, Any]:
    """Return a complete event. `args` are its arguments by name; pass a key with a blank as `**{"External id": 1}`."""
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def op(name: str, ts: float, dur: float, tid: Any = 1) -> dict[str, Any]:
    """Return a CPU operator."""
    return x("cpu_op", name, ts, dur, tid)


def call(name: str, ts: float, dur: float, correlation: int, tid: Any = 1, cat: str = "cuda_runtime") -> dict[str, Any]:
    """Return a runtime call with a correlation id."""
    return x(cat, name, ts, dur, tid, correlation=correlation)


def kernel(
    name: str, ts: float, dur: float, correlation: int, stream: int = 7, device: int = 0, cat: str = "kernel"
) -> dict[str, Any]:
    """Return a GPU activity: a kernel, memcpy or memset."""
    return x(cat, name, ts, dur, stream, device, correlation=correlation, stream=stream, device=device)


def launched(
    start: float, gpu: tuple[float, float], number: int, name: str = "gemm", **where: Any
) -> list[dict[str, Any]]:
    """Return a call of 5 us and its kernel. `gpu`: the kernel's start and duration, us."""
    return [call("cudaLaunchKernel", start, 5, number), kernel(name, *gpu, number, **where)]


def without(event: dict[str, Any], key: str) -> dict[str, Any]:
    """Return an event without a key."""
    return {name: value for name, value in event.items() if name != key}


def sync(
    name: str, ts: float, dur: float, correlation: int, stream: int = -1, device: int = 0, **args: Any
) -> dict[str, Any]:
    """Return the GPU's record of a wait (category cuda_sync)."""
    return x("cuda_sync", name, ts, dur, stream, device, correlation=correlation, stream=stream, device=device, **args)


@cache
def _instance() -> duckdb.DuckDBPyConnection:
    # One thread, because tests run in parallel, and distributing a few rows takes longer than reading them.
    return database.connect(config={"threads": 1})


def memory() -> duckdb.DuckDBPyConnection:
    """Return a connection to an empty database in memory, in an instance of DuckDB that all tests of a process share.

    Starting an instance for each test takes 11 ms of CPU, this takes 0.3 ms. Settings belong to the instance, so a test
    that changes settings, or breaks its database, starts a separate instance.
    """
    con, name = _instance().cursor(), f"test_{next(_NUMBERS)}"
    con.execute(f"ATTACH ':memory:' AS {name}; USE {name}")
    weakref.finalize(con, lambda: _instance().cursor().execute(f"DETACH {name}")).atexit = False
    return con


def connect(trace: list[dict] | dict | Path, *requests: WindowRequest) -> tuple[duckdb.DuckDBPyConnection, str]:
    """Return a connection with the trace's tables and its requested windows, and its id.

    Without requests the window is the whole trace in `default`.
    """
    con, (trace_id,) = connect_all([trace])
    if requests:
        request_windows(con, list(requests))
    return con, trace_id


def connect_all(traces: Iterable[list[dict] | dict | Path]) -> tuple[duckdb.DuckDBPyConnection, list[str]]:
    """Return one connection with many traces, and their ids in the same order.

    The whole of each trace is requested in `default`.

    Models take equally long for one small trace and for a hundred. A test with many traces runs them once, and selects
    each trace by its id (`only`). A number that is written into equal traces distinguishes them.
    """
    # One thread, because tests run in parallel, and distributing a few rows takes longer than reading them.
    con, trace_ids, traces = database.connect(config={"threads": 1}), [], list(traces)
    tables = ("events", "traces", "findings") if len(traces) > 1 else ()
    with tempfile.TemporaryDirectory() as folder:
        for number, trace in enumerate(traces):
            path = trace if isinstance(trace, Path) else Path(folder) / "trace.json"
            if not isinstance(trace, Path):
                document = {"traceEvents": trace} if isinstance(trace, list) else trace
                path.write_text(json.dumps({**document, "number": number} if number else document))
            trace_ids.append(load_trace(con, path).trace_id)  # replaces the tables
            for table in tables:
                kept = f"INSERT INTO all_{table}" if number else f"CREATE TABLE all_{table} AS"
                con.execute(f"{kept} FROM {table}")
    for table in tables:
        con.execute(f"DROP TABLE {table}; ALTER TABLE all_{table} RENAME TO {table}")
    request_windows(con, [WindowRequest(trace_id) for trace_id in trace_ids])
    return con, trace_ids


def only(con: duckdb.DuckDBPyConnection, trace_id: str, tables: Iterable[str], window_id: str | None = None) -> None:
    """Let these tables show only the rows of one trace, or of one of its windows, whichever columns identify it."""
    window = f"window_id = '{window_id}'" if window_id else "true"
    number = f"SELECT window_no FROM memory.main.critical_path_windows WHERE trace_id = '{trace_id}' AND {window}"
    number_of_trace = f"SELECT trace_profile_id FROM memory.main._profiles WHERE trace_id = '{trace_id}'"
    for table in tables:
        there = {column for (column, *_) in con.execute(f"DESCRIBE memory.main.{table}").fetchall()}
        if "trace_id" in there:
            whose = f"trace_id = '{trace_id}' AND {window if 'window_id' in there else 'true'}"
        else:
            whose = f"window_no IN ({number})" if "window_no" in there else f"trace_profile_id IN ({number_of_trace})"
        con.execute(f"CREATE OR REPLACE TEMP VIEW {table} AS FROM memory.main.{table} WHERE {whose}")


def create_step(con: duckdb.DuckDBPyConnection, model: str, step: str, *tables: str) -> None:
    """Create a step (CTE) of a model as a table with its name, the model's inputs, and these tables."""
    run_models(con, load_catalog(), [*load_catalog().models[model].dependencies, *tables])
    step_table(con, model, step)


def step_table(con: duckdb.DuckDBPyConnection, model: str, step: str) -> None:
    """Create a step (CTE) of a model as a table with its name. The model's inputs must exist."""
    steps, _, _ = load_catalog().models[model].sql.partition("\n)\nSELECT")
    con.execute(f"CREATE TABLE {step} AS {steps}\n)\nFROM {step}")


def each(traces: Iterable[list[dict] | dict | Path], *tables: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection that shows the tables of each trace in turn. The models run once over all traces."""
    con, trace_ids = connect_all(traces)
    run_models(con, load_catalog(), tables)
    for trace_id in trace_ids:
        only(con, trace_id, tables)
        yield con


def answers(
    traces: Iterable[list[dict] | dict | Path], profile: str = "default", **overrides: str
) -> Iterator[tuple[duckdb.DuckDBPyConnection, PathAnswer]]:
    """Yield a connection that shows the tables of each trace in turn, and the path of the whole trace.

    The models run once over all traces.
    """
    con, trace_ids = connect_all(traces)
    windows = [WindowRequest(trace_id, profile=profile) for trace_id in trace_ids]
    request_windows(con, windows, {(profile, name): value for name, value in overrides.items()})
    run_models(con, load_catalog(), ANSWERED)
    for window in windows:
        yield con, answer_in(con, window)


def answer_in(con: duckdb.DuckDBPyConnection, window: WindowRequest) -> PathAnswer:
    """Return the answer about one of the windows whose tables (ANSWERED) are in `con`.

    The tables then show only this window.
    """
    only(con, window.trace_id, ANSWERED[:-1], window.window_id)
    return answer_shown(con)


def answer_shown(con: duckdb.DuckDBPyConnection) -> PathAnswer:
    """Return the answer about the only window that the tables (ANSWERED) show."""
    ((window_us,),) = con.execute("SELECT (path_end_ns - path_start_ns) / 1000 FROM critical_path_windows").fetchall()
    return _answer(con, window_us, with_path=True)


def rows_of(trace: list[dict] | dict | Path, table: str, columns: str, order: str = "ALL") -> list[tuple]:
    """Return rows of a model over the trace."""
    con, _ = connect(trace)
    run_models(con, load_catalog(), [table])
    return con.execute(f"SELECT {columns} FROM {table} ORDER BY {order}").fetchall()
