"""A hand-written trace, an inbox and a run of everything in process."""

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import dagster as dg
import pytest

from assets.metadata import today
from assets.traces import LAKE_TABLES
from dagster_project.definitions import definitions
from tests.harness import call, kernel, x

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "traces" / "critical_path"


TINY = [
    x("cpu_op", "aten::mm", 1000, 50, **{"External id": 1}),
    call("cudaLaunchKernel", 1010, 20, 7),
    kernel("gemm", 1040, 100, 7),
    call("cudaDeviceSynchronize", 1060, 90, 8),
]


def write_trace(path: Path, shift: int = 0) -> Path:
    """The tiny trace, moved in time, so that each shift is another content."""
    events = [{**e, "ts": e["ts"] + shift} for e in TINY]
    path.write_text(json.dumps({"schemaVersion": 1, "distributedInfo": {"rank": 0}, "traceEvents": events}))
    return path


def age(path: Path, seconds: float = 60) -> Path:
    """Make a file look as if it had been quiet for some time."""
    then = path.stat().st_mtime - seconds
    os.utime(path, (then, then))
    return path


@pytest.fixture
def inbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty watched folder."""
    folder = tmp_path / "inbox"
    folder.mkdir()
    monkeypatch.setenv("TRACELAKE_INBOX", str(folder))
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., dg.ExecuteInProcessResult]:
    """`run(files)` executes the whole job in process on the lake `tmp_path/lake`; with `only`, these tables of it and
    what ingestion writes."""

    def execute(
        files: list[Path] | None = None,
        job: str = "ingest_and_analyse",
        only: Iterable[str] | None = None,
        overlays: str | None = None,
    ) -> dg.ExecuteInProcessResult:
        ops = {"ingest": {"config": {"files": [str(f) for f in files]}}} if files is not None else {}
        config = {"ops": {**ops, **({"overlay": {"config": {"of": overlays}}} if overlays else {})}}
        with dg.DagsterInstance.ephemeral() as instance:
            definition = definitions(str(tmp_path / "lake")).resolve_job_def(job)
            names = (*(LAKE_TABLES if job == "ingest_and_analyse" else ()), *(only or ()))
            keys = None if only is None else [dg.AssetKey(name) for name in names]
            return definition.execute_in_process(
                run_config=config, partition_key=today(), instance=instance, asset_selection=keys
            )

    return execute


def only_ingest(lake: str) -> dg.Definitions:
    """The project with a job `ingest_and_analyse` that only takes files in: the rest is what takes long."""
    from assets.traces import lake_tables
    from dagster_project.resources import LakeResource

    job = dg.define_asset_job("ingest_and_analyse", selection=dg.AssetSelection.assets(lake_tables))
    return dg.Definitions(assets=[lake_tables], jobs=[job], resources={"lake": LakeResource(path=lake)})
