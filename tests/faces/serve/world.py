"""A lake whose names are hostile, and a server of it in a thread of the test's process."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.lake import Lake
from pipelines.lake.read.sandbox import Limits
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize.run_order import materialize_all
from tests.harness import call, kernel

HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>&amp;\u202e=1+1"
TABLES = ["kernels", "temporal_breakdown"]
FOREVER = "SELECT count(*) FROM range(10000000000) AS a, range(1000000) AS b WHERE a.range % 7 = b.range % 11"


def hostile_lake(folder: Path, ranks: int = 2) -> Lake:
    """Make a lake of `ranks` traces, whose kernels are named HOSTILE. TABLES are computed."""
    for rank in range(ranks):
        write_hostile(folder / "in" / f"rank{rank}.json", rank)
    lake = Lake(folder / "lake")
    ingest([folder / "in"], lake, job="<b>train</b>")
    materialize_all(lake, TABLES)
    return lake


def write_hostile(path: Path, rank: int) -> Path:
    """Write a trace of four kernels of 20 us each, and return its path."""
    events: list[dict[str, Any]] = []
    for i in range(4):
        at = 100 * i + rank
        events += [call("cudaLaunchKernel", at, 5, i + 1), kernel(HOSTILE, at, 20, i + 1)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"traceEvents": events, "distributedInfo": {"rank": rank}}))
    return path


@dataclass
class Server:
    """A running server. `console`: its handlers."""

    port: int
    console: Any

    def ask(self, path: str, body: Any = None, method: str = "", headers: dict[str, str] | None = None) -> Answer:
        """Send a request (GET, or POST of JSON), and return the answer."""
        con = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        content_type: dict[str, str] = {} if body is None else {"Content-Type": "application/json"}
        sent = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        try:
            con.request(method or ("GET" if body is None else "POST"), path, sent, {**content_type, **(headers or {})})
            answer = con.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            con.close()

    def rows(self, sql: str) -> list[list[Any]]:
        """Return the rows of a query. Fail if the server does not answer it with rows."""
        answer = self.ask("/query", {"sql": sql})
        assert answer.status == 200, answer.body
        return answer.json["rows"]

    def begun(self, path: str, body: Any) -> socket.socket:
        """Send a request, and return the connection without reading the answer."""
        text = json.dumps(body).encode()
        con = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
        con.sendall(head.encode() + text)
        return con

    @property
    def n_running(self) -> int:
        """The number of running queries."""
        return self.console.places.n_running


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@contextmanager
def serving(lake: Path | str, limits: Limits | None = None, **settings: Any) -> Iterator[Server]:
    """Run a server on a free port until the end of the block."""
    import uvicorn

    from pipelines.faces.serve.app import Settings, make_app

    app = make_app(Settings(lake, limits or Limits(30, 0, "500MB", "1GB"), **settings))
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        until(lambda: server.started)
        yield Server(listening.getsockname()[1], app.state.console)
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()


def until(holds: Callable[[], bool], seconds: float = 30) -> None:
    """Wait until `holds()` is true. Fail after `seconds`."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)
