"""Bandwidths of communication kernels: reference numbers of real traces, and groups that span one node or several."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from tests.effort import named
from tests.harness import connect, kernel, rows_of


@cache
def bandwidths(path: Path) -> duckdb.DuckDBPyConnection:
    """Return a connection with the bandwidths of a real trace."""
    con, _ = connect(path)
    run_models(con, load_catalog(), ["collective_bandwidth"])
    return con


@pytest.mark.slow
@pytest.mark.parametrize("trace", named(["a100_nccl_metadata", "b200_eager_71_process_groups", "mi300_rccl_metadata"]))
def test_bandwidths_are_the_reference_s(shared: Path, trace: str) -> None:
    reference = json.loads((shared / "golden" / "modelling" / f"comm__{trace}.json").read_text())["rows"]
    con = bandwidths(shared / "traces" / "single" / f"{trace}.json.gz")
    rows = con.execute(
        "SELECT event_id, duration_ns, collective_name, group_size, group_name, stream, bytes, algbw_gigabytes_per_s, "
        "busbw_lower_gigabytes_per_s FROM collective_bandwidth ORDER BY start_ns"
    ).fetchall()
    # The reference knows only NCCL's kernels. Only we know those of symmetric memory (multimem_all_reduce on the B200).
    events = json.loads(gzip.decompress((shared / "traces" / "single" / f"{trace}.json.gz").read_bytes()))[
        "traceEvents"
    ]
    nccl_rows = [row[1:] for row in rows if "multimem" not in events[row[0]]["name"]]
    assert (len(nccl_rows) < len(rows)) == trace.startswith("b200")
    keys = ("coll", "group", "pg", "stream", "S")
    expected = [
        (
            round(row["dur_us"] * 1000),
            *((row[k] for k in keys) if "coll" in row else (None, None, None, stream, None)),
            *(None if "coll" not in row else pytest.approx(row[k], rel=1e-12) for k in ("algbw", "busbw")),
        )
        for row, (*_, stream, _, _, _) in zip(sorted(reference, key=lambda row: row["ts"]), nccl_rows, strict=True)
    ]
    assert nccl_rows == expected


@pytest.mark.slow
def test_ideal_times_of_a_step_are_the_reference_s(shared: Path) -> None:
    """Each step has four collectives over links of 448 GB/s."""
    reference = json.loads((shared / "golden" / "modelling" / "formulas.json").read_text())
    expected = {row["step"]: row["t_c2c_ideal_us"] for row in reference["exposure_real_mi300_resnet_ckpt"]}
    trace = shared / "traces" / "single" / "mi300_rccl_metadata.json.gz"
    columns = "step, ideal_ns, spans_nodes, limit_gigabytes_per_s"
    rows = bandwidths(trace).execute(f"SELECT {columns} FROM collective_bandwidth ORDER BY ALL").fetchall()
    for step, ideal_us in expected.items():
        own = [row for row in rows if f"ProfilerStep#{row[0]}" == step]
        assert {row[2:] for row in own} == {(False, 448.0)}
        assert sum(row[1] for row in own) == pytest.approx(ideal_us * 1000, rel=1e-12)


def collective(name: str, start: float, size: int, ranks: str, **more: Any) -> dict[str, Any]:
    args = {
        **{"Collective name": name, "In msg nelems": 1000, "Out msg nelems": 1000 * size, "dtype": "BFloat16"},
        **{"Group size": size, "Process Group Name": "0", "Process Group Ranks": ranks, **more},
    }
    event = kernel("ncclDevKernel_Generic", start, 10, 1)
    event["args"] |= args
    return event


def test_factors_places_and_what_is_not_known() -> None:
    devices = [{"id": i, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 80 << 30, "numSms": 132} for i in range(4)]
    events = [
        collective("all_gather", 0, 4, "[0, 1, 2, 3]"),
        collective("reduce_scatter", 20, 4, "[4, 5, 6, 7]"),
        collective("all_to_all", 40, 2, "[2, 6]"),
        collective("gather", 60, 8, "[0, 1, 2, 3, ..."),
        collective("scatter", 80, 4, "[0, 1, ..."),
        collective("broadcast", 100, 4, "[0, 1, 2, 3]"),
        collective("allreduce", 120, 1, "[3]"),
        collective("allreduce", 140, 4, "[0, 1, 2, 3]", dtype="Secret"),
    ]
    con, _ = connect({"deviceProperties": devices, "traceEvents": events})
    run_models(con, load_catalog(), ["collective_bandwidth"])
    rows = con.execute(
        "SELECT kind, bytes, busbw_lower_gigabytes_per_s, spans_nodes, ideal_ns FROM collective_bandwidth ORDER BY start_ns"
    ).fetchall()
    near = pytest.approx
    assert rows == [
        ("allgather", 8000, near(0.8 * 3 / 4), False, near(8000 * 3 / 4 / 450)),
        ("reducescatter", 8000, near(0.8 * 3 / 4), False, near(8000 * 3 / 4 / 450)),
        ("alltoall", 4000, near(0.4 / 2), True, None),  # the network is unknown
        ("gather", 16000, near(1.6 * 7 / 8), True, None),
        ("scatter", 8000, near(0.8 * 3 / 4), None, None),  # a truncated list
        ("broadcast", 8000, near(0.8), False, near(8000 / 450)),
        ("allreduce", 2000, None, False, 0.0),
        ("allreduce", None, None, False, None),
    ]
    assert con.execute("SELECT count(*) FROM collective_bandwidth WHERE link_utilization IS NOT NULL").fetchall() == [
        (3,)
    ]


def test_sizes_that_no_message_has_are_unknown() -> None:
    """Sizes that no message can have are unknown.

    Each element has four bytes. The file is corrupt, and the other traces of its batch must not fail because of it.
    """
    largest = (2**63 - 1) // 4
    sizes = {0: 0, largest: largest * 4, largest + 1: None, -5: None}
    events = [
        collective("allreduce", 20 * place, 4, "[0, 1, 2, 3]", **dict.fromkeys(("In msg nelems", "Out msg nelems"), n), dtype="Float")
        for place, n in enumerate(sizes)
    ]  # fmt: skip
    rows = rows_of(events, "collective_bandwidth", "bytes, algbw_gigabytes_per_s IS NULL", "start_ns")
    assert rows == [(n_bytes, n_bytes is None) for n_bytes in sizes.values()]
