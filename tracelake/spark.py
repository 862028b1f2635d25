"""A lake's tables on Spark, in a session that computes the same results as DuckDB. Needs `tracelake[spark]`."""

from __future__ import annotations

from pipelines.engines.spark.session import connect
from pipelines.engines.spark.tables import Tables

__all__ = ["Tables", "connect"]
