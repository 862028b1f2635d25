"""Ranks of an export's processes.

They come from NCCL or the environment, otherwise from the only GPU of each process, otherwise they are unknown.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipelines.base import database
from pipelines.faces.cli.app import app
from pipelines.faces.cli.refresh_tables import open_analyst
from pipelines.lake import Lake
from pipelines.readers.ingest import ingest
from pipelines.readers.inputs.single_trace import load_trace
from pipelines.readers.nsys.processes import device_ranks, gpu_processes, pid_of
from pipelines.readers.nsys.ranks import ranks_of as ranks_of_all
from pipelines.readers.sqlite_exports.open_export import opened
from tests.effort import first_of
from tests.harness import memory
from tests.readers.nsys.small import MAIN, PID, kernel, small, written
from tests.readers.nsys.writer import Export

REAL = Path(__file__).parents[4] / "shared/traces/nsys"
SECOND = 4100 << 24


def on_gpus(*devices: int, machine: int = 0) -> Export:
    """Return a process on each of these GPUs.

    The serialized ids of all processes but the first contain the hardware number `machine`.
    """
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
    assert ranks_of(on_gpus(0, 0), tmp_path) == {}  # two processes share a GPU, or each numbers its own as 0
    assert ranks_of(on_gpus(0), tmp_path) == {}  # a single process may be any rank
    assert ranks_of(on_gpus(0, 3, machine=1), tmp_path) == {}  # two machines, each of which counts its own GPUs
    wide = on_gpus(0, 3)
    kernel(wide, "on another GPU", 70_000, 71_000, 30, 7, pid=PID, deviceId=1)
    assert ranks_of(wide, tmp_path) == {}
    untold = on_gpus(0, 3)
    kernel(untold, "on some GPU", 70_000, 71_000, 30, 7, pid=PID, deviceId=None)
    assert ranks_of(untold, tmp_path) == {}


SECOND_MAIN = SECOND | 4100


def ranks_with_sources(export: Export, folder: Path) -> dict[int, tuple[int, int | None, str]]:
    with opened(written(export, folder), 1, "again") as there:
        return {pid_of(key): tuple(rank) for key, rank in ranks_of_all(there, gpu_processes(there)).items()}


def opens(export: Export, thread: int, size: int, rank: int, how: str) -> None:
    """Add a communicator as NCCL's range records it: as JSON in the row, as a text id, or as bytes."""
    said = json.dumps({"NCCL communicator ID": 7, "No. of ranks": size, "Rank": rank, "CUDA device": 0})
    packed = struct.pack("<4Q QIIIi", 1, 9, 24, 32, 7, size, rank, 0, 0)
    payload = {"json": {"jsonText": said}, "text": {"jsonTextId": export.text(said)}, "bytes": {"binaryData": packed}}
    named = {"text": "ncclCommInitRank"} if how == "json" else {"textId": export.text("ncclCommInitRankConfig")}
    export.add("NVTX_EVENTS", start=1, end=2, eventType=59, globalTid=thread, **named, **payload[how])


@pytest.mark.parametrize("how", ["json", "text", "bytes"])
def test_communicators_tell_ranks(how: str, tmp_path: Path) -> None:
    """The largest communicator that each process opened determines its rank.

    Ranks are unknown if two processes have the same rank, a process has none, or sizes differ.
    """
    export = on_gpus(0, 0)
    for place, name in enumerate(("NCCL communicator ID", "No. of ranks", "Rank", "CUDA device")):
        offset = (None, 8, 12, 16)[place]
        export.add("NVTX_PAYLOAD_SCHEMA_ENTRIES", domainId=1, schemaId=9, idx=place, name=name, offset=offset)
    opens(export, MAIN, 2, 1, how)
    opens(export, MAIN, 8, 5, how)
    assert ranks_with_sources(export, tmp_path) == {}
    opens(export, SECOND_MAIN, 8, 3, how)
    assert ranks_with_sources(export, tmp_path) == {4000: (5, 8, "nccl"), 4100: (3, 8, "nccl")}
    opens(export, MAIN, 8, 3, how)
    assert ranks_with_sources(export, tmp_path) == {}  # two communicators are largest, and either could be the job's
    opens(export, MAIN, 9, 3, how)
    opens(export, SECOND_MAIN, 9, 3, how)
    assert ranks_with_sources(export, tmp_path) == {}


def test_damaged_payloads_tell_nothing(tmp_path: Path) -> None:
    export = on_gpus(0, 1)
    for schema, offset in ((8, 1 << 40), (9, 8)):
        for name in ("No. of ranks", "Rank"):
            export.add("NVTX_PAYLOAD_SCHEMA_ENTRIES", domainId=1, schemaId=schema, idx=0, name=name, offset=offset)
    nasty = [
        {"jsonText": text} for text in ("{", "[" * 100_000, "[1]", '{"No. of ranks": 1e400, "Rank": {}}', '{"a": {}}')
    ]
    nasty += [
        {"binaryData": blob} for blob in (b"", b"x" * 31, struct.pack("<4Q", 1, 9, 1 << 63, 1 << 63), b"\xff" * 64)
    ]
    nasty += [{"binaryData": struct.pack("<4Q", 1, *numbers)} for numbers in ((8, 1, 32), (9, 32, 0), (9, 8, 32))]
    for payload in nasty:
        export.add("NVTX_EVENTS", start=1, end=2, eventType=59, globalTid=MAIN, text="ncclCommInitAll", **payload)
    assert ranks_with_sources(export, tmp_path) == {4000: (0, None, "device"), 4100: (1, None, "device")}


def with_environment(export: Export) -> Export:
    for name, value in (("RANK", "6"), ("WORLD_SIZE", "8"), ("LOCAL_RANK", "2")):
        export.add("META_DATA_CAPTURE", name="PROCESS_0:ENVIRONMENT_VARIABLE", value=f'{name}="{value}"')
    return export


def test_the_environment_tells_the_rank_of_the_only_process(tmp_path: Path) -> None:
    """The environment determines the rank only if there is one process. Otherwise, it is the launcher's."""
    assert ranks_with_sources(with_environment(small()), tmp_path) == {4000: (6, 8, "environment")}
    assert ranks_with_sources(with_environment(on_gpus(0, 0)), tmp_path) == {}


@pytest.mark.parametrize(
    ("said", "name", "expected"),
    first_of(
        [
            ("environment", "rank7.sqlite", (6, "environment", 8)),
            ("nccl", "rank7.sqlite", (7, "file_name", None)),
            ("nccl", "a.sqlite", (1, "nccl", 2)),
        ],
        1,
    ),
)
def test_the_environment_goes_before_the_file_s_name(tmp_path: Path, said: str, name: str, expected: tuple) -> None:
    """The environment takes precedence over the file's name; the NCCL data of a single process does not."""
    if said == "environment":
        export = with_environment(small())
    else:
        opens(export := small(), MAIN, 2, 1, "json")
    load_trace(con := memory(), written(export, tmp_path, name))
    assert con.execute("SELECT rank, rank_source, world_size FROM traces").fetchall() == [expected]


@pytest.mark.slow  # 6 s
def test_a_file_whose_gpus_tell_ranks_is_a_capture(tmp_path: Path) -> None:
    """GPU numbers start again on each node, so two files with ranks by GPU are two captures.

    Processes that share a GPU have no rank. The rank of a file with a single process comes from its name.
    """
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
        files = con.execute(query).fetchall()
    none = [None, None]
    assert [(row[0], row[1], row[2], row[3], row[5]) for row in files] == [
        ("b.sqlite", ["device", "device"], none, 1, 2),
        ("rank5.sqlite", ["file_name"], [None], 1, 0),
        ("rank6.sqlite", none, none, 1, 0),
        ("rank7.sqlite", ["device", "device"], none, 1, 2),
    ]
    assert len({row[4] for row in files}) == 3  # rank5 and rank6 are in the folder's group


@pytest.mark.slow  # tests above cover the ranks of several processes
def test_one_process_of_a_file_has_the_rank_that_it_has_in_a_lake(tmp_path: Path) -> None:
    for export, rank in ((on_gpus(0, 1), 1), (on_gpus(0, 0), None)):
        con = memory()
        load_trace(con, written(export, tmp_path, "rank7.sqlite"), process="4100")
        assert con.execute("SELECT rank FROM traces").fetchall() == [(rank,)]


@needs_real
@pytest.mark.slow  # tests above use small exports
def test_processes_of_a_real_export_are_a_capture_on_one_clock(tmp_path: Path) -> None:
    """Each process has 33 exchanges without a group, so kernels of a stream are matched by their order."""
    lake = Lake(tmp_path / "lake")
    ingest([REAL / "mfu_2gpu_before.sqlite"], lake)
    con = open_analyst(lake.root, ["clock_offsets", "capture_critical_path"])
    query = "SELECT rank, offset_ns, method, is_clipped, drift_applied, n_matched > 25 FROM clock_offsets ORDER BY rank"
    assert con.execute(query).fetchall() == [(rank, 0, "one_file", False, False, True) for rank in (0, 1)]
    assert con.execute("SELECT count(DISTINCT rank) FROM capture_critical_path").fetchall() == [(2,)]
    con.close()


@needs_real
@pytest.mark.slow  # test_commands.py checks `--process` and what-if on such a capture
def test_a_real_export_is_a_capture_for_why() -> None:
    output = CliRunner().invoke(app, ["why", str(REAL / "mfu_2gpu_before.sqlite")]).output
    assert "through 2 ranks" in output
