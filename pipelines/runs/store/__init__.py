"""Stores to which workers commit their units of work, with one interface for the folder lake and DuckLake."""

from pipelines.runs.store.interface import Committed, Compacted, Expired, Store, StoreError
from pipelines.runs.store.open_store import is_folder_address, open_store

__all__ = ["Committed", "Compacted", "Expired", "Store", "StoreError", "is_folder_address", "open_store"]
