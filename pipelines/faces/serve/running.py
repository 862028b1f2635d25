"""Queries in threads. A bounded number runs concurrently, and each stops when its client disconnects."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from starlette.types import Receive, Scope, Send

from pipelines.base.foreign_text import visible
from pipelines.faces.untrusted_queries import LakeQuery, QueryFailed

T = TypeVar("T")
_log = logging.getLogger(__name__)
_WAITING = 50
"""Maximum number of queries that wait for a slot. A further query raises Busy."""


class Busy(QueryFailed):
    """Raised if too many queries are running and waiting, or the server is ending."""


class Places:
    """Slots for concurrent queries. `stop_all` stops all running queries when the server ends."""

    def __init__(self, number: int) -> None:
        self._limiter = anyio.CapacityLimiter(number)
        self._running: set[LakeQuery] = set()
        self._is_ending = False

    @property
    def n_running(self) -> int:
        """Return the number of slots in use."""
        return self._limiter.borrowed_tokens

    @asynccontextmanager
    async def taken(self, asking: LakeQuery) -> AsyncIterator[None]:
        """Wait for a slot, and release it after the block. Raise Busy if too many queries wait or the server is ending."""
        statistics = self._limiter.statistics()
        if statistics.tasks_waiting >= _WAITING:
            raise Busy(f"{statistics.borrowed_tokens} queries are running and {_WAITING} waiting", "Try again later.")
        await self._limiter.acquire_on_behalf_of(asking)
        self._running.add(asking)
        try:
            if self._is_ending:
                raise Busy("the server is ending")
            yield
        finally:
            self._running.discard(asking)
            self._limiter.release_on_behalf_of(asking)

    def stop_all(self) -> None:
        """Stop all running queries and start no more."""
        self._is_ending = True
        for asking in list(self._running):
            asking.stop()


async def in_thread(work: Callable[[], T]) -> T:
    """Run `work` in a thread and return its result. Wait for it even if the caller is cancelled, because it has an open query."""
    results: list[T] = []
    with anyio.CancelScope(shield=True):
        results.append(await anyio.to_thread.run_sync(work))
    return results[0]


async def while_there(receive: Receive, asking: LakeQuery, work: Callable[[], Awaitable[T]]) -> T | None:
    """Return the result of `work`.

    If the client disconnects, stop the query `asking`, cancel `work` and return None.
    """
    results: list[T] = []
    errors: list[Exception] = []
    async with anyio.create_task_group() as group:
        group.start_soon(_stop_at_disconnect, receive, asking, group.cancel_scope)
        try:
            results.append(await work())
        except Exception as error:  # raised outside the task group, which would wrap it
            errors.append(error)
        group.cancel_scope.cancel()
    if errors and not asking.is_stopped:
        raise errors[0]
    return results[0] if results else None


async def _stop_at_disconnect(receive: Receive, asking: LakeQuery, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    asking.stop()
    scope.cancel()


class Streamed:
    """An ASGI response whose body is produced by a thread, part by part. The query ends with the response.

    If the query fails in between, the server cuts the connection, so that the client does not take a partial file for a
    complete one.
    """

    def __init__(self, parts: Any, first: bytes, headers: dict[str, str], asking: LakeQuery, close: Callable[[], Any]):
        """Prepare the response. `close` is awaited at the end, even after an error."""
        self.parts, self.first, self.asking, self.close = parts, first, asking, close
        self.headers = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(_stop_at_disconnect, receive, self.asking, group.cancel_scope)
                await self._send(send)
                group.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await self.close()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.headers})
        part: bytes | None = self.first
        while part is not None:
            await send({"type": "http.response.body", "body": part, "more_body": True})
            try:
                part = await in_thread(lambda: next(self.parts, None))
            except Exception as error:
                if not self.asking.is_stopped:
                    _log.warning("a download was cut off: %s", visible(error))
                return  # without a last part, so the server closes the connection
        await send({"type": "http.response.body", "body": b"", "more_body": False})
