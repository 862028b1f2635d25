"""The table of devices and the recognition of devices, compared with the reference."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest

from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from tests.harness import connect


@pytest.fixture
def reference(shared: Path) -> dict:
    return json.loads((shared / "golden" / "modelling" / "devices.json").read_text())


def test_every_device_has_the_reference_s_numbers(reference: dict) -> None:
    with duckdb.connect() as con:
        run_models(con, load_catalog(), ["devices", "device_peaks"])
        columns = "device_key, vendor, sms, hbm_gigabytes_per_s, link_unidirectional_gigabytes_per_s, pcie_unidirectional_gigabytes_per_s, compute_capability"
        ours = {row[0]: row for row in con.execute(f"SELECT {columns} FROM devices").fetchall()}
        peaks = con.execute("SELECT device_key, dtype, tflops FROM device_peaks").fetchall()
    for row in reference["rows"]:
        keys = ("key", "vendor", "sm", "hbm_gbs", "link_gbs_unidir", "pcie_gbs_unidir")
        assert ours[row["key"]][:6] == tuple(row[key] for key in keys)
        assert ours[row["key"]][6] == float(row["cc"])
        expected = {dtype: tflops for dtype, tflops in row["peak_tflops"].items() if tflops is not None}
        assert {dtype: tflops for key, dtype, tflops in peaks if key == row["key"]} == expected
    assert len(ours) == len(reference["rows"])


def test_devices_are_recognised_or_left_unknown(reference: dict) -> None:
    cases = reference["recognise_cases"]
    for first in range(0, len(cases), 8):
        some = cases[first : first + 8]
        listed = [
            {"id": i, **{key: case[key] for key in ("name", "totalGlobalMem", "numSms")}} for i, case in enumerate(some)
        ]
        con, _ = connect({"deviceProperties": listed, "traceEvents": []})
        run_models(con, load_catalog(), ["trace_devices"])
        rows = con.execute("SELECT name, device_key FROM trace_devices ORDER BY device").fetchall()
        assert rows == [(case["name"], case["expect"]) for case in some]


@pytest.mark.parametrize("name", ["NVIDIA GH200 480GB", "NVIDIA GB200", "NVIDIA L40", "NVIDIA A10"])
def test_names_that_hold_another_s_name_are_not_taken_for_it(name: str) -> None:
    device = {"id": 0, "name": name, "totalGlobalMem": 50 << 30, "numSms": 132}
    con, _ = connect({"deviceProperties": [device], "traceEvents": []})
    run_models(con, load_catalog(), ["trace_devices"])
    assert con.execute("SELECT device_key FROM trace_devices").fetchall() == [(None,)]


def test_slices_and_other_cards_of_the_name_do_not_have_its_peaks() -> None:
    """Slices and other cards of a name do not have the peaks of the card.

    A device without a recorded number of multiprocessors counts as the whole card of its name.
    """
    expected = {
        ("NVIDIA H100 80GB HBM3", 79, 132): "H100-SXM",
        ("NVIDIA H100 80GB HBM3", 79, None): "H100-SXM",
        ("NVIDIA H100 80GB HBM3", 79, 131): None,
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 10, 16): None,
        ("NVIDIA H100", 79, 114): "H100-PCIe",
        ("NVIDIA H100 PCIe", 79, 114): "H100-PCIe",
        ("NVIDIA H100 PCIe", 79, None): "H100-PCIe",
        ("NVIDIA H100 PCIe MIG 1g.10gb", 10, 14): None,
        ("NVIDIA H100 NVL", 93, 132): None,
        ("NVIDIA H200", 140, 132): "H200",
        ("NVIDIA H200 NVL", 140, 132): None,
        ("NVIDIA H200 MIG 1g.18gb", 16, 16): None,
        ("NVIDIA H800 PCIe", 79, 114): None,
        ("NVIDIA B200 MIG 1g.23gb", 22, 18): None,
        ("NVIDIA B300 SXM6 AC MIG 1g.34gb", 33, 18): None,
        ("NVIDIA A100-SXM4-40GB", 39, 108): "A100-40GB",
        ("NVIDIA A100-PCIE-40GB", 39, 108): "A100-40GB",
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", 5, 14): None,
        ("NVIDIA A100-SXM4-80GB MIG 3g.40gb", 40, 42): None,
        ("NVIDIA A100-SXM-64GB", 64, 124): None,
        ("Tesla V100-SXM2-16GB", 16, None): "V100-SXM2-16GB",
        ("Tesla V100-PCIE-16GB", 16, 80): None,
        ("Tesla V100-FHHL-16GB", 16, 80): None,
        ("Tesla V100S-PCIE-32GB", 32, 80): None,
        ("AMD Instinct MI300X", 24, 38): None,
        ("AMD Instinct MI350X", 36, 32): None,
        ("AMD Radeon Graphics", 192, 304): "MI300X",
        ("AMD Radeon Graphics", 192, 76): None,
        ("AMD Radeon Graphics", 192, None): None,  # memory size alone does not identify a device
        ("", 192, None): None,
        ("AMD Instinct MI210", 64, 104): "MI210",
        ("AMD Instinct MI250X/MI250", 64, 110): "MI250X-GCD",
        ("AMD Instinct MI250X/MI250", 64, 104): None,
    }
    devices = [
        {"id": i, "name": name, "totalGlobalMem": gib << 30, "numSms": sms}
        for i, (name, gib, sms) in enumerate(expected)
    ]
    con, _ = connect({"deviceProperties": devices, "traceEvents": []})
    run_models(con, load_catalog(), ["trace_devices"])
    rows = con.execute("SELECT device_key FROM trace_devices ORDER BY device").fetchall()
    assert {case: key for case, (key,) in zip(expected, rows, strict=True)} == expected


def test_all_devices_of_a_large_node_are_listed_and_ids_that_are_no_numbers_are_not() -> None:
    devices = [{"id": i, "name": "AMD Instinct MI300X", "totalGlobalMem": 1 << 37} for i in range(64)]
    con, _ = connect({"deviceProperties": [*devices, {"id": "x", "name": "y"}], "traceEvents": []})
    run_models(con, load_catalog(), ["trace_devices"])
    rows = con.execute("SELECT count(*), max(device), count(device_key) FROM trace_devices").fetchall()
    assert rows == [(64, 63, 64)]
