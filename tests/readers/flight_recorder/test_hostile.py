"""Dumps with a wrong field or with malicious content.

Each of them becomes one row that names the file, and all other files are ingested.
"""

from __future__ import annotations

import json
import pickle
import pickletools
import re
import resource
import struct
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.fleet.op_job.job import JobRejected
from pipelines.fleet.op_job.sizes import read_meta
from pipelines.lake import Lake
from pipelines.readers.flight_recorder.dump import DumpError, read_dump
from pipelines.readers.flight_recorder.opcodes import Bomb, check_opcodes
from pipelines.readers.ingest import ingest
from tests.effort import examples
from tests.lake.world import write_trace
from tests.readers.flight_recorder.make import NCCL, call, made

FIELDS: dict[str, Any] = {
    "id infinite": call(1, record_id=1e999),
    "id of 31 digits": call(1, record_id=10**30),
    "seq of 31 digits": call(1, collective_seq_id=10**30),
    "time is text": call(1, time_created_ns="abc"),
    "time of 31 digits": call(1, time_created_ns=10**30),
    "time started is text": call(1, time_discovered_started_ns="x"),
    "duration is an object": call(1, duration_ms={"a": 1}),
    "duration infinite": call(1, duration_ms=1e999),
    "duration too long": call(1, duration_ms=1e300),
    "timeout is a list": call(1, timeout_ms=[1]),
    "retired is text": call(1, retired="x"),
    "size of 31 digits": call(1, input_sizes=[[10**30]]),
    "size is text": call(1, input_sizes="8"),
    "p2p is text": call(1, p2p_seq_id="q"),
    "group is a number": call(1, process_group=3),
    "frames of numbers": call(1, frames=[1, 2]),
    "no object": 5,
}
TOPS: dict[str, Any] = {
    "ranks deep": {"pg_config": {"0": {"desc": "d", "ranks": "[" * 100_000 + "]" * 100_000}}},
    "ranks are texts": {"pg_config": {"0": {"desc": "d", "ranks": ["a", 1]}}},
    "groups are a list": {"pg_config": [1]},
    "entries are an object": {"entries": {"a": 1}},
    "entries are text": {"entries": "abc"},
    "status is text": {"pg_status": {"0": {"last_enqueued_collective": "x"}}},
    "status infinite": {"pg_status": {"0": {"last_enqueued_collective": 1, "x": 1e999}}},
}
KEPT: dict[str, Any] = {
    "lone surrogate": call(1, state="\ud800", process_group=["0", "\udfff"]),
    "NUL": call(1, state="a\0b"),
    "types of numbers": call(1, input_dtypes=[1, None]),
    "retired is 1 beside true": call(1, retired=1),
    "huge tensor": call(1, input_sizes=[[2**62, 2**62]]),
}


@pytest.mark.slow
def test_a_field_of_any_type_rejects_its_dump_alone(tmp_path: Path) -> None:
    """Only dumps with a wrong field are rejected. The good dump of each folder and the trace are ingested.

    Dumps with odd values that no rule forbids are also ingested.
    """
    wrong = {
        name: {"entries": [{"record_id": 1, **entry} if isinstance(entry, dict) else entry]}
        for name, entry in (FIELDS | KEPT).items()
    }
    for number, (name, top) in enumerate((wrong | TOPS).items()):
        folder = tmp_path / "in" / name
        made(folder, 1, call(1, time_created_ns=1_000 + number))
        (folder / "dump_0").write_text(json.dumps({"version": "2.10", "pg_config": NCCL, "entries": [], **top}))
    (tmp_path / "in" / "dump_99999999999999999999999").write_text(
        json.dumps({"version": "2.10", "pg_config": NCCL, "entries": []})
    )
    write_trace(tmp_path / "in" / "rank0.json", 1)
    lake = Lake(tmp_path / "lake")
    rows = ingest([tmp_path / "in"], lake).rows
    with lake.connect(["flight_recorder_dumps", "rejects", "traces"]) as con:
        taken = con.execute("SELECT folder, list(rank ORDER BY rank) FROM flight_recorder_dumps GROUP BY 1").fetchall()
        rejects = dict(con.execute("SELECT path, reason FROM rejects").fetchall())
        assert con.execute("SELECT count(*) FROM traces").fetchall() == [(1,)]
    assert {Path(folder).name: ranks for folder, ranks in taken} == {
        **{name: [1] for name in (*FIELDS, *TOPS)},
        **{name: [0, 1] for name in KEPT},
    }
    assert len(rejects) == len(FIELDS) + len(TOPS) + 1
    assert all(Path(path).name in reason for path, reason in rejects.items())
    assert {row.status for row in rows} == {"ok", "rejected"}


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        ("entry 1 (from 0): process_group is 3, not a list", {"process_group": 3}),
        ("entry 1 (from 0): process_group has 1 values, not a name and a description", {"process_group": ["0"]}),
        ("entry 1 (from 0): process_group has 0 values", {"process_group": None}),
        ("entry 1 (from 0): state is missing", {"state": ...}),
        ("entry 1 (from 0): a frame is 1, not an object", {"frames": [1, 2]}),
        ("entry 1 (from 0): input_sizes is 8, not a list", {"input_sizes": [8]}),
        ("entry 1 (from 0): input_sizes is null, not a whole number", {"input_sizes": [[None]]}),
        ("entry 1 (from 0): output_dtypes is 'Float', not a list", {"output_dtypes": "Float"}),
        ("entry 1 (from 0): collective_seq_id is a list, not a whole number", {"collective_seq_id": [1]}),
        ("entry 1 (from 0): duration_ms is an object, not a number of milliseconds", {"duration_ms": {"a": 1}}),
    ],
)
def test_a_rejection_names_the_field_and_what_it_is(tmp_path: Path, message: str, fields: dict[str, Any]) -> None:
    entry = {key: value for key, value in ({"record_id": 1} | call(1, **fields)).items() if value is not ...}
    (tmp_path / "dump_0").write_text(json.dumps(top([{"record_id": 0} | call(0), entry])))
    with pytest.raises(DumpError) as error:
        read_dump(tmp_path / "dump_0")
    assert f"dump_0: it does not match version 2.10: {message}" in str(error.value)


def top(entries: list) -> dict:
    return {"version": "2.10", "pg_config": NCCL, "entries": entries}


HEAD = b"X\x07\x00\x00\x00versionX\x07\x00\x00\x00entriess."
BOMBS = {
    "numbered 2^28": b"\x80\x02}r\xff\xff\xff\x0f" + HEAD,
    "numbered 2^31": b"\x80\x02}r\xff\xff\xff\x7f" + HEAD,
    "numbered in text": b"\x80\x02}p4000000000\n" + HEAD,
    "text of a TiB": b"\x80\x04}\x8c\x07version\x8c\x07entries\x8d" + struct.pack("<Q", 1 << 40) + b"x.",
    "bytes of 20 GiB": b"\x80\x05}\x8c\x07version\x8c\x07entries\x96" + struct.pack("<Q", 20 << 30) + b"x.",
    "number of 2 GiB": b"\x80\x02}X\x07\x00\x00\x00versionX\x07\x00\x00\x00entries\x8b"
    + struct.pack("<i", 0x7FFFFFFF)
    + b"x.",
    "5 million calls": pickle.dumps(top([call(1, record_id=1)] * 5_000_000), protocol=2),
    "a list of sizes 200,000 times": pickle.dumps(
        top([call(1, record_id=1, input_sizes=[list(range(1000))] * 200_000)]), protocol=2
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_before_it_goes_off(tmp_path: Path, name: str) -> None:
    (tmp_path / "dump_0").write_bytes(BOMBS[name])
    began, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DumpError, match="dump_0"):
        read_dump(tmp_path / "dump_0")
    assert time.process_time() - began < 10
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 600 << 10  # KiB


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=30,
)


@settings(max_examples=examples(200), deadline=None)
@given(st.sampled_from(["record_id", "frames", *call(1)]), values, st.booleans())
def test_rejections_are_no_errors_of_python(
    tmp_path_factory: pytest.TempPathFactory, field: str, value: Any, is_inside: bool
) -> None:
    path = tmp_path_factory.mktemp("dump") / "dump_0"
    path.write_bytes(pickle.dumps(top([{"record_id": 0, **call(0), field: [value, value] if is_inside else value}])))
    try:
        read_dump(path)
    except DumpError as error:
        assert not re.search(r"[a-z]Error\b|NoneType|has no attribute|object is not|unpack", str(error)), error


@settings(max_examples=examples(60), deadline=None)
@given(values, st.integers(0, 5))
def test_what_was_really_pickled_passes(value: Any, protocol: int) -> None:
    check_opcodes(pickle.dumps([value, value], protocol=protocol))


@settings(max_examples=examples(60), deadline=None)
@given(st.binary(max_size=60))
def test_opcodes_are_stepped_over_as_pythons_own_tool_does(raw: bytes) -> None:
    def passes(check) -> bool:
        try:
            check(raw + b".")
        except Exception as error:
            assert check is not check_opcodes or isinstance(error, Bomb)
            return False
        return True

    def tool(data: bytes) -> None:
        numbered = [arg for op, arg, _ in pickletools.genops(data) if op.name in ("PUT", "LONG_BINPUT")]
        assert all(0 <= arg <= len(data) for arg in numbered)

    if passes(tool):
        assert passes(check_opcodes)


def test_yaml_of_brackets_is_refused_at_once(tmp_path: Path) -> None:
    for number, text in enumerate(
        ("[" * 100_000, "{" * 100_000, "a: " + "[" * 900 + "]" * 900, "- " * 100_000, "x: 1\n" * 400_000)
    ):
        (tmp_path / f"{number}.yaml").write_text(text)
        began = time.process_time()
        with pytest.raises(JobRejected, match=f"{number}.yaml"):
            read_meta(tmp_path / f"{number}.yaml")
        assert time.process_time() - began < 5
