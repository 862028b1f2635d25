"""Loaded once in the process that the attacked ones are forked from: what every command loads, and no threads."""

import pyarrow.parquet  # noqa: F401

import bench.attack.verbs  # noqa: F401
from pipelines.models.catalog import load_catalog

load_catalog()
