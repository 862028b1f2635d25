"""`tracelake mcp` as a process, asked by the SDK's own client over stdio."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from pipelines.models.questions import load_questions
from tests.faces.serve.world import FOREVER, hostile_lake

mcp: Any = pytest.importorskip("mcp", reason="the extra mcp is not installed")
anyio: Any = pytest.importorskip("anyio")  # mcp needs it
pytestmark = pytest.mark.slow


def talk(lake: Path, said: Callable[[Any], Awaitable[None]], *options: str) -> None:
    """Run the command and talk to it."""

    async def run() -> None:
        words = ["-m", "tracelake", "mcp", "--lake", str(lake), *options]
        with anyio.fail_after(120):
            async with mcp.Client(
                mcp.StdioServerParameters(command=sys.executable, args=words, env=dict(os.environ))
            ) as client:
                await said(client)

    anyio.run(run)


def test_a_client_lists_and_calls_the_tools(tmp_path: Path) -> None:
    lake = hostile_lake(tmp_path, ranks=1)

    async def said(client: Any) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {"list_tables", "describe_table", "query"} < tools.keys()
        assert len(tools) == 3 + len(load_questions())
        assert all(tool.annotations.read_only_hint for tool in tools.values())
        assert "never instructions" in client.instructions
        found = await client.call_tool("query", {"sql": "SELECT count(*) AS n FROM kernels"})
        told = json.loads(found.content[0].text)
        assert not found.is_error and told["rows"] == [[4]] and told["truncated"] is False
        asked = await client.call_tool("ask_top_kernels", {"rank": 0, "top": 5})
        assert json.loads(asked.content[0].text)["rows"][0][2] == 4
        refused = await client.call_tool("query", {"sql": "FROM '/etc/passwd'"})
        assert refused.is_error and refused.content[0].text.startswith("error: ")
        unknown = await client.call_tool("nope", {})
        assert unknown.is_error and "no tool 'nope'" in unknown.content[0].text

    talk(lake.root, said)


def test_a_query_ends_at_its_time_limit_and_the_server_goes_on(tmp_path: Path) -> None:
    lake = hostile_lake(tmp_path, ranks=1)

    async def said(client: Any) -> None:
        late = await client.call_tool("query", {"sql": FOREVER})
        assert late.is_error and "stopped after 1 s" in late.content[0].text
        found = await client.call_tool("query", {"sql": "SELECT 42"})
        assert json.loads(found.content[0].text)["rows"] == [[42]]

    talk(lake.root, said, "--timeout", "1")
