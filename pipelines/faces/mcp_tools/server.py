"""Server of the tools over the Model Context Protocol (MCP), on stdin and stdout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread
from mcp.server import Server  # pyright: ignore[reportMissingImports]
from mcp.server.stdio import stdio_server  # pyright: ignore[reportMissingImports]
from mcp_types import CallToolResult, ListToolsResult, TextContent, ToolAnnotations  # pyright: ignore[reportMissingImports]
from mcp_types import Tool as McpTool  # pyright: ignore[reportMissingImports]

from pipelines import __version__
from pipelines.base.errors import TracelakeError
from pipelines.faces.mcp_tools.tools import INSTRUCTIONS, Served, Tool, make_tools
from pipelines.faces.untrusted_queries import QueryFailed

AT_ONCE = 2
"""Maximum number of concurrent queries. Further queries wait."""


def make_server(served: Served) -> Server[Any]:
    """Return the server. Cancelling a request stops its query."""
    tools = make_tools(served)
    listed = [_declared(tool) for tool in tools.values()]
    limiter = anyio.CapacityLimiter(AT_ONCE)

    async def list_tools(_: Any, __: Any) -> ListToolsResult:
        return ListToolsResult(tools=listed)

    async def call_tool(_: Any, params: Any) -> CallToolResult:
        try:
            tool = tools.get(params.name)
            if tool is None:
                raise QueryFailed(f"no tool {params.name!r}: there are {', '.join(tools)}")
            answer, stop = tool.start(**tool.checked(params.arguments))
            return _result(await _in_thread(answer, stop, limiter))
        except TracelakeError as error:
            return _result(f"error: {error}{' ' if error.hint else ''}{error.hint}", is_error=True)

    return Server(
        "tracelake", version=__version__, instructions=INSTRUCTIONS, on_list_tools=list_tools, on_call_tool=call_tool
    )


def serve(served: Served) -> None:
    """Answer requests on stdin and stdout until stdin ends."""
    anyio.run(_serve, make_server(served))


async def _serve(server: Server[Any]) -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


async def _in_thread(answer: Callable[[], str], stop: Callable[[], None], limiter: anyio.CapacityLimiter) -> str:
    """Run `answer` in a thread and return its result. If this task is cancelled, stop the query and wait for the thread."""
    async with limiter, anyio.create_task_group() as group:
        group.start_soon(_stop_when_cancelled, stop)
        with anyio.CancelScope(shield=True):
            try:
                result = await anyio.to_thread.run_sync(_caught, answer)
            finally:
                group.cancel_scope.cancel()
    if isinstance(result, Exception):
        raise result
    return result


def _caught(answer: Callable[[], str]) -> str | Exception:
    try:
        return answer()
    except Exception as error:  # returned, because a task group would wrap it; the caller raises it outside the group
        return error


async def _stop_when_cancelled(stop: Callable[[], None]) -> None:
    try:
        await anyio.sleep_forever()
    finally:
        stop()  # has no effect if the query has ended


def _declared(tool: Tool) -> McpTool:
    schema = {"type": "object", "properties": dict(tool.parameters), "required": list(tool.required)}
    return McpTool(
        name=tool.name,
        description=tool.description,
        input_schema={**schema, "additionalProperties": False},
        annotations=ToolAnnotations(
            read_only_hint=not tool.computes, destructive_hint=False, idempotent_hint=True, open_world_hint=False
        ),
    )


def _result(text: str, is_error: bool = False) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=is_error)
