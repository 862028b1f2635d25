"""Samples of GPU metrics: each has its time, and belongs to a GPU on which a process worked.

Findings report missing samples.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from pipelines.readers.inputs.single_trace import load_trace
from tests.harness import connect, memory
from tests.readers.nsys.small import CLOCK, SMS, START, call, kernel, range_of, sampled, small, written


def asked(path: Path) -> tuple[duckdb.DuckDBPyConnection, dict[str, int]]:
    """Return a connection with the trace, its kernels and both views, and the findings."""
    con, _ = connect(path)
    run_models(con, load_catalog(), ["kernels"])
    for view in ("gpu_metrics", "kernel_gpu_metrics"):
        con.execute(f"CREATE VIEW {view} AS {load_catalog().models[view].sql}")
    return con, dict(con.execute("SELECT check_name, n FROM findings").fetchall())


def changed(folder: Path, *statements: str) -> Path:
    path = written(sampled(), folder)
    with closing(sqlite3.connect(path)) as con:
        con.executescript(";".join(statements))
        con.commit()
    return path


def rows(con: duckdb.DuckDBPyConnection, query: str) -> list[tuple[Any, ...]]:
    return con.execute(query).fetchall()


def test_samples_have_their_time_name_and_unit_and_kernels_their_mean(tmp_path: Path) -> None:
    con, findings = asked(written(sampled(), tmp_path))
    assert rows(con, f"SELECT at_ns - {START}, device, gpu, unit, value FROM gpu_metrics WHERE metric = '{SMS}'") == [
        (5_000 + 10_000 * n, 0, 0, "Throughput %", 10.0 * n) for n in range(6)
    ]
    units = rows(con, "SELECT metric, unit, count(*), count(value) FROM gpu_metrics GROUP BY 1, 2 ORDER BY 1")
    assert units == [(CLOCK, "MHz", 6, 5), (SMS, "Throughput %", 6, 6), ("plain", None, 1, 1)]
    # gemm has the samples of 15, 25 and 35 us, and the plain metric's sample of its last ns; relu those of 45 and 55.
    query = (
        "SELECT k.name, m.metric, n_samples, mean FROM kernel_gpu_metrics AS m JOIN kernels AS k USING (trace_id, event_id) "
        "ORDER BY 1, 2"
    )
    assert rows(con, query) == [
        ("gemm", CLOCK, 2, None), ("gemm", SMS, 3, 20.0), ("gemm", "plain", 1, None), ("relu", CLOCK, 2, None),
        ("relu", SMS, 2, None),
    ]  # fmt: skip
    assert findings == {"nsys_other_gpus": 12}
    # Samples are not GPU work: the trace is as long as without them.
    assert rows(con, "SELECT count(*) FROM kernels") == [(2,)]


def test_a_span_has_the_samples_of_its_work(tmp_path: Path) -> None:
    """Two kernels, 51 us in total, have 3 and 2 samples. A third kernel is too short to be sampled."""
    export = sampled()
    range_of(export, "part", 500, 95_000)
    call(export, "cudaLaunchKernel_v7000", 62_000, 63_000, 21)
    kernel(export, "short", 64_000, 64_500, 21, 7)
    con, _ = connect(written(export, tmp_path))
    run_models(con, load_catalog(), ["kernels", "span_gpu_work", "span_kernels"])
    for view in ("gpu_metrics", "kernel_gpu_metrics", "span_gpu_metrics"):
        con.execute(f"CREATE VIEW {view} AS {load_catalog().models[view].sql}")
    query = (
        "SELECT metric, n_kernels, n_kernels_sampled, round(coverage, 4), n_samples, mean FROM span_gpu_metrics "
        "WHERE phase = 'window' ORDER BY metric"
    )
    whole = round(51 / 51.5, 4)
    assert rows(con, query) == [
        (CLOCK, 3, 2, whole, 4, 1_000.0), (SMS, 3, 2, whole, 5, (10 + 20 + 30 + 40 + 50) / 5),
        ("plain", 3, 1, round(32 / 51.5, 4), 1, None),
    ]  # fmt: skip


@pytest.mark.slow  # test_events.py checks the GPUs of an export
def test_the_export_tells_which_device_is_which_gpu(tmp_path: Path) -> None:
    path = changed(tmp_path, "CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INTEGER, cudaId INTEGER, pid INTEGER)",
                   "INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (1, 0, 4000), (0, 1, 4000)")  # fmt: skip
    con, findings = asked(path)
    assert rows(con, "SELECT DISTINCT device, gpu FROM gpu_metrics") == [(0, 1)] and findings == {"nsys_other_gpus": 13}


@pytest.mark.slow
def test_what_is_missing_or_wrong_is_told(tmp_path: Path) -> None:
    con, findings = asked(changed(tmp_path, "DROP TABLE TARGET_INFO_GPU_METRICS"))
    assert rows(con, "SELECT metric, unit FROM gpu_metrics WHERE value = 4") == [
        ("metric 2 (not in TARGET_INFO_GPU_METRICS)", None)
    ]
    assert findings == {"nsys_other_gpus": 12, "nsys_unknown_metric": 13}
    con, findings = asked(changed(tmp_path, "ALTER TABLE GPU_METRICS DROP COLUMN typeId"))
    assert rows(con, "FROM gpu_metrics") == [] and findings == {"nsys_missing_column": 1, "nsys_other_gpus": 25}
    con, findings = asked(changed(tmp_path, "UPDATE GPU_METRICS SET value = 1.5, timestamp = NULL WHERE value = 4"))
    assert rows(con, "SELECT at_ns, value FROM gpu_metrics WHERE metric = 'plain'") == [(None, None)]
    assert findings == {"nsys_other_gpus": 12, "nsys_wrong_type": 1, "nsys_without_time": 1}
    con, findings = asked(
        changed(tmp_path, "INSERT INTO TARGET_INFO_GPU_METRICS SELECT * FROM TARGET_INFO_GPU_METRICS")
    )
    assert rows(con, "SELECT count(*) FROM gpu_metrics") == [(13,)]


@pytest.mark.slow  # tests above cover samples of other GPUs, test_processes.py processes
def test_processes_have_the_samples_of_their_gpu(tmp_path: Path) -> None:
    export = sampled()
    second = 4100 << 24
    small(second, into=export)
    for row in (row for name, rows in export.rows.items() for row in rows if name.startswith("CUPTI")):
        if row.get("globalPid") == second and "deviceId" in row:
            row["deviceId"] = 1
    for process, n in (("4000", 13), ("4100", 12)):
        con = memory()
        load_trace(con, written(export, tmp_path), process=process)
        assert rows(con, "SELECT count(*) FROM events WHERE cat = 'gpu_metrics'") == [(n,)]
