"""An inbox, and a run of the whole job in this process. Without Dagster every file of this folder is skipped."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path

import pytest

if HAS_DAGSTER := find_spec("dagster") is not None:
    import dagster as dg

    from assets.metadata import today
    from assets.traces import LAKE_TABLES
    from dagster_project.definitions import definitions

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "traces" / "critical_path"


class _Skipped(pytest.Module):
    def collect(self) -> Iterable[pytest.Item]:
        pytest.skip("the extra dagster is not installed", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Skip a file instead of importing it if Dagster is not installed."""
    return None if HAS_DAGSTER else _Skipped.from_parent(parent, path=module_path)


@pytest.fixture
def inbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty watched folder."""
    folder = tmp_path / "inbox"
    folder.mkdir()
    monkeypatch.setenv("TRACELAKE_INBOX", str(folder))
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., dg.ExecuteInProcessResult]:
    """Return `run(files)`, which executes the whole job in this process on the lake `tmp_path/lake`.

    With `only`, the job computes only these tables and the tables that ingestion writes.
    """

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
    """Return the project with a job `ingest_and_analyse` that only ingests, because all other steps are slow."""
    from assets.traces import lake_tables
    from dagster_project.resources import LakeResource, StoreResource

    job = dg.define_asset_job("ingest_and_analyse", selection=dg.AssetSelection.assets(lake_tables))
    resources = {"lake": LakeResource(path=lake), "store": StoreResource(path=lake)}
    return dg.Definitions(assets=[lake_tables], jobs=[job], resources=resources)
