"""Views that join memory snapshots with traces.

Their rows are the same on Spark and in DuckDB, on a pair with rows of all kinds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipelines.engines.spark.rules import carried_over
from pipelines.models.catalog import load_catalog
from tests.engines.spark.models import compare, on_spark
from tests.readers.memory_snapshots.make import INNER, USER, Allocator, stack
from tests.readers.memory_snapshots.test_owners import START_US, VIEWS, WINDOW, Call, _event, _joined, _memory


@pytest.mark.spark
@pytest.mark.slow(together="spark")
def test_owners_are_the_same_on_spark(spark: Any, tmp_path: Path) -> None:
    allocator = Allocator(now_us=START_US - 6)
    addresses = []
    for number, frames in enumerate([(), (INNER, USER), (USER,), (INNER,), ()]):
        allocator.now_us = START_US + 100 * number
        addresses.append(allocator.alloc(1000 + number, stack(*frames)))
    calls = [Call("module", "Net_0", 1, 50_000, 300_000), Call("op", "a", 1, 90_000, 120_000),
             Call("op", "b", 2, 190_000, 220_000), Call("op", "c", 1, 290_000, 320_000), Call("op", "d", 2, 290_000, 320_000)]  # fmt: skip
    seen = [_memory(addresses[3], 1024, 303_250, 2)]
    seen += [
        _memory(addresses[n], 1024, 100_000 * n + at, 2) for n in (1, 2) for at in (2_000, 4_000)
    ]  # two candidates each, so the clock decides
    con = _joined(tmp_path, allocator, [*WINDOW, *map(_event, calls), *seen])
    rows = con.execute("SELECT source, count(*) FROM snapshot_owners GROUP BY source ORDER BY source").fetchall()
    assert rows == [("clock", 2), ("memory_event", 1), (None, 2)]
    folder = tmp_path / "reference"
    folder.mkdir()
    for (table,) in con.execute("SELECT table_name FROM information_schema.tables").fetchall():
        con.execute(f"COPY (FROM {table}) TO '{folder / f't{table}.parquet'}'")
    models = [load_catalog().models[name] for name in VIEWS]
    texts = {model.name: carried_over(model.sql) for model in models}
    outcomes = list(compare(on_spark(spark, folder), folder, models, texts))
    assert [(outcome.name, outcome.why) for outcome in outcomes if not outcome.is_equal] == []
    assert len(outcomes) == len(VIEWS)
