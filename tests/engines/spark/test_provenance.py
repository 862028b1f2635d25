"""Views over the provenance of torch.compile, whose rows of all kinds are the same on Spark and in DuckDB."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipelines.engines.spark.rules import carried_over
from pipelines.models.catalog import load_catalog
from tests.engines.spark.models import compare, on_spark
from tests.harness import kernel, x
from tests.readers.provenance.joined import VIEWS, joined
from tests.readers.provenance.make import GENUINE, folder_file, graph_lines, stack, written


@pytest.mark.spark
@pytest.mark.slow(together="spark")
def test_provenance_is_the_same_on_spark(spark: Any, tmp_path: Path) -> None:
    names = ("triton_poi_fused_add_0", "triton_red_fused_sum_1", "triton_per_fused_mean_2", "triton_poi_fused_gelu_3")
    first = {f"{names[0]}:1": {"add_1": ["a"]}, f"{names[1]}:2": {"sum_1": []}}
    second = {f"{names[0]}:1": {"add_2": ["b"]}, f"{names[1]}:2": {"mul_1": []}, names[2]: {"mean": ["m"]}}
    lines = {f"{names[0]}:1": [stack(("/m.py", 3, "f"))]}
    log = written(tmp_path / "a" / "a.log", [*graph_lines(first, lines), *graph_lines(second, lines, 1)])
    genuine = written(tmp_path / "b" / "tt" / "b.log", GENUINE.read_text().splitlines())
    loose, lost = folder_file(tmp_path / "c", first, None), folder_file(tmp_path / "d", first, 41)
    gpu = [kernel(name, 10 + at, 1, at) for at, name in enumerate((*names, names[0], "mine"))]
    traces = {
        tmp_path / "a" / "t.json": [x("cpu_op", "a", 1, 1, pid=41), *gpu],
        tmp_path / "b" / "t.json": [x("cpu_op", f"graph_0_cpp_fused{name}", 1, 1, pid=4248) for name in ("__softmax_1", "_q")],
        tmp_path / "c" / "t.json": [x("cpu_op", "a", 1, 1, pid=43), *gpu[:2]],
        tmp_path / "e" / "t.json": [x("cpu_op", "a", 1, 1, pid=41), *gpu],
    }  # fmt: skip
    con, _ = joined(traces, [log, genuine, loose, lost])
    query = "SELECT confidence, count(*) FROM kernel_provenance GROUP BY confidence ORDER BY confidence"
    assert con.execute(query).fetchall() == [(0.7, 2), (0.9, 1), (1.0, 2), (None, 3)]
    folder = tmp_path / "reference"
    folder.mkdir()
    for (table,) in con.execute("SELECT table_name FROM information_schema.tables").fetchall():
        con.execute(f"COPY (FROM {table}) TO '{folder / f't{table}.parquet'}'")
    models = [load_catalog().models[name] for name in VIEWS]
    texts = {model.name: carried_over(model.sql) for model in models}
    outcomes = list(compare(on_spark(spark, folder), folder, models, texts))
    assert [(outcome.name, outcome.why) for outcome in outcomes if not outcome.is_equal] == []
    assert len(outcomes) == len(VIEWS)
