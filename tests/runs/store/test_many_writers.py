"""Eight processes that commit to one DuckLake concurrently: none fails, and each trace occurs once.

docs/object-storage.md lists the time per commit.
"""

from __future__ import annotations

import multiprocessing
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipelines.lake import Lake
from pipelines.runs.store import open_store
from pipelines.runs.store.ducklake.schema import has_own
from pipelines.runs.store.ducklake.store import DuckLakeStore
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
    """Return the seconds of each commit. Every worker commits `each` captures of one trace."""
    address = f"ducklake:sqlite:{folder}/catalog.sqlite?data={folder}/data"
    units = [str(make_unit(folder / f"u{n}" / "lake", [n], ["kernels"]).root) for n in range(WORKERS * each)]
    with multiprocessing.get_context("spawn").Pool(WORKERS) as pool:
        durations = pool.starmap(_commit_all, [(address, units[n::WORKERS]) for n in range(WORKERS)])
    with open_store(address).connect() as con:
        counts = con.execute("SELECT count(*), count(DISTINCT trace_id) FROM traces").fetchall()
    assert counts == [(WORKERS * each, WORKERS * each)]
    shutil.rmtree(folder / "data")
    return sorted(seconds for of_worker in durations for seconds in of_worker)


@pytest.mark.ducklake("sqlite")
def test_eight_workers_commit_without_an_error(tmp_path: Path) -> None:
    committed(tmp_path, 5 if SLOW else 1)


_HOLDS = """
import sqlite3, sys, time
con = sqlite3.connect(sys.argv[1], isolation_level=None)
con.execute("BEGIN EXCLUSIVE")
print("held", flush=True)
time.sleep(6)
con.execute("COMMIT")
"""


@pytest.mark.slow  # 6 s, because DuckDB itself waits for 5 s
@pytest.mark.ducklake("sqlite")
def test_who_has_opened_the_catalog_waits_for_another_that_writes(tmp_path: Path) -> None:
    """A process that has the catalog open waits for another process that writes.

    The writer runs in a separate process, because file locks work only between processes.
    """
    store = open_store(f"ducklake:sqlite:{tmp_path}/catalog.sqlite?data={tmp_path}/data")
    store.commit(Lake(make_unit(tmp_path / "unit" / "lake", [1], ["kernels"]).root))
    assert isinstance(store, DuckLakeStore)
    with (
        store.writer() as con,
        subprocess.Popen(
            [sys.executable, "-c", _HOLDS, tmp_path / "catalog.sqlite"], stdout=subprocess.PIPE, text=True
        ) as other,
    ):
        assert other.stdout and other.stdout.readline() == "held\n"
        assert has_own(con)
        assert other.wait() == 0


if __name__ == "__main__":
    took = committed(Path(sys.argv[1]), int(sys.argv[2]))
    print(f"{len(took)} commits: median {took[len(took) // 2]:.2f} s, longest {took[-1]:.2f} s")
