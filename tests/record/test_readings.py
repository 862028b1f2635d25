"""Readings per span: counters sampled during the spans, and the memory of a trace's spans, with sums checked by hand."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipelines.lake import Lake
from pipelines.lake.publish.analyst_file import publish
from pipelines.lake.publish.contents import column_types
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from pipelines.readers.ingest import ingest
from pipelines.record.folder import Recording
from tests.harness import connect, x

MS = 10**6
AT = 1_700_000_000 * 10**9


def recorded(folder: Path, kind: str, pid: int, tables: dict[str, list[dict[str, Any]]], run: str = "r") -> None:
    recording = Recording(folder, kind, run, pid, 0)
    for table, rows in tables.items():
        recording.add(table, rows)
    recording.close(start_ns=AT, end_ns=AT + 1000 * MS, source="host")


def counters(pid: int, rss: int) -> dict[str, list[dict[str, Any]]]:
    """Return samples every 100 ms for a second. A thread of the process uses half a core."""
    host, gpu, net = [], [], []
    for n in range(10):
        times = {"t_unix_ns": AT + n * 100 * MS, "t_mono_ns": n * 100 * MS}
        host.append(
            {**times, "pid": pid, "start_ticks": 1, "rss_bytes": rss + n, "utime_ns": n * 50 * MS, "n_threads": 3}
        )
        gpu += [{"t_unix_ns": times["t_unix_ns"], "gpu_index": i, "power_w": 100.0 * i + n, "nvlink_rx_kb": n * 1000 if i else None} for i in (0, 1)]  # fmt: skip
        net.append({**times, "kind": "net", "device": "eth0", "rx_bytes": n * 10_000})
    return {"host_samples": host, "gpu_samples": gpu, "net_samples": net}


def span(span_id: int, first_ms: int, last_ms: int) -> dict[str, Any]:
    row = {
        "step": 0,
        "span_id": span_id,
        "depth": 0,
        "name": f"s{span_id}",
        "class": "own",
        "phase": "own",
        "is_failed": False,
    }
    return {**row, "start_ns": AT + first_ms * MS, "duration_ns": (last_ms - first_ms) * MS, "clock": "host"}


def readings(folder: Path) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    lake = Lake(folder / "lake")
    assert {row.status for row in ingest([folder / "in"], lake).rows} == {"ok"}
    with duckdb.connect(str(publish(lake)), read_only=True) as con:
        rows = con.execute(
            "SELECT span_id, source, device, reading, n_samples, round(mean, 6), least, most FROM span_sample_readings"
        ).fetchall()
    return {row[:4]: row[4:] for row in rows}


def test_samples_that_fall_into_a_span_belong_to_it(tmp_path: Path) -> None:
    """Readings of a span are from the samples that fall into it.

    These are samples at 300 and 400 ms, and rates at 300, 400 and 500 ms. A rate belongs to the middle of its interval:
    250, 350 and 450 ms.
    """
    spans = [span(0, 250, 460), span(1, 410, 440)]
    recorded(tmp_path / "in", "spans", 7, {"span_samples": spans})
    recorded(tmp_path / "in", "counters", 7, counters(7, 1000))
    recorded(tmp_path / "in", "counters", 8, counters(8, 9000))  # another process
    summaries = readings(tmp_path)
    assert summaries[0, "process", "", "rss_bytes"] == (2, 1003.5, 1003, 1004)
    assert summaries[0, "process", "", "user_cores"] == (3, 0.5, 0.5, 0.5)
    assert summaries[0, "gpu", "0", "power_w"] == (2, 3.5, 3, 4)
    assert summaries[0, "gpu", "1", "power_w"] == (2, 103.5, 103, 104)
    assert summaries[0, "gpu", "1", "nvlink_rx_bytes_per_s"] == (3, 10_240_000, 10_240_000, 10_240_000)
    assert summaries[0, "net", "eth0", "rx_bytes_per_s"] == (3, 100_000, 100_000, 100_000)
    assert not [key for key in summaries if key[0] == 1]  # no sample falls into this span
    not_read = {key[3] for key in summaries} & {"sm_util", "tx_bytes_per_s", "pcie_rx_bytes_per_s", "read_bytes_per_s"}
    assert not not_read and (0, "gpu", "0", "nvlink_rx_bytes_per_s") not in summaries


@pytest.mark.slow  # 2 s; the test above has counters of several processes
def test_of_another_process_only_what_is_the_host_s(tmp_path: Path) -> None:
    recorded(tmp_path / "in", "spans", 7, {"span_samples": [span(0, 250, 460)]})
    recorded(tmp_path / "in", "counters", 9, counters(9, 5), run="other")
    recorded(tmp_path / "in", "counters", 8, counters(8, 9000))
    summaries = readings(tmp_path)
    assert {key[1] for key in summaries} == {"gpu", "net"}
    assert summaries[0, "gpu", "0", "power_w"] == (2, 3.5, 3, 4)  # once, although two recordings have them


def create_empty(con: duckdb.DuckDBPyConnection) -> None:
    """Create the input tables of the readings, except the logs of NCCL's Inspector."""
    types = column_types(load_catalog())
    for table in ("recordings", "span_samples", "host_samples", "host_rates", "gpu_samples", "net_rates", "recording_devices", "devices"):  # fmt: skip
        con.execute(f"CREATE TABLE {table} ({', '.join(f'{column} {kind}' for column, kind in types[table])})")


def test_calls_of_nccl_belong_to_the_span_that_they_were_enqueued_in() -> None:
    host = socket.gethostname()
    with duckdb.connect() as con:
        create_empty(con)
        con.execute(
            f"INSERT INTO recordings BY NAME SELECT 'a' AS recording_id, 'spans' AS kind, '{host}' AS host, 7 AS pid"
        )
        con.execute(
            f"INSERT INTO span_samples BY NAME SELECT 'a' AS recording_id, 0 AS step, 0 AS span_id, {AT} AS start_ns, 100 AS duration_ns"
        )
        con.execute(
            f"CREATE TABLE inspector_logs AS SELECT * FROM (VALUES ('l', '{host}', 7), ('m', '{host}', 8)) AS t (log_id, host, pid)"
        )
        con.execute(
            "CREATE TABLE inspector_collectives AS SELECT *, 'AllReduce' AS name, 2.0 AS bus_gigabytes_per_s, 30 AS duration_ns FROM "
            f"(VALUES ('l', {AT}, 100), ('l', {AT + 99}, 300), ('l', {AT + 100}, 7), ('m', {AT}, 9), ('l', NULL, 8)) AS t (log_id, enqueued_ns, size_bytes)"
        )
        rows = con.execute(f"SELECT device, reading, n_samples, mean FROM ({load_catalog().models['span_sample_readings'].sql}) ORDER BY 2").fetchall()  # fmt: skip
    assert rows == [
        ("AllReduce", "bus_gigabytes_per_s", 2, 2.0), ("AllReduce", "duration_ns", 2, 30.0), ("AllReduce", "size_bytes", 2, 200.0),
    ]  # fmt: skip


def test_links_are_used_in_percent_of_those_of_the_recording_s_device() -> None:
    """The use of links is in percent of the peaks of the recording's device.

    In 1.024 s, 45 GB pass through NVLink, and 32 GB/s through PCIe. The rate of c's NVLink is unknown, and d is an
    unknown device.
    """
    with duckdb.connect() as con:
        create_empty(con)
        for table in ("inspector_logs", "inspector_collectives"):
            columns = ", ".join(f"{column} {kind}" for column, kind in column_types(load_catalog())[table])
            con.execute(f"CREATE TABLE {table} ({columns})")
        con.execute(
            f"INSERT INTO recordings BY NAME SELECT *, 'h' AS host, {AT} AS start_ns, {AT + 10**10} AS end_ns FROM (VALUES "
            "('a', 'spans', 7, 'SXM'), ('c', 'spans', 8, 'PCIe'), ('d', 'spans', 9, 'SXM'), ('n', 'counters', 1, NULL)) "
            "AS t (recording_id, kind, pid, device_name)"
        )
        con.execute("INSERT INTO recording_devices VALUES ('a', 'H100-SXM'), ('c', 'H100-PCIe'), ('d', NULL)")
        con.execute(
            "INSERT INTO devices BY NAME SELECT * FROM (VALUES ('H100-SXM', 450, 64), ('H100-PCIe', NULL, 64)) "
            "AS t (device_key, link_unidirectional_gigabytes_per_s, pcie_unidirectional_gigabytes_per_s)"
        )
        con.execute(
            f"INSERT INTO gpu_samples BY NAME SELECT 'n' AS recording_id, gpu_index, gpu_name, {AT} + n * 1024 * {MS} AS t_unix_ns, "
            "n * 45_000_000 AS nvlink_rx_kb, 32_000_000 AS pcie_rx_kbs, 300.0 AS power_w "
            "FROM (VALUES (0, 'SXM'), (1, 'PCIe')) AS t (gpu_index, gpu_name), (VALUES (0), (1)) AS u (n)"
        )
        con.execute(
            f"INSERT INTO span_samples BY NAME SELECT recording_id, 0 AS step, 0 AS span_id, {AT} AS start_ns, {2048 * MS} AS duration_ns "
            "FROM recordings WHERE kind = 'spans'"
        )
        query = f"SELECT recording_id, device, reading, link_percent FROM ({load_catalog().models['span_sample_readings'].sql})"
        rows = con.execute(query).fetchall()
    assert len(rows) == 3 * 2 * 3
    assert sorted(row for row in rows if row[3] is not None) == [
        ("a", "0", "nvlink_rx_bytes_per_s", 10.0), ("a", "0", "pcie_rx_bytes_per_s", 50.0), ("c", "1", "pcie_rx_bytes_per_s", 50.0),
    ]  # fmt: skip


def test_memory_of_a_trace_s_spans() -> None:
    def memory(at: float, size: int, total: int) -> dict[str, Any]:
        args = {
            "Total Allocated": total,
            "Total Reserved": 4096,
            "Bytes": size,
            "Addr": at,
            "Device Id": 0,
            "Device Type": 1,
        }
        return {
            "ph": "i",
            "cat": "cpu_instant_event",
            "s": "t",
            "name": "[memory]",
            "pid": 100,
            "tid": 1,
            "ts": at,
            "args": args,
        }

    events = [
        x("user_annotation", "outer", 0, 100), x("user_annotation", "inner", 40, 20), x("user_annotation", "empty", 80, 5),
        memory(10, 100, 100), memory(40, 300, 400), memory(50, -100, 300), memory(60, 50, 350),
    ]  # fmt: skip
    con, _ = connect(events)
    run_models(con, load_catalog(), ["spans", "memory_timeline"])
    rows = con.execute(
        f"SELECT name, n_samples, allocated_in_span_bytes, net_bytes, peak_allocated_bytes, peak_reserved_bytes FROM ({load_catalog().models['span_memory'].sql}) ORDER BY 1"
    ).fetchall()
    assert rows == [("inner", 2, 300, 200, 400, 4096), ("outer", 4, 450, 350, 400, 4096)]
