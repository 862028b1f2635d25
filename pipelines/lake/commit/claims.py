"""Who works on what: a process claims a batch while it computes it, so that no other process computes it too.

A claim is a locked file in `.claims/` of the lake. The kernel frees the lock when the process dies, however it dies, so a
crash leaves no claim. The file itself is removed when the claim ends; one that a killed process left is taken over, or
removed by `sweep`, which holds the folder's own lock so that nobody who claims meets it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from pipelines.lake.commit.local_disk import refuse_network

FOLDER = ".claims"
_KEPT = b"kept"  # in the file of a claim by who will compute all of a batch's tables


class Claims:
    """The claims of one process on one lake. They end with `release`, or when this object or the process does."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._kept: dict[str, BinaryIO] = {}

    def keep(self, name: str) -> None:
        """Claim something until `release`; waits while another process has it.

        For a run that will compute all tables of a batch: other runs may leave the batch to it (see `is_kept`). Raises OSError.
        """
        if name not in self._kept and (file := self._take(name, wait=True)):
            self._kept[name] = file
            _mark(file)

    def is_kept(self, name: str) -> bool:
        """Whether who has claimed a batch, or had when it was killed, said that it computes all of its tables."""
        try:
            return self._path(name).read_bytes() == _KEPT
        except FileNotFoundError:
            return False

    @contextmanager
    def on(
        self, name: str, wait: bool = True, on_wait: Callable[[], Any] = lambda: None, whole: bool = False
    ) -> Iterator[bool]:
        """Claim something for a while; yields whether this process has it, which without `wait` may not be so.

        `on_wait` is called before it waits. In a lake that this process cannot write there is nothing to claim: a run that
        finds everything computed needs no more, and any other fails when it writes. `whole`: as with `keep`, others may
        leave the batch to this process. Raises OSError.
        """
        if name in self._kept or not self._is_writable():
            yield True
            return
        file = self._take(name, wait=False)
        if file is None and wait:
            on_wait()
            file = self._take(name, wait=True)
        if file and whole:
            _mark(file)
        try:
            yield file is not None
        finally:
            if file:
                self._end(name, file)

    def release(self) -> None:
        """End all claims of `keep`."""
        while self._kept:
            self._end(*self._kept.popitem())

    def sweep(self) -> list[Path]:
        """Remove the files of claims whose process is gone; returns them.

        It skips its turn if another process is claiming something at this moment. Raises OSError for a folder that it may
        not change.
        """
        try:
            listed = sorted(path for path in (self._root / FOLDER).iterdir() if path.is_file())
        except FileNotFoundError:  # nothing was ever claimed
            return []
        if not listed:
            return []
        with self._folder_lock(fcntl.LOCK_EX | fcntl.LOCK_NB) as is_ours:
            return [path for path in listed if self._is_swept(path)] if is_ours else []

    def _is_swept(self, path: Path) -> bool:
        try:
            file = path.open("rb+")  # not "ab", which would make a file that is gone
        except FileNotFoundError:
            return False
        with file:
            if not _is_locked(file, fcntl.LOCK_EX | fcntl.LOCK_NB):
                return False
            is_it = self._is_file(path.name, file)  # else its process has ended the claim since it was opened
            if is_it:
                path.unlink()
            fcntl.flock(file, fcntl.LOCK_UN)
            return is_it

    @contextmanager
    def _folder_lock(self, how: int) -> Iterator[bool]:
        """Holds the lock of `.claims/`: shared for a moment by who claims, alone by who sweeps. Yields whether it has it."""
        folder = os.open(self._root / FOLDER, os.O_RDONLY)
        try:
            is_ours = _is_locked(folder, how)
            try:
                yield is_ours
            finally:
                fcntl.flock(folder, fcntl.LOCK_UN)  # closing is not enough: see _end
        finally:
            os.close(folder)

    def _path(self, name: str) -> Path:
        return self._root / FOLDER / name

    def _is_writable(self) -> bool:
        return not self._root.exists() or os.access(self._root, os.W_OK)

    def _take(self, name: str, wait: bool) -> BinaryIO | None:
        refuse_network(self._root)
        self._path(name).parent.mkdir(parents=True, exist_ok=True)
        while True:
            # Without the folder's lock, a file that is being swept would look like one that another process has claimed.
            with self._folder_lock(fcntl.LOCK_SH):
                file = self._path(name).open("ab")
                is_ours = _is_locked(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not is_ours:
                if not wait:
                    file.close()
                    return None
                _is_locked(file, fcntl.LOCK_EX)
            if self._is_file(name, file):
                file.truncate(0)  # of a killed process
                return file
            file.close()  # whoever had it has removed it: the next one may have made another

    def _is_file(self, name: str, file: BinaryIO) -> bool:
        try:
            return os.path.samestat(os.fstat(file.fileno()), self._path(name).stat())
        except FileNotFoundError:
            return False

    def _end(self, name: str, file: BinaryIO) -> None:
        """Removes the file while it is still locked: whoever waits for it then sees that it is another.

        Closing it would not be enough: a child that was forked meanwhile has it open, too, and would keep the lock.
        """
        with file:
            self._path(name).unlink(missing_ok=True)
            fcntl.flock(file, fcntl.LOCK_UN)


def _is_locked(file: BinaryIO | int, how: int) -> bool:
    """Lock a file; returns False if another process has it and `how` is not to wait."""
    try:
        fcntl.flock(file, how)
    except BlockingIOError:
        return False
    return True


def _mark(file: BinaryIO) -> None:
    file.write(_KEPT)
    file.flush()
