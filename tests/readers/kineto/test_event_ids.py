"""event_id is the position in traceEvents, in every dialect, with pieces of every size, and in broken files."""

from __future__ import annotations

import gc
import json
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from isal import isal_zlib
from pyarrow import parquet

from pipelines.models.catalog import Catalog
from pipelines.readers.inputs.single_trace import load_trace
from pipelines.readers.kineto import ReadRequest, ReadTrace, events_file, segments
from pipelines.readers.kineto.events_file import load_events
from pipelines.readers.kineto.reading_result import FindingCounter
from pipelines.readers.kineto.tolerant_reader import read_stretch
from pipelines.synthetic import CaptureSpec, write_capture
from tests.conftest import SHARED
from tests.effort import LARGE, examples, first_of, slow_if
from tests.harness import memory

SPELLINGS = {
    "cpu_op": "Operator",
    "kernel": "Kernel",
    "gpu_memcpy": "Memcpy",
    "gpu_memset": "Memset",
    "cuda_runtime": "Runtime",
    "python_function": "Python function",
    "user_annotation": "User Annotation",
    "ac2g": "async",
}
Rows = list[tuple[int, str | None, str | None]]


def read(text: bytes) -> tuple[ReadTrace, list[tuple[int, str | None, str | None]]]:
    """Ingest a file with this text, and return the trace and (event_id, name, phase) of each row."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "t.json"
        path.write_bytes(text)
        trace = load_events(ReadRequest(path, Path(folder)))
        assert isinstance(trace, ReadTrace)
        table = parquet.read_table(Path(folder) / f"{trace.trace_id}.parquet", columns=["event_id", "name", "ph"])
    return trace, list(zip(*(table.column(name).to_pylist() for name in ("event_id", "name", "ph")), strict=True))


def positions(events: list[Any]) -> Rows:
    """Return position, name and phase as Python's json parses them, with None for entries that are not objects."""
    known = ((e.get("name"), e.get("ph")) if isinstance(e, dict) else (None, None) for e in events)
    return [(i, *values) for i, values in enumerate(known)]


def events_in(path: Path) -> list[Any]:
    raw = path.read_bytes()
    gc.disable()  # the collector would scan all objects repeatedly
    content = json.loads(isal_zlib.decompress(raw, 31) if path.suffix == ".gz" else raw, strict=False)
    gc.enable()
    return content if isinstance(content, list) else content["traceEvents"]


@contextmanager
def pieces_of(size: int, tail: int) -> Iterator[None]:
    """Cut the array into pieces of `size` bytes, and leave at least `tail` bytes for the last piece."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "PIECE_BYTES", size)
        patch.setattr(segments, "TAIL_BYTES", tail)
        yield


def respelled(events: list[Any], seed: int) -> list[Any]:
    """Return the same events, about half of them with the category's other spelling, and some without a category."""
    choice = random.Random(seed)
    other = {**SPELLINGS, **{old: new for new, old in SPELLINGS.items()}}
    changed = [dict(e) if isinstance(e, dict) else e for e in events]
    for event in changed:
        if isinstance(event, dict) and choice.random() < 0.5 and event.get("cat") in other:
            event["cat"] = other[event["cat"]]
        elif isinstance(event, dict) and choice.random() < 0.1:
            event.pop("cat", None)
    return changed


DIALECTS = (
    *("dialects/begin_end_pairs_huge_tid.json", "critical_path/alexnet.json.gz", "single/mi250_minitoy.json.gz"),
    *("dialects/v100_2021.json.gz", "dialects/v100_2021_top_level_array.json.gz"),
)


@pytest.mark.parametrize("name", first_of(DIALECTS, 1))
def test_spellings_may_be_mixed_in_every_dialect(shared: Path, name: str) -> None:
    events = respelled(events_in(shared / "traces" / name)[:3_000], 7)
    for text in (json.dumps({"traceEvents": events, "traceName": "x"}), json.dumps(events)):
        trace, rows = read(text.encode())
        assert rows == positions(events)
        assert trace.status == "ok"


def test_spellings_may_be_mixed_in_a_synthetic_capture(tmp_path: Path) -> None:
    (path,) = write_capture(CaptureSpec(ranks=1, steps=3), tmp_path).paths
    events = respelled(events_in(path), 3)
    spelled = {event.get("cat") for event in events}
    assert len({cat for cat in SPELLINGS if {cat, SPELLINGS[cat]} <= spelled}) >= 3
    with pieces_of(20_000, 1_000):
        assert read(json.dumps({"traceEvents": events}).encode())[1] == positions(events)


def _listed() -> list[str]:
    listing = SHARED / "traces" / "FILES.tsv"
    lines = [line.split("\t") for line in listing.read_text().splitlines()[1:]] if listing.is_file() else []
    other = ("execution_trace", "meta-", "result-", "ms-", "mw-", "trace-ST")
    documents = (cells for cells in lines if cells[0].endswith((".json", ".json.gz")))  # files with a traceEvents array
    names = [cells[0] for cells in documents if cells[5] and not any(o in cells[0] for o in other)]
    # Keep only the first rank of each capture, one recording of programs that were recorded twice, and one of two very
    # large files.
    first = {name.rpartition("/")[0]: name for name in reversed(names) if name.startswith("ranks/")}
    names = [name for name in names if first.get(name.rpartition("/")[0], name) == name]
    return [name for name in names if not name.endswith((".B.json.gz", "mi300_sd35_62mb.json.gz"))]


def _by_size(names: list[str]) -> list[Any]:
    files = {name: SHARED / "traces" / name for name in names}
    return [pytest.param(n, marks=slow_if(f.is_file() and f.stat().st_size > LARGE)) for n, f in files.items()]


@pytest.mark.parametrize("name", first_of(_by_size(_listed()) or ["reference material is not there"], 9))
def test_every_shared_trace_has_each_event_at_its_position(shared: Path, name: str) -> None:
    path = shared / "traces" / name
    with memory() as con:
        trace = load_trace(con, path)
        rows = con.execute("SELECT event_id, name, ph FROM events ORDER BY event_id").fetchall()
    assert rows == positions(events_in(path))
    assert (trace.status, trace.n_events) == ("ok", len(rows))


# -- random files ------------------------------------------------------------------------------------------------------

TEXTS = ("x", '}, {"name": "q"', "]}", "], ", "\\", "é", "a\tb\n", "[{", "😀", "NaN", "nan, inf", '"ph": "X"', "")
CATEGORIES = (*SPELLINGS, *SPELLINGS.values(), "unknown", "", None)
PIECES = ((150, 100), (400, 600), (1_000, 100), (12 << 20, 2 << 20))
values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**20) | st.floats(0, 1e6) | st.sampled_from(TEXTS),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(("name", "ts", "id", "args", "traceEvents", "a")), inner, max_size=3)
    ),
    max_leaves=6,
)
fields = st.fixed_dictionaries(
    {},
    optional={
        "ph": st.sampled_from("XBEMiCsf"),
        "cat": st.sampled_from(CATEGORIES),
        "name": st.sampled_from(TEXTS),
        "pid": st.sampled_from((1, "0", 15514734831341844875)),
        "tid": st.sampled_from((7, "stream 7")),
        "ts": st.sampled_from((1, 2.125, 1712195495505583.123, "17.5")),
        "dur": st.sampled_from((1, 0, 2.5)),
        "args": values,
    },
)
others = st.sampled_from((None, 5, "text", [1, {"name": "z"}], True, [], {}, 1.5))


@st.composite
def files(draw: st.DrawFn) -> tuple[str, list[Any]]:
    """Draw the text of a trace and its entries, of which the first is always an event."""
    choice = draw(st.randoms(use_true_random=False))
    entries = [{"ph": "X", "ts": 1}, *draw(st.lists(fields | fields | fields | others, max_size=20))]
    for entry in entries:
        if isinstance(entry, dict) and choice.random() < 0.3:  # shuffle the keys
            shuffled = choice.sample(sorted(entry.items(), key=str), len(entry))
            entry.clear()
            entry.update(shuffled)
    style = draw(st.sampled_from(({}, {"indent": 1}, {"separators": (",", ":")}, {"ensure_ascii": False})))
    array = "[" + draw(st.sampled_from((",", ",\n", " ,\n  "))).join(json.dumps(e, **style) for e in entries) + "\n]"
    if draw(st.booleans()):
        return array, entries
    before, after = ({"deviceProperties": draw(values), "x": draw(values)} for _ in "ab")
    head, tail = (json.dumps(side)[1:-1] for side in (before, {"gpus": [{"id": n} for n in range(9)], **after}))
    return f'{{{head}, "traceEvents": {array}, {tail}}}', entries


@settings(max_examples=examples(15), deadline=None)
@given(file=files(), pieces=st.sampled_from(PIECES))
def test_any_file_that_json_reads(file: tuple[str, list[Any]], pieces: tuple[int, int]) -> None:
    text, entries = file
    with pieces_of(*pieces):
        trace, rows = read(text.encode())
    assert rows == positions(entries)
    assert trace.status == "ok"  # the text is valid, wherever it is cut into pieces
    odd = sum(not isinstance(entry, dict) and entry is not None for entry in entries)
    assert sum(f.n for f in trace.findings if f.check_name == "not_an_object") == odd
    # For a duplicate key, the first value wins, and later values do not override it.
    content = json.loads(text, object_pairs_hook=lambda pairs: dict(reversed(pairs)))
    if isinstance(content, dict):
        assert trace.metadata == {key: value for key, value in content.items() if key != "traceEvents"}


GOOD = '{"ph": "X", "cat": "%s", "name": "n%d", "pid": 1, "tid": 2, "ts": 1, "dur": 1, "args": %s}'
ARGS = (
    '{"w": 1}',
    '{"name": "q"}',
    '{"l": [{"name": "x"}, {"name": "y"}]}',
    '{"a": {"name": "z", "b": [1, 2], "c": 1}}',
    '{"l": [{"ph": "fwd", "name": "x"}, {"name": "y", "ph": "bwd"}], "a": { "ph": "X"}}',
)


def added(event: bytes, member: bytes) -> bytes:
    """Return the event's text with an additional argument."""
    return event.replace(b'"args": {', b'"args": {' + member + b", ", 1)


# Changes of an event's text, whether the event is still readable, and a certain finding; the text remains one entry.
DAMAGES = {
    "nan": (lambda b: added(b, b'"v": NaN'), True, "repaired_nan"),
    "infinity": (lambda b: added(b, b'"v": [-inf, 1]'), True, "repaired_nan"),
    "control character": (lambda b: added(b, b'"v": "a\x01b"'), True, "repaired_control_character"),
    "no UTF-8": (lambda b: added(b, b'"v": "a\xff\xfeb"'), True, "repaired_utf8"),
    "quotes": (lambda b: added(b, b'"v": "say "hi" now"'), True, "repaired_quote"),
    "lone surrogate": (lambda b: added(b, b'"v": "\\ud800"'), True, "repaired_surrogate"),
    "escape": (lambda b: added(b, b'"v": "C:\\x\\d"'), True, "repaired_escape"),
    "key twice": (lambda b: b'{"name": "other", ' + b[1:], True, "repaired_duplicate_key"),
    "key twice within": (lambda b: added(b, b'"v": {"a": 1, "a": 2}'), True, "repaired_duplicate_key"),
    "comment": (lambda b: b"/* {[ */" + b, True, "repaired_comment"),
    "comma at its end": (lambda b: b[:-1] + b",}", True, "repaired_comma"),
    "key in another case": (lambda b: b'{"Name": "other", "PH": "Z", ' + b[1:], True, ""),
    "bare word": (lambda b: b.replace(b'"pid": 1', b'"pid": undefined'), True, "repaired_value"),
    "surplus comma": (lambda b: b + b",", True, "repaired_comma"),
    "surplus bracket": (lambda b: b + b"]", True, "repaired_bracket"),
    "surplus brace": (lambda b: b + b"}", True, "repaired_bracket"),
    "deep": (lambda b: added(b, b'"v": ' + b"[" * 100 + b"]" * 100), True, ""),
    "garbage": (lambda b: b"@@@ what", False, "unreadable_event"),
    "no colon": (lambda b: b.replace(b'"pid":', b'"pid"'), False, ""),
    "cut after a key": (lambda b: b[: b.index(b'"pid"') + 5], False, "unreadable_event"),
    "cut in a string": (lambda b: b[: b.index(b'"name"') + 10], False, "unreadable_event"),
    "cut before the end": (lambda b: b[:-1], False, "unreadable_event"),
}


@settings(max_examples=examples(15), deadline=None)
@given(data=st.data(), pieces=st.sampled_from(PIECES))
def test_a_broken_event_moves_no_other(data: st.DataObject, pieces: tuple[int, int]) -> None:
    n = data.draw(st.integers(2, 12))
    parts = [
        (GOOD % (data.draw(st.sampled_from(("Operator", "cpu_op"))), i, data.draw(st.sampled_from(ARGS)))).encode()
        for i in range(n)
    ]
    # The last event is complete, because a truncated last event would be the end of the file.
    broken = data.draw(st.dictionaries(st.integers(0, n - 2), st.sampled_from(sorted(DAMAGES)), min_size=1, max_size=3))
    lost = {i for i, damage in broken.items() if not DAMAGES[damage][1]}
    # Unreadable text up to the next event counts as one entry, because the number of intended entries is unknown.
    assume(not any(damage == "garbage" and i - 1 in lost for i, damage in broken.items()))
    for i, damage in broken.items():
        parts[i] = DAMAGES[damage][0](parts[i])
    is_array = data.draw(st.booleans())
    head, tail = (b"[", b"]") if is_array else (b'{"a": [{"id": 1}], "traceEvents": [', b'], "traceName": "x"}')
    with pieces_of(*pieces):
        trace, rows = read(head + b",\n".join(parts) + tail)
    assert [row for row in rows if row[0] not in lost] == [(i, f"n{i}", "X") for i in range(n) if i not in lost]
    assert trace.n_events == len(rows) == n
    assert trace.metadata.get("traceName") == (None if is_array else "x")
    assert sum(f.n for f in trace.findings if f.check_name == "unreadable_event") <= len(lost)
    if damages := {DAMAGES[damage][2] for damage in broken.values()} - {""}:
        assert damages <= {f.check_name for f in trace.findings}


def test_after_an_unreadable_event_the_next_may_begin_right_behind_a_comment() -> None:
    events = [(GOOD % ("cpu_op", i, "{}")).encode() for i in range(4)]
    events[1] = DAMAGES["no colon"][0](events[1])
    events[2] = DAMAGES["comment"][0](events[2])
    trace, rows = read(b"[" + b",\n".join(events) + b"]")
    assert [row for row in rows if row[0] != 1] == [(i, f"n{i}", "X") for i in (0, 2, 3)]
    assert {f.check_name: f.n for f in trace.findings} == {"unreadable_event": 1, "repaired_comment": 1}


NESTED = {"ph": "X", "name": "outer", "ts": 1, "args": {"l": [{"name": f"inner {i}"} for i in range(40)]}}


def test_a_cut_inside_of_an_event_is_no_flaw_of_the_file() -> None:
    events = [NESTED, {"ph": "X", "name": "next", "ts": 2}] * 5
    with pieces_of(300, 100):
        trace, rows = read(json.dumps({"traceEvents": events}).encode())
    assert (rows, trace.findings) == (positions(events), ())


PHASES = {"ph": "X", "name": "outer", "args": {"l": [{"ph": "fwd", "ms": i} for i in range(20)], "a": {"ph": "bwd"}}}


@pytest.mark.parametrize(("value", "counts"), [("1", {}), ("NaN", {"repaired_nan": 5})])
def test_objects_with_a_phase_inside_of_an_event_are_no_events(value: str, counts: dict[str, int]) -> None:
    events = [{"ph": "X", "name": "previous"}, PHASES, {"ph": "X", "name": "next"}] * 5
    text = json.dumps({"traceEvents": events}).replace('"args": {', f'"args": {{"loss": {value}, ')
    for size in (50_000, 1_000, 700):
        with pieces_of(size, 100):
            trace, rows = read(text.encode())
        assert (rows, {f.check_name: f.n for f in trace.findings}) == (positions(events), counts)


def test_events_after_a_cut_event_are_not_its_arguments() -> None:
    events = [{"ph": "X", "name": f"n{i}", "ts": i, "args": {"l": [1, 2]}} for i in range(60)]
    text = json.dumps(events)
    for end in (", 2]}}", "]}}", "}}", "}"):
        cut = text.replace(end, "", 9).replace("[1{", "[1, {")
        for size in (50_000, 1_000):
            with pieces_of(size, 100):
                _, rows = read(cut.encode())
            assert [row[1:] for row in rows[9:]] == [row[1:] for row in positions(events)[9:]]


@pytest.mark.slow  # tests above cover random cuts, also in such text
def test_a_cut_behind_bytes_that_are_no_text() -> None:
    events = [{"ph": "X", "name": "\u00e9" * 90, "ts": 1}, NESTED, {"ph": "X", "name": "next", "ts": 2}]
    with pieces_of(700, 100):
        trace, rows = read(json.dumps(events, ensure_ascii=False).encode("latin-1"))
    assert [row[1:] for row in rows] == [("\ufffd" * 90, "X"), ("outer", "X"), ("next", "X")]
    assert {f.check_name: f.n for f in trace.findings} == {"repaired_utf8": 90}


def test_the_array_ends_at_its_own_bracket() -> None:
    """The array does not end at a bracket of the metadata.

    It also does not end at a bracket that matches only if quotes are read as text.
    """
    entries = [{"ph": "X", "ts": 1}, [1, {"name": "z"}], "text"]
    after = {"gpus": [{"id": 0}, {"id": 1}], "traceName": "x"}
    trace, rows = read(json.dumps({"traceEvents": entries, **after}).encode())
    assert (rows, trace.status, trace.metadata) == (positions(entries), "ok", after)


@pytest.mark.slow  # a test above covers random metadata
def test_metadata_behind_the_array_may_be_longer_than_a_piece() -> None:
    events = [{"ph": "X", "cat": "cpu_op", "name": f"n{i}", "ts": i, "dur": 1} for i in range(12)]
    for n in (1, 3, 12):
        after = {"gpus": [{"id": i, "name": "gpu"} for i in range(200)], "baseTimeNanoseconds": 5, "traceName": "x"}
        with pieces_of(400, 100):
            trace, rows = read(json.dumps({"traceEvents": events[:n], **after}).encode())
        assert rows == positions(events[:n])
        assert (trace.metadata, trace.findings, trace.trace_start_ns) == (after, (), 5)


def test_an_event_may_be_larger_than_a_read_buffer() -> None:
    events = [{"ph": "X", "name": f"n{i}", "args": {"v": "x" * 1_200_000 * (i == 2)}} for i in range(5)]
    trace, rows = read(json.dumps(respelled(events, 1)).encode())
    assert (rows, trace.findings) == (positions(events), ())


@pytest.mark.parametrize("every", first_of([4_000, 1], 1))
def test_a_repair_costs_no_more_in_a_longer_piece(every: int) -> None:
    """Repairs would take half a minute if each entry's position were counted from the start of the piece."""
    name = b"x" * 3_000
    events = [b'{"ph": "X", "name": "%s", "ts": 1, "args": {"v": 1.5}}' % name] * 4_000
    events[::every] = [event.replace(b"1.5", b"NaN") for event in events[::every]]
    counter, began = FindingCounter(), time.process_time()
    assert len(read_stretch(b",\n".join(events) + b"]", True, 0, counter).entries) == 4_000
    assert counter.counts == {"repaired_nan": 4_000 // every}
    assert time.process_time() - began < 5


@pytest.mark.slow  # takes more memory than the other tests
def test_begin_events_are_completed_in_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Completing begin events keeps the rows in file order, and takes less memory than the file's events."""
    counts = events_file._counts

    def in_little_memory(con: duckdb.DuckDBPyConnection, catalog: Catalog) -> dict[str, Any]:
        con.execute("SET threads = 1")
        con.execute("SET memory_limit = '14MB'")
        return counts(con, catalog)

    monkeypatch.setattr(events_file, "_counts", in_little_memory)  # called before and after the completion
    monkeypatch.setattr(events_file, "_idle", [])  # no other file may reuse this connection, which DuckDB 2 would allow
    marks = [{"ph": "BE"[i % 2], "name": f"n{i}", "pid": 1, "tid": i // 2 % 8, "ts": i} for i in range(60_000)]
    path = tmp_path / "t.json"
    path.write_text(json.dumps([{**mark, "args": {"v": f"{i:0400}"}} for i, mark in enumerate(marks)]))
    with pieces_of(1 << 20, 1 << 20):
        trace = load_events(ReadRequest(path, tmp_path))
    table = parquet.read_table(tmp_path / f"{trace.trace_id}.parquet")
    assert table.column("event_id").to_pylist() == list(range(60_000))
    assert table.column("name").to_pylist() == [mark["name"] for mark in marks]
    assert table.column("duration_ns").to_pylist() == [1000, None] * 30_000
