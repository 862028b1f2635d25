"""A process's operating-system counters: from /proc on Linux, from psutil elsewhere.

CPU times, faults, context switches and bytes read and written are totals since the process started, so rates are
differences. The other counters are current values. A counter that the system does not report is None or missing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROC = Path("/proc")
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")

Counters = dict[str, Any]


class ProcessGone(Exception):
    """The process does not exist, or has ended."""


def reader(pid: int) -> Callable[[], Counters]:
    """Return a function that reads a process's counters. Raise ImportError if the system has neither /proc nor psutil.

    With psutil, raise ProcessGone if the process does not exist. With /proc, the returned function raises it.
    """
    if PROC.joinpath("self", "stat").exists():
        return lambda: _read_living(pid)
    try:
        import psutil
    except ImportError:
        raise ImportError("this system has no /proc; install psutil: pip install 'tracelake[counters]'") from None
    try:
        process = psutil.Process(pid)
    except psutil.NoSuchProcess:
        raise ProcessGone(f"no process {pid}") from None
    return lambda: _read_psutil(process)


def _read_living(pid: int) -> Counters:
    """Return a process's counters from /proc. Raise ProcessGone if the process has ended or is a zombie."""
    counters = read_proc(pid)
    if counters["state"] in "ZX":
        raise ProcessGone(f"no process {pid}")
    return counters


def read_proc(pid: int, proc: Path = PROC) -> Counters:
    """Return a process's counters from /proc, also of a zombie. Raise ProcessGone if the process does not exist."""
    folder = f"{proc}/{pid}"
    try:
        stat = parse_stat(_text(f"{folder}/stat"))
        memory = parse_statm(_text(f"{folder}/statm"))
        switches = parse_status(_text(f"{folder}/status"))
    except (FileNotFoundError, ProcessLookupError):
        raise ProcessGone(f"no process {pid}") from None
    try:
        transfers = parse_io(_text(f"{folder}/io"))
    except OSError:  # another user's process, or a zombie
        transfers = {"io_read_bytes": None, "io_write_bytes": None}
    return {"source": "proc", **stat, **memory, **switches, **transfers}


def _text(path: str) -> str:
    with open(path, "rb", buffering=0) as file:
        return file.read().decode("utf-8", "replace")


def parse_stat(text: str) -> Counters:
    """Return counters from /proc/PID/stat.

    The name in parentheses may itself contain spaces and parentheses, so fields are counted from the last parenthesis.
    """
    fields = text[text.rindex(")") + 2 :].split()  # fields[0] is field 3 of proc(5)
    return {
        "state": fields[0],
        "minflt": int(fields[7]),
        "majflt": int(fields[9]),
        "utime_ns": int(fields[11]) * _TICK_NS,
        "stime_ns": int(fields[12]) * _TICK_NS,
        "n_threads": int(fields[17]),
        "start_ticks": int(fields[19]),
        "cpu_last": int(fields[36]),
    }


def parse_statm(text: str) -> Counters:
    """Return memory sizes in bytes from /proc/PID/statm, which counts pages."""
    _, resident, shared, _, _, data, _ = map(int, text.split())
    return {"rss_bytes": resident * _PAGE, "shared_bytes": shared * _PAGE, "data_bytes": data * _PAGE}


def parse_status(text: str) -> Counters:
    """Return the main thread's context switches from /proc/PID/status."""
    return {
        "vol_ctx": _number(text, "\nvoluntary_ctxt_switches:"),
        "invol_ctx": _number(text, "\nnonvoluntary_ctxt_switches:"),
    }


def parse_io(text: str) -> Counters:
    """Return the bytes read from and written to storage from /proc/PID/io."""
    return {"io_read_bytes": _number(text, "\nread_bytes:"), "io_write_bytes": _number(text, "\nwrite_bytes:")}


def _number(text: str, key: str) -> int | None:
    pos = text.find(key)
    return None if pos < 0 else int(text[pos + len(key) :].split(maxsplit=1)[0])


def _read_psutil(process: Any) -> Counters:
    import psutil

    try:
        with process.oneshot():
            times, memory, switches = process.cpu_times(), process.memory_info(), process.num_ctx_switches()
            return {
                "source": "psutil",
                "state": process.status(),
                "utime_ns": round(times.user * 1e9),
                "stime_ns": round(times.system * 1e9),
                "n_threads": process.num_threads(),
                "start_ticks": round(process.create_time() * 1e3),  # ms since the epoch: only compared for equality
                "rss_bytes": memory.rss,
                "vol_ctx": switches.voluntary,
                "invol_ctx": switches.involuntary,
            }
    except psutil.NoSuchProcess:
        raise ProcessGone(f"no process {process.pid}") from None
