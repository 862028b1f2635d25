"""Addresses of DuckLakes: where the catalog is, and where the Parquet files are."""

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
    """A DuckLake: the kind of its catalog, where that is (a connection string or a file), and where its data is.

    `data` None: as the catalog says. It is an absolute folder or `s3://bucket/prefix`, without a slash at the end.
    """

    kind: str
    catalog: str
    data: str | None

    @property
    def text(self) -> str:
        """The address as `open_store` takes it."""
        return f"ducklake:{self.kind}:{self.catalog}" + (f"?data={self.data}" if self.data else "")

    @property
    def is_remote(self) -> bool:
        """Whether the Parquet files are in a bucket."""
        return self.data is not None and self.data.startswith("s3://")


def parse_address(text: str, data: str | None = None) -> Address:
    """Returns the parts of an address; `data` unless the address has its own. Raises StoreError for one that cannot be."""
    text, mark, own = text.partition("?data=")
    kind, _, catalog = text.removeprefix("ducklake:").partition(":")
    if kind not in KINDS or not catalog.strip():
        raise StoreError(f"{hidden(text)}: not the address of a DuckLake; write {FORMS}")
    if _SECRET.search(catalog):
        raise StoreError("an address does not hold a password: set PGPASSWORD, or use ~/.pgpass")
    if "'" in catalog or "'" in (own or data or ""):
        raise StoreError(f"{hidden(text)}: an address cannot have a quotation mark")
    if kind != "postgres":
        catalog = str(Path(catalog).expanduser().absolute())
        if not os.path.isdir(os.path.dirname(catalog)):
            raise StoreError(f"{os.path.dirname(catalog)} is not a folder; make it, for the catalog {catalog}")
    return Address(kind, catalog, _data(own if mark else data))


def _data(given: str | None) -> str | None:
    if not given:
        return None
    if given.startswith("s3://"):
        if not given.removeprefix("s3://").strip("/"):
            raise StoreError(f"{given}: no bucket; write s3://BUCKET/PREFIX")
        return given.rstrip("/")
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", given):
        raise StoreError(
            f"{given}: only s3://BUCKET/PREFIX or a folder can hold the data; Google's buckets speak S3, too "
            "(AWS_ENDPOINT_URL=https://storage.googleapis.com)"
        )
    return str(Path(given).expanduser().absolute())


def hidden(text: str) -> str:
    """Returns text without anything that looks like a password."""
    return re.sub(r"(?i)(password\s*=\s*)('[^']*'|\S+)|(://[^/@\s:]*:)[^/@\s]*(?=@)", r"\1\3***", text)
