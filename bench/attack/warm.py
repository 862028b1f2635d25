"""Modules that every command imports, loaded once in the process that forks attacked processes. Starts no threads."""

import pyarrow.parquet  # noqa: F401

import bench.attack.verbs  # noqa: F401
from pipelines.models.catalog import load_catalog

load_catalog()
