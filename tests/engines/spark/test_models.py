"""Tables of captures and views, whose rows are the same on Spark and in DuckDB."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipelines.engines.spark.rules import carried_over
from pipelines.lake import Lake
from pipelines.models.catalog import load_catalog
from tests.engines.spark.models import compare, compared_models, difference, on_spark, reference, text_of

# Tables without rows in this lake. Their comparison only shows that Spark runs the query.
EMPTY = {
    "counter_values",
    "execution_trace_matches",
    "gpu_metrics",
    "inspector_matches",
    "kernel_gpu_metrics",
    "net_rates",
    "op_bytes_measured",
    "persistent_stragglers",
    "recording_devices",
    "schedule_spans",
    "schedule_task_events",
    "schedule_traced_tasks",
    "snapshot_owners",
    "snapshot_peak_owners",
    "snapshot_steps",
    "snapshot_trace_matches",
    "span_counters",
    "span_gpu_metrics",
    "span_memory",
    "span_sample_readings",
    "span_sample_utilization",
    "span_sample_work",
}


def test_differences_are_seen(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    file = tmp_path / "t.parquet"
    rows = pa.table({"a": [1, 1, None], "f": [0.1, 2e20, None]})
    pq.write_table(rows, file)
    assert difference(file, rows)[0] == "same"
    nearly = pa.table({"a": [1, 1, None], "f": [0.1 + 1e-13, 2e20, None]})
    assert difference(file, nearly)[0] == "near"
    others = [
        pa.table({"a": [1, 1], "f": [0.1, 2e20]}),
        pa.table({"a": [1, 1, None, None], "f": [0.1, 2e20, None, None]}),
        pa.table({"a": [1, 2, None], "f": [0.1, 2e20, None]}),
        pa.table({"a": [1, 1, None], "f": [0.1 + 1e-8, 2e20, None]}),
        pa.table({"a": [1, 1, None]}),
    ]
    assert [difference(file, other)[0] for other in others] == ["differs"] * len(others)


@pytest.mark.spark
@pytest.mark.slow(together="spark")
def test_every_model_gives_the_same_on_spark(spark: Any, everything: Lake, tmp_path: Path) -> None:
    rows = reference(everything, tmp_path / "reference")
    models = compared_models(load_catalog())
    assert {model.name for model in models if rows[model.name] == 0} == EMPTY
    texts = {model.name: carried_over(text_of(model)) for model in models}
    run = on_spark(spark, tmp_path / "reference")
    outcomes = list(compare(run, tmp_path / "reference", models, texts))
    assert len(outcomes) == len(models) > 50
    assert [outcome for outcome in outcomes if not outcome.is_equal] == []
