"""Eight processes commit to one DuckLake at once: none fails, and each trace is there once. Time per commit is in docs/object-storage.md."""

from __future__ import annotations

import multiprocessing
import shutil
import sys
import time
from pathlib import Path

import pytest

from pipelines.lake import Lake
from pipelines.runs.store import open_store
from tests.effort import SLOW
from tests.runs.store.world import make_unit

WORKERS = 8


def _commit_all(address: str, units: list[str]) -> list[float]:
    seconds = []
    for unit in units:
        began = time.monotonic()
        open_store(address).commit(Lake(Path(unit)))
        seconds.append(time.monotonic() - began)
    return seconds


def committed(folder: Path, each: int) -> list[float]:
    """Seconds of each commit; every worker has `each` captures of one trace."""
    address = f"ducklake:sqlite:{folder}/catalog.sqlite?data={folder}/data"
    units = [str(make_unit(folder / f"u{n}" / "lake", [n], ["kernels"]).root) for n in range(WORKERS * each)]
    with multiprocessing.get_context("spawn").Pool(WORKERS) as pool:
        told = pool.starmap(_commit_all, [(address, units[n::WORKERS]) for n in range(WORKERS)])
    with open_store(address).connect() as con:
        found = con.execute("SELECT count(*), count(DISTINCT trace_id) FROM traces").fetchall()
    assert found == [(WORKERS * each, WORKERS * each)]
    shutil.rmtree(folder / "data")
    return sorted(one for seconds in told for one in seconds)


@pytest.mark.ducklake("sqlite")
def test_eight_workers_commit_without_an_error(tmp_path: Path) -> None:
    committed(tmp_path, 5 if SLOW else 1)


if __name__ == "__main__":
    took = committed(Path(sys.argv[1]), int(sys.argv[2]))
    print(f"{len(took)} commits: median {took[len(took) // 2]:.2f} s, longest {took[-1]:.2f} s")
