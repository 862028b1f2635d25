"""Requests of which only a part arrives. They are not errors, and the server logs nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

pytest.importorskip("starlette", reason="the extra serve is not installed")

from pipelines.faces.serve import app
from pipelines.lake.read.sandbox import Limits


@pytest.mark.parametrize("path", ["/why", "/query", "/question", "/download", "/report"])
def test_a_request_of_which_only_a_part_arrives_is_no_error(tmp_path: Path, path: str) -> None:
    messages = [{"type": "http.request", "body": b'{"sql": ', "more_body": True}, {"type": "http.disconnect"}]
    statuses = []
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
    scope |= {"headers": headers, "scheme": "http", "http_version": "1.1", "server": ("localhost", 1), "root_path": ""}

    async def receive() -> Any:
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    asgi: Any = app.make_app(app.Settings(tmp_path, Limits(30, 0, "500MB", "1GB")))
    anyio.run(asgi, scope, receive, send)  # raises any error that the server would log
    assert statuses == [499]
