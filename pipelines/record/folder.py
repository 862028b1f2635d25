"""Folder of a recording: Parquet parts of its tables, and `recordings.parquet` with its metadata and state."""

from __future__ import annotations

import atexit
import os
import re
import socket
import threading
import time
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.record.host import ProcessGone, read_proc

Row = dict[str, Any]

_TEXT, _INT, _FLOAT, _BOOL = pa.string(), pa.int64(), pa.float64(), pa.bool_()


def _schema(texts: str, ints: str, floats: str = "", bools: str = "") -> pa.Schema:
    typed = ((_TEXT, texts), (_INT, ints), (_FLOAT, floats), (_BOOL, bools))
    return pa.schema([(name, kind) for kind, names in typed for name in names.split()])


SCHEMAS = {
    "recordings": _schema(
        "recording_id kind run_id host command source device device_name state unhooked net_source cpu_source",
        "rank pid start_ns end_ns n_rows n_steps n_sampled_steps n_late interval_ns cost_ns device_memory_bytes "
        "device_sms seen_ns recorder_pid recorder_start n_lost n_unhooked n_samples",
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
    "net_samples": _schema(
        "recording_id kind device port",
        "t_unix_ns t_mono_ns rx_bytes tx_bytes rx_packets tx_packets rx_errors tx_errors rx_dropped tx_dropped tx_wait "
        "cnp_sent cnp_handled ecn_marked out_of_sequence",
    ),
    "stack_samples": _schema("recording_id thread frames", "tid n_samples cpu_ns start_ns end_ns"),
    "span_samples": _schema(
        "recording_id name class phase input_shapes input_dtypes clock metadata",
        "step span_id parent_id depth tid start_ns duration_ns host_duration_ns cycles instructions branch_instructions "
        "branch_misses cache_references cache_misses",
        "counter_coverage",
        bools="is_failed is_census is_always",
    ),
    "span_sample_operators": _schema(
        "recording_id op dims types concrete", "step span_id n_calls n_calls_own n_calls_recompute"
    ),
    "span_sample_modules": _schema("recording_id name", "step n_calls n_modules hook_ns", bools="is_census"),
}
PART_ROWS = 20_000
FLUSH_SECONDS = 5.0
_SLOWEST = 60.0  # maximum seconds between two parts of a long recording
_MOST_PENDING = 10 * PART_ROWS  # maximum rows of a table kept in memory while writing fails
OPEN, COMPLETE = "open", "complete"


class Recording:
    """An open recording. Any thread may add rows, and a separate thread writes them. `close` completes the recording.

    If the process is killed, the rows of the last `flush_seconds` are lost. In a long recording, the rows of the last
    2 % of its duration are lost, at most a minute. `own_columns` returns the recorder's own columns of `recordings`.
    `pending` returns, by table, the rows that the recorder has buffered. `add` never raises or waits for the disk. Rows
    that cannot be written are kept for a while, then dropped and counted (`n_lost`). A forked process writes nothing.
    Raises ValueError if `out` is a URL, and OSError if the folder cannot be written.
    """

    def __init__(
        self,
        out: str | Path,
        kind: str,
        run_id: str | None,
        pid: int,
        rank: int | None,
        own_columns: Callable[[], Row] = dict,
        flush_seconds: float | None = None,
        pending: Callable[[], dict[str, list[Row]]] = dict,
    ) -> None:
        if re.match(r"[A-Za-z][\w+.-]+:/", str(out)):  # a URL; otherwise a local folder of that name would be created
            raise ValueError(f"{out} is not a folder on this machine; record locally and copy it")
        host = socket.gethostname()
        now = datetime.now(UTC)
        name = re.sub(r"[^\w.-]", "_", f"{now:%Y%m%dT%H%M%S%f}-{kind}-{host}-{pid}")
        self.folder = Path(out) / name
        self.folder.mkdir(parents=True)
        # By default each recording is its own run, because rows of several recordings must not look like one run.
        self.row: Row = {"recording_id": name, "kind": kind, "run_id": run_id or name, "host": host, "pid": pid}
        self.row |= {"rank": _rank() if rank is None else rank, "n_rows": 0, "n_lost": 0, "start_ns": time.time_ns()}
        self.row |= {"recorder_pid": os.getpid(), "recorder_start": _start_of(os.getpid())}
        self.error: Exception | None = None  # error of the last failed write, None after a successful one
        self._own_columns, self._pending = own_columns, pending
        self._flush_seconds = FLUSH_SECONDS if flush_seconds is None else flush_seconds
        self._rows: dict[str, list[Row]] = {}
        self._parts = 0
        # Reentrant, because a signal handler or the garbage collector may add rows while this thread does.
        self._lock, self._writing = threading.RLock(), threading.Lock()
        self._is_closing, self._wake = False, threading.Event()
        self._write_state(OPEN)  # write now, so that an unwritable folder raises here
        self._flusher = threading.Thread(target=self._keep_on_disk, name="recording-flusher", daemon=True)
        self._flusher.start()
        atexit.register(self._stop)

    def add(self, table: str, rows: list[Row]) -> None:
        """Add rows of a table, with `recording_id` set.

        If too many rows are pending (writing fails or the disk hangs), the oldest are dropped and counted as lost.
        """
        if os.getpid() != self.row["recorder_pid"]:
            return
        new_rows = [{**row, "recording_id": self.row["recording_id"]} for row in rows]
        with self._lock:
            pending_rows = self._rows.setdefault(table, [])
            self._drop_oldest(pending_rows)
            pending_rows += new_rows
            n_pending = len(pending_rows)
        if n_pending >= PART_ROWS and self.error is None:
            self._wake.set()

    def flush(self) -> None:
        """Write the pending rows and the recording's state to disk."""
        self._take_pending()
        self._flush(list(self._rows))
        self._write_state(OPEN)

    def close(self, **own_columns: Any) -> Path:
        """Write the remaining rows and the recording's own row, with `own_columns` added. Return the folder.

        Raises OSError if rows, or the recording's own row, cannot be written now but may be later.
        """
        if os.getpid() != self.row["recorder_pid"]:
            return self.folder
        self._stop()
        self._take_pending()
        error = self._flush(list(self._rows))
        if error is not None:
            raise error
        self._write_state(COMPLETE, **own_columns)
        return self.folder

    def close_or_warn(self, **own_columns: Any) -> Path:
        """Call `close`, but warn instead of raising an error, so that a successful run does not fail."""
        try:
            return self.close(**own_columns)
        except Exception as error:
            warnings.warn(
                f"{self.row['kind']} cannot be written to {self.folder}: {error}", RuntimeWarning, stacklevel=3
            )
            return self.folder

    @property
    def thread_ident(self) -> int | None:
        """Return the identifier of the writing thread."""
        return self._flusher.ident

    def _take_pending(self) -> None:
        for table, rows in self._pending().items():
            self.add(table, rows)

    def _stop(self) -> None:
        """End the thread, because it must not write during interpreter shutdown."""
        atexit.unregister(self._stop)
        self._is_closing = True
        self._wake.set()
        if os.getpid() == self.row["recorder_pid"] and self._flusher.is_alive():
            self._flusher.join()

    def _keep_on_disk(self) -> None:
        began = time.monotonic()
        while True:
            self._wake.wait(min(_SLOWEST, max(self._flush_seconds, (time.monotonic() - began) / 50)))
            # `_stop` sets `_is_closing` before `_wake`. Clearing `_wake` before the check misses no wake-up.
            self._wake.clear()
            if self._is_closing:
                return
            try:
                self.flush()
            except Exception as error:  # the disk may be full or unavailable, so the next attempt may succeed
                self.error = error

    def _flush(self, tables: list[str]) -> OSError | None:
        """Write the tables' pending rows. Return the last error for which rows stay pending, or None."""
        last_error = None
        with self._writing:
            for table in tables:
                with self._lock:
                    rows = self._rows.pop(table, [])
                if rows:
                    last_error = self._write(table, rows) or last_error
        return last_error

    def _write(self, table: str, rows: list[Row]) -> OSError | None:
        try:
            _put(rows, SCHEMAS[table], self.folder / f"{table}-{self._parts:06d}.parquet")
        except OSError as error:
            self.error = error
            with self._lock:
                self._rows[table] = rows + self._rows.get(table, [])
                self._drop_oldest(self._rows[table])
            return error
        except Exception as error:  # a value does not fit its column, so no later attempt will succeed
            self.error = error
            with self._lock:
                self.row["n_lost"] += len(rows)
        else:
            self.error = None
            self._parts += 1
            self.row["n_rows"] += len(rows)
        return None

    def _drop_oldest(self, rows: list[Row]) -> None:
        """Drop the pending rows beyond `_MOST_PENDING`. The caller holds the lock."""
        n_over = max(0, len(rows) - _MOST_PENDING)
        del rows[:n_over]
        self.row["n_lost"] += n_over

    def _write_state(self, state: str, **more: Any) -> None:
        row = {**self.row, **self._own_columns(), "state": state, "seen_ns": time.time_ns(), **more}
        _put([row], SCHEMAS["recordings"], self.folder / "recordings.parquet")


def _put(rows: list[Row], schema: pa.Schema, path: Path) -> None:
    hidden = path.with_name(f".{path.name}")
    try:
        table = pa.Table.from_pylist(rows, schema=schema)
    except UnicodeEncodeError:  # bytes of arguments or file names that are not UTF-8
        table = pa.Table.from_pylist([_encodable(row) for row in rows], schema=schema)
    pq.write_table(table, hidden, compression="zstd")
    os.replace(hidden, path)


def _encodable(row: Row) -> Row:
    """Return the row with escapes for the characters that UTF-8 cannot encode."""
    return {
        name: value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
        for name, value in row.items()
    }


def _rank() -> int | None:
    """Return the rank from the environment variable RANK, or None if it is unset or not a number."""
    text = os.environ.get("RANK", "")
    return int(text) if text.isdigit() else None


def _start_of(pid: int) -> int | None:
    """Return a process's start in clock ticks, or None if unknown. Pid and start together identify a process."""
    try:
        return read_proc(pid)["start_ticks"]
    except (ProcessGone, OSError):
        return None
