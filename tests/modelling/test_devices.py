"""The devices' table and their recognition, against the reference."""

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


def test_all_devices_of_a_large_node_are_listed_and_ids_that_are_no_numbers_are_not() -> None:
    devices = [{"id": i, "name": "AMD Instinct MI300X", "totalGlobalMem": 1 << 37} for i in range(64)]
    con, _ = connect({"deviceProperties": [*devices, {"id": "x", "name": "y"}], "traceEvents": []})
    run_models(con, load_catalog(), ["trace_devices"])
    rows = con.execute("SELECT count(*), max(device), count(device_key) FROM trace_devices").fetchall()
    assert rows == [(64, 63, 64)]
