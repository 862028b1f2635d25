"""Locks of a lake. Each lock is a file in the lake's folder, which one thread locks while it does the lock's work.

The operating system releases a lock when the process exits or is killed, so a crash leaves no locks behind.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipelines.lake.commit.local_disk import refuse_network
from pipelines.lake.version import mark_layout

_held = threading.local()


def _mine() -> set[tuple[Path, str]]:
    return _held.__dict__.setdefault(str(os.getpid()), set())  # by process, because a forked child holds no locks


def is_held(root: Path, name: str) -> bool:
    """Return whether the calling thread holds the lock `name` of the lake at `root`."""
    return (root, name) in _mine()


@contextmanager
def held(root: Path, name: str, wait: bool = True, on_wait: Callable[[], Any] = lambda: None) -> Iterator[bool]:
    """Hold a lock that only one thread of all processes can hold at a time. Calls may be nested.

    Yield whether the lock is held, which is always true if `wait` is true. Call `on_wait` before waiting. Create the
    lake's folder if it does not exist. Raise OSError or UnusablePath.
    """
    mine = _mine()
    if (root, name) in mine:
        yield True
        return
    refuse_network(root)
    root.mkdir(parents=True, exist_ok=True)
    mark_layout(root)
    with (root / name).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not wait:
                yield False
                return
            on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        mine.add((root, name))
        try:
            yield True
        finally:
            mine.discard((root, name))
            # Unlock explicitly, because a child that was forked while the lock was held also has the file open.
            fcntl.flock(file, fcntl.LOCK_UN)
