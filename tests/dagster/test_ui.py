"""`tracelake ui`: which requests it answers, and that no process of it remains when it ends."""

import asyncio
import base64
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import pytest
from typer.testing import CliRunner

from assets.groups import GROUPS
from dagster_project import serve
from dagster_project.serve import SETTINGS, commands, prepare, why_not, write_workspace
from dagster_project.server_access import LOCAL, Guard, refusal
from pipelines.faces.cli.app import app
from tests.effort import first_of
from tests.faces.serve.browser import browser

ROOT = Path(__file__).resolve().parents[2]
MUTATION = "mutation{setNuxSeen}"
JSON = {"Content-Type": "application/json"}


def scope(method: str = "GET", path: str = "/", query: bytes = b"", kind: str = "http", **headers: str) -> dict:
    fields = {"host": "localhost:3000", **{name.replace("_", "-"): value for name, value in headers.items()}}
    raw = [(name.encode(), value.encode("latin-1")) for name, value in fields.items() if value != "-"]
    return {"type": kind, "method": method, "path": path, "query_string": query, "headers": raw}


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        (scope(), None),
        (scope(host="127.0.0.1:8080"), None),  # through an ssh tunnel
        (scope(host="[::1]:3000"), None),
        (scope(host="LOCALHOST"), None),
        (scope(host="evil.example:3000"), 421),
        (scope(host="localhost.evil.example"), 421),
        (scope(host="evil.example@localhost"), None),  # the host is localhost, and no browser sends this
        (scope(host="-"), 421),
        (scope(host="["), 421),
        (scope(origin="http://localhost:3000"), None),
        (scope(origin="http://evil.example"), 403),
        (scope(origin="http://localhost:8000"), 403),  # another program of this machine
        (scope(origin="null"), 403),
        (scope("GET", "/graphql"), None),  # the playground
        (scope("GET", "/graphql", b"query={version}"), 405),
        (scope("HEAD", "/graphql", b"query=mutation"), 405),
        (scope("GET", "/below/graphql/", b"query=mutation"), 405),
        (scope("POST", "/graphql", content_type="application/json"), None),
        (scope("POST", "/graphql", content_type="application/json; charset=utf-8"), None),
        (scope("POST", "/graphql", content_type="text/plain; x=application/json"), 415),
        (scope("POST", "/graphql", b"query=mutation", content_type="application/x-www-form-urlencoded"), 415),
        (scope("POST", "/graphql"), 415),
        (scope("POST", "/report_asset_check/a", origin="http://evil.example"), 403),
        (scope(kind="websocket", path="/graphql"), None),
        (scope(kind="websocket", path="/graphql", origin="http://localhost:3000"), None),
        (scope(kind="websocket", path="/graphql", origin="https://evil.example"), 403),
        (scope(kind="websocket", path="/graphql", host="evil.example"), 421),
    ],
)
def test_who_may_ask(asked: dict, status: int | None) -> None:
    answer = refusal(asked, frozenset(LOCAL))
    assert (answer and answer[0]) == status


def test_two_names_at_once_are_refused() -> None:
    asked = scope()
    asked["headers"].append((b"host", b"evil.example"))
    assert refusal(asked, frozenset(LOCAL)) is not None


def test_the_guard_stands_before_the_application() -> None:
    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    def status(asked: dict) -> int:
        sent: list[dict] = []

        async def send(message: Any) -> None:
            sent.append(message)

        asyncio.run(Guard(app, ["Traces.example"])(asked, AsyncMock(), send))
        return sent[0]["status"]

    assert status(scope(host="traces.example:80")) == 200
    assert status(scope(host="localhost")) == 421


def test_settings_of_people_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = tmp_path / "home" / "dagster.yaml"
    monkeypatch.setenv("DAGSTER_HOME", str(settings.parent))
    prepare(settings.parent)
    assert settings.read_text() == SETTINGS.read_text()
    settings.write_text("telemetry:\n  enabled: true\n")
    prepare(settings.parent)
    assert settings.read_text() == "telemetry:\n  enabled: true\n"


def test_runs_of_an_earlier_ui_do_not_hold_the_queue(tmp_path: Path) -> None:
    import dagster as dg

    from assets.metadata import PROCESS_TAG
    from dagster_project.runs_in_progress import fail_lost
    from pipelines.base.processes import this_process
    from tests.dagster.test_old_runs import chatty

    started = {"status": dg.DagsterRunStatus.STARTED}
    with dg.DagsterInstance.ephemeral() as instance:
        lost = instance.create_run_for_job(chatty, **started)
        alive = instance.create_run_for_job(chatty, **started, tags={PROCESS_TAG: this_process()})
        fail_lost(instance, time.time() - 60)
        assert not instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE]))
        fail_lost(instance, time.time() + 60)
        status = {run.run_id: run.status.value for run in instance.get_runs()}
    assert status == {lost.run_id: "FAILURE", alive.run_id: "STARTED"}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def members(marker: str) -> list[int]:
    """Return the processes that have the marker in their environment, which descendants inherit."""
    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if marker.encode() in (folder / "environ").read_bytes() and int(folder.name) != os.getpid():
                pids.append(int(folder.name))
        except OSError:
            continue
    return pids


class Ui:
    """A running UI."""

    def __init__(self, folder: Path) -> None:
        self.port, self.marker = free_port(), f"TRACELAKE_TEST={folder}"
        command = [
            sys.executable,
            "-m",
            "pipelines.faces.cli.app",
            "ui",
            "--lake",
            str(folder),
            "--port",
            str(self.port),
        ]
        env = {**os.environ, "TRACELAKE_TEST": str(folder), "TRACELAKE_INBOX": str(folder / "in")}
        self.log = (folder / "log").open("w+")
        self.process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=self.log, stderr=self.log)
        until = time.monotonic() + 120
        while self.ask(path="/server_info")[0] != 200:
            assert self.process.poll() is None and time.monotonic() < until, (folder / "log").read_text()
            time.sleep(0.3)

    def ask(self, path: str = "/graphql", body: bytes | None = None, **headers: str) -> tuple[int, str]:
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", body, fields)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def shake_hands(self, origin: str) -> str:
        """Return the first line of the answer to a browser that opens the socket of subscriptions."""
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [
            "GET /graphql HTTP/1.1",
            f"Host: 127.0.0.1:{self.port}",
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Key: {key}",
            "Sec-WebSocket-Protocol: graphql-ws",
            f"Origin: {origin}",
        ]
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as sock:
            sock.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
            return sock.recv(1000).decode("latin-1").splitlines()[0]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Ui]:
    ui = Ui(tmp_path)
    yield ui
    for pid in members(ui.marker):
        os.kill(pid, signal.SIGKILL)
    ui.log.close()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="there is no /proc to find processes with")
def test_the_ui_answers_its_own_pages_only_and_ends_whole(running: Ui) -> None:
    own = f"http://127.0.0.1:{running.port}"
    asked = json.dumps({"query": "{version}"}).encode()
    assert running.ask(path="/runs")[0] == 200
    assert running.ask(body=asked, **JSON, Origin=own)[0] == 200
    assert "version" in running.ask(body=asked, **JSON)[1]
    assert running.ask(path=f"/graphql?query={MUTATION}")[0] == 405
    assert running.ask(body=asked, **JSON, Origin="http://evil.example")[0] == 403
    assert running.ask(body=asked, **JSON, Host="evil.example")[0] == 421
    assert running.ask(path=f"/graphql?query={MUTATION}", body=b"x=1")[0] == 415
    assert "101" in running.shake_hands(own)
    assert "403" in running.shake_hands("http://evil.example")
    assert len(members(running.marker)) > 3
    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(60) == 0
    assert members(running.marker) == []
    assert why_not(running.port) is None


_GROUPS = """[...document.querySelectorAll('svg foreignObject')].map(one =>
  (box => [one.textContent.trim(), box.left, box.right, box.top, box.bottom])(one.getBoundingClientRect()))"""


@pytest.mark.slow  # opens a browser; test_definitions.py checks the groups
def test_the_lineage_is_on_one_screen(running: Ui) -> None:
    """All groups of the lineage fit on a screen of 1920 x 1080, without any link or selection."""
    with browser() as page:
        page.size(1920, 1080)
        page.open(f"http://127.0.0.1:{running.port}/asset-groups")
        page.until(f"({_GROUPS}).length >= {len(GROUPS)}", 120)
        places = {name: box for name, *box in page.js(_GROUPS)}
    assert places.keys() == set(GROUPS)
    assert all(0 <= left < right <= 1920 and 0 <= top < bottom <= 1080 for left, right, top, bottom in places.values())
    lefts = [places[group][0] for group in GROUPS[:6]]
    assert lefts == sorted(lefts)


_SERVED = """
import sys
from dagster_project import serve
served = "import socket, sys, time; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); time.sleep(99)"
serve.commands = lambda port, folder, host: [[sys.executable, "-c", served, str(folder / "code.sock")]]
sys.exit(serve.serve(1, "127.0.0.1"))
"""
_STARTED = "import os, subprocess, sys; os.environ['TRACELAKE_UI_STARTER'] = str(os.getpid()); "
_STARTED += "subprocess.run([sys.executable, '-c', sys.argv[1]])"


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
@pytest.mark.parametrize("killed", first_of(["itself", "who started it"], 1))
def test_a_kill_leaves_nothing_running(tmp_path: Path, killed: str) -> None:
    """After one process of the UI is killed, none of its processes remains.

    There are three processes. The second, dagster_project.serve, watches the first, and the system signals the third
    when the second ends.
    """
    marker = f"TRACELAKE_TEST={tmp_path}"
    first = subprocess.Popen(
        [sys.executable, "-c", _STARTED, _SERVED], cwd=ROOT, env={**os.environ, "TRACELAKE_TEST": str(tmp_path)}
    )
    try:
        until = time.monotonic() + 60
        while len(members(marker)) < 3 or not any(Path(tempfile.gettempdir()).glob("tracelake-*/code.sock")):
            assert time.monotonic() < until and first.poll() is None
            time.sleep(0.1)
        second = next(pid for pid in members(marker) if parent_of(pid) == first.pid)
        os.kill(first.pid if killed == "who started it" else second, signal.SIGKILL)
        first.wait(60)
        while members(marker):
            assert time.monotonic() < until, members(marker)
            time.sleep(0.1)
    finally:
        for pid in members(marker):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.slow  # 7 s
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent has ended")
def test_a_child_whose_parent_has_ended_before_it_could_listen_ends() -> None:
    program = "import os; from dagster_project.serve import _end_with; _end_with({}); print('goes on')"
    for parent, output in (("os.getppid()", b"goes on\n"), ("1 + os.getppid()", b"")):
        done = subprocess.run(
            [sys.executable, "-c", program.format(parent)], cwd=ROOT, capture_output=True, check=False
        )
        assert (done.stdout, done.stderr) == (output, b"")


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_the_tables_of_dagster_are_made_once_and_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dagster's tables are created before any process of the UI starts.

    The web server and the daemon start together, and would both create the tables.
    """
    home, seen = tmp_path / "home", list[set[str]]()

    def look(*_: object) -> int:
        tables = (home / "schedules" / "schedules.db", home / "history" / "runs.db")
        seen.append({name for path in tables for name in _tables(path)})
        return 0

    monkeypatch.setattr(serve, "serve", look)
    monkeypatch.setattr(sys, "argv", ["serve", str(free_port())])
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    assert serve.main() == 0
    assert {"alembic_version", "job_ticks", "runs"} <= seen[0]


def _tables(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as con:
        return [name for (name,) in con.execute("SELECT name FROM sqlite_master")]


@pytest.mark.slow  # 2 s; a single process that prepares the lake is tested above
def test_two_that_prepare_the_same_lake_do_not_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    with ThreadPoolExecutor(4) as several:
        list(several.map(prepare, [tmp_path] * 4))  # without the lock: "table alembic_version already exists"
    assert "job_ticks" in _tables(tmp_path / "schedules" / "schedules.db")


def test_it_listens_where_it_is_told_to() -> None:
    folder = Path("folder")
    assert "127.0.0.1" in commands(3000, folder)[1]
    server = commands(3000, folder, "0.0.0.0")[1]
    assert "0.0.0.0" in server and "127.0.0.1" not in server
    for host in ("203.0.113.7", "no-such-host.invalid"):
        assert "is not an address of this machine" in (why_not(free_port(), host) or "")
    assert why_not(free_port(), "0.0.0.0") is None


def test_one_code_server_loads_the_definitions_for_both(tmp_path: Path) -> None:
    """One code server loads the definitions for the web server and the daemon.

    The location keeps its name, because the state of sensors and schedules (on or off) belongs to it.
    """
    from dagster._core.workspace.load import location_origins_from_yaml_paths

    code, *both = commands(3000, tmp_path)
    write_workspace(tmp_path)
    (origin,) = location_origins_from_yaml_paths([str(tmp_path / "workspace.yaml")])
    assert origin.location_name == "dagster_project.definitions"
    assert origin.socket == code[code.index("--socket") + 1] and len(origin.socket) < 108
    assert code[-2:] == ["-m", "dagster_project.definitions"]
    for command in both:
        assert command[command.index("--workspace") + 1] == str(tmp_path / "workspace.yaml")
        assert "dagster_project.definitions" not in command


@pytest.mark.parametrize(("words", "said"), [((), []), (("--host", "0.0.0.0"), ["no users", "--allow-host"])])
def test_who_listens_to_all_is_told_what_that_means(
    words: tuple[str, ...], said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []

    def popen(command: list[str], **_: Any) -> SimpleNamespace:
        started.append(command)
        return SimpleNamespace(wait=lambda: 0, send_signal=None)

    monkeypatch.setattr("pipelines.faces.cli.lake.demo.subprocess.Popen", popen)
    monkeypatch.setattr("pipelines.faces.cli.lake.demo.signal.signal", lambda *_: None)
    message = CliRunner().invoke(app, ["ui", "--lake", str(tmp_path), *words]).stderr
    assert started[0][-1] == (words[1] if words else "127.0.0.1")
    assert all(part in message for part in said) and ("caveat" in message) == bool(said)


@pytest.mark.slow
def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        command = [sys.executable, "-m", "dagster_project.serve", str(taken.getsockname()[1])]
        env = {**os.environ, "DAGSTER_HOME": str(tmp_path)}
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "is taken; choose another with --port" in done.stderr
