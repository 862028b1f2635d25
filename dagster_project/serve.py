"""The Dagster UI, its daemon and their code server on one lake, as `tracelake ui` runs them: guarded, and stopped together
with this process.

Given the definitions as a module, Dagster's web server and daemon would each load them in a server of their own, and the daemon
in a new one every minute: 4 to 5 CPU seconds each time. So both ask one code server (code_server.py), as those of `dagster dev`
do.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from types import FrameType

from dagster import DagsterInstance

SETTINGS = Path(__file__).with_name("dagster.yaml")
LOCAL = "127.0.0.1"
STARTER = "TRACELAKE_UI_STARTER"
"""Environment variable: the process with which this one ends, its parent."""
_PR_SET_PDEATHSIG = 1
_DEFINITIONS = "dagster_project.definitions"
_SOCKET, _WORKSPACE = "code.sock", "workspace.yaml"
_GRACE_SECONDS = 10.0
_LOOK_SECONDS = 0.2


def prepare(home: Path) -> None:
    """Create `home`, which DAGSTER_HOME has to name: tracelake's settings, unless there are others, and Dagster's tables.

    One process creates the tables before any other starts: otherwise two would both try, and one would fail with "table
    alembic_version already exists".
    """
    home.mkdir(parents=True, exist_ok=True)
    with (home / ".preparing").open("w") as lock:  # if two `tracelake ui` share a lake, the second waits
        fcntl.flock(lock, fcntl.LOCK_EX)
        settings = home / "dagster.yaml"
        if not settings.exists():
            settings.write_text(SETTINGS.read_text())
        with DagsterInstance.from_config(str(home.absolute())):
            pass


def why_not(port: int, host: str = LOCAL) -> str | None:
    """Why the server cannot listen there; None if it can."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        return f"--host {host} is not an address of this machine: {error.strerror}"
    with closing(socket.socket(family, kind)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                return f"--host {host} is not an address of this machine"
            if error.errno != errno.EADDRINUSE:
                return f"port {port} cannot be used: {error.strerror}; choose another with --port"
            return f"port {port} is taken; choose another with --port"
    return None


def commands(port: int, folder: Path, host: str = LOCAL) -> list[list[str]]:
    """Returns the code server, the web server, and the daemon that ticks sensors and starts runs.

    `folder`: has the file that tells the others of the code server (see write_workspace), and its socket.
    """
    code = ["dagster_project.code_server", "--socket", str(folder / _SOCKET), "-m", _DEFINITIONS]
    there = ["--workspace", str(folder / _WORKSPACE)]
    server = [
        "dagster_project.server_access",
        "--host",
        host,
        "--port",
        str(port),
        "--live-data-poll-rate",
        "2000",
        *there,
    ]
    return [[sys.executable, "-m", *rest] for rest in (code, server, ["dagster._daemon", "run", *there])]


def write_workspace(folder: Path) -> None:
    """Say where the code server is. Its location has the name that it has when Dagster loads the module itself: the state of
    sensors and schedules belongs to that name.
    """
    server = {"socket": str(folder / _SOCKET), "location_name": _DEFINITIONS}
    text = json.dumps({"load_from": [{"grpc_server": server}]})  # which is YAML, too
    (folder / _WORKSPACE).write_text(text, encoding="utf-8")


def serve(port: int, host: str = LOCAL) -> int:
    """Run until a signal or until a child ends. Returns the exit status: 0 when asked to stop. No child outlives this."""
    asked: list[int] = []

    def stop(number: int, _: FrameType | None) -> None:
        asked.append(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    children: list[subprocess.Popen[bytes]] = []
    starter, ends_with_this = os.environ.get(STARTER, ""), partial(_end_with, os.getpid())

    def is_going_on() -> bool:
        if starter and starter != str(os.getppid()):
            asked.append(signal.SIGTERM)  # who started this was killed, and could not say so
        return not asked and all(child.poll() is None for child in children)

    # Not in the lake: the path of a socket has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="tracelake-") as named:
        folder = Path(named)
        write_workspace(folder)
        try:
            for command in commands(port, folder, host):
                # One process group each, so that the code servers and runs that they start end with them.
                children.append(subprocess.Popen(command, start_new_session=True, preexec_fn=ends_with_this))
                while is_going_on() and not _answers(folder / _SOCKET):
                    time.sleep(_LOOK_SECONDS)
                if not is_going_on():
                    break
            while is_going_on():
                time.sleep(_LOOK_SECONDS)
        finally:
            _end(children)
    return 0 if asked else 1


def _end_with(parent: int) -> None:
    """In a child, before it becomes a program: let Linux send SIGTERM when its parent ends, however it does."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it ended before
            os._exit(1)


def _answers(path: Path) -> bool:
    """Whether somebody listens on a socket."""
    with closing(socket.socket(socket.AF_UNIX)) as probe, suppress(OSError):
        probe.connect(str(path))
        return True
    return False


def _end(children: list[subprocess.Popen[bytes]]) -> None:
    """Terminate every group, then kill it."""
    for child in children:
        _signal(child, signal.SIGTERM)
    until = time.monotonic() + _GRACE_SECONDS
    while time.monotonic() < until and any(_is_left(child) for child in children):
        time.sleep(_LOOK_SECONDS)
    for child in children:
        _signal(child, signal.SIGKILL)
        child.wait()


def _is_left(child: subprocess.Popen[bytes]) -> bool:
    """Returns whether some process of the group is alive."""
    child.poll()
    try:
        os.killpg(child.pid, 0)
    except ProcessLookupError:
        return False
    return True


def _signal(child: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError):  # the whole group is gone
        os.killpg(child.pid, number)


def main() -> int:
    """`python -m dagster_project.serve PORT [HOST]` with DAGSTER_HOME set."""
    port, host = int(sys.argv[1]), (*sys.argv[2:], LOCAL)[0]
    if why := why_not(port, host):
        print(f"error: {why}", file=sys.stderr)
        return 1
    try:
        prepare(Path(os.environ["DAGSTER_HOME"]))
    except OSError as error:
        print(
            f"error: Dagster cannot keep its records in the lake: {error.filename}: {error.strerror}", file=sys.stderr
        )
        return 1
    return serve(port, host)


if __name__ == "__main__":
    raise SystemExit(main())
