"""A store of traces: one interface, and the folder lake or DuckLake behind it. Units of work are committed whole."""

from pipelines.runs.store.interface import Committed, Compacted, Expired, Store, StoreError
from pipelines.runs.store.open_store import is_folder_address, open_store

__all__ = ["Committed", "Compacted", "Expired", "Store", "StoreError", "is_folder_address", "open_store"]
