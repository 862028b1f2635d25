"""Queries in threads: a bounded number at once, each stopped when whoever asked for it is gone."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from starlette.types import Receive, Scope, Send

from pipelines.base.foreign_text import visible
from pipelines.faces.asking import Asking, NotAnswered

T = TypeVar("T")
_log = logging.getLogger(__name__)
_WAITING = 50
"""Queries that may wait for a place; further ones are told to try again."""


class Busy(NotAnswered):
    """Too many queries run and wait already."""


class Places:
    """How many queries run at once. Those that run can be stopped together, when the server ends."""

    def __init__(self, number: int) -> None:
        self._limiter = anyio.CapacityLimiter(number)
        self._running: set[Asking] = set()
        self._is_ending = False

    @property
    def n_running(self) -> int:
        """Returns how many places are taken."""
        return self._limiter.borrowed_tokens

    @asynccontextmanager
    async def taken(self, asking: Asking) -> AsyncIterator[None]:
        """Waits for a place, and gives it back after the block. Raises Busy if too many wait."""
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
        """Stop the queries that run, and let none begin."""
        self._is_ending = True
        for asking in list(self._running):
            asking.stop()


async def in_thread(work: Callable[[], T]) -> T:
    """Returns what `work` returns. It is waited for even if the caller is cancelled: it has a query open."""
    found: list[T] = []
    with anyio.CancelScope(shield=True):
        found.append(await anyio.to_thread.run_sync(work))
    return found[0]


async def while_there(receive: Receive, asking: Asking, work: Callable[[], Awaitable[T]]) -> T | None:
    """Returns what `work` returns. If the client leaves, its query is stopped, `work` is cancelled, and None returned."""
    found: list[T] = []
    errors: list[Exception] = []

    async def watch(scope: anyio.CancelScope) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        asking.stop()
        scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(watch, group.cancel_scope)
        try:
            found.append(await work())
        except Exception as error:  # raised outside, so that it is not one of a group
            errors.append(error)
        group.cancel_scope.cancel()
    if errors and not asking.is_stopped:
        raise errors[0]
    return found[0] if found else None


class Streamed:
    """An ASGI response whose body comes from a thread, part by part, and whose query ends with it.

    If the query fails in between, the connection is cut: nobody must take half of a file for all of it.
    """

    def __init__(self, parts: Any, first: bytes, headers: dict[str, str], asking: Asking, close: Callable[[], Any]):
        """`close` is awaited at the end, whatever happened."""
        self.parts, self.first, self.asking, self.close = parts, first, asking, close
        self.headers = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._watch, receive, group.cancel_scope)
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
                return  # without an end, so the server closes the connection
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _watch(self, receive: Receive, scope: anyio.CancelScope) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.asking.stop()
        scope.cancel()
