"""A lake for one unit, on the worker's own disk: everything is computed in it, then committed to the store at once."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pipelines.base.processes import is_alive, this_process
from pipelines.engines.worker_share import take_share
from pipelines.lake import Lake
from pipelines.runs.store import StoreError, is_folder_address

SCRATCH = "TRACELAKE_SCRATCH"
"""Environment variable: where workers keep the lakes of their units; by default the system's folder for such files."""
_PREFIX = "tracelake-unit@"
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_OURS = "TRACELAKE_"
_OWN = (SCRATCH, "TRACELAKE_THREADS", "TRACELAKE_MEMORY")  # a worker has its own disk and size


@dataclass(frozen=True)
class Setting:
    """What all units of a run share. `store`: its address. `cpus`: of each task; None: the whole machine.

    `home`: which folder on which machine a folder lake is, so that no worker writes into another of the same name.
    """

    store: str
    cpus: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    home: str | None = None

    @classmethod
    def here(cls, store: str, cpus: int | None) -> Setting:
        """Returns one with this process's environment variables of tracelake: patterns and limits apply to workers too.

        Creates the folder of a folder lake. Raises OSError, and UnusablePath for a folder that cannot be one.
        """
        told = {name: value for name, value in os.environ.items() if name.startswith(_OURS) and name not in _OWN}
        if not is_folder_address(store):
            return cls(store, cpus, told)
        root = Lake(store).root  # absolute: workers run in other folders
        root.mkdir(parents=True, exist_ok=True)
        return cls(str(root), cpus, told, _home(root))


def prepare(setting: Setting) -> None:
    """Have this worker work as the setting says, from now on. Raises StoreError if a folder lake is of another machine."""
    os.environ.update(setting.environment)
    if setting.cpus is not None:
        take_share(setting.cpus)
    if setting.home is not None and setting.home != _home(Path(setting.store)):
        raise StoreError(
            f"{setting.store} on {socket.gethostname()} is not the folder of who submitted this: a folder lake takes "
            "workers of its own machine only; commit to a store that all can reach: --store ducklake:postgres:…"
        )


def _home(root: Path) -> str:
    """Returns which machine this is and which folder on it; containers of one machine may share both."""
    try:
        return f"{_BOOT.read_text().strip() if _BOOT.exists() else socket.gethostname()}:{root.stat().st_ino}"
    except OSError as error:
        return str(error)


@contextmanager
def private_lake(setting: Setting) -> Iterator[Lake]:
    """A new lake, gone when the block ends; those of workers of this machine that were killed are removed first."""
    prepare(setting)
    scratch = Path(os.environ.get(SCRATCH) or tempfile.gettempdir())
    sweep(scratch)
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{this_process()}@", dir=scratch))
    try:
        yield Lake(folder / "lake")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep(scratch: Path) -> list[Path]:
    """Remove the lakes of dead processes of this machine; returns them."""
    gone = [path for path in scratch.glob(f"{_PREFIX}*") if not is_alive(path.name.split("@")[1])]
    for path in gone:
        shutil.rmtree(path, ignore_errors=True)
    return gone
