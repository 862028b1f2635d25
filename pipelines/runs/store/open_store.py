"""The entry point for opening the store at an address."""

from __future__ import annotations

import os
from pathlib import Path

from pipelines.base.paths import DUCKLAKE
from pipelines.lake import Lake
from pipelines.runs.store.interface import Store

DATA = "TRACELAKE_DATA"


def is_folder_address(address: str) -> bool:
    """Return whether an address is the folder of a lake on this machine."""
    return not address.startswith(DUCKLAKE)


def absolute_address(address: str | Path) -> str:
    """Return the address of a lake in a form that is valid in any working directory."""
    return os.path.abspath(address) if is_folder_address(str(address)) else str(address)


def open_store(address: str | Path | Lake, data: str | None = None, without_broken: bool = False) -> Store:
    """Return the store at an address.

    `address`: a folder, a Lake, `ducklake:postgres:…`, `ducklake:sqlite:…` or `ducklake:duckdb:…`. `data`: the location
    of DuckLake's Parquet files, `s3://bucket/prefix` or a folder. The default is `?data=` of the address, the
    environment variable TRACELAKE_DATA, or the path in the catalog. `without_broken`: answer without missing or damaged
    files of a folder lake. Raise StoreError, or UnusablePath for a folder that cannot be a lake.
    """
    if not isinstance(address, str) or is_folder_address(address):
        from pipelines.runs.store.folder import FolderStore

        return FolderStore(address, without_broken)
    from pipelines.runs.store.ducklake.store import DuckLakeStore

    return DuckLakeStore(address, data or os.environ.get(DATA) or None)
