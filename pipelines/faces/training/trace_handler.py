"""Handler of torch.profiler that delivers every trace to a lake, or to an inbox, while training continues.

The training process only writes the trace, as plain JSON into a hidden folder. A process of low priority (deliver.py)
compresses it, moves it to its target in one step, and ingests it. If that process is killed, the next handler of the
same folder restarts the delivery.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

from pipelines.base.paths import DUCKLAKE
from pipelines.base.processes import import_path, is_alive, this_process

HIDDEN = ".tracelake"
"""Folder of traces that are not delivered yet. Its name begins with a dot, so inboxes skip it."""
_MOST = 1000
"""Maximum number of traces of earlier runs that a handler delivers.

A command line has room for about ten times as many.
"""
_OLD_S = 3600
"""Age in seconds at which a partial trace counts as abandoned if its process is not visible."""
_URL = re.compile(r"[A-Za-z][\w+.-]+://")
_OWNED = re.compile(
    r"(?P<name>.+\.(?P<host>[^.]+)\.(?P<pid>\d+)(-(?P<start>\d+))?)\.(json|part\.json|key|log|pt\.trace\.json\.gz\.part)"
)


def trace_handler(
    lake: str | Path | None = None,
    *,
    job: str | None = None,
    inbox: str | Path | None = None,
    traces: str | Path | None = None,
) -> TraceHandler:
    """Return a handler for `on_trace_ready` of torch.profiler. It writes a file per trace and rank, and ingests it.

    `lake`: the lake's folder, or the address of a DuckLake. `inbox`: instead of a lake, a folder or a bucket (s3://…) from
    which another machine ingests. `traces`: the folder in which the files of a lake are kept (default: `<lake>-traces`;
    required for a DuckLake). `job`: the job's name, which is also the folder of its files.

    Rank and world size come from torch.distributed, or else from RANK and WORLD_SIZE. An error never stops training. It
    becomes a RuntimeWarning. Raise ValueError unless exactly one of `lake` and `inbox` is set, or if the folder for the
    files of a lake is not on this machine.
    """
    if (lake is None) == (inbox is None):
        raise ValueError("set either lake or inbox")
    target = str(inbox if inbox is not None else traces if traces is not None else f"{str(lake).rstrip('/')}-traces")
    if lake is not None and (target.startswith(DUCKLAKE) or _URL.match(target)):
        raise ValueError("traces: name a folder of this machine for the files")
    return TraceHandler(None if lake is None else str(lake), job, target)


class TraceHandler:
    """Handler of the traces of a process, see `trace_handler`. `seconds`: the training time that each call took."""

    def __init__(self, lake: str | None, job: str | None, target: str) -> None:
        self.seconds: list[float] = []
        self._lake, self._job = lake, job
        self._target = f"{target.rstrip('/')}/{_as_name(job)}" if job else target
        self._deliveries: list[tuple[subprocess.Popen[bytes], Path]] = []
        # An inbox may be a slow shared disk or a bucket, so the training process writes to a local disk.
        self._hidden = (Path(self._target) if lake else _near(self._target)) / HIDDEN
        try:
            self._resume()
        except Exception as error:
            _warn(f"traces of an earlier run cannot be delivered: {error}")

    def __call__(self, profiler: Any) -> None:
        """Write the profiler's trace and start its delivery."""
        began = time.perf_counter()
        try:
            self._deliver([self._write(profiler)])
        except Exception as error:
            _warn(f"a trace was not written to {self._target}: {error}")
        self.seconds.append(time.perf_counter() - began)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait up to `timeout_s` seconds for each delivery. Return whether all traces were delivered."""
        is_delivered = True
        for process, log in self._deliveries:
            try:
                is_delivered = self._ended(process.wait(timeout_s), log) and is_delivered
            except subprocess.TimeoutExpired:
                is_delivered = False
        self._deliveries = [(process, log) for process, log in self._deliveries if process.returncode is None]
        return is_delivered

    def _write(self, profiler: Any) -> Path:
        rank, _ = rank_and_world_size()
        self._hidden.mkdir(parents=True, exist_ok=True)
        step = getattr(profiler, "step_num", 0)
        name = f"rank{rank}.step{step}.{time.time_ns()}.{_host()}.{_this_process()}"
        part, complete = self._hidden / f"{name}.part.json", self._hidden / f"{name}.json"
        try:
            profiler.export_chrome_trace(str(part))
            key_file(complete).write_text(_distributed_info())
            os.replace(part, complete)
        finally:
            part.unlink(missing_ok=True)
        return complete

    def _deliver(self, files: list[Path]) -> None:
        """Start one delivery process for all files, because a night without the lake may have left hundreds."""
        for process, log in self._deliveries:
            if process.poll() is not None:
                self._ended(process.returncode, log)
        self._deliveries = [(process, log) for process, log in self._deliveries if process.returncode is None]
        log = files[0].with_suffix(".log")
        command = [sys.executable, "-m", "pipelines.faces.training.deliver", *map(str, files)]
        command += [self._target, self._lake or "", self._job or ""]
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C stops training, not the delivery
                # Do not search the working folder for imports, because it may contain a package of the same name.
                env={
                    **os.environ,
                    "PYTHONPATH": import_path(),
                    "PYTHONSAFEPATH": "1",
                    "CUDA_VISIBLE_DEVICES": "",
                },
            )
        self._deliveries.append((process, log))

    def _ended(self, status: int, log: Path) -> bool:
        """Return whether a delivery succeeded. If not, warn with the last line of its log."""
        if status == 0:
            log.unlink(missing_ok=True)
            return True
        words = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
        _warn(
            f"a trace was not delivered to {self._lake or self._target}: {words[-1] if words else status} (see {log})"
        )
        return False

    def _resume(self) -> None:
        """Deliver complete traces of ended processes of this host, and remove their old partial files."""
        left = []
        for file in sorted(self._hidden.iterdir()) if self._hidden.is_dir() else ():
            owned = _OWNED.fullmatch(file.name)
            if owned is None or owned["host"] != _host():
                continue
            if is_alive(f"{socket.gethostname()}:{owned['pid']}:{owned['start'] or ''}"):
                continue
            complete = self._hidden / f"{owned['name']}.json"
            if file == complete:
                left.append(file)
            elif not complete.exists():
                _remove_if_old(file)
        if left:
            self._deliver(left[:_MOST])


def key_file(trace: Path) -> Path:
    """Return the file with the key that the delivery inserts into a trace.

    The key is in a file, because another rank may deliver the trace later.
    """
    return trace.with_suffix(".key")


def _near(inbox: str) -> Path:
    """Return the local folder of traces that are not delivered to this inbox yet. Each inbox has a separate folder."""
    address = inbox if _URL.match(inbox) else os.path.abspath(inbox)
    digest = hashlib.sha256(address.encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"tracelake-{os.getuid()}" / digest


def rank_and_world_size() -> tuple[int, int]:
    """Return this process's rank and the number of ranks."""
    if _is_distributed():
        from torch import distributed

        return distributed.get_rank(), distributed.get_world_size()
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def _distributed_info() -> str:
    """Return the key that torch writes into traces of distributed training, or "" if torch writes it or there is one rank."""
    rank, world_size = rank_and_world_size()
    if world_size < 2 or _is_distributed():
        return ""
    return f'"distributedInfo": {json.dumps({"rank": rank, "world_size": world_size})},'


def _is_distributed() -> bool:
    from torch import distributed

    return distributed.is_available() and distributed.is_initialized()


def _host() -> str:
    return _as_name(socket.gethostname())


def _as_name(text: str) -> str:
    return re.sub(r"[^\w-]+", "-", text) or "-"


def _this_process() -> str:
    """Return the pid and, if known, the start time of this process.

    In a container, a later process may have its pid.
    """
    _, pid, start = this_process().rsplit(":", 2)
    return f"{pid}-{start}" if start else pid


def _remove_if_old(file: Path) -> None:
    """Remove a file if it is old.

    An invisible process, in a container with this host name, may still write a newer one.
    """
    with suppress(FileNotFoundError):
        if time.time() - file.stat().st_mtime > _OLD_S:
            file.unlink()


def _warn(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=3)
