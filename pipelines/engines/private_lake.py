"""A lake for one unit, on the worker's own disk, in which all tables are computed before they are committed."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pipelines.base.processes import is_alive, this_machine, this_process
from pipelines.engines.worker_share import take_share
from pipelines.lake import Lake
from pipelines.runs.store import StoreError, open_store

SCRATCH = "TRACELAKE_SCRATCH"
"""Environment variable: the folder for the lakes of units on a worker. Default: the system's temporary folder."""
_PREFIX = "tracelake-unit@"
_OURS = "TRACELAKE_"
_OWN = (SCRATCH, "TRACELAKE_THREADS", "TRACELAKE_MEMORY")  # a worker has its own disk and size


@dataclass(frozen=True)
class Setting:
    """The settings that all units of a run share.

    `store`: the store's address. `cpus`: CPUs per task, None for the whole machine. `environment`: environment
    variables of workers. `home`: identifies the machine and folder of a folder lake, so that no worker writes into
    another folder of the same name.
    """

    store: str
    cpus: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    home: str | None = None

    @classmethod
    def here(cls, store: str, cpus: int | None) -> Setting:
        """Return a setting with this process's environment variables of tracelake.

        Patterns and limits thus also apply to workers. Create the folder of a folder lake. Raise OSError if it cannot
        be created, and UnusablePath for a folder that cannot be a lake.
        """
        environment = {name: value for name, value in os.environ.items() if name.startswith(_OURS) and name not in _OWN}
        lake = open_store(store).lake
        if lake is None:
            return cls(store, cpus, environment)
        root = lake.root  # absolute: workers run in other folders
        root.mkdir(parents=True, exist_ok=True)
        return cls(str(root), cpus, environment, _home(root))


def prepare(setting: Setting) -> None:
    """Apply the setting to this worker process. Raise StoreError if a folder lake is on another machine."""
    os.environ.update(setting.environment)
    if setting.cpus is not None:
        take_share(setting.cpus)
    if setting.home is not None and setting.home != _home(Path(setting.store)):
        raise StoreError(
            f"{setting.store} on {socket.gethostname()} is not the submitter's folder: a lake in a folder "
            "accepts only workers on the same machine. Use a shared store: --store ducklake:postgres:…"
        )


def _home(root: Path) -> str:
    """Return an id of this machine and the folder on it. Containers of one machine may share both."""
    try:
        status = root.stat()
        return (
            f"{this_machine()}:{status.st_dev}:{status.st_ino}"  # top folders of different disks can have equal inodes
        )
    except OSError as error:
        return str(error)


@contextmanager
def private_lake(setting: Setting) -> Iterator[Lake]:
    """Yield a new lake that is deleted when the block ends. First delete lakes of killed workers of this machine."""
    prepare(setting)
    scratch = Path(os.environ.get(SCRATCH) or tempfile.gettempdir())
    sweep(scratch)
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{this_process()}@", dir=scratch))
    try:
        yield Lake(folder / "lake")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep(scratch: Path) -> list[Path]:
    """Delete the lakes of dead processes of this machine, and return their paths."""
    leftovers = [path for path in scratch.glob(f"{_PREFIX}*") if not is_alive(path.name.split("@")[1])]
    for path in leftovers:
        shutil.rmtree(path, ignore_errors=True)
    return leftovers
