"""Locks of a lake: each is a file in its folder, locked by the one thread that does the work that it stands for.

The kernel frees a lock when its process dies, however it dies, so a crash leaves none behind.
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
    return _held.__dict__.setdefault(str(os.getpid()), set())  # a forked child holds nothing


def is_held(root: Path, name: str) -> bool:
    """Whether this thread holds a lock."""
    return (root, name) in _mine()


@contextmanager
def held(root: Path, name: str, wait: bool = True, on_wait: Callable[[], Any] = lambda: None) -> Iterator[bool]:
    """Held by one thread of all processes at a time; it may be nested. The lake's folder is created if needed.

    Yields whether it is held, which without `wait` may not be so; `on_wait` is called before it waits. Raises OSError or
    UnusablePath.
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
            # Closing is not enough: a child that was forked meanwhile has it open, too.
            fcntl.flock(file, fcntl.LOCK_UN)
