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


def need(extra: str, who: str) -> None:
    """Raise MissingExtra unless all packages of an extra are installed. `who`: what needs them, the start of a
    sentence.
    """
    missing = [module for module in _MODULES[extra] if find_spec(module) is None]
    if missing:
        listed = " and ".join(missing)
        raise MissingExtra(f"{who} needs {listed}, which the core does not install: pip install 'tracelake[{extra}]'")
