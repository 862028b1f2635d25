"""Where a DuckLake's Parquet files are: a bucket or a folder. A file is put there whole, before the catalog names it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import duckdb

from pipelines.models.sqltext import quoted
from pipelines.runs.store.ducklake.address import Address
from pipelines.runs.store.interface import StoreError

_AT_ONCE = 8  # uploads; a unit has some 50 small files, and each waits for the server
_KEYS = {"KEY_ID": "AWS_ACCESS_KEY_ID", "SECRET": "AWS_SECRET_ACCESS_KEY", "SESSION_TOKEN": "AWS_SESSION_TOKEN"}


def endpoint() -> str | None:
    """Returns the S3 server's URL, None for Amazon's."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or None


def _region() -> str:
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"


def give_access(con: duckdb.DuckDBPyConnection) -> None:
    """Lets a connection read and write the bucket, with the keys of the environment."""
    given = {name: os.environ[key] for name, key in _KEYS.items() if os.environ.get(key)}
    if "KEY_ID" not in given or "SECRET" not in given:
        raise StoreError(
            "no keys for S3: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_REGION; AWS_ENDPOINT_URL for a server "
            "that is not Amazon's). `aws configure export-credentials --format env` prints those of a profile or role"
        )
    options = [f"{name} {quoted(value)}" for name, value in {**given, "REGION": _region()}.items()]
    if url := endpoint():
        parts = urlsplit(url if "://" in url else f"https://{url}")
        options += [f"ENDPOINT {quoted(parts.netloc)}", "URL_STYLE 'path'", f"USE_SSL {parts.scheme == 'https'}"]
    con.execute(f"CREATE OR REPLACE TEMPORARY SECRET tracelake (TYPE s3, {', '.join(options)})")


def put_files(address: Address, files: Mapping[str, Path]) -> None:
    """Copies files to the data path, by their names there, and waits until they are durable. Raises StoreError."""
    if not address.data:
        raise StoreError(f"{address.text}: where is its data? Add ?data=… to the address, or set TRACELAKE_DATA")
    if not address.is_remote:
        _copy(Path(address.data), files)
        return
    bucket = _bucket()
    from pyarrow import fs

    def upload(name: str) -> None:
        target = f"{str(address.data).removeprefix('s3://')}/{name}"
        fs.copy_files(str(files[name]), target, fs.LocalFileSystem(), bucket, use_threads=False)

    try:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(upload, files))
    except OSError as error:
        raise StoreError(f"{address.data}: cannot be written: {_said(error)}") from None


def _bucket() -> Any:
    from pyarrow import fs

    return fs.S3FileSystem(endpoint_override=endpoint(), region=_region())


def check_data(address: Address) -> None:
    """Raises StoreError if the bucket is missing or cannot be read: DuckLake itself would say so only at a commit."""
    if not address.is_remote:
        return
    from pyarrow import fs

    name = str(address.data).removeprefix("s3://").partition("/")[0]
    try:
        found = _bucket().get_file_info(name)
    except OSError as error:
        raise StoreError(f"s3://{name}: {_said(error)}") from None
    if found.type is fs.FileType.NotFound:
        raise StoreError(f"s3://{name}: there is no such bucket at {endpoint() or 'Amazon S3'}; make it first")


def _said(error: OSError) -> str:
    text = str(error).splitlines()[0]
    if "ACCESS_DENIED" in text or "403" in text or "SIGNATURE" in text.upper():
        return f"access denied; are the keys in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY right? ({text[:200]})"
    return text[:300]


def _copy(root: Path, files: Mapping[str, Path]) -> None:
    folders = set()
    for name, path in files.items():
        target = root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)  # not linked: the time tells a sweep how long it has been there
        with target.open("rb+") as file:
            os.fsync(file.fileno())
        folders.add(target.parent)
    for folder in {root, *folders, *(folder.parent for folder in folders)}:
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
