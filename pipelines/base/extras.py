"""Packages of optional extras: whoever needs a missing one says which extra provides it."""

from __future__ import annotations

import shlex
import sys
from importlib.util import find_spec
from pathlib import Path

from pipelines.base.errors import TracelakeError

_CLONE = Path(__file__).resolve().parents[2]
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


class MissingExtra(TracelakeError, ImportError):
    """A package of an `extra` is not installed; the message ends with the command that installs it."""

    def __init__(self, message: str, extra: str) -> None:
        super().__init__(message)
        self.extra = extra


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
        raise MissingExtra(f"{who} needs {listed}, which the core does not install: {_command(extra)}", extra)


def _command(extra: str) -> str:
    """The command that installs an extra: of a clone, into the environment that runs it."""
    if not (_CLONE / "pyproject.toml").is_file():
        return f"pip install 'tracelake[{extra}]'"
    return shlex.join([sys.executable, "-m", "pip", "install", "-e", f"{_CLONE}[{extra}]"])
