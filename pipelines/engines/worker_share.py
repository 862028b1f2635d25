"""How much of a machine one worker may use: as many threads as CPUs were given to it, and that part of the memory."""

from __future__ import annotations

import os
from pathlib import Path

from pipelines.base import database

_OF_MEMORY = 0.6  # DuckDB's limit is not all that a worker needs: readers, Arrow tables, Python
_CGROUP = Path("/sys/fs/cgroup")


def take_share(cpus: int) -> None:
    """Have DuckDB and the readers of this process use `cpus` CPUs and their part of the memory from now on."""
    os.environ[database.THREADS] = str(cpus)
    os.environ[database.MEMORY] = str(max(256, int(memory() * _OF_MEMORY * min(1.0, cpus / cores())) >> 20))


def cores() -> int:
    """Returns the CPUs that this process may use: of the machine, or fewer where its container or affinity says so."""
    mine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota, _, period = _read("cpu.max").partition(" ")
    return max(1, min(mine, int(quota) // int(period))) if quota.isdigit() and period.isdigit() else mine


def memory() -> int:
    """Returns the bytes of memory of the machine, or of the container if it has fewer."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _read("memory.max") or _read("memory/memory.limit_in_bytes")
    return min(whole, int(limit)) if limit.isdigit() else whole


def _read(name: str) -> str:
    try:
        return (_CGROUP / name).read_text().strip()
    except OSError:
        return ""
