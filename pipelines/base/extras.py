"""Packages of optional extras: whoever needs a missing one says which extra provides it."""

from __future__ import annotations

from importlib.util import find_spec

_MODULES = {
    "dagster": ("dagster", "dagster_webserver"),
    "notebook": ("ibis",),
    "plots": ("altair",),
    "spark": ("ibis", "pyspark"),
    "ray": ("ray",),
    "dask": ("distributed",),
    "serve": ("starlette", "uvicorn"),
    "mcp": ("mcp",),
    "perfetto": ("perfetto",),
}


class MissingExtra(ImportError):
    """A package of an optional extra is not installed; the message is the command that installs it."""


def missing() -> list[str]:
    """Returns the extras of which a package is not installed."""
    return [extra for extra, modules in _MODULES.items() if any(find_spec(module) is None for module in modules)]


def need(extra: str, who: str) -> None:
    """Raise MissingExtra unless all packages of an extra are installed. `who`: what needs them, the start of a
    sentence.
    """
    lacks = [module for module in _MODULES[extra] if find_spec(module) is None]
    if lacks:
        listed = " and ".join(lacks)
        raise MissingExtra(f"{who} needs {listed}, which the core does not install: pip install 'tracelake[{extra}]'")
