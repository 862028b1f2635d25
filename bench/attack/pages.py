"""Partial requests to a server, and requests for files of tables that are not computed."""

from __future__ import annotations

import json
import random
import re
import signal
import socket
import struct
import subprocess
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from bench.attack.children import ROOT, TRACELAKE
from bench.attack.tally import Tally
from pipelines.lake import Lake
from pipelines.readers.ingest import ingest
from tests.faces.serve.world import Server, until
from tests.lake.world import capture

_RANKS = 2
_PATHS = ("/why", "/query", "/question", "/download", "/report")
_SQL = "SELECT * FROM kernels"
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: the connection is reset, not closed


def attack(n: int, seed: int) -> Tally:
    """Send `n` requests to a server. It must answer the query after each of them, and must not log a traceback."""
    tally, choice = Tally("requests of a server"), random.Random(seed)
    if not (find_spec("starlette") and find_spec("uvicorn")):
        tally.notes.append("not tried: the extra serve is not installed")
        return tally
    with tempfile.TemporaryDirectory() as folder:
        ingest(capture(Path(folder, "in"), _RANKS), Lake(Path(folder, "lake")))
        log = Path(folder, "stderr")
        words = ["serve", "--port", "0", "--lake", str(Path(folder, "lake"))]
        with log.open("w") as stderr:
            process = subprocess.Popen([*TRACELAKE, *words], cwd=ROOT, stderr=stderr)
        try:
            until(lambda: process.poll() is not None or _port(log) is not None)
            server = Server(_port(log) or 0, None)
            for _ in range(n):
                try_once(server, choice, tally)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
        if n_tracebacks := log.read_text().count("Traceback (most recent call last)"):
            tally.tracebacks += n_tracebacks
            tally.survived -= min(n_tracebacks, tally.survived)
            tally.notes.append(f"the server logged: {log.read_text()[-300:]}")
    return tally


def try_once(server: Server, choice: random.Random, tally: Tally) -> None:
    """Send a request, and check that the server answers the next query."""
    tally.tried += 1
    send: Callable[[Server, random.Random], str] = choice.choice((half, half, half, download))
    try:
        why = send(server, choice)
        answer = server.ask("/query", {"sql": "SELECT count(*) FROM traces"})
        if not why and (answer.status != 200 or answer.json["rows"] != [[_RANKS]]):
            why = f"after {send.__name__}: the next query has status {answer.status}: {answer.body[:200]!r}"
    except OSError as error:
        why = f"after {send.__name__}: no answer: {error}"
    tally.survived += not why
    tally.silent += bool(why)
    tally.notes += [why] * bool(why)


def half(server: Server, choice: random.Random) -> str:
    """Send the beginning of a POST request, sometimes without its complete head, and close or reset the connection."""
    path = choice.choice(_PATHS)
    body = json.dumps({"sql": _SQL, "format": "csv", "name": "kernels", "id": "a"}).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    request = head.encode() + body
    first = choice.choice((0, len(head)))
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as con:
        con.sendall(request[: choice.randrange(first, len(request))])
        if choice.random() < 0.5:
            con.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    return ""


def download(server: Server, choice: random.Random) -> str:
    """Request a file of a table that is not computed. The server must refuse it, and name the command that computes it."""
    kind = choice.choice(("csv", "parquet"))
    answer = server.ask("/download", {"sql": _SQL, "format": kind})
    is_refused = answer.status == 400 and "tracelake materialize" in answer.json.get("hint", "")
    return "" if is_refused else f"download of {kind}: status {answer.status}: {answer.body[:200]!r}"


def _port(log: Path) -> int | None:
    match = re.search(r"http://127\.0\.0\.1:(\d+)", log.read_text())
    return int(match[1]) if match else None
