"""The data path of a DuckLake, a bucket or a folder. A file is uploaded completely before the catalog names it."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import duckdb

from pipelines.models.sqltext import quoted
from pipelines.runs.store.ducklake.address import Address
from pipelines.runs.store.interface import StoreError

_AT_ONCE = 8  # concurrent uploads, because a unit has some 50 small files, and each upload waits for the server
_KEYS = {"KEY_ID": "AWS_ACCESS_KEY_ID", "SECRET": "AWS_SECRET_ACCESS_KEY", "SESSION_TOKEN": "AWS_SESSION_TOKEN"}


def endpoint() -> str | None:
    """Return the URL of the S3 server, or None for Amazon S3."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or None


def _region() -> str:
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"


def give_access(con: duckdb.DuckDBPyConnection) -> None:
    """Give a connection access to the bucket, with the keys in the environment. Raise StoreError without keys."""
    options_by_name = {name: os.environ[key] for name, key in _KEYS.items() if os.environ.get(key)}
    if "KEY_ID" not in options_by_name or "SECRET" not in options_by_name:
        raise StoreError(
            "no keys for S3: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_REGION; AWS_ENDPOINT_URL for a server "
            "that is not Amazon's). `aws configure export-credentials --format env` prints those of a profile or role"
        )
    options = [f"{name} {quoted(value)}" for name, value in {**options_by_name, "REGION": _region()}.items()]
    if url := endpoint():
        parts = urlsplit(url if "://" in url else f"https://{url}")
        options += [f"ENDPOINT {quoted(parts.netloc)}", "URL_STYLE 'path'", f"USE_SSL {parts.scheme == 'https'}"]
    con.execute(f"CREATE OR REPLACE TEMPORARY SECRET tracelake (TYPE s3, {', '.join(options)})")


def put_files(address: Address, files: Mapping[str, Path]) -> None:
    """Copy files to the data path under these names, and wait until they are durable. Raise StoreError."""
    if not address.data:
        raise StoreError(f"{address.text}: no data location. Add ?data=… to the address, or set TRACELAKE_DATA.")
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


def _bucket(**more: Any) -> Any:
    from pyarrow import fs

    return fs.S3FileSystem(endpoint_override=endpoint(), region=_region(), **more)


def check_data(data: str | None, to_write: bool, anew: bool = False) -> None:
    """Raise StoreError, within seconds, if a bucket is missing, does not answer or refuses the keys.

    DuckLake itself would fail only at a commit, or after minutes of retries in a query. The check runs once per data
    path and key, or again if `anew`. `to_write`: also refuse a key without permission to list the bucket, which a
    reader does not need.
    """
    if data and data.startswith("s3://"):
        if anew:
            _check.cache_clear()
        _check(data, to_write, endpoint(), *(os.environ.get(key) for key in _KEYS.values()))


@cache  # errors are not cached
def _check(data: str, to_write: bool, *_: str | None) -> None:
    from pyarrow import fs

    name = data.removeprefix("s3://").partition("/")[0]
    try:
        # List instead of using HEAD, because a refused HEAD does not distinguish a wrong key from a wrong secret.
        file_system = _bucket(
            connect_timeout=3, request_timeout=5, retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=1)
        )
        file_system.get_file_info(fs.FileSelector(data.removeprefix("s3://"), allow_not_found=True))
        bucket_info = file_system.get_file_info(name)
    except OSError as error:
        if to_write or "ACCESS_DENIED" not in str(error):
            raise StoreError(f"s3://{name}: {_said(error)}") from None
        return
    if bucket_info.type is fs.FileType.NotFound:
        raise StoreError(f"s3://{name}: there is no such bucket at {_server()}; create it first")


def _server() -> str:
    return endpoint() or "Amazon S3"


_REFUSED = (
    (r"SIGNATURE_DOES_NOT_MATCH|SignatureDoesNotMatch", "access denied by {server}: the secret is not that of the key; set AWS_SECRET_ACCESS_KEY again"),
    (r"INVALID_ACCESS_KEY_ID|InvalidAccessKeyId", "access denied by {server}, which does not know the key; set AWS_ACCESS_KEY_ID, or AWS_ENDPOINT_URL if the bucket is elsewhere"),
    (r"EXPIRED|ExpiredToken|INVALID_CLIENT_TOKEN_ID|InvalidToken", "access denied by {server}: the session is over; set AWS_SESSION_TOKEN and both keys again"),
    (r"ACCESS_DENIED|403|SIGNATURE", "access denied by {server}: are the keys in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY right, and may they list the bucket?"),
    (r"NETWORK_CONNECTION|REQUEST_TIMEOUT|curlCode", "no answer from {server}: is AWS_ENDPOINT_URL right, and the server running and reachable from here?"),
)  # fmt: skip


def _said(error: OSError) -> str:
    """Return the problem with the bucket and the remedy, or the library's text for an unknown error."""
    text = str(error).splitlines()[0]
    advice = next((advice for pattern, advice in _REFUSED if re.search(pattern, text)), None)
    return advice.format(server=_server()) if advice else text[:300]


def _copy(root: Path, files: Mapping[str, Path]) -> None:
    folders = set()
    for name, path in files.items():
        target = root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        # A copy, not a link, because `sweep` judges the age of a file by its modification time.
        shutil.copyfile(path, target)
        with target.open("rb+") as file:
            os.fsync(file.fileno())
        folders.add(target.parent)
    for folder in {root, *folders, *(folder.parent for folder in folders)}:
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
