"""Locks of a lake: each is a file in its folder, locked by the one thread that does the corresponding work.

The kernel releases a lock when its process ends, however it ends, so a crash leaves no locks behind.
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
    return _held.__dict__.setdefault(str(os.getpid()), set())  # by process id, because a forked child holds no locks


def is_held(root: Path, name: str) -> bool:
    """Return whether this thread holds a lock."""
    return (root, name) in _mine()


@contextmanager
def held(root: Path, name: str, wait: bool = True, on_wait: Callable[[], Any] = lambda: None) -> Iterator[bool]:
    """Hold a lock that one thread of all processes can have at a time. It may be nested.

    Yields whether the lock is held, which is always true unless `wait` is false. `on_wait` is called before waiting.
    The lake's folder is created if needed. Raises OSError or UnusablePath.
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
            # Closing is not enough: a child that was forked while the lock was held has the file open, too.
            fcntl.flock(file, fcntl.LOCK_UN)
