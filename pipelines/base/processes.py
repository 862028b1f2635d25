"""Names of processes that outlive them: to tell whether the process that wrote a name still runs."""

from __future__ import annotations

import os
import socket
from pathlib import Path


def this_process() -> str:
    """`host:pid:start` of this process: a later one with the same number started at another time."""
    return f"{socket.gethostname()}:{os.getpid()}:{_started(os.getpid())}"


def is_alive(process: str) -> bool:
    """Returns whether the process `host:pid:start` runs. Processes of other hosts are unknown and assumed to run."""
    host, pid, start = process.rsplit(":", 2)
    if host != socket.gethostname():
        return True
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it exists and belongs to another user
        return True
    return _started(int(pid)) in ("", start)


def _started(pid: int) -> str:
    """When a process started, in ticks since boot; empty if there is no /proc, `ended` for one that only waits."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "ended" if fields[0] in "ZX" else fields[19]
