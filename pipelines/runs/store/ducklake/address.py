"""Addresses of DuckLakes: the locations of the catalog and of the Parquet files."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from pipelines.runs.store.interface import StoreError

FORMS = (
    "ducklake:postgres:host=… dbname=…, ducklake:sqlite:/path/catalog.sqlite or ducklake:duckdb:/path/catalog.duckdb"
)
KINDS = ("postgres", "sqlite", "duckdb")
_SECRET = re.compile(r"\b(?:password|sslpassword)\s*=|://[^/@\s]*:[^/@\s]*@", re.IGNORECASE)


@dataclass(frozen=True)
class Address:
    """The address of a DuckLake: the kind and location (connection string or file) of its catalog, and its data path.

    `data`: an absolute folder or `s3://bucket/prefix`, without a trailing slash. If it is None, the catalog's path is
    used.
    """

    kind: str
    catalog: str
    data: str | None

    @property
    def text(self) -> str:
        """Return the address in the form that `open_store` accepts."""
        return f"ducklake:{self.kind}:{self.catalog}" + (f"?data={self.data}" if self.data else "")

    @property
    def is_remote(self) -> bool:
        """Return whether the Parquet files are in a bucket."""
        return self.data is not None and self.data.startswith("s3://")

    def check_folder(self) -> None:
        """Raise StoreError if the catalog is a file whose folder does not exist."""
        if self.kind != "postgres" and not os.path.isdir(folder := os.path.dirname(self.catalog)):
            raise StoreError(f"{folder} is not a folder; make it, for the catalog {self.catalog}")


def parse_address(text: str, data: str | None = None) -> Address:
    """Parse an address. `data`: the data path, unless the address has a `?data=`. Raise StoreError if it is invalid."""
    text, mark, own_data = text.partition("?data=")
    kind, _, catalog = text.removeprefix("ducklake:").partition(":")
    if kind not in KINDS or not catalog.strip():
        raise StoreError(f"{hidden(text)}: not the address of a DuckLake; write {FORMS}")
    if _SECRET.search(catalog):
        raise StoreError("an address cannot contain a password: set PGPASSWORD, or use ~/.pgpass")
    if "'" in catalog or "'" in (own_data or data or ""):
        raise StoreError(f"{hidden(text)}: an address cannot have a quotation mark")
    if kind != "postgres":
        catalog = str(Path(catalog).expanduser().absolute())
    return Address(kind, catalog, _data(own_data if mark else data))


def _data(location: str | None) -> str | None:
    if not location:
        return None
    if location.startswith("s3://"):
        if not location.removeprefix("s3://").strip("/"):
            raise StoreError(f"{location}: no bucket; write s3://BUCKET/PREFIX")
        return location.rstrip("/")
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", location):
        raise StoreError(
            f"{location}: only s3://BUCKET/PREFIX or a folder can store the data; Google's buckets speak S3, too "
            "(AWS_ENDPOINT_URL=https://storage.googleapis.com)"
        )
    return str(Path(location).expanduser().absolute())


def hidden(text: str) -> str:
    """Mask everything in the text that looks like a password."""
    return re.sub(r"(?i)(password\s*=\s*)('[^']*'|\S+)|(://[^/@\s:]*:)[^/@\s]*(?=@)", r"\1\3***", text)
