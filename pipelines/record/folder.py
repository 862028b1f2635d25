"""The folder of a recording: Parquet parts of its tables, and last `recordings.parquet`, which makes it whole."""

from __future__ import annotations

import os
import re
import socket
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Row = dict[str, Any]

_TEXT, _INT, _FLOAT, _BOOL = pa.string(), pa.int64(), pa.float64(), pa.bool_()


def _schema(texts: str = "", ints: str = "", floats: str = "", bools: str = "") -> pa.Schema:
    typed = ((_TEXT, texts), (_INT, ints), (_FLOAT, floats), (_BOOL, bools))
    return pa.schema([(name, kind) for kind, names in typed for name in names.split()])


SCHEMAS = {
    "recordings": _schema(
        "recording_id kind run_id host command source device device_name",
        "rank pid started_ns ended_ns n_rows n_steps n_sampled_steps n_late interval_ns cost_ns device_memory_bytes "
        "device_sms",
        "rate",
    ),
    "host_samples": _schema(
        "recording_id source state",
        "pid t_unix_ns t_mono_ns interval_ns start_ticks utime_ns stime_ns minflt majflt n_threads rss_bytes "
        "shared_bytes data_bytes vol_ctx invol_ctx io_read_bytes io_write_bytes cpu_last",
    ),
    "gpu_samples": _schema(
        "recording_id gpu_uuid gpu_name",
        "gpu_index t_unix_ns sm_util mem_util mem_used_bytes sm_clock_mhz mem_clock_mhz temp_c throttle_mask "
        "pcie_rx_kbs pcie_tx_kbs nvlink_rx_kb nvlink_tx_kb",
        "power_w",
    ),
    "span_samples": _schema(
        "recording_id name class phase input_shapes input_dtypes clock",
        "step span_id parent_id depth tid ts_ns dur_ns host_dur_ns",
        bools="is_failed is_census",
    ),
    "span_sample_operators": _schema(
        "recording_id op dims types concrete", "step span_id n_calls n_calls_own n_calls_recompute"
    ),
}
PART_ROWS = 20_000


class Recording:
    """An open recording: rows go in from any thread, parts are written as they fill; `close` makes it whole.

    A recording that was killed has no `recordings.parquet`, and readers pass it over. Raises ValueError for a URL.
    """

    def __init__(self, out: str | Path, kind: str, run_id: str | None, pid: int, rank: int | None) -> None:
        if re.match(r"[A-Za-z][\w+.-]+:/", str(out)):  # a folder of that name would be made
            raise ValueError(f"{out} is no folder of this machine; record there and copy it")
        host = socket.gethostname()
        now = datetime.now(UTC)
        name = re.sub(r"[^\w.-]", "_", f"{now:%Y%m%dT%H%M%S%f}-{kind}-{host}-{pid}")
        self.folder = Path(out) / name
        self.folder.mkdir(parents=True)
        # Who asks for no name gets one of their own: rows of several recordings must not look like one run.
        self.row: Row = {"recording_id": name, "kind": kind, "run_id": run_id or name, "host": host, "pid": pid}
        self.row |= {"rank": _rank() if rank is None else rank, "n_rows": 0}
        self._rows: dict[str, list[Row]] = {}
        self._parts = 0
        self._lock = threading.Lock()

    def add(self, table: str, rows: list[Row]) -> None:
        """Add rows of a table; `recording_id` is filled in."""
        with self._lock:
            kept = self._rows.setdefault(table, [])
            kept += [{**row, "recording_id": self.row["recording_id"]} for row in rows]
            self.row["n_rows"] += len(rows)
            if len(kept) >= PART_ROWS:
                self._write(table)

    def close(self, **told: Any) -> Path:
        """Write what is left and the recording's own row with what is `told` of it; returns the folder."""
        with self._lock:
            for table in list(self._rows):
                self._write(table)
            _put([{**self.row, **told}], SCHEMAS["recordings"], self.folder / "recordings.parquet")
        return self.folder

    def _write(self, table: str) -> None:
        rows = self._rows.pop(table)
        if rows:
            _put(rows, SCHEMAS[table], self.folder / f"{table}-{self._parts:06d}.parquet")
            self._parts += 1


def _put(rows: list[Row], schema: pa.Schema, path: Path) -> None:
    hidden = path.with_name(f".{path.name}")
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), hidden, compression="zstd")
    os.replace(hidden, path)


def _rank() -> int | None:
    """The rank that torchrun gave the process."""
    given = os.environ.get("RANK", "")
    return int(given) if given.isdigit() else None
