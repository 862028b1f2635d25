"""A worker's share of its machine: as many threads as it has CPUs, and the corresponding part of the memory."""

from __future__ import annotations

import os
from pathlib import Path

from pipelines.base import database

_OF_MEMORY = 0.6  # the rest is for readers, Arrow tables and Python, which DuckDB's limit does not cover
_CGROUP = Path("/sys/fs/cgroup")


def take_share(cpus: int) -> None:
    """Limit DuckDB and the readers of this process to `cpus` CPUs and their part of the memory."""
    os.environ[database.THREADS] = str(cpus)
    os.environ[database.MEMORY] = str(max(256, int(memory() * _OF_MEMORY * min(1.0, cpus / cores())) >> 20))


def cores() -> int:
    """Return the number of CPUs that this process may use, limited by its affinity and its container's quota."""
    mine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota, _, period = _read("cpu.max").partition(" ")
    return max(1, min(mine, int(quota) // int(period))) if quota.isdigit() and period.isdigit() else mine


def memory() -> int:
    """Return the memory of the machine, or of the container if it has less, in bytes."""
    machine_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _read("memory.max") or _read("memory/memory.limit_in_bytes")
    return min(machine_bytes, int(limit)) if limit.isdigit() else machine_bytes


def _read(name: str) -> str:
    try:
        return (_CGROUP / name).read_text().strip()
    except OSError:
        return ""
