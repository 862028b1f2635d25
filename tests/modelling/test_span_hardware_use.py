"""Compute, memory and links per span, each with its coverage, for a step that can be worked out on paper."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from tests.harness import call, connect, kernel, x

H100 = [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 80 << 30, "numSms": 132}]
N = 1024


def sent(start: float, duration: float, correlation: int, **more: Any) -> dict[str, Any]:
    """Return an all-reduce of 4 MB among this machine's four ranks, unless `more` changes it, on a separate stream."""
    args = {
        **{"Collective name": "allreduce", "In msg nelems": 1_000_000, "Out msg nelems": 1_000_000, "dtype": "Float"},
        **{"Group size": 4, "Process Group Name": "0", "Process Group Ranks": "[0, 1, 2, 3]", **more},
    }
    event = kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", start, duration, correlation, stream=20)
    event["args"] |= args
    return event


def rows(events: list[dict[str, Any]], devices: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    con, _ = connect({"deviceProperties": devices * 4 and [{**device, "id": i} for i in range(4) for device in devices], "traceEvents": events})  # fmt: skip
    run_models(con, load_catalog(), ["span_hardware_use", "span_utilization"])
    cursor = con.execute(
        "FROM span_hardware_use WHERE phase = 'window' AND coalesce(peak_kind, 'datasheet') = 'datasheet'"
    )
    names = [column[0] for column in cursor.description or ()]
    return {row["name"]: row for row in (dict(zip(names, values, strict=True)) for values in cursor.fetchall())}


def steps() -> list[dict[str, Any]]:
    """Return two steps.

    The first has a product of 10 us and two all-reduces, one of them without a size. The second has only a product.
    """
    dims = {"Input Dims": [[N, N], [N, N]], "Input type": ["c10::BFloat16", "c10::BFloat16"]}
    product = x("cpu_op", "aten::mm", 2, 5, **dims)
    return [
        x("user_annotation", "ProfilerStep#1", 0, 50),
        product,
        call("cudaLaunchKernel", 3, 2, 1),
        kernel("gemm", 10, 10, 1),
        call("cudaLaunchKernel", 12, 2, 2),
        sent(30, 40, 2),
        call("cudaLaunchKernel", 16, 2, 3),
        sent(80, 10, 3, dtype="Secret"),
        x("user_annotation", "ProfilerStep#2", 200, 50),
        {**product, "ts": 202},
        call("cudaLaunchKernel", 203, 2, 4),
        kernel("gemm", 210, 10, 4),
    ]


def test_each_part_has_its_own_coverage() -> None:
    uses = rows(steps(), H100)
    first, second = uses["ProfilerStep#1"], uses["ProfilerStep#2"]
    assert first["busy_ns"] == 60_000 and second["busy_ns"] == 10_000
    assert first["compute_utilization"] == pytest.approx(2 * N**3 / 989_400 / 60_000)
    assert first["memory_utilization"] == pytest.approx(6 * N**2 / 3350 / 60_000)
    assert first["operator_coverage"] == 1.0
    assert first["n_collectives"] == 2 and first["interconnect_coverage"] == 0.8
    assert first["interconnect_utilization"] == pytest.approx(4_000_000 * 1.5 / 450 / 60_000)
    assert second["compute_utilization"] == pytest.approx(6 * first["compute_utilization"])
    assert [second[name] for name in ("n_collectives", "interconnect_utilization", "interconnect_coverage")] == [
        None
    ] * 3


@pytest.mark.slow  # 2 s; test_utilization.py has an unknown device
def test_what_is_not_known_is_null() -> None:
    unknown = rows(steps(), [{"id": 0, "name": "Some Accelerator 9000"}])["ProfilerStep#1"]
    names = ("compute_utilization", "memory_utilization", "interconnect_utilization")
    assert [unknown[name] for name in names] == [None] * 3 and unknown["interconnect_coverage"] == 0.0
    without_dims = [{k: v for k, v in event.items() if event["name"] != "aten::mm" or k != "args"} for event in steps()]
    blind = rows(without_dims, H100)["ProfilerStep#1"]
    assert blind["compute_utilization"] is None and blind["operator_coverage"] == 0.0
    assert blind["interconnect_utilization"] is not None


@pytest.mark.slow
def test_what_links_would_take_is_the_reference_s(shared: Path) -> None:
    """In a real trace, a step's busy time times its use of links is the reference's ideal time of its collectives."""
    reference = json.loads((shared / "golden" / "modelling" / "formulas.json").read_text())
    expected = {row["step"]: row["t_c2c_ideal_us"] * 1000 for row in reference["exposure_real_mi300_resnet_ckpt"]}
    con, _ = connect(shared / "traces" / "single" / "mi300_rccl_metadata.json.gz")
    run_models(con, load_catalog(), ["span_hardware_use"])
    uses = con.execute(
        "SELECT name, busy_ns * interconnect_utilization, interconnect_coverage FROM span_hardware_use "
        "WHERE kind = 'step' AND phase = 'window'"
    ).fetchall()
    assert {name: ideal for name, ideal, _ in uses} == pytest.approx(expected, rel=1e-9)
    assert {coverage for *_, coverage in uses} == {1.0}
