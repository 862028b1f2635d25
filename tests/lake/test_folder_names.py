"""Folders above a lake that look like Hive partitions (`trace_id=a`) do not become columns, and hide none."""

from __future__ import annotations

from pathlib import Path

from pipelines.lake import Lake
from pipelines.lake.commit.catalog_file import CATALOG, rebuild
from pipelines.lake.retain.compaction import compact
from pipelines.lake.status import status
from pipelines.readers.ingest import ingest
from pipelines.runs.check import check
from pipelines.runs.forget import forget
from pipelines.runs.materialize.per_capture import materialize_captures
from pipelines.runs.materialize.per_trace import materialize
from tests.lake.world import TABLES, capture, shown

ROOT = Path(__file__).parents[2]
PARTITIONS = "trace_id=a/capture_id=b/batch_id=c/path=d/n_events=e/seen_at=f"


def states(lake: Lake, files: list[Path]) -> list[object]:
    """What the lake shows after each step of its life."""
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


def test_a_lake_in_folders_named_like_columns(tmp_path: Path) -> None:
    files = capture(tmp_path / "in")
    plain, partitioned = (states(Lake(tmp_path / name / "lake"), files) for name in ("plain", PARTITIONS))
    assert plain == partitioned


def test_parquet_files_are_read_without_partitions() -> None:
    for file in (ROOT / "pipelines").rglob("*.py"):
        for line in file.read_text(encoding="utf-8").splitlines():
            assert "read_parquet(" not in line or "hive_partitioning = false" in line, f"{file}: {line}"
