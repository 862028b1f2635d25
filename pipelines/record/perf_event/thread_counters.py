"""Reads the CPU's hardware counters of the calling thread, in user code: what `perf stat -e cycles:u,…` counts.

The numbers are those of linux/perf_event.h. An event that the CPU or the system does not offer is None, and `source` says why.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
_HARDWARE = 0  # PERF_TYPE_HARDWARE
EVENTS: tuple[Mapping[str, tuple[int, int]], ...] = (
    {
        "cycles": (_HARDWARE, 0),
        "instructions": (_HARDWARE, 1),
        "branch_instructions": (_HARDWARE, 4),
        "branch_misses": (_HARDWARE, 5),
    },
    {"cache_references": (_HARDWARE, 2), "cache_misses": (_HARDWARE, 3)},
)
"""Our name → type and config, in groups: those of one are counted at the same times. More at once than most CPUs count."""
_SYSCALL = {"x86_64": 298, "aarch64": 241}
_ATTR_BYTES = 64  # PERF_ATTR_SIZE_VER0, which all kernels take
_READ_FORMAT = 1 | 2 | 8  # TOTAL_TIME_ENABLED, TOTAL_TIME_RUNNING, GROUP
_FLAGS = 1 << 5 | 1 << 6  # exclude_kernel, exclude_hv: needs the least right
_CLOSE_ON_EXEC = 1 << 3
_NO_RIGHT = (errno.EACCES, errno.EPERM)

Counts = list[tuple[tuple[str, ...], tuple[int, ...]]]
"""Of each group: names; ns enabled, ns counted, and the values."""


class ThreadCounters:
    """Counters of every thread that calls `read`, from its first call on. `source`: what is counted, or why nothing is."""

    def __init__(self) -> None:
        self._own = threading.local()
        self._files: list[int] = []
        self._lock = threading.Lock()
        self._refused: dict[str, str] = {}
        self.source = self._why_not() or self._tried()
        self._counts = self.source.startswith("perf_event:")

    def read(self) -> Counts | None:
        """Returns what the calling thread has counted so far; None where nothing is counted."""
        if not self._counts:
            return None
        groups = getattr(self._own, "groups", None)
        if groups is None:
            groups = self._own.groups = self._open_groups()
        try:
            return [(names, _numbers(os.read(file, 8 * (3 + len(names))))) for file, names in groups]
        except OSError:  # closed meanwhile
            return None

    def close(self) -> None:
        """Count no longer."""
        self._counts = False
        with self._lock:
            for file in self._files:
                with suppress(OSError):
                    os.close(file)
            self._files.clear()

    def _why_not(self) -> str | None:
        if sys.platform != "linux":
            return "none: perf_event_open is Linux's"
        if platform.machine() not in _SYSCALL:
            return f"none: the number of perf_event_open on {platform.machine()} is not known here"
        return None

    def _tried(self) -> str:
        groups = self._own.groups = self._open_groups()
        counted = [name for _, names in groups for name in names]
        refused = "; ".join(f"no {name}: {why}" for name, why in self._refused.items() if counted)
        if counted:
            return f"perf_event: {', '.join(counted)}{'; ' if refused else ''}{refused}"
        return f"none: {next(iter(self._refused.values()), 'no events')}"

    def _open_groups(self) -> list[tuple[int, tuple[str, ...]]]:
        """A group is read through its first event."""
        groups = []
        for events in EVENTS:
            leader, names = -1, list[str]()
            for name, (kind, config) in events.items():
                file, number = _open(kind, config, leader)
                if file < 0:
                    self._refused.setdefault(name, _told(number))
                    continue
                with self._lock:
                    self._files.append(file)
                leader = file if leader < 0 else leader
                names.append(name)
            if names:
                groups.append((leader, tuple(names)))
        return groups


def between(first: Counts | None, last: Counts | None) -> dict[str, int | float | None]:
    """Returns the events from one reading of a thread to another, by name, and `counter_coverage`.

    Where the CPU has fewer counters than events, the system takes turns: the numbers are then scaled up from the share of the
    time in which they were counted, the least of the groups; None where that is nothing.
    """
    found: dict[str, int | float | None] = {}
    shares = []
    for (names, before), (_, after) in zip(first or (), last or (), strict=True) if first and last else ():
        enabled, counted, *values = (late - early for early, late in zip(before, after, strict=True))
        shares.append(counted / enabled if enabled else 1.0)
        for name, value in zip(names, values, strict=True):
            # Of a span that is shorter than the clock of the counters, both times are 0.
            found[name] = round(value * enabled / counted) if counted else None if enabled else value
    return {**found, "counter_coverage": min(shares)} if shares else {}


def _numbers(read: bytes) -> tuple[int, ...]:
    return struct.unpack(f"{len(read) // 8}Q", read)[1:]


def _open(kind: int, config: int, leader: int) -> tuple[int, int]:
    """Returns the file of an event of the calling thread, and errno."""
    attr = bytearray(_ATTR_BYTES)
    struct.pack_into("IIQQQQQ", attr, 0, kind, _ATTR_BYTES, config, 0, 0, _READ_FORMAT, _FLAGS)
    system = ctypes.CDLL(None, use_errno=True)
    system.syscall.restype = ctypes.c_long
    given = (ctypes.c_char * _ATTR_BYTES).from_buffer(attr)
    long = ctypes.c_long
    number = _SYSCALL[platform.machine()]
    file = system.syscall(long(number), given, long(0), long(-1), long(leader), long(_CLOSE_ON_EXEC))
    return int(file), ctypes.get_errno()


def _told(number: int) -> str:
    if number in _NO_RIGHT:
        try:
            level = f"kernel.perf_event_paranoid is {PARANOID.read_text().strip()}"
        except OSError:
            level = "/proc does not show kernel.perf_event_paranoid"
        return (
            f"the right to count is missing ({os.strerror(number)}; {level}): sysctl kernel.perf_event_paranoid=2, or CAP_PERFMON "
            "(before Linux 5.8 CAP_SYS_ADMIN) for the process; in a container its seccomp profile must allow perf_event_open, too"
        )
    if number in (errno.ENOENT, errno.EOPNOTSUPP, errno.ENODEV):
        return "this machine does not show its hardware counters, as most virtual machines"
    if number == errno.ENOSYS:
        return "this kernel has no perf_event_open"
    return os.strerror(number)
