"""Access rules of a web server on this machine, which answers only local programs and its own pages.

A page of any site that is open in a local browser can send requests to 127.0.0.1. It can use a link, a form, or a name that
resolves to that address (DNS rebinding). Browsers send the name in the header Host and the site in the header Origin.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import urlsplit

LOCAL = ("localhost", "127.0.0.1", "::1")


def headers_of(scope: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the header values of an ASGI request by lower-case name."""
    headers: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return headers


def foreign(headers: Mapping[str, list[str]], hosts: Collection[str | None]) -> tuple[int, str] | None:
    """Return the HTTP status and the message for a request with a foreign host or origin, or None if the request may pass.

    `hosts`: the names that the server answers to, in lower case and without port.
    """
    named = headers.get("host", [])
    if len(named) != 1 or _host(f"//{named[0]}") not in hosts:
        return 421, f"this server is not known by the name {', '.join(named) or 'that was left out'}"
    origins = headers.get("origin", [])
    if any(_place(origin) != named[0].lower() for origin in origins):
        return 403, f"pages of {', '.join(origins)} may not send requests to this server"
    return None


def is_json(headers: Mapping[str, list[str]]) -> bool:
    """Return whether the request body is JSON.

    Browsers send forms and text to other origins without a preflight request, but not JSON.
    """
    kinds = headers.get("content-type", [])
    return [kind.partition(";")[0].strip().lower() for kind in kinds] == ["application/json"]


def _host(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def _place(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None
