"""Who may use a web server on this machine: programs here, and pages that it served itself.

A page of any site that is open in a browser here can send requests to 127.0.0.1, by a link, by a form, or by a name that
it points there (DNS rebinding). Browsers then say the name (Host) and the site (Origin).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import urlsplit

LOCAL = ("localhost", "127.0.0.1", "::1")


def headers_of(scope: Mapping[str, Any]) -> dict[str, list[str]]:
    """Returns the headers of an ASGI request by name, in lower case."""
    headers: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return headers


def foreign(headers: Mapping[str, list[str]], hosts: Collection[str | None]) -> tuple[int, str] | None:
    """Returns the status and the sentence with which a request is rejected for its host or origin; None: it may pass.

    `hosts`: the names, in lower case and without port, that the server answers to.
    """
    named = headers.get("host", [])
    if len(named) != 1 or _host(f"//{named[0]}") not in hosts:
        return 421, f"this server is not known by the name {', '.join(named) or 'that was left out'}"
    origins = headers.get("origin", [])
    if any(_place(origin) != named[0].lower() for origin in origins):
        return 403, f"pages of {', '.join(origins)} may not send requests to this server"
    return None


def is_json(headers: Mapping[str, list[str]]) -> bool:
    """Whether a request carries JSON: browsers send forms and text to other origins without asking first, but not JSON."""
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
