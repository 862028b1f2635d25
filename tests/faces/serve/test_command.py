"""`tracelake serve` as a process: its output, its address, its end, and the settings that it refuses."""

from __future__ import annotations

import os
import re
import resource
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from typer.testing import CliRunner

pytest.importorskip("starlette", reason="the extra serve is not installed")
pytest.importorskip("uvicorn", reason="the extra serve is not installed")

from pipelines.base import extras
from pipelines.faces.cli.app import app
from pipelines.faces.untrusted_queries import bound_process
from tests.faces.serve.world import FOREVER, Server, hostile_lake, until


def start(*words: str) -> tuple[subprocess.Popen[str], int]:
    """Start the server. Return the process, and the port that it prints."""
    command = [sys.executable, "-m", "tracelake", "serve", "--port", "0", *words]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "COLUMNS": "200"})
    assert process.stderr is not None
    line = process.stderr.readline()
    match = re.fullmatch(r"tracelake: http://127\.0\.0\.1:(\d+)  \(Ctrl-C stops it\)\n", line)
    assert match, line + process.stderr.read()
    return process, int(match[1])


@pytest.mark.slow
def test_it_serves_and_ends_with_a_query_running(tmp_path: Path) -> None:
    lake = hostile_lake(tmp_path, ranks=1)
    process, port = start("--lake", str(lake.root))
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/") as page:
            assert b"<title>tracelake</title>" in page.read()
        running = Server(port, None).begun("/query", {"sql": FOREVER})
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
        running.close()
    finally:
        process.kill()
    assert "Traceback" not in stderr
    assert process.returncode in (0, 130, -signal.SIGINT)


@pytest.mark.slow
def test_it_says_that_there_is_no_login(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    process, port = start("--lake", str(tmp_path / "lake"), "--host", "0.0.0.0", "--allow-host", "traces.example")
    try:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("caveat: there is no login; ")
        server = Server(port, None)
        until(lambda: server.ask("/contents").status == 200)
        assert server.ask("/contents", headers={"Host": "Traces.Example:80"}).status == 200
        assert server.ask("/contents", headers={"Host": "other.example"}).status == 421
    finally:
        process.terminate()
        process.communicate(timeout=60)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--lake", "nowhere"], "nowhere is not a folder"),
        (["--memory", "much"], "'much' is not a size"),
        (["--spill", "more"], "'more' is not a size"),
        (["--port", "{taken}"], "Address already in use"),
    ],
)
def test_what_cannot_be_served_is_told(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lake").mkdir()
    monkeypatch.chdir(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        arguments = [word.format(taken=taken.getsockname()[1]) for word in words]
        said = CliRunner().invoke(app, ["serve", *arguments])
    assert said.exit_code == 1 and message in said.stderr and said.stderr.startswith("error: ")


@pytest.mark.parametrize("name", ["serve", "mcp"])
def test_a_missing_extra_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda _: None)
    said = CliRunner().invoke(app, [name])
    assert said.exit_code == 1 and f"-m pip install -e '{Path(extras.__file__).parents[2]}[{name}]'" in said.stderr
    monkeypatch.setattr(extras, "_CLONE", Path("/no/clone"))  # as in site-packages
    assert f"pip install 'tracelake[{name}]'" in CliRunner().invoke(app, [name]).stderr


@pytest.mark.parametrize("memory", ["none", "-1"])
def test_memory_without_a_limit_is_not_bounded(memory: str) -> None:
    """DuckDB's words for no limit, `none` and `-1`, do not bound the process.

    As a number they would be more bytes than a limit of the system can be.
    """
    before = resource.getrlimit(resource.RLIMIT_DATA)
    bound_process(memory, queries=2)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured in /proc, and limited on Linux")
def test_memory_is_bounded(tmp_path: Path) -> None:
    """The bound covers downloads of any length, and texts, which DuckDB's own limit does not count."""
    lake = hostile_lake(tmp_path, ranks=1)
    process, port = start("--lake", str(lake.root), "--memory", "200MB", "--queries", "2")
    try:
        server = Server(port, None)
        con = server.begun("/download", {"sql": "SELECT range, repeat('x', 100) FROM range(6000000)", "format": "csv"})
        n = 0
        while part := con.recv(1 << 20):
            n += len(part)
            if part.endswith(b"0\r\n\r\n"):
                break
        con.close()
        assert n > 600_000_000
        assert peak(process.pid) < 700
        answer = server.ask("/query", {"sql": "SELECT repeat('x', 100000000) FROM range(2000)"})
        assert answer.status == 400 and "raise --memory" in answer.json["error"]
        assert server.rows("SELECT count(*) FROM traces") == [[1]]
        assert peak(process.pid) < 2_000
    finally:
        process.kill()
        process.communicate()


def peak(pid: int) -> int:
    """Return the peak memory of a process, in MB."""
    match = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert match
    return int(match[1]) // 1000
