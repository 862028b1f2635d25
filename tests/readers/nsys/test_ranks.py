"""Ranks of an export's processes: the number of the only GPU of each, where all have different ones, else unknown."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from pipelines.base import database
from pipelines.faces.cli.up_to_date import open_analyst
from pipelines.lake import Lake
from pipelines.readers.ingest import ingest
from pipelines.readers.inputs.single_trace import load_trace
from pipelines.readers.nsys.processes import device_ranks, gpu_processes, pid_of
from pipelines.readers.sqlite_exports.opened import opened
from tests.readers.nsys.small import PID, kernel, small, written
from tests.readers.nsys.writer import Export

REAL = Path(__file__).parents[4] / "shared/traces/nsys"
SECOND = 4100 << 24


def on_gpus(*devices: int, machine: int = 0) -> Export:
    """A process on each of these GPUs; `machine`: in the second's serialized id."""
    export = small()
    for number, device in enumerate(devices[1:], 1):
        small(SECOND * number | machine << 48, into=export)
        for row in (row for rows in export.rows.values() for row in rows):
            if row.get("globalPid") == SECOND * number | machine << 48 and "deviceId" in row:
                row["deviceId"] = device
    return export


def ranks_of(export: Export, folder: Path) -> dict[int, int]:
    with opened(written(export, folder), 1, "again") as there:
        return {pid_of(key): rank for key, rank in device_ranks(there, gpu_processes(there)).items()}


needs_real = pytest.mark.skipif(not REAL.is_dir(), reason="needs ../shared")


@needs_real
@pytest.mark.parametrize(
    ("name", "ranks"),
    [("h100_2gpu_1s", {111: 0, 112: 1}), ("mfu_2gpu_before", {144: 0, 145: 1}), ("healthy_1pct", {})],
)
def test_ranks_of_real_exports(name: str, ranks: dict[int, int]) -> None:
    with opened(REAL / f"{name}.sqlite", 1, "again") as there:
        assert {pid_of(key): rank for key, rank in device_ranks(there, gpu_processes(there)).items()} == ranks


def test_only_one_gpu_each_tells_ranks(tmp_path: Path) -> None:
    assert ranks_of(on_gpus(0, 3), tmp_path) == {4000: 0, 4100: 3}
    assert ranks_of(on_gpus(0, 0), tmp_path) == {}  # two processes share one, or each sees its own as number 0
    assert ranks_of(on_gpus(0), tmp_path) == {}  # alone it may be any rank
    assert ranks_of(on_gpus(0, 3, machine=1), tmp_path) == {}  # of two machines: each counts its own
    wide = on_gpus(0, 3)
    kernel(wide, "on another GPU", 70_000, 71_000, 30, 7, pid=PID, deviceId=1)
    assert ranks_of(wide, tmp_path) == {}
    untold = on_gpus(0, 3)
    kernel(untold, "on some GPU", 70_000, 71_000, 30, 7, pid=PID, deviceId=None)
    assert ranks_of(untold, tmp_path) == {}


def test_a_file_whose_gpus_tell_ranks_is_a_capture(tmp_path: Path) -> None:
    """Numbers of GPUs begin anew on each node, so two such files are not ranks of one capture. Other files' names tell ranks."""
    nodes = [written(on_gpus(0, 1), tmp_path, "rank7.sqlite"), tmp_path / "b.sqlite"]
    again = on_gpus(0, 1)
    kernel(again, "more", 70_000, 71_000, 30, 7, pid=PID)
    paths = [nodes[0], again.write(nodes[1]), written(on_gpus(0, 0), tmp_path, "rank6.sqlite"),
             written(small(), tmp_path, "rank5.sqlite")]  # fmt: skip
    lake = Lake(tmp_path / "lake")
    rows = ingest(paths, lake).rows
    assert [row.rank for row in rows] == [0, 1, 0, 1, None, None, 5]
    with database.connect() as con:
        lake.create_views(con, ["traces", "findings"])
        query = (
            "SELECT file, list(rank_source ORDER BY rank), list(world_size), count(DISTINCT group_id), min(group_id), "
            "count(f.trace_id) FROM traces LEFT JOIN (FROM findings WHERE check_name = 'nsys_rank_by_device') AS f "
            "USING (trace_id) GROUP BY file ORDER BY file"
        )
        found = con.execute(query).fetchall()
    none = [None, None]
    assert [(row[0], row[1], row[2], row[3], row[5]) for row in found] == [
        ("b.sqlite", ["device", "device"], none, 1, 2),
        ("rank5.sqlite", ["file_name"], [None], 1, 0),
        ("rank6.sqlite", none, none, 1, 0),
        ("rank7.sqlite", ["device", "device"], none, 1, 2),
    ]
    assert len({row[4] for row in found}) == 3  # rank5 and rank6 are of the folder


def test_one_process_of_a_file_has_the_rank_that_it_has_in_a_lake(tmp_path: Path) -> None:
    for export, rank in ((on_gpus(0, 1), 1), (on_gpus(0, 0), None)):
        con = duckdb.connect()
        load_trace(con, written(export, tmp_path, "rank7.sqlite"), process="4100")
        assert con.execute("SELECT rank FROM traces").fetchall() == [(rank,)]


@needs_real
def test_processes_of_a_real_export_are_a_capture_on_one_clock(tmp_path: Path) -> None:
    """33 exchanges each, without a word on their group: kernels of a stream, by their order."""
    lake = Lake(tmp_path / "lake")
    ingest([REAL / "mfu_2gpu_before.sqlite"], lake)
    con = open_analyst(lake.root, ["clock_offsets", "capture_critical_path"])
    query = "SELECT rank, offset_ns, method, is_clipped, drift_applied, n_matched > 25 FROM clock_offsets ORDER BY rank"
    assert con.execute(query).fetchall() == [(rank, 0, "one_file", False, False, True) for rank in (0, 1)]
    assert con.execute("SELECT count(DISTINCT rank) FROM capture_critical_path").fetchall() == [(2,)]
    con.close()
