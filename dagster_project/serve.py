"""The Dagster UI and its daemon on one lake, as `tracelake ui` runs them: guarded, and stopped together with this
process.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path
from types import FrameType

from dagster import DagsterInstance

SETTINGS = Path(__file__).with_name("dagster.yaml")
LOCAL = "127.0.0.1"
_EARLIER = {  # SHA-256 of settings that earlier versions wrote
    "f322f68dce7f2d276ac718ea98cf1486ab5caf56b3d484d4788c2eec91ee6b33",
    hashlib.sha256(b"telemetry:\n  enabled: false\n").hexdigest(),
}
_DEFINITIONS = ("-m", "dagster_project.definitions")
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
        if not settings.exists() or hashlib.sha256(settings.read_bytes()).hexdigest() in _EARLIER:
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


def commands(port: int, host: str = LOCAL) -> list[list[str]]:
    """Returns the web server and the daemon that ticks sensors and starts runs."""
    server = ["dagster_project.guard", "--host", host, "--port", str(port), "--live-data-poll-rate", "2000"]
    return [[sys.executable, "-m", *rest, *_DEFINITIONS] for rest in (server, ["dagster._daemon", "run"])]


def serve(port: int, host: str = LOCAL) -> int:
    """Run until a signal or until a child ends. Returns the exit status: 0 when asked to stop. No child outlives this."""
    asked: list[int] = []

    def stop(number: int, _: FrameType | None) -> None:
        asked.append(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    children: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands(port, host):
            # One process group each, so that the code servers and runs that they start end with them.
            children.append(subprocess.Popen(command, start_new_session=True))
        while not asked and all(child.poll() is None for child in children):
            time.sleep(_LOOK_SECONDS)
    finally:
        _end(children)
    return 0 if asked else 1


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
