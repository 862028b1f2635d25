"""Malformed bytes: unambiguous damage is repaired and counted, other text is rejected or leaves a field empty."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipelines.readers.inputs.single_trace import load_trace
from pipelines.readers.kineto import TraceRejected
from tests.effort import SEED, SLOW, examples, first_of
from tests.harness import memory

GOOD = b'{"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 2, "ts": 10, "dur": 5, "args": {}}'


def stage(folder: Path, text: bytes, name: str = "t.json"):
    path = folder / name
    path.write_bytes(text)
    con = memory()
    staged = load_trace(con, path)
    rows = con.execute("SELECT event_id, name, start_ns, duration_ns FROM events ORDER BY event_id").fetchall()
    # Few of these events have a category, so each such file has a finding (tests/readers/test_foreign_rows.py).
    return staged, {f.check_name: f.n for f in staged.findings if f.check_name != "unread_events"}, rows, con


def trace(*events: bytes) -> bytes:
    return b'{"schemaVersion": 1, "traceEvents": [\n' + b",\n".join(events) + b'\n], "traceName": "t.json"}'


@pytest.mark.parametrize(
    ("event", "name", "finding"),
    first_of(
        [
            (GOOD.replace(b"aten::add", b'say "hi" now'), 'say "hi" now', "repaired_quote"),
            (GOOD.replace(b'"args": {}', b'"args": {"value": NaN}'), "aten::add", "repaired_nan"),
            (GOOD.replace(b"aten::add", b"a\xffb"), "a\ufffdb", "repaired_utf8"),
            (GOOD.replace(b'"args": {}', b'"args": {"value": -inf}'), "aten::add", "repaired_nan"),
            (GOOD.replace(b"aten::add", b"a\x01b"), "a\x01b", "repaired_control_character"),
            (GOOD.replace(b"aten::add", rb"C:\dir\x.py"), r"C:\dir\x.py", "repaired_escape"),
        ],
        3,
    ),
)
def test_plain_mistakes_are_repaired_and_counted(tmp_path: Path, event: bytes, name: str, finding: str) -> None:
    staged, findings, rows, _ = stage(tmp_path, trace(GOOD, event, GOOD))
    assert rows == [(0, "aten::add", 10_000, 5_000), (1, name, 10_000, 5_000), (2, "aten::add", 10_000, 5_000)]
    assert findings == {finding: 2 if finding == "repaired_quote" else 1}  # one event with two bad quotes
    assert staged.status == "repaired"
    assert staged.metadata["traceName"] == "t.json"


def test_integers_of_any_size_and_keys_that_differ_in_case(tmp_path: Path) -> None:
    event = GOOD.replace(b'"tid": 2', b'"tid": 15514734831341844875').replace(
        b'"args": {}', b'"args": {"Bytes": 1, "bytes": 2, "big": 123456789012345678901234567890}'
    )
    staged, _, _, con = stage(tmp_path, trace(event))
    assert staged.status == "ok"
    tid, args, n_bytes = con.execute("SELECT tid, args, bytes FROM events").fetchall()[0]
    assert (tid, n_bytes) == ("15514734831341844875", 2)
    assert json.loads(args) == {"Bytes": 1, "bytes": 2, "big": 123456789012345678901234567890}


@pytest.mark.parametrize(
    ("ts", "ns"),
    first_of(
        [
            (b"1712195495505583.123", 1712195495505583123),
            (b'"1712195495505583.123"', 1712195495505583123),
            (b"0.0005", 1),
            (b"4503599627370.497", 4503599627370497),
            (b"7", 7000),
            (b"-1.5", -1500),
        ],
        3,
    ),
)
def test_times_are_exact_nanoseconds(tmp_path: Path, ts: bytes, ns: int) -> None:
    _, _, rows, _ = stage(tmp_path, trace(GOOD.replace(b'"ts": 10', b'"ts": ' + ts)))
    assert rows == [(0, "aten::add", ns, 5_000)]


def test_a_base_after_the_events_is_added(tmp_path: Path) -> None:
    text = trace(GOOD).replace(b'"traceName"', b'"baseTimeNanoseconds": 1700000000000000001, "traceName"')
    _, _, rows, _ = stage(tmp_path, text)
    assert rows == [(0, "aten::add", 1700000000000010001, 5_000)]


def test_brackets_in_names_and_metadata_do_not_end_the_array(tmp_path: Path) -> None:
    text = trace(GOOD.replace(b"aten::add", b'x}], \\"traceEvents\\": [')).replace(b"t.json", b"]}, [{}]")
    staged, findings, rows, _ = stage(tmp_path, text)
    assert (len(rows), findings, staged.metadata["traceName"]) == (1, {}, "]}, [{}]")


def test_elements_that_are_no_objects_keep_their_place(tmp_path: Path) -> None:
    _, findings, rows, _ = stage(tmp_path, trace(GOOD, b"5", GOOD))
    assert [row[0] for row in rows] == [0, 1, 2]
    assert rows[1] == (1, None, None, None)
    assert findings == {"not_an_object": 1}


def test_truncation_at_every_byte_keeps_what_is_readable(tmp_path: Path) -> None:
    text = trace(GOOD, GOOD, GOOD)
    begin, end = text.index(b"[") + 1, text.rindex(b"]")
    first, each = (0, 7) if SLOW else (7 * (SEED % 7), 49)
    for size in range(begin + len(GOOD) + 2 + first, end, each):
        staged, findings, rows, _ = stage(tmp_path, text[:size])
        assert (staged.status, findings["truncated"]) == ("partial", 1)
        assert len(rows) == text[:size].count(b'"args": {}}')


def test_a_gzip_file_that_ends_early_is_partial(tmp_path: Path) -> None:
    events = [GOOD.replace(b'"ts": 10', b'"ts": %d' % (i * 7919)) for i in range(5000)]
    packed = gzip.compress(trace(*events))
    staged, findings, rows, _ = stage(tmp_path, packed[: len(packed) // 2], "t.json.gz")
    assert (staged.status, findings["truncated"]) == ("partial", 1)
    assert 100 < len(rows) < 5000


@pytest.mark.parametrize(
    "text", first_of([b"", b'{"nodes": [], "schema": "1"}', b"[1, 2]", b"hello", b'{"a": 1}', b"\x00\x01"], 3)
)
def test_what_is_no_trace_is_rejected_with_a_reason(tmp_path: Path, text: bytes) -> None:
    with pytest.raises(TraceRejected) as rejected:
        stage(tmp_path, text)
    assert "t.json" in str(rejected.value) and rejected.value.reason


def test_commands_of_a_trace_say_which_take_a_saved_path(tmp_path: Path) -> None:
    with pytest.raises(
        TraceRejected, match=r"Parquet file.*a saved path to `tracelake critical-path` or `tracelake what-if`"
    ):
        stage(tmp_path, b"PAR1" + bytes(100))


@pytest.mark.parametrize("protocol", [2, 5])
def test_a_pickle_names_the_commands_of_memory_snapshots(tmp_path: Path, protocol: int) -> None:
    with pytest.raises(TraceRejected, match=r"pickle.*memory snapshot.*`tracelake memory` or `tracelake ingest`"):
        stage(tmp_path, pickle.dumps({"segments": []}, protocol))


def test_an_empty_array_is_a_trace(tmp_path: Path) -> None:
    staged, _, rows, _ = stage(tmp_path, trace())
    assert (staged.n_events, rows) == (0, [])


@pytest.mark.parametrize("other", [(1, 2), (2, 1)], ids=["of a process", "of the same number in another process"])
def test_begin_and_end_events_pair_by_thread(tmp_path: Path, other: tuple[int, int]) -> None:
    def mark(ph: str, ts: int, thread: tuple[int, int] = (1, 1)) -> bytes:
        return json.dumps({"ph": ph, "name": "f", "pid": thread[0], "tid": thread[1], "ts": ts}).encode()

    marks = [
        mark("B", 0),
        mark("B", 1),
        mark("E", 3),
        mark("B", 2, other),
        mark("E", 9),
        mark("E", 7, other),
        mark("B", 20),
    ]
    _, findings, rows, _ = stage(tmp_path, b"[" + b",".join(marks) + b"]")
    assert [row[3] for row in rows] == [9000, 2000, None, 5000, None, None, None]
    assert findings == {"unmatched_begin": 1}


@pytest.mark.parametrize("end", [{"tid": 2, "ts": 30}, {"tid": 1, "ts": 10}], ids=["of another thread", "before it"])
def test_a_begin_and_an_end_that_are_no_pair_are_counted_both(tmp_path: Path, end: dict[str, int]) -> None:
    """A recording may start within one range and stop within another, so both lack their other half."""
    marks = [{"ph": "B", "name": "f", "pid": 1, "tid": 1, "ts": 20}, {"ph": "E", "name": "f", "pid": 1, **end}]
    _, findings, rows, _ = stage(tmp_path, json.dumps(marks).encode())
    assert [row[3] for row in rows] == [None, None]
    assert findings == {"unmatched_begin": 1, "unmatched_end": 1}


@pytest.mark.slow  # 4 s
@settings(max_examples=examples(30), deadline=None)
@given(place=st.integers(0, 300), junk=st.binary(min_size=1, max_size=3))
@example(place=295, junk=b"\x80\x80")  # DuckDB's error message ends within a character
def test_random_damage_never_crashes(tmp_path_factory: pytest.TempPathFactory, place: int, junk: bytes) -> None:
    text = bytearray(trace(GOOD, GOOD, GOOD))
    text[place : place + len(junk)] = junk
    try:
        staged, _, rows, _ = stage(tmp_path_factory.mktemp("damage"), bytes(text))
    except TraceRejected as rejection:
        assert rejection.reason
    else:
        assert staged.n_events == len(rows)


@pytest.mark.parametrize("depth", first_of([5_000, 900, 200_000], 1))
@pytest.mark.parametrize(("opens", "closes"), [(b"[", b"]"), (b'{"a":', b"}")], ids=["arrays", "objects"])
def test_values_nested_too_deep_are_damage_at_a_byte(tmp_path: Path, opens: bytes, closes: bytes, depth: int) -> None:
    deep = GOOD.replace(b'"args": {}', b'"args": {"x": ' + opens * depth + b"1" + closes * depth + b"}")
    text = trace(GOOD, deep, GOOD)
    staged, findings, rows, _ = stage(tmp_path, text)
    assert [name for _, name, _, _ in rows][::2] == ["aten::add"] * 2
    if findings:
        assert findings == {"unreadable_event": 1} and staged.status == "partial"
        (finding,) = staged.findings
        assert finding.detail.endswith(f"first at byte {text.index(deep)}")
    else:
        assert depth < 1000 and rows[1][1] == "aten::add"
