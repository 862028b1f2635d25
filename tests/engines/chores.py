"""Work that the tests of clusters give to workers. It is a separate module because workers import it."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from pipelines.base import database
from pipelines.engines.worker_share import take_share


@dataclass(frozen=True)
class Chore:
    """A function whose units are words. Every attempt leaves a file in the folder."""

    folder: str

    def __call__(self, unit: str) -> str:
        """Do what the unit's suffix requests, such as "a:fails", and return the name in capitals."""
        name, _, how = unit.partition(":")
        attempt = len(list(Path(self.folder).glob(f"{name}.*"))) + 1
        Path(self.folder, f"{name}.{attempt}").touch()
        if how == "fails" or (how == "fails once" and attempt == 1):
            raise OSError(f"attempt {attempt}")
        if how == "kills" or (how == "kills once" and attempt == 1):
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "waits":
            time.sleep(600)
        if how == "share":
            take_share(1)
            with database.connect() as con:
                return str(con.execute("SELECT current_setting('threads')").fetchall()[0][0])
        return name.upper()


def attempts(folder: Path, name: str) -> int:
    """Return the number of attempts at a unit."""
    return len(list(folder.glob(f"{name}.*")))
