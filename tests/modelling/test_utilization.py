"""Utilisation of spans: reference numbers of two traces, and limits and unknowns on small traces."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from tests.harness import call, connect, connect_all, kernel, only, x
from tests.modelling import real_traces

TABLES = [
    *("span_utilization", "span_name_utilization", "family_utilization", "op_utilization", "op_shape_utilization"),
    *("op_work", "spans"),
]


def near(value: float) -> Any:
    return pytest.approx(value, rel=1e-12)


REAL = ("h100_qwen", "mi300_rccl_metadata")


@pytest.fixture(scope="module", params=REAL)
def computed(request: pytest.FixtureRequest, shared: Path) -> tuple[duckdb.DuckDBPyConnection, dict]:
    con = real_traces.computed(shared, request.param, REAL)
    return con, json.loads((shared / "golden" / "modelling" / f"mfu__{request.param}.json").read_text())


def test_every_name_s_utilisation_is_the_reference_s(computed: tuple[duckdb.DuckDBPyConnection, dict]) -> None:
    con, reference = computed
    rows = con.execute(
        "SELECT kind, name, phase, n_spans, n_ops, n_ops_not_modelled, n_kernels, sum_ns, busy_ns, wall_ns, "
        "flops_matrix, bytes, ideal_ns, hfu_busy, bandwidth_utilization FROM span_name_utilization"
    ).fetchall()
    ours = {row[:3]: list(row[3:]) for row in rows}
    assert reference["rows"]
    for row in reference["rows"]:
        times = [round(row[f"{key}_us"] * 1000) for key in ("gpu_sum", "gpu_busy", "cpu_wall")]
        counts = [row[key] for key in ("calls", "ops", "ops_without_model", "gpu_events")]
        work = [sum(row["flops_matrix"].values()), row["bytes"], near(row["ideal_matrix_us"] * 1000)]
        work += [near(row["mfu_busy"]), near(row["bw_util_busy"])]
        if row["ops"] == row["ops_without_model"]:  # the reference has 0 for unknown values
            work = [None] * 5
        expected = [*counts, *times, *work]
        assert ours[row["kind"], row["name"].removeprefix("nn.Module: "), row["phase"]] == expected, row


def test_what_is_computed_once_more_counts_for_hfu_only(computed: tuple[duckdb.DuckDBPyConnection, dict]) -> None:
    con, reference = computed
    again = sum(
        sum(row["flops_matrix"].values())
        for row in reference["rows"]
        if row["phase"] == "recompute" and row["name"].startswith("nn.Module: Conv2d_")
    )
    rows = con.execute(
        "SELECT sum(flops_recompute), bool_and(mfu_busy <= hfu_busy), "
        "bool_and((mfu_busy < hfu_busy) = (flops_recompute > 0)) "
        "FROM span_name_utilization WHERE kind = 'step' AND phase = 'window'"
    ).fetchall()
    assert rows == [(again, True, True)]


def test_spans_and_operators_add_up(computed: tuple[duckdb.DuckDBPyConnection, dict]) -> None:
    con, reference = computed
    steps = [row for row in reference["rows"] if row["kind"] == "step"]
    total = sum(sum(row["flops_matrix"].values()) for row in steps)
    for query in (
        "SELECT sum(flops_matrix) FROM span_utilization WHERE kind = 'step' AND phase = 'window'",
        "SELECT sum(flops_matrix) FROM family_utilization",
    ):
        assert con.execute(query).fetchall() == [(total,)]


@pytest.mark.slow
def test_from_the_worst_step_to_the_worst_module_to_the_worst_operator(shared: Path) -> None:
    """Three queries of docs/modelling.md lead from the worst step to its worst module and its worst operator."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "modelling.md").read_text()
    queries = [part.split("```")[0] for part in page.split("```sql\n")[1:]]
    con, trace_id = connect(shared / "traces" / "single" / "mi300_rccl_metadata.json.gz")
    run_models(con, load_catalog(), [*TABLES, "span_gpu_work", "op_kernels"])
    step = con.execute(queries[0].replace("$trace", f"'{trace_id}'")).fetchall()[0]
    reference = json.loads((shared / "golden" / "modelling" / "mfu__mi300_rccl_metadata.json").read_text())["rows"]
    steps = [row for row in reference if row["kind"] == "step"]
    slowest = max(steps, key=lambda row: row["cpu_wall_us"])
    assert step[1] == slowest["name"]
    module = con.execute(queries[1].replace("$trace", f"'{trace_id}'").replace("$step", str(step[0]))).fetchall()[0]
    assert module[1] in {row["name"].removeprefix("nn.Module: ") for row in reference}
    ops = con.execute(queries[2].replace("$trace", f"'{trace_id}'").replace("$span", str(module[0]))).fetchall()
    assert ops
    inside = con.execute(
        f"SELECT max(o.gpu_ns) FROM op_work AS o WHERE event_id IN (SELECT op_event_id FROM op_kernels "
        f"JOIN span_gpu_work USING (trace_id, event_id) WHERE span_id = {module[0]})"
    ).fetchall()
    assert ops[0][3] <= inside[0][0]


H100 = "NVIDIA H100 80GB HBM3"


def device(number: int, name: str) -> dict[str, Any]:
    return {"id": number, "name": name, "totalGlobalMem": 80 << 30, "numSms": 132}


def traced(dtype: str, *devices: dict[str, Any], kernel_us: float = 100) -> dict[str, Any]:
    """Return a step with one product of 1024³ (2,147,483,648 operations)."""
    shapes = {"Input Dims": [[1024, 1024]] * 2, "Input type": [dtype] * 2, "Concrete Inputs": ["", ""]}
    events = [
        x("user_annotation", "ProfilerStep#1", 0, 400),
        x("cpu_op", "aten::mm", 10, 50, **shapes), call("cudaLaunchKernel", 20, 5, 1), kernel("gemm", 90, kernel_us, 1),
    ]  # fmt: skip
    return {"deviceProperties": devices, "traceEvents": events}


def products() -> dict[str, Any]:
    """Return two products of one shape, of 100 and 300 us, one of another shape, and one of an unknown operator."""
    events, at = [], 0
    for size, us in ((1024, 100), (1024, 300), (64, 50), (None, 40)):
        shapes = {"Input Dims": [[size, size]] * 2, "Input type": ["c10::BFloat16"] * 2, "Concrete Inputs": ["", ""]}
        name = "aten::mm" if size else "mine::mm"
        events += [
            x("cpu_op", name, at, 50, **(shapes if size else {})),
            call("cudaLaunchKernel", at + 1, 5, at + 1), kernel("gemm", at + 60, us, at + 1),
        ]  # fmt: skip
        at += 1000
    return {"deviceProperties": [device(0, H100)], "traceEvents": events}


def of_unknown_bytes() -> dict[str, Any]:
    """Return a product in each of two steps, and another operator in each.

    The other operator has no model in the first step, and is a product of unknown size in the second.
    """
    known, unknown = ["c10::BFloat16"] * 2, ["c10::BFloat16", "c10::complex<float>"]
    events = [x("user_annotation", "ProfilerStep#1", 0, 400), x("user_annotation", "ProfilerStep#2", 400, 400)]
    for place, (at, name, types) in enumerate(
        ((10, "aten::mm", known), (110, "mine::mm", known), (410, "aten::mm", known), (510, "aten::mm", unknown)), 1
    ):
        shapes = {"Input Dims": [[1024, 1024]] * 2, "Input type": types, "Concrete Inputs": ["", ""]}
        events += [
            x("cpu_op", name, at, 50, **shapes),
            call("cudaLaunchKernel", at + 1, 5, place), kernel("gemm", at + 60, 40, place),
        ]  # fmt: skip
    return {"deviceProperties": [device(0, H100)], "traceEvents": events}


def additions(of_device: dict[str, Any]) -> dict[str, Any]:
    """Return an addition of a type with known size, and one of complex numbers."""
    events = []
    for at, kind in ((1, "float"), (501, "c10::complex<float>")):
        shapes = {
            "Input Dims": [[1024], [1024], []],
            "Input type": [kind, kind, "Scalar"],
            "Concrete Inputs": ["", "", "1"],
        }
        events += [
            x("cpu_op", "aten::add", at, 50, **shapes),
            call("cudaLaunchKernel", at + 1, 5, at), kernel("add", at + 60, 40, at),
        ]  # fmt: skip
    return {"deviceProperties": [of_device], "traceEvents": events}


BY_HAND = {
    "additions": additions(device(0, H100)),
    "additions on an unknown device": additions(device(0, "Radeon of a friend")),
    "fp32": traced("float", device(0, H100)),
    "too fast": traced("c10::BFloat16", device(0, H100), kernel_us=1),
    "unknown device": traced("float", device(0, "Radeon of a friend")),
    "products": products(),
    "type without peak": traced("double", device(0, H100)),
    "unknown bytes": of_unknown_bytes(),
    "equal devices": traced("float", device(1, H100), device(2, H100)),
    "different devices": traced("float", device(1, H100), device(8, "NVIDIA B200")),
}
ByHand = Callable[[str], duckdb.DuckDBPyConnection]


@pytest.fixture(scope="module")
def by_hand() -> ByHand:
    """Return a function that shows TABLES of one of these traces. The models run once over all of them."""
    con, trace_ids = connect_all(BY_HAND.values())
    run_models(con, load_catalog(), TABLES)

    def of(name: str) -> duckdb.DuckDBPyConnection:
        only(con, trace_ids[[*BY_HAND].index(name)], TABLES)
        return con

    return of


def step_row(con: duckdb.DuckDBPyConnection, columns: str) -> list[Any]:
    query = f"SELECT {columns} FROM span_utilization WHERE kind = 'step' AND phase = 'window'"
    return [*con.execute(query).fetchall()[0]]


def test_fp32_has_both_bounds(by_hand: ByHand) -> None:
    row = step_row(by_hand("fp32"), "mfu_busy, mfu_busy_tf32, mfu_wall, suspect, bound_by")
    at_peak_us = 2 * 1024**3 / 66.9e6, 2 * 1024**3 / 494.7e6
    assert row == [near(at_peak_us[0] / 100), near(at_peak_us[1] / 100), near(at_peak_us[0] / 400), False, "compute"]


def test_what_cannot_be_is_kept_and_flagged(by_hand: ByHand) -> None:
    row = step_row(by_hand("too fast"), "mfu_busy, suspect")
    assert row == [near(2 * 1024**3 / 989.4e6), True]


def test_an_unknown_device_has_no_utilisation(by_hand: ByHand) -> None:
    columns = (
        "flops_matrix, coverage, peak_kind, ideal_ns, mfu_wall, mfu_busy, hfu_busy, bandwidth_utilization, bound_by"
    )
    assert step_row(by_hand("unknown device"), columns) == [2 * 1024**3, 1.0, *[None] * 7]


def test_equal_shapes_are_one_row_of_sums(by_hand: ByHand) -> None:
    con = by_hand("products")
    columns = "n_ops, gpu_ns, flops_matrix, bytes, tflops, mfu, roofline_ns, roofline_utilization, bound_by"
    rows = con.execute(f"SELECT {columns}, not_modelled FROM op_shape_utilization ORDER BY gpu_ns DESC").fetchall()
    large, small = 2 * 1024**3, 2 * 64**3
    moved = 3 * 2 * 64**2
    assert rows == [
        (2, 400_000, 2 * large, 2 * 3 * 2 * 1024**2, near(2 * large / 4e8), near(2 * large / 4e8 / 989.4),
         near(2 * large / 989.4e3), near(2 * large / 989.4e3 / 4e5), "compute", None),
        (1, 50_000, small, moved, near(small / 5e7), near(small / 5e7 / 989.4),
         near(moved / 3350), near(moved / 3350 / 5e4), "memory", None),
        (1, 40_000, *[None] * 7, "op_not_modelled"),
    ]  # fmt: skip


def test_a_type_without_peak_has_no_ideal_time(by_hand: ByHand) -> None:
    """A type without a peak has neither an ideal time nor a roofline.

    Memory's roofline alone would call nearly all of a product's time lost.
    """
    con = by_hand("type without peak")
    assert step_row(con, "n_ops_without_peak, ideal_ns, mfu_busy, suspect") == [1, None, None, False]
    for table in ("op_utilization", "op_shape_utilization", "family_utilization", "span_utilization"):
        query = f"SELECT DISTINCT bandwidth_utilization > 0, roofline_utilization FROM {table}"
        assert con.execute(query).fetchall() == [(True, None)], table


def test_a_span_has_no_bytes_if_those_of_a_modelled_operator_are_unknown(by_hand: ByHand) -> None:
    """A span has no bytes if the bytes of a modelled operator are unknown.

    Operations divided by only some of the bytes would be meaningless. An operator without a model counts in neither.
    """
    columns = "flops_matrix, hfu_busy > 0, bytes, memory_ns, bandwidth_utilization, intensity, ridge, bound_by"
    con = by_hand("unknown bytes")
    for table in ("span_utilization", "span_name_utilization"):
        query = f"SELECT {columns} FROM {table} WHERE kind = 'step' AND phase = 'window' ORDER BY name"
        moved = 3 * 2 * 1024**2
        flops = 2 * 1024**3
        known = [near(moved / 3350), near(moved / 3350 / 8e4), near(flops / moved), near(989.4e3 / 3350), "compute"]
        assert con.execute(query).fetchall() == [(flops, True, moved, *known), (2 * flops, True, *[None] * 6)], table


def test_unknown_bytes_leave_no_roofline(by_hand: ByHand) -> None:
    """An operator with unknown bytes has no roofline.

    The known limit alone is not used. It is 0 for a multiplication of complex numbers, and that of the operations for a
    product.
    """
    con = by_hand("unknown bytes")
    rows = con.execute("SELECT bytes IS NULL, roofline_utilization, bound_by FROM op_utilization").fetchall()
    assert sorted(rows, key=str) == [
        (False, near(2 * 1024**3 / 989.4e3 / 4e4), "compute"),
        (False, near(2 * 1024**3 / 989.4e3 / 4e4), "compute"),
        (True, None, None),
    ]
    shapes = "SELECT roofline_ns, roofline_utilization FROM op_shape_utilization WHERE not_modelled IS NULL"
    assert con.execute(shapes).fetchall() == [(None, None)]
    families = "SELECT roofline_utilization FROM family_utilization WHERE not_modelled IS NULL"
    assert con.execute(families).fetchall() == [(None,)]
    spans = "SELECT roofline_utilization FROM span_utilization WHERE kind = 'step' AND phase = 'window' ORDER BY name"
    assert con.execute(spans).fetchall() == [(near(2 * 1024**3 / 989.4e3 / 8e4),), (None,)]


@pytest.mark.parametrize("table", ["op_utilization", "op_shape_utilization"])
def test_without_a_peak_or_bytes_the_limit_is_unknown(by_hand: ByHand, table: str) -> None:
    """`bound_by` is NULL without a peak or without bytes. This includes additions, which have no matrix operations."""
    query = f"SELECT bytes IS NULL, flops_matrix, bound_by FROM {table} ORDER BY 1"
    assert by_hand("additions").execute(query).fetchall() == [(False, 0, "memory"), (True, 0, None)]
    unknown = by_hand("additions on an unknown device").execute(query).fetchall()
    assert unknown == [(False, 0, None), (True, 0, None)]


def test_a_device_of_another_number_is_what_all_listed_ones_are(by_hand: ByHand) -> None:
    """A device whose number is not listed has the properties that all listed devices share.

    ROCm numbers the devices of kernels after the host's processors.
    """
    key = "SELECT device_key FROM op_utilization"
    assert by_hand("equal devices").execute(key).fetchall() == [("H100-SXM",)]
    assert by_hand("different devices").execute(key).fetchall() == [(None,)]
