"""Protection of Dagster's web server, which only its own pages and programs on this machine may use.

Dagster's server executes mutations by plain GET and answers to any host name. So any page open in a browser on this machine could
start and delete runs, by a link, a form, or a host name that resolves to 127.0.0.1.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from pipelines.faces.serve.access import LOCAL, foreign, headers_of, is_json

_READING = ("GET", "HEAD", "OPTIONS")


class Guard:
    """ASGI middleware that refuses foreign host names and origins, GraphQL by GET, and GraphQL by POST without JSON."""

    def __init__(self, app: ASGIApp, hosts: Iterable[str] = LOCAL) -> None:
        """Guard `app`. `hosts`: the names (without port) that the server answers to."""
        self.app, self.hosts = app, frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on to the app, or refuse it with a status and a sentence."""
        refused = refusal(scope, self.hosts) if scope["type"] in ("http", "websocket") else None
        if refused is None:
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": refused[1][:100]})
        else:
            await PlainTextResponse(f"{refused[1]}\n", refused[0])(scope, receive, send)


def refusal(scope: Scope, hosts: frozenset[str]) -> tuple[int, str] | None:
    """Return the status and the sentence that refuse a request, or None if it may pass."""
    headers = headers_of(scope)
    if (refused := foreign(headers, hosts)) is not None:
        return refused
    if scope["type"] == "websocket":
        return None
    return _wrong_method(scope, headers)


def _wrong_method(scope: Scope, headers: dict[str, list[str]]) -> tuple[int, str] | None:
    is_graphql = scope["path"].rstrip("/").endswith("/graphql")
    if scope["method"] in _READING:
        if is_graphql and scope["query_string"]:
            return 405, "use POST: a link must not be able to change anything"
        return None
    if is_graphql and not is_json(headers):
        return 415, "send Content-Type: application/json"
    return None


def guarded_app(hosts: Iterable[str]) -> Any:
    """Return a factory of Dagster's web application with the guard as first middleware."""
    from dagster_webserver.webserver import DagsterWebserver

    class Guarded(DagsterWebserver):
        def build_middleware(self) -> list[Middleware]:
            return [Middleware(Guard, hosts=tuple(hosts)), *super().build_middleware()]

    def create(context: Any, path_prefix: str = "", live_data_poll_rate: int | None = None, **more: Any) -> Any:
        return Guarded(context, path_prefix, live_data_poll_rate).create_asgi_app(**more)

    return create


def main() -> None:
    """Run a guarded dagster-webserver with its options. TRACELAKE_UI_HOSTS adds host names (comma-separated)."""
    import os

    from dagster_webserver import cli

    extra_hosts = [name for name in os.environ.get("TRACELAKE_UI_HOSTS", "").split(",") if name]
    name = "create_app_from_workspace_process_context"
    if not hasattr(cli, name):  # never serve without the guard
        raise SystemExit(f"error: this version of dagster-webserver has no {name}: it cannot be guarded")
    setattr(cli, name, guarded_app([*LOCAL, *extra_hosts]))
    cli.main()


if __name__ == "__main__":
    main()
