"""What the tests of clusters have workers do: in a module of its own, for workers import it."""

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
    """A function of units that are words; every attempt leaves a file in the folder."""

    folder: str

    def __call__(self, unit: str) -> str:
        """Returns what the unit's name asks for."""
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
    """How often a unit was begun."""
    return len(list(folder.glob(f"{name}.*")))
