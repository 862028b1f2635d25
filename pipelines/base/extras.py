"""Check for the packages of optional extras. The error names the extra that provides a missing package."""

from __future__ import annotations

import shlex
import sys
from importlib.metadata import version
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
    "serve": ("starlette", "uvicorn"),
    "mcp": ("mcp",),
    "perfetto": ("perfetto",),
}


class MissingExtra(TracelakeError, ImportError):
    """A package of an `extra` is missing or has an unusable version. The message has the command that installs it."""

    def __init__(self, message: str, extra: str) -> None:
        super().__init__(message)
        self.extra = extra


def missing() -> list[str]:
    """Return the extras with a missing package, or with a DuckDB on which they do not work."""
    return [extra for extra in _MODULES if _lacks(extra) or _wrong_duckdb(extra)]


def need(extra: str, who: str) -> None:
    """Raise MissingExtra unless all packages of an extra are installed, in versions that work.

    `who`: the feature that needs them, the start of a sentence.
    """
    if missing_packages := _lacks(extra):
        listed = " and ".join(missing_packages)
        raise MissingExtra(f"{who} needs {listed}, which the core does not install: {_command(extra)}", extra)
    if duckdb_version := _wrong_duckdb(extra):
        raise MissingExtra(
            f"{who} needs Ibis, which fails on DuckDB {duckdb_version}: {_command(extra)} installs DuckDB 1", extra
        )


def _lacks(extra: str) -> list[str]:
    return [module for module in _MODULES[extra] if find_spec(module) is None]


def _wrong_duckdb(extra: str) -> str | None:
    """Return the version of DuckDB if the extra needs Ibis and Ibis does not work with that version, else None."""
    if extra != "notebook" or find_spec("duckdb") is None:
        return None
    return None if version("duckdb").startswith("1.") else version("duckdb")


def _command(extra: str) -> str:
    """Return the command that installs an extra. In a clone, it installs into the environment of this process."""
    if not (_CLONE / "pyproject.toml").is_file():
        return f"pip install 'tracelake[{extra}]'"
    return shlex.join([sys.executable, "-m", "pip", "install", "-e", f"{_CLONE}[{extra}]"])
