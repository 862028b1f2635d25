"""Query plans for the events of other tools: their cost must grow with the file, not with its square."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from pipelines.readers import events_by_sql
from pipelines.readers.inputs.find import events_input
from pipelines.readers.kineto import ReadRequest
from tests.models.test_plans import EVERY_PAIR
from tests.readers.nsys.small import small as nsys_small
from tests.readers.rocm.small import small as rocm_small

# Models that join each distinct name once with the few rules that classify it.
MEANT = {"_range_names", "_perfetto_categories", "_rocm_calls_named"}


def file_of(tool: str, folder: Path) -> Path:
    if tool == "nsys":
        return nsys_small().write(folder / "a.sqlite")
    if tool == "rocm":
        return rocm_small().write(folder / "a.db")
    pytest.importorskip("perfetto", reason="reading Perfetto traces needs the extra 'perfetto'")
    from tests.readers.perfetto.large import write_large

    write_large(folder / "a.pftrace", 1)
    return folder / "a.pftrace"


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["nsys", "rocm", "perfetto"])
def test_no_model_compares_every_row_with_every_row(tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plans: dict[str, str] = {}
    write = events_by_sql._tables

    def explained(con: duckdb.DuckDBPyConnection, path: Path, model: str, *names: str) -> Iterator[Any]:
        catalog = load_catalog()
        there = frozenset(name for (name,) in con.execute("SELECT table_name FROM duckdb_tables()").fetchall())
        models = [name for name in catalog.closure([model]) if catalog.models[name].kind == "sql" and name != "events"]
        run_models(con, catalog, [name for name in models if name not in there], there)
        con.execute("SET asof_loop_join_threshold = 0")  # ASOF joins of few rows are loops, joins of many are not
        for name in models:
            plans[name] = con.execute(f"EXPLAIN (FORMAT json) {catalog.models[name].sql}").fetchall()[0][1]
        return write(con, path, model, *names)

    monkeypatch.setattr(events_by_sql, "_tables", explained)
    path = file_of(tool, tmp_path)
    events_input(path).read(ReadRequest(path, tmp_path))
    assert plans
    for name, plan in plans.items():
        if name not in MEANT:
            assert not [join for join in EVERY_PAIR if join in plan], (name, plan)
