"""The web application: the page, its files, and the handlers of its requests."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import anyio.to_thread
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pipelines import __version__
from pipelines.base.errors import TracelakeError
from pipelines.base.foreign_text import visible
from pipelines.base.units import counted
from pipelines.faces.cells import LONGEST, rows_as_json
from pipelines.faces.serve.access import LOCAL, foreign, headers_of, is_json
from pipelines.faces.serve.contents import questions, tables_by_layer
from pipelines.faces.serve.downloads import KINDS, Download
from pipelines.faces.serve.newest import NEWEST, newest_why
from pipelines.faces.serve.reports import Reports, existence, known_id
from pipelines.faces.serve.running import Busy, Places, Streamed, in_thread, while_there
from pipelines.faces.untrusted_queries import LakeQuery, QueryFailed, first_rows
from pipelines.lake.read.sandbox import Limits, QueryStopped
from pipelines.models.questions import question_named

_HERE = Path(__file__).parent
# The server serves only these files, by name.
_FILES = {path.name: path for folder in ("page", "vendor") for path in (_HERE / folder).glob("*.*")}
_SHOWN = {".css": "text/css", ".js": "text/javascript", ".html": "text/html", ".svg": "image/svg+xml"}
_MOST_BODY = 1_000_000
_MOST_BYTES = 16_000_000  # of text in an answer on the page
_OWN = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_REPORT = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_HEADERS = {
    "content-security-policy": _OWN,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


@dataclass(frozen=True)
class Settings:
    """Settings of the server.

    `lake`: a folder, or the address of a DuckLake. `limits`: limits of a query. `rows`: maximum number of rows on the
    page. `queries`: maximum number of concurrent queries. `hosts`: names that the server answers to in addition to
    LOCAL. `without_broken`: skip broken files.
    """

    lake: Path | str
    limits: Limits
    rows: int = 10_000
    queries: int = 4
    hosts: tuple[str, ...] = ()
    without_broken: bool = False


class Guarded:
    """ASGI middleware that rejects foreign hosts and origins, and adds _HEADERS to every answer."""

    def __init__(self, app: ASGIApp, hosts: Iterable[str]) -> None:
        self.app, self.hosts = app, frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer with the status and message of its rejection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = headers_of(scope)
        why = foreign(headers, self.hosts)
        if why is None and scope["method"] == "POST" and not is_json(headers):
            why = 415, "send Content-Type: application/json"

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                names = {name.lower() for name, _ in message["headers"]}
                more = [(n.encode(), v.encode()) for n, v in _HEADERS.items() if n.encode() not in names]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        app = self.app if why is None else PlainTextResponse(f"{why[1]}\n", why[0])
        await app(scope, receive, with_headers)


class Console:
    """The handlers of the page's requests."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.places = settings, Places(settings.queries)
        self.reports = Reports(settings.lake, settings.without_broken)

    async def file(self, request: Request) -> Response:
        """Return the page, or one of its files."""
        path = _FILES.get(request.path_params.get("name", "index.html"))
        if path is None:
            return PlainTextResponse("no such file\n", 404)
        return FileResponse(path, media_type=_SHOWN.get(path.suffix, "text/plain"))

    async def contents(self, request: Request) -> Response:
        """Return the tables, the questions, and the server's version, lake and limits."""
        settings = self.settings
        layers = await anyio.to_thread.run_sync(tables_by_layer)
        about = {"version": __version__, "lake": str(settings.lake), "has_reports": self.reports.are_possible}
        limits = {"rows": settings.rows, "seconds": settings.limits.seconds, "memory": settings.limits.memory}
        return JSONResponse({**about, "limits": limits, "layers": layers, "questions": questions()})

    async def why(self, request: Request) -> Response:
        """Return why the newest capture or trace takes as long as it does."""
        await _body(request)
        asking = self._asking(NEWEST)

        async def work() -> dict[str, Any]:
            async with self.places.taken(asking):
                return await in_thread(partial(newest_why, asking))

        answer = await while_there(request.receive, asking, work)
        return JSONResponse(answer) if answer else Response(status_code=499)

    async def query(self, request: Request) -> Response:
        """Return the first rows of the query in the request."""
        asking = self._asking((await _body(request)).text("sql"))
        asking.is_of_user = True

        async def work() -> dict[str, Any]:
            async with self.places.taken(asking):
                return await in_thread(partial(self._rows, asking))

        answer = await while_there(request.receive, asking, work)
        return JSONResponse(answer) if answer else Response(status_code=499)  # the client disconnected

    def _rows(self, asking: LakeQuery) -> dict[str, Any]:
        start = time.monotonic()
        with asking.answer() as (answer, caveats):
            result = rows_as_json(first_rows(answer, self.settings.rows, _MOST_BYTES, LONGEST))
        if result["n_cut"]:
            caveats = [
                *caveats,
                f"{counted(result['n_cut'], 'cell')} cut to {LONGEST:,} characters; a download has all of them",
            ]
        caveats = [visible(caveat) for caveat in caveats]
        return {**result, "caveats": caveats, "seconds": round(time.monotonic() - start, 3)}

    async def question(self, request: Request) -> Response:
        """Return the SQL of a saved question, limited to a part of the lake."""
        body = await _body(request)
        question = question_named(body.text("name"))
        limits = {
            name: body.number(name) if name == "rank" else body.text(name, "") or None for name in question.limits
        }
        return JSONResponse({"sql": question.asked(body.number("top") or 0, **limits)})

    async def download(self, request: Request) -> Any:
        """Return all rows of a query as a file."""
        body = await _body(request)
        kind = body.text("format")
        if kind not in KINDS:
            raise QueryFailed(f"no format {kind!r}: there are {' and '.join(KINDS)}")
        asking = self._asking(body.text("sql"))
        asking.is_of_user = True
        asking.needs_all = True  # the header is only for caveats about data that cannot be computed
        download = Download(asking, kind, body.fields.get("for_spreadsheet") is True)
        held = AsyncExitStack()  # closed after the last part is sent

        async def close() -> None:
            await in_thread(download.close)
            await held.aclose()

        async def work() -> bytes:
            await held.enter_async_context(self.places.taken(asking))
            return await in_thread(download.first)

        first = None
        try:
            first = await while_there(request.receive, asking, work)
        finally:
            if first is None:
                await close()
        if first is None:
            return Response(status_code=499)
        headers = {"content-type": KINDS[kind], "content-disposition": f'attachment; filename="answer.{kind}"'}
        return Streamed(download.parts, first, {**_HEADERS, **headers, **download.headers()}, asking, close)

    async def make_report(self, request: Request) -> Response:
        """Return the address of the report of a trace or capture. Build the report if it is missing or outdated."""
        ident = (await _body(request)).text("id")
        asking = self._asking(existence(ident))

        async def work() -> str:
            async with self.places.taken(asking):
                is_known = await in_thread(partial(known_id, asking))
            if not is_known:
                raise QueryFailed(f"no trace or capture has the id {visible(ident)!r}")
            return await self.reports.make(ident)

        made = await while_there(request.receive, asking, work)
        return JSONResponse({"page": f"/reports/{made}"}) if made else Response(status_code=499)

    async def report(self, request: Request) -> Response:
        """Return the finished report that the request names."""
        path = self.reports.page(request.path_params["name"])
        if path is None:
            return PlainTextResponse("no such report; the link of its trace makes it again\n", 404)
        return FileResponse(path, media_type="text/html", headers={"content-security-policy": _REPORT})

    async def waiting(self, request: Request) -> Response:
        """Return the page that requests a report and waits for it."""
        return FileResponse(_FILES["report.html"], media_type="text/html")

    def _asking(self, sql: str) -> LakeQuery:
        return LakeQuery(self.settings.lake, sql, self.settings.limits, self.settings.without_broken)


class _Body:
    """The JSON object in a request's body."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields

    def text(self, name: str, missing: str | None = None) -> str:
        value = self.fields.get(name, missing)
        if not isinstance(value, str):
            raise QueryFailed(f"the request has no text {name!r}")
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise QueryFailed(
                f"character {error.start + 1} of {name!r} is half of a character (a lone surrogate): send the whole one"
            ) from None
        return value

    def number(self, name: str) -> int | None:
        value = self.fields.get(name)
        if value is None or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        raise QueryFailed(f"{name} is not a whole number: {value!r}")


async def _body(request: Request) -> _Body:
    """Return the JSON object in a request. Raise QueryFailed if the body is not a JSON object or exceeds _MOST_BODY bytes."""
    read = b""
    async for part in request.stream():
        read += part
        if len(read) > _MOST_BODY:
            raise QueryFailed(f"the request is larger than {_MOST_BODY:,} bytes")
    try:
        value = json.loads(read)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise QueryFailed("the request is not a JSON object")
    return _Body(value)


async def _disconnected(_: Request, error: Exception) -> Response:
    """Return the answer to a client that disconnected before it had sent its request. No client reads it."""
    return Response(status_code=499)


def _error_answer(status: int) -> Callable[[Request, Any], Awaitable[Response]]:
    async def answer(_: Request, error: Any) -> Response:
        return JSONResponse({"error": visible_lines(str(error)), "hint": visible(error.hint)}, status)

    return answer


def visible_lines(text: str) -> str:
    """Escape invisible characters in a text, except line breaks, because DuckDB's errors have several lines."""
    return "\n".join(visible(line) for line in text.split("\n"))


def make_app(settings: Settings) -> Starlette:
    """Return the application. When it ends, it stops its queries and removes its files."""
    console = Console(settings)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            console.places.stop_all()
            console.reports.close()

    routes = [
        Route("/", console.file),
        Route("/files/{name}", console.file),
        Route("/contents", console.contents),
        Route("/why", console.why, methods=["POST"]),
        Route("/query", console.query, methods=["POST"]),
        Route("/question", console.question, methods=["POST"]),
        Route("/download", console.download, methods=["POST"]),
        Route("/report", console.make_report, methods=["POST"]),
        Route("/report/{id}", console.waiting),
        Route("/reports/{name}", console.report),
    ]
    handlers: Any = {
        Busy: _error_answer(503),
        TracelakeError: _error_answer(400),
        QueryStopped: _error_answer(499),
        ClientDisconnect: _disconnected,
    }
    app = Starlette(routes=routes, exception_handlers=handlers, lifespan=lifespan)
    app.state.console = console
    app.add_middleware(Guarded, hosts=(*LOCAL, *settings.hosts))
    return app
