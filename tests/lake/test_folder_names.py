"""Folders above a lake that look like Hive partitions (`trace_id=a`): they neither become columns nor hide columns."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from pipelines.lake import Lake
from pipelines.lake.commit.catalog_file import CATALOG, rebuild
from pipelines.lake.retain import retention
from pipelines.lake.retain.compaction import compact
from pipelines.lake.status import status
from pipelines.models.catalog import load_catalog
from pipelines.models.rule_tables import create_rules
from pipelines.readers.ingest import ingest
from pipelines.runs.check import check
from pipelines.runs.forget import forget
from pipelines.runs.materialize.per_capture import materialize_captures
from pipelines.runs.materialize.per_trace import materialize
from tests.lake.world import TABLES, capture, shown, write_trace

ROOT = Path(__file__).parents[2]
PARTITIONS = "trace_id=a/capture_id=b/batch_id=c/path=d/n_events=e/seen_at=f"


def states(lake: Lake, files: list[Path]) -> list[object]:
    """Return the lake's rows after each step of its life."""
    tables = [*TABLES, "traces", "rejects", "collectives"]
    seen: list[object] = []
    for batch in (files[:1], files[1:]):
        ingest(batch, lake)
        materialize(lake, TABLES)
        materialize_captures(lake, ["collectives"])
        seen.append(shown(lake, tables))
    (lake.root / CATALOG).unlink()
    rebuild(lake.root)
    seen += [shown(lake, tables), check(lake).faults, status(lake, None).rejected_last_day]
    compact(lake, older_than=0)
    forget(lake, min(lake.known_traces()))
    return [*seen, shown(lake, tables)]


@pytest.mark.slow
def test_a_lake_in_folders_named_like_columns(tmp_path: Path) -> None:
    files = capture(tmp_path / "in")
    plain, partitioned = (states(Lake(tmp_path / name / "lake"), files) for name in ("plain", PARTITIONS))
    assert plain == partitioned


def test_a_removed_batch_in_folders_named_like_columns(tmp_path: Path) -> None:
    """The keys of a removed batch are read from its file if its catalog row has none.

    A rebuild by an older version leaves such a row.
    """
    lake = Lake(tmp_path / PARTITIONS / "group_id=g/lake")
    ingest([write_trace(tmp_path / "in" / "rank0.json", 0)], lake)
    ((trace_id, batch),) = lake.known_traces().items()
    assert {first for _, first in retention._firsts(lake, batch).values()} == {trace_id}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retention.manifest, "read_keys", lambda *_: None)
        assert retention._trace_ids(lake, batch) == [trace_id]


def test_rule_tables_in_folders_named_like_columns(tmp_path: Path) -> None:
    model = load_catalog().models["kernel_classes"]
    copy = tmp_path / "class=OTHER" / "job=1" / "kernel_classes.csv"
    copy.parent.mkdir(parents=True)
    shutil.copy(model.path, copy)
    rows = []
    for path in (model.path, copy):
        with duckdb.connect() as con:
            create_rules(con, replace(model, path=path))
            rows.append(con.execute("FROM kernel_classes").fetchall())
    assert rows[0] == rows[1]


def test_files_are_read_without_partitions() -> None:
    for file in (ROOT / "pipelines").rglob("*.py"):
        lines = file.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines):
            assert "read_parquet(" not in line or "hive_partitioning = false" in line, f"{file}: {line}"
            call = " ".join(lines[number : number + 3])
            assert not re.search(r"read_(csv|json)\(", line) or "hive_partitioning = false" in call, f"{file}: {line}"
            assert "FROM {quoted(" not in line, f"{file}: {line}: read it with parquet_rows"
