"""A lake's tables on Spark: a session that computes as DuckDB does, and the tables in it. Needs `tracelake[spark]`."""

from __future__ import annotations

from pipelines.engines.spark.session import connect
from pipelines.engines.spark.tables import Tables

__all__ = ["Tables", "connect"]
