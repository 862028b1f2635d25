"""Work of a trace's operators and the owner of GPU work, compared with a reference and a stack walked event by event."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path

import duckdb
import pytest

from pipelines.base.datafiles import rule_rows
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from tests.effort import named
from tests.harness import call, connect, connect_all, kernel, only, op, x
from tests.modelling import real_traces

TRACES = ("h100_qwen", "mi300_qwen", "mi300_rccl_metadata", "b200_eager_71_process_groups")
# The reference predates the formulas of servers' and compilers' kernels (test_custom_formulas.py tests them).
YOUNGER = ("_C::", "_C_cache_ops::", "triton_")
OLDER = "NOT regexp_matches(op, '^(_C::|_C_cache_ops::|triton_)')"


@pytest.fixture(scope="module", params=named(TRACES))
def computed(request: pytest.FixtureRequest, shared: Path) -> tuple[duckdb.DuckDBPyConnection, dict]:
    con = real_traces.computed(shared, request.param, TRACES)
    return con, json.loads((shared / "golden" / "modelling" / f"flops__{request.param}.json").read_text())


def test_every_operator_has_the_reference_s_calls_and_times(computed: tuple[duckdb.DuckDBPyConnection, dict]) -> None:
    con, reference = computed
    ours: dict[tuple, list[int]] = defaultdict(lambda: [0, 0, 0])
    work = {}
    rows = con.execute(
        "SELECT op, args ->> '$.\"Input Dims\"', args ->> '$.\"Input type\"', args ->> '$.\"Concrete Inputs\"', "
        "n_kernels, gpu_ns, flops_matrix, flops_vector, w.bytes, not_modelled "
        "FROM op_work AS w JOIN events USING (trace_id, event_id)"
    ).fetchall()
    for name, dims, types, concrete, n_kernels, gpu_ns, *modelled in rows:
        key = (name, *(json.dumps(json.loads(text)) for text in (dims, types, concrete)))
        for place, amount in enumerate((1, n_kernels, gpu_ns)):
            ours[key][place] += amount
        work[key] = modelled
    expected: dict[tuple, list[int]] = defaultdict(lambda: [0, 0, 0])
    for row in reference["ops"]:  # one row for each set of strides
        key = (row["name"], *(json.dumps(row[k]) for k in ("input_dims", "input_type", "concrete")))
        for place, amount in enumerate((row["calls"], row["kernels"], round(row["gpu_sum_us"] * 1000))):
            expected[key][place] += amount
        if row["name"].startswith(YOUNGER):
            continue
        cost = row["cost"] or dict.fromkeys(("flops_matrix", "flops_vector", "bytes"))
        assert work[key] == [cost["flops_matrix"], cost["flops_vector"], cost["bytes"], row["why_null"]]
    assert ours == expected


def test_totals_and_coverage_are_the_reference_s(computed: tuple[duckdb.DuckDBPyConnection, dict]) -> None:
    con, reference = computed
    expected = reference["summary"]
    ((more_ns, more_bytes),) = con.execute(
        f"SELECT coalesce(sum(gpu_ns), 0), coalesce(sum(bytes), 0) FROM op_work WHERE not_modelled IS NULL AND NOT ({OLDER})"
    ).fetchall()
    rows = con.execute(
        "SELECT gpu_ns, with_op_ns, modelled_ns, matrix_ns, no_launch_ns, launch_without_op_ns, op_not_modelled_ns, "
        "flops_matrix, flops_uncausal, bytes, graph_ns + no_shapes_ns + bad_args_ns, coverage FROM op_work_coverage"
    ).fetchall()
    keys = ("total", "with_op", "modelled", "matrix", "no_launch", "launch_without_op")
    times = [round(expected[f"gpu_us_{key}"] * 1000) for key in keys]
    times.append(round(expected["null_us"]["op_not_modelled"] * 1000) - more_ns)
    times[2] += more_ns
    totals = [expected[f"{key}_total"] for key in ("flops_matrix", "flops_matrix_uncausal", "bytes")]
    totals[2] += more_bytes
    coverage = expected["coverage_time"] + more_ns / times[1]
    assert [list(row) for row in rows] == [[*times, *totals, 0, pytest.approx(coverage, rel=1e-12)]]
    counts = con.execute(
        "SELECT count(*) FILTER (WHERE not_modelled = 'no_launch'), "
        "count(*) FILTER (WHERE not_modelled = 'launch_without_op') FROM op_kernels"
    ).fetchall()
    assert counts == [(expected["gpu_no_launch"], expected["gpu_launch_without_op"])]
    by_reason = (
        f"SELECT coalesce(not_modelled, 'op_not_modelled'), count(*) FROM op_work WHERE not_modelled IS NOT NULL OR NOT ({OLDER}) "
        "GROUP BY 1"
    )
    assert dict(con.execute(by_reason).fetchall()) == expected["null_reasons"]


def test_shapes_have_the_reference_s_sums_and_the_ratios_of_these(
    computed: tuple[duckdb.DuckDBPyConnection, dict], shared: Path
) -> None:
    con, reference = computed
    listed = json.loads((shared / "golden" / "modelling" / "devices.json").read_text())["rows"]
    ((key,),) = con.execute(
        "SELECT DISTINCT device_key FROM op_shape_utilization WHERE device_key IS NOT NULL"
    ).fetchall()
    (device,) = (row for row in listed if row["key"] == key)
    expected: dict[tuple, list] = defaultdict(lambda: [0, 0, 0, 0, 0, 0])
    for row in reference["ops"]:
        if row["name"].startswith(YOUNGER):
            continue
        cost = row["cost"] or dict.fromkeys(("flops_matrix", "flops_vector", "bytes", "dtype"))
        sums = expected[row["name"], json.dumps(row["input_dims"]), cost["dtype"], row["why_null"]]
        work = [cost[k] and row["calls"] * cost[k] for k in ("flops_matrix", "flops_vector", "bytes")]
        for place, amount in enumerate((row["calls"], row["kernels"], round(row["gpu_sum_us"] * 1000), *work)):
            sums[place] = None if amount is None else sums[place] + amount
    rows = con.execute(
        "SELECT op, dims, dtype, not_modelled, n_ops, n_kernels, gpu_ns, flops_matrix, flops_vector, bytes, "
        "tflops, gigabytes_per_s, mfu, bandwidth_utilization FROM op_shape_utilization "
        f"WHERE coalesce(peak_kind, 'datasheet') = 'datasheet' AND {OLDER}"
    ).fetchall()
    ours = {(op, json.dumps(json.loads(dims)), *row[:2]): row[2:] for op, dims, *row in rows}
    assert len(ours) == len(rows)
    assert {key: row[:6] for key, row in ours.items()} == dict(expected)
    for (_, _, dtype, _), (*sums, tflops, gigabytes_per_s, mfu, bandwidth) in ours.items():
        _, _, gpu_ns, flops, _, n_bytes = sums
        if flops is None:
            assert (tflops, gigabytes_per_s, mfu, bandwidth) == (None,) * 4
            continue
        peak = device["peak_tflops"].get(dtype)
        assert tflops == pytest.approx(flops / gpu_ns / 1000, rel=1e-12)
        assert mfu == (0 if flops == 0 else peak and pytest.approx(flops / gpu_ns / 1000 / peak, rel=1e-12))
        assert gigabytes_per_s == (n_bytes and pytest.approx(n_bytes / gpu_ns, rel=1e-12))
        assert bandwidth == (n_bytes and pytest.approx(n_bytes / gpu_ns / device["hbm_gbs"], rel=1e-12))


@pytest.mark.slow
@pytest.mark.parametrize("name", named(["h100_qwen", "mi300_rccl_metadata", "v100_ns_absolute"]))
def test_owners_are_those_of_a_stack_walked_event_by_event(shared: Path, name: str) -> None:
    """Owners equal those of a stack that is walked event by event. In v100_ns_absolute 778 pairs of events cross."""
    con, _ = connect(shared / "traces" / "single" / f"{name}.json.gz")
    run_models(con, load_catalog(), ["op_kernels", "kernels"])
    walked = _walk(con)
    rows = con.execute(
        "SELECT event_id, launch_event_id, op_event_id FROM op_kernels JOIN kernels USING (trace_id, event_id)"
    ).fetchall()
    assert rows
    assert {row[0]: row[2] for row in rows} == {row[0]: walked.get(row[1]) for row in rows}


def _walk(con: duckdb.DuckDBPyConnection) -> dict[int, int | None]:
    """Return the owner of every launch, by one stack per thread."""
    owns = dict(con.execute("SELECT op, owns_below FROM op_kinds").fetchall())
    patterns = [re.compile(rule["name_pattern"]) for rule in rule_rows("op_patterns")]
    launches = {row[0] for row in con.execute("SELECT launch_event_id FROM kernels").fetchall()}
    threads = defaultdict(list)
    for row in con.execute(
        "SELECT pid, tid, event_id, start_ns, end_ns, cat, name FROM events WHERE ph = 'X' AND duration_ns IS NOT NULL AND cat "
        "IN ('cpu_op', 'user_annotation', 'python_function', 'cuda_runtime', 'cuda_driver', 'hip_runtime')"
    ).fetchall():
        threads[row[:2]].append(row[2:])
    owners: dict[int, int | None] = {}
    for events in threads.values():
        stack: list[tuple] = []
        for event in sorted(events, key=lambda e: (e[1], -e[2], e[0])):
            while stack and (stack[-1][2] < event[1] or stack[-1][2] == event[1] != stack[-1][1]):
                stack.pop()
            if event[0] in launches:
                ops = [e for e in stack if e[3] == "cpu_op"]
                modelled = [e for e in ops if e[4] in owns or any(pattern.search(e[4]) for pattern in patterns)]
                outer = [e for e in modelled if owns.get(e[4])]
                owners[event[0]] = (outer[:1] or modelled[-1:] or ops[-1:] or [(None,)])[0][0]
            stack.append(event)
    return owners


def test_what_has_no_work_says_why() -> None:
    shapes = {"Input Dims": [[2, 3], [3, 4]], "Input type": ["float", "float"], "Concrete Inputs": ["", ""]}
    events = [
        x("cpu_op", "aten::linear", 0, 10, **shapes),
        x("cpu_op", "aten::mm", 1, 8, **shapes),  # also owns the memset inside
        op("aten::zero_", 2, 3), call("cudaMemsetAsync", 3, 1, 1), kernel("Memset", 20, 1, 1, cat="gpu_memset"),
        call("cudaLaunchKernel", 6, 1, 2), kernel("gemm", 22, 2, 2),
        op("aten::mm", 11, 3), call("cudaLaunchKernel", 12, 1, 3), kernel("gemm", 30, 4, 3),
        x("cpu_op", "aten::mm", 15, 3, **{**shapes, "Input Dims": [[2, 3], [4, 5]]}),
        call("cudaLaunchKernel", 16, 1, 4), kernel("gemm", 40, 8, 4),
        x("cpu_op", "aten::cat", 19, 3, **shapes), call("cudaLaunchKernel", 20, 1, 5), kernel("cat", 50, 16, 5),
        op("replay", 23, 3), call("cudaGraphLaunch", 24, 1, 6), kernel("a", 70, 32, 6), kernel("b", 110, 64, 6),
        call("cudaLaunchKernel", 27, 1, 7), kernel("alone", 200, 128, 7),
        kernel("before", 400, 256, 8),
    ]  # fmt: skip
    tables = ["op_work", "op_work_coverage"]
    con, (trace_id, without_work) = connect_all([events, [op("aten::mm", 0, 10)]])
    run_models(con, load_catalog(), tables)
    only(con, trace_id, tables)
    work = con.execute(
        "SELECT op, n_kernels, gpu_ns, flops_matrix, bytes, not_modelled FROM op_work ORDER BY event_id"
    ).fetchall()
    assert work == [
        ("aten::mm", 2, 3_000, 2 * 2 * 3 * 4, 4 * (6 + 12 + 8), None),
        ("aten::mm", 1, 4_000, None, None, "no_shapes"),
        ("aten::mm", 1, 8_000, None, None, "bad_args"),
        ("aten::cat", 1, 16_000, None, None, "op_not_modelled"),
        ("replay", 2, 96_000, None, None, "graph"),
    ]
    covered = con.execute(
        "SELECT gpu_ns, with_op_ns, modelled_ns, matrix_ns, op_not_modelled_ns, no_shapes_ns, bad_args_ns, graph_ns, "
        "no_launch_ns, launch_without_op_ns, coverage FROM op_work_coverage"
    ).fetchall()
    times = [511_000, 127_000, 3_000, 3_000, 16_000, 4_000, 8_000, 96_000, 256_000, 128_000]
    assert [list(row) for row in covered] == [[*times, pytest.approx(3 / 127)]]
    # A trace without GPU work has no row.
    only(con, without_work, tables)
    assert con.execute("SELECT count(*) FROM op_work_coverage").fetchall() == [(0,)]


def test_work_beside_a_graph_that_its_operator_launches_is_in_one_part() -> None:
    """Work of an operator that also launches a graph counts in one part only.

    A compiled region launches a graph and a kernel. Another graph launch is in no operator.
    """
    events = [
        op("CompiledFunction", 0, 20),
        call("cudaGraphLaunch", 1, 1, 1), kernel("a", 30, 1, 1), kernel("b", 40, 2, 1),
        call("cudaLaunchKernel", 5, 1, 2), kernel("beside", 50, 4, 2),
        call("cudaGraphLaunch", 25, 1, 3), kernel("c", 60, 8, 3),
        op("other", 70, 5), call("cudaLaunchKernel", 71, 1, 4), kernel("d", 80, 16, 4),
    ]  # fmt: skip
    con, _ = connect(events)
    run_models(con, load_catalog(), ["op_work_coverage"])
    parts = "modelled_ns, op_not_modelled_ns, no_shapes_ns, bad_args_ns, graph_ns, no_launch_ns, launch_without_op_ns"
    (whole, *divided) = con.execute(f"SELECT gpu_ns, {parts} FROM op_work_coverage").fetchall()[0]
    assert (whole, divided) == (31_000, [0, 16_000, 0, 0, 15_000, 0, 0])


def test_an_operator_whose_formula_a_pattern_names_has_the_work_below_it() -> None:
    """An operator whose formula a pattern selects owns the work below it, like an operator of op_kinds.

    An operator with a model below it comes first. The pattern does not state that the operator owns the work below it.
    """
    shapes = {"Input Dims": [[8, 8], [8, 8]], "Input type": ["float", "float"], "Concrete Inputs": ["", ""]}
    events = [
        x("cpu_op", "triton_poi_fused_add_0", 0, 20, **shapes), op("mine::impl", 1, 18),
        call("cudaLaunchKernel", 2, 1, 1), kernel("add", 30, 1, 1),
        x("cpu_op", "aten::add", 5, 5, **shapes), call("cudaLaunchKernel", 6, 1, 2), kernel("below", 40, 2, 2),
        x("cpu_op", "mine::add_0", 20, 20, **shapes), op("mine::impl", 21, 18),
        call("cudaLaunchKernel", 22, 1, 3), kernel("of mine", 50, 4, 3),
    ]  # fmt: skip
    con, _ = connect(events)
    run_models(con, load_catalog(), ["op_work"])
    assert con.execute("SELECT op, gpu_ns, bytes, not_modelled FROM op_work ORDER BY event_id").fetchall() == [
        ("triton_poi_fused_add_0", 1_000, 2 * 64 * 4, None),
        ("aten::add", 2_000, 3 * 64 * 4, None),
        ("mine::impl", 4_000, None, "op_not_modelled"),
    ]
