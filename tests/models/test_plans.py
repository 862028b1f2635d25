"""DuckDB's plans of the models: costs must grow linearly with the trace, not quadratically."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from bench.axes import AXES, launched, step
from bench.growth_of_models import GROWING
from pipelines.critical_path.graph.windows import WindowRequest, request_windows, usual_windows
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from pipelines.synthetic import CaptureSpec, write_capture
from tests.effort import first_of
from tests.harness import call, connect, kernel, op, x

# Joins that compare every row with every row. MEANT lists models that may have them: they compare the names of a trace,
# or its devices, with a few rules. Plans are read as JSON, because the text of a wide plan abbreviates "BLOCKWISE_...".
EVERY_PAIR = ("BLOCKWISE_NL_JOIN", "NESTED_LOOP_JOIN", "PIECEWISE_MERGE_JOIN", "IE_JOIN")
MEANT = (
    "_compared_work",
    "_frame_calls",
    "_kernel_class",
    "_step_intervals",
    "collective_kernels",
    "event_classes",
    "serving_steps",
    "tensor_core_use",
    "trace_devices",
)
REAL = ("single/mi300_rccl_metadata", "single/h100_qwen", "critical_path/cuda_event_sync")
PATH = ("critical_path", "critical_path_summary", "critical_path_caveats")
# Columns of which a trace may have a single value. A join only on these and on times compares every row with every row.
ONE_EACH = ("trace_id", "trace_profile_id", "pid", "tid", "process_no", "thread_id", "order_thread_id", "device")
SLACK = 1.3


def compared(con: duckdb.DuckDBPyConnection, tables: list[str]) -> list[str]:
    """Return the models that compare every row with every row."""
    catalog = load_catalog()
    names = catalog.closure(tables)
    run_models(con, catalog, names)
    models = [model for name in names if (model := catalog.models[name]).kind == "sql" and name not in MEANT]
    assert len(models) > 30
    plans = {model.name: con.execute(f"EXPLAIN (FORMAT json) {model.sql}").fetchall()[0][1] for model in models}
    return [name for name, plan in plans.items() if any(join in plan for join in EVERY_PAIR)]


def most_rows(plan: Any) -> int:
    """Return the maximum number of rows that an operator of an analyzed plan passed on."""
    if isinstance(plan, list):
        return max((most_rows(part) for part in plan), default=0)
    return max(plan.get("operator_cardinality", 0), most_rows(plan.get("children", [])))


def parts(plan: Any) -> Iterator[dict[str, Any]]:
    """Yield the operators of an analyzed plan."""
    for operator in plan if isinstance(plan, list) else [plan]:
        yield operator
        yield from parts(operator.get("children", []))


def handled(operator: dict[str, Any]) -> int:
    """Return the number of rows that an operator passed on, or of pairs that a join compared if that is larger.

    DuckDB does not count the pairs that a join drops.
    """
    rows, name = operator.get("operator_cardinality", 0), operator.get("operator_name", "")
    conditions = operator.get("extra_info", {}).get("Conditions", [])
    conditions = [conditions] if isinstance(conditions, str) else conditions
    keys = [condition.split(" = ") for condition in conditions if not re.search("[<>]|!=", condition)]
    # An as-of join sorts both sides and scans them once.
    compares = name in EVERY_PAIR or (name.endswith("JOIN") and name != "ASOF_JOIN" and len(keys) < len(conditions))
    if not compares or not all(side.strip("-()") in ONE_EACH for key in keys for side in key):
        return rows
    left, right = (child.get("operator_cardinality", 0) for child in operator["children"])
    return max(rows, left * right)


def most_handled(events: list[dict[str, Any]], tables: Iterable[str]) -> dict[str, int]:
    """Return the largest intermediate result of each model, in rows or compared pairs."""
    con, trace_id = connect(events)
    request_windows(con, usual_windows(con, [trace_id]))
    catalog = load_catalog()
    names = catalog.closure(tables)
    run_models(con, catalog, names)
    models = [model for name in names if (model := catalog.models[name]).kind == "sql"]
    plans = {m.name: con.execute(f"EXPLAIN (ANALYZE, FORMAT json) {m.sql}").fetchall()[0][1] for m in models}
    return {name: max(map(handled, parts(json.loads(plan)))) for name, plan in plans.items()}


def growing(axis: str, n: int, times: int, tables: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Return the models whose largest intermediate result grows faster than the trace.

    Results below two rows per event do not count, because any table of edges has as many.
    """
    few, many = (list(AXES[axis](k)) for k in (n, times * n))
    large = {name: rows for name, rows in most_handled(many, tables).items() if rows > SLACK * 2 * len(many)}
    if not large:
        return {}
    small = most_handled(few, large)
    most = {name: SLACK * len(many) / len(few) * max(small[name], 2 * len(few)) for name in large}
    return {name: (small[name], rows) for name, rows in large.items() if rows > most[name]}


def device_syncs(n: int) -> list[dict[str, Any]]:
    return [
        event
        for i in range(n)
        for event in (
            call("cudaDeviceSynchronize", i * 5000 + 50, 30, 10**6 + i),
            x("cuda_sync", "Context Sync", i * 5000 + 51, 28, tid=8, pid=0, correlation=10**6 + i, device=0),
        )
    ]


def many() -> dict[str, list[dict[str, Any]]]:
    """Return traces with many items of one kind, of which the traces of `AXES` have few for their size."""
    nccl = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
    return {
        "streams": [e for i in range(1500) for e in launched(i * 100, 400, i + 1, 7 + i % 300)] + device_syncs(30),
        "threads": [op("a", i * 10, 9, tid=i % 400) for i in range(4000)],
        "depth": [x("python_function", f"f{i}", i, 4000 - 2 * i) for i in range(1900)] + launched(1950, 5, 1),
        "windows": [
            e
            for i in range(400)
            for e in (
                *(step(i, i * 5000, 4990), op("a", i * 5000 + 1, 900)),
                *launched(i * 5000 + 5, 300, i + 1, 9, 60, nccl),
            )
        ],
        "overlapping streams": [e for i in range(1500) for e in launched(i * 10, 5000, i + 1, 7 + i % 100)],
    }


def squares(events: list[dict[str, Any]], tables: list[str]) -> dict[str, int]:
    """Return the models with an operator that passes on far more rows than the trace has events."""
    con, trace_id = connect(events)
    request_windows(con, usual_windows(con, [trace_id]))
    catalog = load_catalog()
    names = catalog.closure(tables)
    run_models(con, catalog, names)
    models = [model for name in names if (model := catalog.models[name]).kind == "sql"]
    plans = {m.name: con.execute(f"EXPLAIN (ANALYZE, FORMAT json) {m.sql}").fetchall()[0][1] for m in models}
    rows = {name: most_rows(json.loads(plan)) for name, plan in plans.items()}
    assert max(rows.values()) >= len(events)
    return {name: n for name, n in rows.items() if n > 12 * len(events)}


@pytest.mark.slow
@pytest.mark.parametrize("what", many())
def test_nor_do_many_of_anything_in_any_table(what: str) -> None:
    assert squares(many()[what], [*load_catalog().materialized]) == {}


@pytest.mark.slow
@pytest.mark.parametrize("axis", [name for name in AXES if name not in GROWING])
def test_no_intermediate_result_grows_faster_than_the_trace(axis: str) -> None:
    assert growing(axis, 150, 16, load_catalog().materialized) == {}


def clocks_disagree(n_kernels: int = 40, n_operators: int = 100) -> list[dict[str, Any]]:
    """Return many operators for each launch. By the GPU's clock, every third kernel begins before its launch."""
    events = []
    for i in range(n_kernels):
        at = i * 1000
        events += [op(f"a{j}", at + j * 2, 1) for j in range(n_operators)]
        events += [
            call("cudaLaunchKernel", at + 900, 5, i + 1),
            kernel("gemm", at + (950 if i % 3 else 890), 20, i + 1),
        ]
    return events


def test_no_model_looks_for_the_last_value_among_many_without() -> None:
    """DuckDB's last_value with IGNORE NULLS steps back row by row to a value.

    If a thread has no value, the cost is quadratic (800,000 rows: 4.5 s; a running count and a join: 0.2 s). One
    remaining use steps back only over work within other work of its stream or its graph. The other steps back only over
    nodes of one depth that bound no other node.
    """
    kept = {"_stack_edges", "_kernel_nodes"}
    texts = {name: re.sub("--.*", "", model.sql).upper() for name, model in load_catalog().models.items()}
    assert {name for name, text in texts.items() if "IGNORE NULLS" in text} == kept


def written(shape: str, folder: Path) -> Path:
    training, graph = CaptureSpec(ranks=1, steps=3, seed=7), CaptureSpec(ranks=1, shape=shape, tokens=20, layers=8)
    return write_capture(training if shape == "training" else graph, folder).paths[0]


SHAPES = ("clocks disagree", "training", "inference_graph")


@pytest.mark.parametrize(
    ("shape", "tables"), first_of([("clocks disagree", PATH), *((shape, ()) for shape in SHAPES)], 1)
)
def test_nor_does_any_model_where_host_and_device_have_many_rows(
    tmp_path: Path, shape: str, tables: tuple[str, ...]
) -> None:
    """DuckDB chooses joins by the expected number of rows on each side, and by the values that it knows to exist.

    Without SLOW only the models of a path are checked, because all tables take 10 s.
    """
    con, trace_id = connect(clocks_disagree() if shape == "clocks disagree" else written(shape, tmp_path))
    request_windows(con, [WindowRequest(trace_id), WindowRequest(trace_id, "hta", profile="hta")])
    assert compared(con, [*(tables or load_catalog().materialized)]) == []


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) for name in REAL])
def test_nor_in_real_traces(shared: Path, name: str) -> None:
    con, trace_id = connect(shared / "traces" / f"{name}.json.gz")
    request_windows(con, usual_windows(con, [trace_id]))
    assert compared(con, [*load_catalog().materialized]) == []
