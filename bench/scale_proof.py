"""The proof that work can be distributed: two nodes of Ray, every unit submitted twice, one node killed midway.

The node is killed with `kill -9`.

    python -m bench.scale_proof FOLDER [--store ducklake|folder] [--traces 96]

Each trace must exist once, and all tables must equal the tables that one process computes from the same files, row by
row, both ways. With `ducklake`, the files are on an S3 server and the catalog in Postgres, both started for the proof.
If this machine has neither, the proof prints a message and uses a folder lake. Exits with 1 if anything differs.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import duckdb
import psutil
import pytest

from pipelines.base.extras import need
from pipelines.engines.engine import Done, Engine
from pipelines.engines.open_engine import open_engine
from pipelines.engines.run import Followed, ingest_on, materialize_on
from pipelines.lake import Lake
from pipelines.readers.ingest import expand, ingest
from pipelines.runs.materialize.run_order import materialize_all
from pipelines.runs.store import open_store
from pipelines.runs.store.folder import FolderStore
from pipelines.synthetic import CaptureSpec, write_capture
from tests.engines.same import differences

_RANKS = 8
_UNITS = 12  # number of units of files, enough to kill a node midway
_SMALL: dict[str, Any] = {"ranks": _RANKS, "steps": 2, "layers": 2, "ops_per_layer": 2}


class Doubled:
    """An engine that submits every unit twice in succession, so that two nodes work on the same unit concurrently."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.slots, self.cpus = engine, engine.slots, engine.cpus

    def __enter__(self) -> Doubled:
        self.engine.__enter__()
        return self

    def __exit__(self, *how: object) -> None:
        self.engine.__exit__(*how)

    def submit(self, units: Sequence[Any], work: Callable[[Any], Any]) -> Iterator[Done]:
        """Submit each unit twice, and yield twice as many results."""
        return self.engine.submit([unit for unit in units for _ in range(2)], work)


@contextmanager
def two_nodes() -> Iterator[tuple[str, Callable[[], int]]]:
    """Start two nodes of one CPU. Yield the cluster's address, and a function that kills one node with kill -9."""
    cluster, nodes = _ray_cluster(attempts=3)
    try:
        yield cluster.address, lambda: _kill([process.pid for _, process in nodes[0].live_processes()])
    finally:
        cluster.shutdown()


def _ray_cluster(attempts: int) -> tuple[Any, list[Any]]:
    """Start a Ray cluster and two nodes.

    If a node does not start within Ray's limit of 30 s, because the machine is busy, restart all of them.
    """
    from ray.cluster_utils import Cluster

    cluster = None
    try:
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        return cluster, [cluster.add_node(num_cpus=1, object_store_memory=80 << 20) for _ in range(2)]
    except Exception as error:
        if cluster:
            cluster.shutdown()
        if attempts == 1 or "timed out during startup" not in str(error):
            raise
    return _ray_cluster(attempts - 1)


def _kill(pids: Sequence[int]) -> int:
    """Kill processes and all their descendants. Return their number."""
    tops = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
    processes = [process for top in tops for process in (*top.children(recursive=True), top)]
    for process in processes:
        try:
            process.send_signal(signal.SIGKILL)
        except psutil.NoSuchProcess:
            continue
    return len(processes)


@contextmanager
def store_at(kind: str, folder: Path) -> Iterator[str]:
    """Yield the address of an empty store."""
    if kind == "folder":
        yield str(folder / "lake")
        return
    from tests.runs.store.conftest import need_extensions
    from tests.runs.store.servers import BUCKET, S3_KEYS, new_database, postgres, s3

    with ExitStack() as stack:
        try:
            need_extensions("postgres")
            server, url = stack.enter_context(postgres()), stack.enter_context(s3())
            os.environ.update({**S3_KEYS, "AWS_ENDPOINT_URL": url, "TRACELAKE_DATA": f"s3://{BUCKET}/proof"})
            store = f"ducklake:postgres:{new_database(server)}"
        except pytest.skip.Exception as missing:
            print(f"no DuckLake, a folder lake instead: {missing}", flush=True)
            store = str(folder / "lake")
        yield store


def one_process(files: Sequence[Path], folder: Path) -> tuple[Lake, float]:
    """Return the lake that this process computes alone, and its CPU seconds."""
    before = _cpu()
    lake = Lake(folder / "reference")
    ingest(files, lake)
    materialize_all(lake)
    return lake, _cpu() - before


def _cpu() -> float:
    return sum(resource.getrusage(resource.RUSAGE_SELF)[:2])


def spread(store: str, files: Sequence[Path], max_files: int) -> tuple[Followed, Followed]:
    """Ingest and compute on two nodes, of which one is killed when a third of the units is done, then the captures."""
    with two_nodes() as (address, kill), Doubled(open_engine("ray", address)) as engine:
        killed: list[int] = []

        def on_unit(so_far: Followed, done: Done) -> None:
            # `n_units` counts each unit once, but each is done twice.
            if not killed and so_far.n_done * 3 >= so_far.n_units * 2:
                killed.append(kill())
                print(
                    f"  killed a node ({killed[0]} processes) after {so_far.n_done} of {2 * so_far.n_units}", flush=True
                )
            if done.error:
                print(f"  unit {done.unit.name}: {done.error}", flush=True)

        with pytest.MonkeyPatch.context() as patch:  # make units small enough to kill a node midway
            patch.setattr("pipelines.engines.run.UNIT_FILES", max_files)
            patch.setattr("pipelines.engines.run.CAPTURES", 2)
            first = ingest_on(engine, store, files, on_unit=on_unit)
            second = materialize_on(engine, store)
        assert killed, "no node was killed"
        return first, second


def compare(store: str, reference: Lake, n_traces: int) -> list[str]:
    """Compare the store with the reference and print the counts. Return the differences."""
    with (
        open_store(store).connect(locked=False) as con,
        FolderStore(reference.root).connect(locked=False) as reference_con,
    ):
        n_stored, n_distinct = _row(con, "SELECT count(*), count(DISTINCT trace_id) FROM traces")
        wrong, n_tables, n_rows = differences(con, reference_con)
    print(f"traces: {n_stored}, of that {n_distinct} distinct, of {n_traces}")
    print(f"tables compared: {n_tables}, rows: {n_rows:,}, different: {len(wrong)}")
    return wrong if (n_stored, n_distinct) == (n_traces, n_traces) else [f"{n_stored} traces for {n_traces}", *wrong]


def _row(con: duckdb.DuckDBPyConnection, query: str) -> tuple:
    return con.execute(query).fetchall()[0]


def main() -> int:
    """Run the proof. Return 1 if anything differs, else 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--store", choices=("ducklake", "folder"), default="ducklake")
    parser.add_argument("--traces", type=int, default=96, help=f"a multiple of {_RANKS}")
    asked = parser.parse_args()
    need("ray", "the proof")
    shutil.rmtree(asked.folder, ignore_errors=True)
    for number in range(asked.traces // _RANKS):
        write_capture(CaptureSpec(seed=number, **_SMALL), asked.folder / "in" / f"job{number:03d}")
    files = [path for path in expand([asked.folder / "in"]) if path.name != "truth.json"]
    reference, alone = one_process(files, asked.folder)
    print(f"one process: {len(files)} traces, {alone:.1f} CPU s", flush=True)
    with ExitStack() as stack:
        store = stack.enter_context(store_at(asked.store, asked.folder.absolute()))
        began = time.perf_counter()
        first, second = spread(store, files, max(2, len(files) // _UNITS))
        print(
            f"two nodes, into {'ducklake' if store.startswith('ducklake:') else 'a folder'}: {time.perf_counter() - began:.1f} s"
        )
        for what, run in (("traces", first), ("captures", second)):
            print(f"  {what}: {run.n_done} units, {run.seconds:.1f} s and {run.cpu_seconds:.1f} CPU s on the workers")
        wrong = compare(store, reference, len(files))
    wrong += [f"unit {failure.unit} failed: {failure.error}" for run in (first, second) for failure in run.failed]
    print("\n".join(wrong) or "equal to one process")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
