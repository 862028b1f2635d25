"""Fixtures for an empty store of each kind, and for Postgres and an S3 server if this machine has them."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb
import pytest

from pipelines.runs.store import Store, open_store
from tests.runs.store import servers

_EXTENSIONS = {"sqlite": ("sqlite_scanner", "ducklake"), "duckdb": ("ducklake",)}
_EXTENSIONS["postgres"] = ("postgres_scanner", "httpfs", "ducklake")


def need_extensions(kind: str = "sqlite") -> None:
    """Skip a test that is marked `ducklake(kind)` if DuckDB's extensions are not installed."""
    for name in _EXTENSIONS[kind]:
        spec = importlib.util.find_spec(f"duckdb_extension_{name}")
        wheel = spec and spec.origin and Path(spec.origin).parent / "extensions" / f"v{duckdb.__version__}"
        if not wheel or not wheel.is_dir():
            pytest.skip(
                f"DuckDB's extension {name} for {duckdb.__version__} is not installed; SLOW=1 make test runs this in .venv-lake"
            )


def of_kind(kind: str, *marks: pytest.MarkDecorator) -> Any:
    """Return a parameter for a store of this kind."""
    return pytest.param(kind, marks=[*marks, *([] if kind == "folder" else [pytest.mark.ducklake(kind)])])


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """Yield the connection string of a server, without a database."""
    with servers.postgres() as server:
        yield server


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """Yield the URL of an S3 server."""
    with servers.s3() as url:
        yield url


@pytest.fixture
def on_s3(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a prefix in the bucket for this test only, and put the keys into the environment."""
    for name, value in {**servers.S3_KEYS, "AWS_ENDPOINT_URL": s3_server}.items():
        monkeypatch.setenv(name, value)
    return f"s3://{servers.BUCKET}/{uuid4().hex}"


_POSTGRES = of_kind("postgres", pytest.mark.slow)
ALL_KINDS = ["folder", of_kind("sqlite"), of_kind("duckdb", pytest.mark.slow), _POSTGRES]


@pytest.fixture(params=["folder", of_kind("sqlite"), _POSTGRES])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    """Return a function that opens the store. Each call returns another handle of the same store.

    With Postgres the files are on S3.
    """
    kind = request.param
    if kind == "folder":
        return lambda: open_store(str(tmp_path / "store"))
    address = f"ducklake:{kind}:{tmp_path}/catalog.{kind}?data={tmp_path}/data"
    if kind == "postgres":
        server, data = request.getfixturevalue("postgres_server"), request.getfixturevalue("on_s3")
        address = f"ducklake:postgres:{servers.new_database(server)}?data={data}"
    return lambda: open_store(address)
