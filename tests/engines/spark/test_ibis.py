"""The Ibis expression of the page, which has the same answer on DuckDB and Spark.

tests/runs/store/test_faces.py tests a DuckLake.
"""

from __future__ import annotations

from typing import Any

import pytest

from pipelines.engines.spark.tables import Tables
from pipelines.faces.ibis_tables import open_tables
from pipelines.lake import Lake
from pipelines.lake.read.sandbox import LockedLake
from tests.engines.ibis_page import busy


@pytest.mark.spark
@pytest.mark.slow(together="spark")
def test_one_expression_runs_on_duckdb_and_spark(spark: Any, everything: Lake) -> None:
    backend = open_tables(everything)
    expected = busy()(backend).to_pyarrow().to_pylist()
    backend.disconnect()
    with LockedLake(everything) as locked:
        Tables(spark, locked.con, everything).make(["kernels", "traces"])
        rows = busy()(spark).to_pyarrow().to_pylist()
    assert len(expected) > 2

    def key(row: dict[str, Any]) -> str:
        rank = row["rank"]
        return str(("none" if rank is None or rank != rank else int(rank), row["class"], row["n"], row["busy_ns"]))

    assert sorted(map(key, rows)) == sorted(map(key, expected))
