"""`tracelake mcp` as a process, called by the SDK's own client over stdio."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Awaitable, Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from pipelines.faces.mcp_tools.tools import Served
from pipelines.lake.read.sandbox import Limits
from tests.faces.serve.world import FOREVER, hostile_lake

WITH_SDK = pytest.mark.skipif(find_spec("mcp") is None, reason="the extra mcp is not installed")
pytestmark = WITH_SDK


def _sdk() -> tuple[Any, Any]:
    """Import anyio, which mcp needs, and mcp.

    The import takes half a second. It is done late, because every worker imports this file.
    """
    return import_module("anyio"), import_module("mcp")


def new_client(lake: Path, *options: str) -> Any:
    """Return a client that starts the command."""
    _, mcp = _sdk()
    words = ["-m", "tracelake", "mcp", "--lake", str(lake), *options]
    return mcp.Client(mcp.StdioServerParameters(command=sys.executable, args=words, env=dict(os.environ)))


def talk(lake: Path, said: Callable[[Any], Awaitable[None]], *options: str) -> None:
    """Start the command, connect a client, and run `said(client)`."""
    anyio, _ = _sdk()

    async def run() -> None:
        with anyio.fail_after(120):
            async with new_client(lake, *options) as client:
                await said(client)

    anyio.run(run)


def test_the_declarations_are_few_and_short(tmp_path: Path) -> None:
    """The declarations of tools, with the server's instructions, have fewer than 6,000 characters.

    Every session has them in its context.
    """
    from pipelines.faces.mcp_tools.server import make_server

    anyio, mcp = _sdk()

    async def said() -> None:
        async with mcp.Client(make_server(Served(tmp_path, Limits()))) as client:
            listed = await client.list_tools()
            sent = listed.model_dump_json(by_alias=True, exclude_none=True)
            assert 4 <= len(listed.tools) <= 8
            assert 1_000 < len(sent) + len(client.instructions) < 6_000

    anyio.run(said)


@pytest.mark.slow
def test_a_client_lists_and_calls_the_tools(tmp_path: Path) -> None:
    lake = hostile_lake(tmp_path, ranks=1)

    async def said(client: Any) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert tools.keys() == {"list_questions", "ask", "why", "fixes", "what_if", "compare", "tables", "sql"}
        computing = {name for name, tool in tools.items() if not tool.annotations.read_only_hint}
        assert computing == {"fixes", "what_if", "compare"}
        assert not any(tool.annotations.destructive_hint for tool in tools.values())
        assert "never instructions" in client.instructions
        result = await client.call_tool("sql", {"query": "SELECT count(*) AS n FROM kernels"})
        answer = json.loads(result.content[0].text)
        assert not result.is_error and answer["rows"] == [[4]] and answer["truncated"] is False
        asked = await client.call_tool("ask", {"name": "top-kernels", "rank": 0, "top": 5})
        assert json.loads(asked.content[0].text)["rows"][0][3] == 4
        refused = await client.call_tool("sql", {"query": "FROM '/etc/passwd'"})
        assert refused.is_error and refused.content[0].text.startswith("error: ")
        wrong = await client.call_tool("ask", {"name": "top_kernels"})
        assert wrong.is_error and "did you mean top-kernels" in wrong.content[0].text
        unknown = await client.call_tool("nope", {})
        assert unknown.is_error and "no tool 'nope'" in unknown.content[0].text

    talk(lake.root, said)


@pytest.mark.slow
def test_a_query_ends_at_its_time_limit_and_the_server_goes_on(tmp_path: Path) -> None:
    lake = hostile_lake(tmp_path, ranks=1)

    async def said(client: Any) -> None:
        late = await client.call_tool("sql", {"query": FOREVER})
        assert late.is_error and "stopped after 1 s" in late.content[0].text
        result = await client.call_tool("sql", {"query": "SELECT 42"})
        assert json.loads(result.content[0].text)["rows"] == [[42]]

    talk(lake.root, said, "--timeout", "1")
