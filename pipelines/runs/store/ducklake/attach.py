"""Connections to DuckLakes, with extensions loaded, access keys set, and the catalog attached as `lake`."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb

from pipelines.base import database
from pipelines.models.sqltext import quoted
from pipelines.runs.store.ducklake.address import Address, hidden
from pipelines.runs.store.ducklake.locks import COMMIT, locked
from pipelines.runs.store.ducklake.objects import check_data, give_access
from pipelines.runs.store.interface import StoreError

LAKE = "lake"
_EXTENSIONS = {"postgres": ["postgres_scanner"], "sqlite": ["sqlite_scanner"], "duckdb": []}  # by kind of catalog
_PATIENCE_S = 60.0  # for a catalog in a file, which only one process at a time can write
_READERS_PATIENCE_S = 8.0  # shorter, because a user waits for the answer
_ADVICE = (
    (r"unable to open database file|Cannot open (file|database)", "there is no such catalog; `tracelake ingest` creates it if the address contains the data location (?data=…)"),
    (r"password authentication failed|no password supplied", "wrong or missing password: set PGPASSWORD, or use ~/.pgpass"),
    (r"role .* does not exist", "there is no such user in Postgres"),
    (r"database .* does not exist", "there is no such database; create it with createdb"),
    (r"Connection refused|could not translate host|No such file or directory", "is the server running, and reachable from here?"),
    (r"(?i)unsupported.*version|version.*(not supported|newer|unsupported)|DuckLake (catalog )?version", "the catalog was made by another version of DuckLake: upgrade with pip install -U 'tracelake[lake]'"),
    (r"DATA_PATH|data path", "the data path differs from the one in the catalog, or is missing: add ?data=… to the address, or set TRACELAKE_DATA"),
    (r"(?i)lock on file|being used by another", "another process has the catalog open; for several processes use SQLite or Postgres"),
    (r"database is locked", "a query or another writer has held the catalog for too long: run it again when that has ended, or keep the catalog in Postgres"),
    (r"HTTP 403|AccessDenied|Forbidden", "access denied: are the keys in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY right?"),
)  # fmt: skip


def attach(
    address: Address,
    read_only: bool,
    config: Mapping[str, Any] | None = None,
    settings: Mapping[str, str] | None = None,
) -> duckdb.DuckDBPyConnection:
    """Return a connection with the DuckLake attached as `lake`.

    Raise StoreError, or ValueError for an invalid setting.
    """
    address.check_folder()
    con = database.connect(config=dict(config or {}))
    try:
        database.change_settings(con, settings or {})
        _load_extensions(con, address, address.is_remote)
        if address.is_remote:
            give_access(con)
            check_data(address.data, not read_only)
        with store_errors(address):
            _attach_or_create(con, address, read_only)
        if not address.data and (data := data_of(con)).startswith("s3://"):
            _load_extensions(con, address, remote=True)
            give_access(con)
            check_data(data, not read_only)
        return con
    except BaseException:
        con.close()
        raise


def _attach_or_create(con: duckdb.DuckDBPyConnection, address: Address, read_only: bool) -> None:
    try:
        _attach(con, address, read_only, create=False)
    except duckdb.Error:
        if read_only:
            raise
        # Without the lock, one of two writers that create the catalog concurrently would fail.
        with locked(con, address, COMMIT):
            _attach(con, address, read_only, create=True)


def _attach(con: duckdb.DuckDBPyConnection, address: Address, read_only: bool, create: bool) -> None:
    options = ["READ_ONLY"] if read_only else ["DATA_INLINING_ROW_LIMIT 0"]
    options += [] if create else ["CREATE_IF_NOT_EXISTS false"]
    options += [f"DATA_PATH {quoted(address.data + '/')}"] if address.data else []
    patience_s = _READERS_PATIENCE_S if read_only else _PATIENCE_S
    # DuckDB's default is 5 s.
    options += [f"META_BUSY_TIMEOUT {1000 * patience_s:.0f}"] if address.kind == "sqlite" else []
    until = time.monotonic() + patience_s
    while True:
        try:
            con.execute(
                f"ATTACH {quoted(f'ducklake:{address.kind}:{address.catalog}')} AS {LAKE} ({', '.join(options)})"
            )
            return
        except duckdb.Error as error:
            if address.kind == "postgres" or "lock" not in str(error).lower() or time.monotonic() > until:
                raise
            time.sleep(0.05)


def data_of(con: duckdb.DuckDBPyConnection) -> str:
    """Return the data path of the attached DuckLake from its catalog, without a trailing slash."""
    rows = con.execute(f"SELECT value FROM {LAKE}.options() WHERE option_name = 'data_path'").fetchall()
    return rows[0][0].rstrip("/")


@contextmanager
def store_errors(address: Address) -> Iterator[None]:
    """Convert DuckDB's errors into StoreErrors that state the remedy and contain no passwords."""
    try:
        yield
    except duckdb.Error as error:  # fmt: skip
        if address.is_remote and re.search(r"HTTP|404|NoSuchBucket", str(error)):
            check_data(address.data, to_write=True, anew=True)  # may raise a clearer error
        message = hidden(" ".join(str(error).split()))
        advice = next((text for pattern, text in _ADVICE if re.search(pattern, message)), None)
        raise StoreError(
            f"{address.text}: {advice} ({message[:300]})" if advice else f"{address.text}: {message}"
        ) from None


def _load_extensions(con: duckdb.DuckDBPyConnection, address: Address, remote: bool) -> None:
    """Load the extensions that an address needs (with `remote`, also S3).

    They come from the wheels of `tracelake[lake]`, which are signed. Raise StoreError that names the package to
    install.
    """
    for name in [*_EXTENSIONS[address.kind], *(["httpfs"] if remote else []), "ducklake"]:
        wheel = _in_wheel(name)
        try:
            con.execute(f"LOAD {quoted(wheel) if wheel else name}")
        except duckdb.Error as error:
            raise StoreError(_missing_extension(name, str(error).splitlines()[0])) from None


def _in_wheel(name: str) -> Path | None:
    spec = find_spec(f"duckdb_extension_{name}")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "extensions" / f"v{duckdb.__version__}" / f"{name}.duckdb_extension"
    return path if path.exists() else None


def _missing_extension(name: str, reason: str) -> str:
    message = f"DuckDB {duckdb.__version__} cannot load its extension {name}"
    if find_spec(f"duckdb_extension_{name}"):
        message += " (the installed wheel is for another version of DuckDB)"
    return f"{message}: pip install 'tracelake[lake]', or run INSTALL {name} once in DuckDB ({reason})"
