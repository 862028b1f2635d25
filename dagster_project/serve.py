"""The Dagster UI, its daemon and their code server on one lake, as `tracelake ui` runs them.

The web server is guarded, and all of them stop with this process. If the definitions were passed as a module, the web
server and the daemon would each load them in their own server, the daemon in a new one every minute. Each load takes 4
to 5 CPU seconds. So both use one code server (code_server.py), as under `dagster dev`.
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

from pipelines.base.whole_file import write_whole

SETTINGS = Path(__file__).with_name("dagster.yaml")
LOCAL = "127.0.0.1"
STARTER = "TRACELAKE_UI_STARTER"
"""Environment variable with the id of the parent process. This process stops when the parent ends."""
_PR_SET_PDEATHSIG = 1
_DEFINITIONS = "dagster_project.definitions"
_SOCKET, _WORKSPACE = "code.sock", "workspace.yaml"
_GRACE_SECONDS = 10.0
_LOOK_SECONDS = 0.2


def prepare(home: Path) -> None:
    """Create the folder `home`, Dagster's tables and, unless a dagster.yaml exists, tracelake's settings. DAGSTER_HOME must name it.

    One process creates the tables before any other starts. Otherwise two processes would try, and one would fail with "table
    alembic_version already exists".
    """
    home.mkdir(parents=True, exist_ok=True)
    with (home / ".preparing").open("w") as lock:  # if two processes of `tracelake ui` share a lake, the second waits
        fcntl.flock(lock, fcntl.LOCK_EX)
        settings = home / "dagster.yaml"
        if not settings.exists():
            write_whole(settings, SETTINGS.read_text())
        with DagsterInstance.from_config(str(home.absolute())):
            pass


def why_not(port: int, host: str = LOCAL) -> str | None:
    """Return the reason why the server cannot listen on the address, or None if it can."""
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
    """Return the commands of the code server, the web server, and the daemon that ticks sensors and starts runs.

    `folder`: contains the code server's socket and the workspace file that names it (see write_workspace).
    """
    code = ["dagster_project.code_server", "--socket", str(folder / _SOCKET), "-m", _DEFINITIONS]
    workspace = ["--workspace", str(folder / _WORKSPACE)]
    server = [
        "dagster_project.server_access",
        "--host",
        host,
        "--port",
        str(port),
        "--live-data-poll-rate",
        "2000",
        *workspace,
    ]
    return [[sys.executable, "-m", *arguments] for arguments in (code, server, ["dagster._daemon", "run", *workspace])]


def write_workspace(folder: Path) -> None:
    """Write the workspace file, which names the code server's socket.

    The location has the same name as if Dagster loaded the module itself, because the state of sensors and schedules belongs to
    that name.
    """
    server = {"socket": str(folder / _SOCKET), "location_name": _DEFINITIONS}
    text = json.dumps({"load_from": [{"grpc_server": server}]})  # JSON is valid YAML
    (folder / _WORKSPACE).write_text(text, encoding="utf-8")


def serve(port: int, host: str) -> int:
    """Run until a signal arrives or a child ends. Return the exit status, 0 after a signal. No child outlives the call."""
    signals: list[int] = []

    def stop(number: int, _: FrameType | None) -> None:
        signals.append(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    children: list[subprocess.Popen[bytes]] = []
    starter, ends_with_this = os.environ.get(STARTER, ""), partial(_end_with, os.getpid())

    def is_going_on() -> bool:
        if starter and starter != str(os.getppid()):
            signals.append(signal.SIGTERM)  # the parent was killed, so it could not send a signal
        return not signals and all(child.poll() is None for child in children)

    # Not in the lake, because the path of a socket has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="tracelake-") as folder_name:
        folder = Path(folder_name)
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
    return 0 if signals else 1


def _end_with(parent: int) -> None:
    """Let Linux send SIGTERM to this process when its parent ends. Runs in a child before exec."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # the parent has ended already
            os._exit(1)


def _answers(path: Path) -> bool:
    """Return whether a process listens on a Unix socket."""
    with closing(socket.socket(socket.AF_UNIX)) as probe, suppress(OSError):
        probe.connect(str(path))
        return True
    return False


def _end(children: list[subprocess.Popen[bytes]]) -> None:
    """Send SIGTERM to each child's process group, and SIGKILL after the grace period."""
    for child in children:
        _signal(child, signal.SIGTERM)
    until = time.monotonic() + _GRACE_SECONDS
    while time.monotonic() < until and any(_is_left(child) for child in children):
        time.sleep(_LOOK_SECONDS)
    for child in children:
        _signal(child, signal.SIGKILL)
        child.wait()


def _is_left(child: subprocess.Popen[bytes]) -> bool:
    """Return whether a process of the child's group is alive."""
    child.poll()
    try:
        os.killpg(child.pid, 0)
    except ProcessLookupError:
        return False
    return True


def _signal(child: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError):  # all processes of the group have ended
        os.killpg(child.pid, number)


def main() -> int:
    """Run `python -m dagster_project.serve PORT [HOST]`. Return the exit status. DAGSTER_HOME must be set."""
    port, host = int(sys.argv[1]), (*sys.argv[2:], LOCAL)[0]
    if reason := why_not(port, host):
        print(f"error: {reason}", file=sys.stderr)
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
