"""Memory snapshots read in pieces, with the same content as by `pickle.load`; hostile snapshots are rejected."""

from __future__ import annotations

import os
import pickle
import random
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.readers.inputs.row_files import RowFiles
from pipelines.readers.memory_snapshots.columns import COLUMNS, with_devices
from pipelines.readers.memory_snapshots.entries import Entries
from pipelines.readers.memory_snapshots.pickle_stream import BrokenPickle, PickleStream
from tests.effort import examples
from tests.readers.memory_snapshots.make import MIB, USER, Allocator, snapshot, stack, training

Rows = dict[str, list[dict[str, Any]]]


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def read(data: bytes, folder: Path, size: int = 1 << 16) -> tuple[Any, Rows]:
    """Return the remaining top-level object, and the rows by table."""
    with RowFiles(folder, COLUMNS) as files:
        entries = Entries(files)
        entries.stream = PickleStream(pieces(data, size), entries.fold, entries.append, entries.intern_list)
        top = entries.stream.load()
    devices = entries.devices(top)
    rows = {}
    for table in COLUMNS:
        paths = files.paths(table)
        if paths and table == "snapshot_events":
            paths = [with_devices(paths[0], devices)]
        rows[table] = pq.read_table(paths[0]).to_pylist() if paths else []
    return top, rows


def expected(made: dict[str, Any]) -> dict[str, Any]:
    """Return events, blocks and segments with their stacks, read from the dictionaries."""

    def frames(of: dict[str, Any]) -> tuple[Any, ...] | None:
        return tuple((f["filename"], f["line"], f["name"]) for f in of.get("frames") or ()) or None

    return {
        "events": [
            (
                *(device, seq, e["action"], e.get("addr"), e["size"], e.get("device_free"), e["stream"]),
                *(e["time_us"] * 1000, frames(e)),
            )
            for device, history in enumerate(made["device_traces"])
            for seq, e in enumerate(history)
        ],
        "blocks": [
            (number, place, b["address"], b["size"], b["requested_size"], b["state"], frames(b))
            for number, s in enumerate(made["segments"])
            for place, b in enumerate(s["blocks"])
        ],
        "segments": [
            (s["device"], s["address"], s["total_size"], s["active_size"], s["stream"], s["segment_type"], frames(s))
            for s in made["segments"]
        ],
        "annotations": [
            (a["device"], a["name"], a["stage"], a["time_us"] * 1000) for a in made["external_annotations"]
        ],
    }


def contents(rows: Rows) -> dict[str, Any]:
    stacks: dict[int, list[Any]] = {}
    for frame in rows["snapshot_frames"]:
        assert frame["depth"] == len(stacks.setdefault(frame["stack_id"], []))
        stacks[frame["stack_id"]].append((frame["file"], frame["line"], frame["function"]))

    def frames(row: dict[str, Any]) -> tuple[Any, ...] | None:
        return None if row["stack_id"] is None else tuple(stacks[row["stack_id"]])

    def columns(table: str, *names: str, stacked: bool = True) -> list[Any]:
        return [(*(row[name] for name in names), *([frames(row)] if stacked else [])) for row in rows[table]]

    return {
        "events": sorted(
            columns(
                "snapshot_events",
                *("device", "seq", "action", "address", "size_bytes", "device_free_bytes", "stream", "at_ns"),
            ),
            key=lambda row: row[:2],
        ),
        "blocks": columns(
            "snapshot_blocks", "segment_id", "place", "address", "size_bytes", "requested_bytes", "state"
        ),
        "segments": columns(
            "snapshot_segments", "device", "address", "total_bytes", "active_bytes", "stream", "segment_type"
        ),
        "annotations": columns("snapshot_annotations", "device", "name", "stage", "at_ns", stacked=False),
    }


def busy(seed: int, n: int, device: int = 0) -> Allocator:
    """Return random allocations and releases on two streams, with stacks of up to six frames or none."""
    chance, allocator = random.Random(seed), Allocator(device=device, max_entries=max(4, n * 2))
    live: list[int] = []
    pending: list[int] = []
    for number in range(n):
        frames = stack(
            *((f"/u/f{chance.randrange(5)}.py", chance.randrange(90), "f") for _ in range(chance.randrange(7)))
        )
        what = chance.random()
        if live and what < 0.4:
            address = live.pop(chance.randrange(len(live)))
            allocator.free(address, frames, is_pending=what < 0.1)
            pending += [address] if what < 0.1 else []
        elif pending and what < 0.5:
            allocator.complete(pending.pop())
        elif what > 0.98:
            allocator.empty_cache()
        elif what > 0.97:
            allocator.out_of_memory(1 << 40, number)
        else:
            live.append(
                allocator.alloc(chance.choice([1, 700, 70_000, 3 * MIB, 25 * MIB]), frames, chance.randrange(2))
            )
    return allocator


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("size", [1 << 20, 997])
def test_the_rows_are_those_of_the_dictionaries(tmp_path: Path, protocol: int, size: int) -> None:
    made = snapshot(busy(1, 300, device=1), busy(2, 40, device=3), devices=5)
    top, rows = read(pickle.dumps(made, protocol), tmp_path, size)
    assert contents(rows) == expected(made)
    assert top["allocator_settings"] == made["allocator_settings"]
    assert {row["device"] for row in rows["snapshot_events"]} == {1, 3}


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 60), st.sampled_from([2, 4, 5]), st.integers(1, 4000))
def test_any_history_in_any_pieces(
    tmp_path_factory: pytest.TempPathFactory, seed: int, n: int, protocol: int, size: int
) -> None:
    made = snapshot(busy(seed, n), busy(seed + 1, n // 2, device=2))
    _, rows = read(pickle.dumps(made, protocol), tmp_path_factory.mktemp("s"), size)
    assert contents(rows) == expected(made)


CPP_PICKLE = """
import sys, torch, torch.distributed as dist
from pathlib import Path
from torch._C import _distributed_c10d as c10d
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}/store", rank=0, world_size=1)
for _ in range(40):
    dist.all_reduce(torch.ones(10))
Path(sys.argv[1], "dump").write_bytes(c10d._dump_fr_trace())
"""


@pytest.mark.slow
def test_what_pytorchs_own_pickler_writes_is_read(tmp_path: Path) -> None:
    """The file is a dump of the Flight Recorder, which needs no GPU.

    PyTorch writes dumps and memory snapshots with the same C++ pickler.
    """
    pytest.importorskip("torch")
    command = [sys.executable, "-c", CPP_PICKLE, str(tmp_path)]
    subprocess.run(command, check=True, timeout=120, env=os.environ | {"TORCH_FR_BUFFER_SIZE": "100"})
    data = (tmp_path / "dump").read_bytes()
    assert data.count(b"all_reduce") > 0
    for size in (1, 1000):
        stream = PickleStream(pieces(data, size), lambda item: item, list.extend, lambda listing: listing)
        assert stream.load() == pickle.loads(data), size


def test_equal_stacks_are_one(tmp_path: Path) -> None:
    allocator = Allocator()
    for _ in range(50):
        allocator.alloc(100, stack(USER, ("/x.py", 1, "main")))
    _, rows = read(pickle.dumps(snapshot(allocator)), tmp_path)
    assert len(rows["snapshot_stacks"]) == 1 and len(rows["snapshot_frames"]) == 2


@pytest.mark.parametrize("depth", [999, 1000, 1001, 1002, 2000, 2001])
def test_a_stack_of_any_length_from_known_frames(tmp_path: Path, depth: int) -> None:
    """The pickler writes lists in parts of 1000 items.

    The second stack and its copy contain only references to frames.
    """
    frames = stack(*(("/x.py", line, "f") for line in range(depth)))
    allocator = Allocator()
    for known in (frames, frames[1:] + frames[:1], frames[1:] + frames[:1]):
        allocator.alloc(100, known)
    made = snapshot(allocator)
    _, rows = read(pickle.dumps(made, 4), tmp_path)
    assert contents(rows) == expected(made)
    assert [row["n_frames"] for row in rows["snapshot_stacks"]] == [depth, depth]


def test_the_frame_of_the_user_is_found(tmp_path: Path) -> None:
    _, rows = read(pickle.dumps(snapshot(training())), tmp_path)
    assert {row["user_frame"] for row in rows["snapshot_stacks"]} == {
        *("/home/u/train.py:3 main", "/home/u/train.py:10 forward", "/home/u/train.py:44 log_loss")
    }


def test_blocks_of_older_versions_have_a_history_and_no_address(tmp_path: Path) -> None:
    frames = stack(USER)
    block = {
        "size": 1024,
        "state": "active_allocated",
        "history": [{"addr": 4096, "real_size": 1000, "frames": frames}],
    }
    rest = {"size": 512, "state": "inactive"}
    made = {
        "segments": [
            {
                "device": 0,
                "address": 4096,
                "total_size": 1536,
                "stream": 0,
                "segment_type": "small",
                "blocks": [block, rest],
            }
        ],
        "device_traces": [[]],
    }
    _, rows = read(pickle.dumps(made), tmp_path)
    assert [(row["address"], row["requested_bytes"], row["stack_id"]) for row in rows["snapshot_blocks"]] == [
        (4096, 1000, 0),
        (5120, None, None),
    ]


@pytest.mark.parametrize(("address", "stored"), [(2**63 - 1, 2**63 - 1), (2**63, -(2**63)), (2**64 - 512, -512)])
def test_addresses_of_64_bits_are_signed_as_in_traces(tmp_path: Path, address: int, stored: int) -> None:
    block = {"address": address, "size": 512, "requested_size": 4, "state": "active_allocated", "frames": []}
    segment = {"device": 0, "address": address, "total_size": 512, "stream": 0, "blocks": [block]}
    event = {"action": "alloc", "addr": address, "size": 4, "stream": 0, "time_us": 1, "frames": []}
    _, rows = read(pickle.dumps({"segments": [segment], "device_traces": [[event]]}), tmp_path)
    tables = ("snapshot_events", "snapshot_blocks", "snapshot_segments")
    assert [row["address"] for table in tables for row in rows[table]] == [stored] * 3


@pytest.mark.parametrize(("address", "stored"), [(2**63 - 512, -(2**63)), (2**64 - 512, 0)])
def test_addresses_that_follow_from_sizes_are_signed(tmp_path: Path, address: int, stored: int) -> None:
    blocks = [{"size": 512, "state": "inactive"} for _ in range(2)]
    segment = {"device": 0, "address": address, "total_size": 1024, "stream": 0, "blocks": blocks}
    _, rows = read(pickle.dumps({"segments": [segment], "device_traces": [[]]}), tmp_path)
    assert rows["snapshot_blocks"][1]["address"] == stored


def put(**changed: Any) -> dict[str, Any]:
    """Return a snapshot in which one event has these values."""
    allocator = Allocator()
    allocator.alloc(100, stack(USER))
    made = snapshot(allocator)
    made["device_traces"][0][-1].update(changed)
    return made


class Evil:
    def __reduce__(self) -> Any:
        return print, ("this must not run",)


EVENT = {"action": "alloc", "addr": 1, "size": 1, "stream": 0}


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (put(size=-1), "size is -1"),
        (put(addr=1 << 64), "addr is 18446744073709551616"),
        (put(addr=-1), "addr is -1"),
        (put(addr=1.5), "addr is 1.5"),
        (put(size=True), "size is True"),
        (put(time_us=1 << 62), "too late"),
        (put(frames=[1]), "not a frame"),
        (put(frames="here"), "not a list of frames"),
        (put(action=7), "action is 7"),
        (put(pool_id=(1, 2, 3)), "not two numbers"),
        (put(user_metadata=b"x"), "opcode"),
        (put(more=Evil()), "may run code"),
        ({"segments": [], "device_traces": [[EVENT, 1]]}, "a list of entries holds 1"),
        ({"segments": [], "device_traces": [[1, EVENT]]}, "something else"),
        ({"segments": [], "device_traces": [EVENT]}, "device_traces"),
        ({"segments": [], "device_traces": 7}, "device_traces is 7"),
        ({"segments": 7, "device_traces": []}, "no list `segments`"),
        ({"segments": [7], "device_traces": []}, "something else"),
        ([{"segments": []}], "no list `segments`"),
        ({"segments": [{"blocks": [7]}], "device_traces": []}, "blocks hold 7"),
        ({"segments": [{"blocks": [{"state": "inactive", "size": None}]}]}, "no size"),
    ],
)
def test_what_no_snapshot_holds_is_refused(
    tmp_path: Path, made: Any, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BrokenPickle, match=said):
        read(pickle.dumps(made, 4), tmp_path)
    assert capsys.readouterr().out == ""


def test_an_entry_twice_is_refused(tmp_path: Path) -> None:
    event = dict(EVENT)
    with pytest.raises(BrokenPickle, match="before"):
        read(pickle.dumps({"segments": [], "device_traces": [[event, event]]}), tmp_path)
    history = [dict(EVENT)]
    with pytest.raises(BrokenPickle, match="that of another device"):
        read(pickle.dumps({"segments": [], "device_traces": [history, history]}), tmp_path)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is truncated at byte 0"),
        (b"\x80\x04}", "is truncated at byte 3"),
        (b"\x80\x01}.", "protocol 1"),
        (b"\x80\x04cos\nsystem\n.", "GLOBAL"),
        (b"\x80\x04\x8d" + struct.pack("<Q", 1 << 60), "a text of"),
        (b"\x80\x02r" + struct.pack("<I", 1 << 31), "is truncated"),
        (b"\x80\x02}r" + struct.pack("<I", 1 << 31) + b".", "numbered before 0"),
        (b"\x80\x04" + b"(" * 200 + b".", "nested"),
        (b"\x80\x04\x8b" + struct.pack("<I", 1 << 30), "a number of"),
        (b"\x80\x04h\x05.", "is truncated"),
        (b"\x80\x04K\x01K\x02.", "within an object"),
        (b"\x80\x04\xff.", "no pickle opcode"),
        (b"\x80\x04}(K\x01u.", "zip"),
        (b"\x80\x04K\x01(K\x02e.", "not a list"),
    ],
)
def test_bytes_of_every_kind_are_refused(tmp_path: Path, data: bytes, said: str) -> None:
    with pytest.raises(BrokenPickle, match=said):
        read(data, tmp_path)


@settings(max_examples=examples(400), deadline=None)
@given(st.data())
def test_spoilt_pickles_are_refused_or_read(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Whatever happens to the bytes, reading raises BrokenPickle or returns rows.

    No other error occurs, and no code runs.
    """
    whole = bytearray(pickle.dumps(snapshot(busy(data.draw(st.integers(0, 20)), 30))))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(whole) - 1))
        if data.draw(st.booleans()):
            whole[at] = data.draw(st.integers(0, 255))
        else:
            del whole[at : at + data.draw(st.integers(1, 50))]
    try:
        read(bytes(whole), tmp_path_factory.mktemp("s"), data.draw(st.integers(100, 5000)))
    except BrokenPickle:
        return


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_a_cut_file_says_where_it_ends(tmp_path: Path, share: float) -> None:
    data = pickle.dumps(snapshot(busy(1, 50)))
    cut = data[: int(len(data) * share)]
    with pytest.raises(BrokenPickle, match=f"is truncated at byte {len(cut):,}"):
        read(cut, tmp_path)
