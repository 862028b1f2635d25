"""Unique names of processes, to check later whether a process still runs, and the import path for new processes."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")


def this_process() -> str:
    """Return this process's name `host:pid:start`. A later process with the same pid has another `start`."""
    return f"{socket.gethostname()}:{os.getpid()}:{_started(os.getpid())}"


def is_alive(process: str) -> bool:
    """Return whether the process `host:pid:start` runs. Processes of other hosts are assumed to run.

    An empty `start` matches any process with this pid.
    """
    host, pid, start = process.rsplit(":", 2)
    if host != socket.gethostname():
        return True
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # a process of another user, whose start is compared below
    started = _started(int(pid))
    return started != "ended" and ("" in (start, started) or started == start)


def this_machine() -> str:
    """Return an id of this machine until its next boot, or its host name on a system without such ids."""
    return _BOOT.read_text().strip() if _BOOT.exists() else socket.gethostname()


def owner_mark() -> str:
    """Return `host:pid:start@namespace` of this process, for the name of a folder that it owns (`is_running_here`)."""
    return f"{this_process()}@{_namespace()}"


def is_running_here(mark: str) -> bool | None:
    """Return whether the process of an `owner_mark` runs, or None if that is unknown.

    It is unknown for a text that is not an `owner_mark`, and for a process of another host, of another machine or
    container with the host's name, or from before the machine was booted.
    """
    process, _, namespace = mark.rpartition("@")
    if process.count(":") < 2 or namespace != _namespace():
        return None
    return is_alive(process) if process.rsplit(":", 2)[0] == socket.gethostname() else None


def _namespace() -> str:
    """Return the machine and the inode of this process's PID namespace, or an empty text without /proc.

    Machines have the same inode for their first namespace.
    """
    try:
        return f"{this_machine()}.{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""


def _started(pid: int) -> str:
    """Return a process's start in ticks since boot, '' without /proc, or `ended` for a zombie or dead process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "ended" if fields[0] in "ZX" else fields[19]


def import_path() -> str:
    """Return PYTHONPATH for the same imports as in this process, in a process with another working directory.

    `sys.path` may contain the working directory as an empty string, so it is replaced by the absolute path.
    """
    return os.pathsep.join(path or os.getcwd() for path in sys.path)
