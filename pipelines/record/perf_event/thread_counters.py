"""Hardware counters of the CPU for the calling thread, in user code, as `perf stat -e cycles:u,…` counts them.

The constants come from linux/perf_event.h. An event that the CPU or the system does not offer is missing, and `source`
states the reason.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
import threading
from collections.abc import Iterable, Mapping
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
"""Name → (type, config), in groups. The events of a group are counted at the same times. Most CPUs have too few
counters to count all events at the same time."""
_SYSCALL = {"x86_64": 298, "aarch64": 241}
_ATTR_BYTES = 64  # PERF_ATTR_SIZE_VER0, which all kernels accept
_READ_FORMAT = 1 | 2 | 8  # TOTAL_TIME_ENABLED, TOTAL_TIME_RUNNING, GROUP
_FLAGS = 1 << 5 | 1 << 6  # exclude_kernel, exclude_hv: needs the lowest privilege
_CLOSE_ON_EXEC = 1 << 3
_NO_RIGHT = (errno.EACCES, errno.EPERM)

Counts = list[tuple[tuple[str, ...], tuple[int, ...]]]
"""For each group: the names, and (ns enabled, ns counted, values…)."""


class ThreadCounters:
    """Counters of each thread that calls `read`, from its first call on.

    `source`: the counted events, or why there are none.
    """

    def __init__(self) -> None:
        self._own = threading.local()
        self._files: set[int] = set()
        self._lock = threading.Lock()
        self._refused: dict[str, str] = {}
        self.source = self._why_not() or self._tried()
        self._counts = self.source.startswith("perf_event:")

    def read(self) -> Counts | None:
        """Return the calling thread's counts so far, or None if no event is counted."""
        if not self._counts:
            return None
        groups = getattr(self._own, "groups", None)
        if groups is None:
            groups = self._opened()
        try:
            return [(names, _numbers(os.read(file, 8 * (3 + len(names))))) for file, names in groups]
        except OSError:  # another thread has closed the counters
            return None

    def close(self) -> None:
        """Stop counting and close the files."""
        self._counts = False
        self.close_files(list(self._files))

    def _why_not(self) -> str | None:
        if sys.platform != "linux":
            return "none: perf_event_open is Linux's"
        if platform.machine() not in _SYSCALL:
            return f"none: the number of perf_event_open on {platform.machine()} is unknown here"
        return None

    def _tried(self) -> str:
        groups = self._opened()
        counted = [name for _, names in groups for name in names]
        refused = "; ".join(f"no {name}: {reason}" for name, reason in self._refused.items() if counted)
        if counted:
            return f"perf_event: {', '.join(counted)}{'; ' if refused else ''}{refused}"
        return f"none: {next(iter(self._refused.values()), 'no events')}"

    def _opened(self) -> list[tuple[int, tuple[str, ...]]]:
        """Open the calling thread's events, which are closed when the thread ends. Return the groups (`_open_groups`)."""
        files: list[int] = []
        self._own.groups = self._open_groups(files)
        with self._lock:
            self._files.update(files)
        self._own.closing = _Closing(self, files)
        return self._own.groups

    def close_files(self, files: Iterable[int]) -> None:
        """Close the files that are still open."""
        with self._lock:
            for file in self._files.intersection(files):
                with suppress(OSError):
                    os.close(file)
                self._files.remove(file)

    def _open_groups(self, files: list[int]) -> list[tuple[int, tuple[str, ...]]]:
        """Open the calling thread's events and append them to `files`.

        Return (file of the first event, names) of each group. Reading that file returns the counts of the whole group.
        """
        groups = []
        for events in EVENTS:
            leader, names = -1, list[str]()
            for name, (kind, config) in events.items():
                file, number = _open(kind, config, leader)
                if file < 0:
                    self._refused.setdefault(name, _reason(number))
                    continue
                files.append(file)
                leader = file if leader < 0 else leader
                names.append(name)
            if names:
                groups.append((leader, tuple(names)))
        return groups


class _Closing:
    """A thread-local object that closes the thread's files when the thread ends and the object is deleted."""

    def __init__(self, counters: ThreadCounters, files: list[int]) -> None:
        self._counters, self._files = counters, files

    def __del__(self) -> None:
        self._counters.close_files(self._files)


def between(first: Counts | None, last: Counts | None) -> dict[str, int | float | None]:
    """Return the number of events between two readings of a thread, by name, and `counter_coverage`.

    The result is empty without readings. If the CPU has fewer counters than events, the system counts the groups in
    turn. Then the numbers are scaled up from the share of the time in which they were counted, and are None if that
    share is 0. `counter_coverage`: the lowest share of the groups, 0 to 1.
    """
    counts: dict[str, int | float | None] = {}
    shares = []
    for (names, before), (_, after) in zip(first or (), last or (), strict=True) if first and last else ():
        enabled, counted, *values = (
            last_value - first_value for first_value, last_value in zip(before, after, strict=True)
        )
        shares.append(counted / enabled if enabled else 1.0)
        for name, value in zip(names, values, strict=True):
            # Both times are 0 if the span is shorter than a tick of the counters' clock.
            counts[name] = round(value * enabled / counted) if counted else None if enabled else value
    return {**counts, "counter_coverage": min(shares)} if shares else {}


def _numbers(read: bytes) -> tuple[int, ...]:
    return struct.unpack(f"{len(read) // 8}Q", read)[1:]


def _open(kind: int, config: int, leader: int) -> tuple[int, int]:
    """Return the file descriptor of an event of the calling thread (-1 on failure), and errno."""
    attr = bytearray(_ATTR_BYTES)
    struct.pack_into("IIQQQQQ", attr, 0, kind, _ATTR_BYTES, config, 0, 0, _READ_FORMAT, _FLAGS)
    system = ctypes.CDLL(None, use_errno=True)
    system.syscall.restype = ctypes.c_long
    attr_buffer = (ctypes.c_char * _ATTR_BYTES).from_buffer(attr)
    long = ctypes.c_long
    number = _SYSCALL[platform.machine()]
    file = system.syscall(long(number), attr_buffer, long(0), long(-1), long(leader), long(_CLOSE_ON_EXEC))
    return int(file), ctypes.get_errno()


def _reason(number: int) -> str:
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
        return "this machine does not expose its hardware counters, like most virtual machines"
    if number == errno.ENOSYS:
        return "this kernel has no perf_event_open"
    return os.strerror(number)
