"""A file contains one document, and no part of it is silently ignored: joined files, duplicate keys, unknown keys."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from pipelines.readers.kineto import ReadRequest, ReadTrace, TraceRejected, reader
from pipelines.readers.kineto.events_file import load_events
from tests.effort import examples, first_of
from tests.readers.kineto.test_event_ids import pieces_of
from tests.readers.kineto.test_malformed import GOOD, stage, trace


def document(rank: int, n: int = 30, array: bool = False, more: str = "") -> bytes:
    events = [
        {"ph": "X", "name": f"r{rank}e{i}", "pid": 1, "tid": 1, "ts": i, "dur": 1, "args": {"l": [{"a": i}]}}
        for i in range(n)
    ]
    text = (
        json.dumps(events)
        if array
        else json.dumps({"schemaVersion": 1, "traceEvents": events, "distributedInfo": {"rank": rank}})
    )
    return (text if array else text[:-1] + more + "}").encode()


@pytest.mark.parametrize("pieces", first_of([((700, 300),), ((12 << 20, 2 << 20),)], 1))
@pytest.mark.parametrize("between", first_of([b" \n\n", b""], 1))
@pytest.mark.parametrize("array", first_of([False, True], 1))
def test_two_traces_in_one_file_are_refused(
    tmp_path: Path, pieces: tuple[int, int], between: bytes, array: bool
) -> None:
    for second in (document(1, array=array), document(1, 1), b"[]", b"{}"):
        with pieces_of(*pieces), pytest.raises(TraceRejected, match="two files in one"):
            stage(tmp_path, document(0, array=array) + between + second)


def test_two_packed_traces_in_one_file_are_refused(tmp_path: Path) -> None:
    packed = gzip.compress(document(0)) + gzip.compress(document(1))
    with pytest.raises(TraceRejected, match=r"two files in one; give them separately$"):  # without "is not a trace"
        stage(tmp_path, packed, "both.json.gz")
    whole = document(0)
    _, findings, rows, _ = stage(tmp_path, gzip.compress(whole[:900]) + gzip.compress(whole[900:]), "members.json.gz")
    assert (len(rows), findings) == (30, {})


def test_what_follows_the_trace_is_counted(tmp_path: Path) -> None:
    staged, findings, rows, _ = stage(tmp_path, document(0) + b" and more")
    assert (len(rows), findings) == (30, {"trailing_text": 1})
    assert staged.status == "ok"


@pytest.mark.parametrize("pieces", first_of([((700, 300),), ((12 << 20, 2 << 20),)], 1))
def test_a_second_event_array_is_counted(tmp_path: Path, pieces: tuple[int, int]) -> None:
    more = ', "traceEvents": [{"ph": "X", "name": "late", "ts": 1}], "traceName": "x"'
    with pieces_of(*pieces):
        staged, findings, rows, _ = stage(tmp_path, document(0, more=more))
    assert (len(rows), findings, staged.status) == (30, {"second_event_array": 1}, "partial")
    assert staged.metadata == {"schemaVersion": 1, "distributedInfo": {"rank": 0}, "traceName": "x"}


def test_metadata_that_stands_twice_overrides_nothing(tmp_path: Path) -> None:
    text = document(0, more=', "schemaVersion": 7, "distributedInfo": {"rank": 1}, "x": {"k": 1, "k": 2}')
    staged, findings, _, _ = stage(tmp_path, text)
    assert staged.metadata == {"schemaVersion": 1, "distributedInfo": {"rank": 0}, "x": {"k": 1}}
    assert findings == {"duplicate_metadata_key": 3}


# Text that viewers accept but JSON does not allow: before and after the change, the only finding, and the event's
# arguments and extra keys afterwards.
LOOSE: dict[str, tuple[str, str, str, dict, dict]] = {
    "comment at the beginning": ('{"schema', '/* {[ */ // "\n{"schema', "repaired_comment", {}, {}),
    "key twice in another": ('"args": {}', '"args": {}, "attr": {"a": 1, "a": 2}', "repaired_duplicate_key", {}, {"a": 2}),
    "comma after the last event": ("\n]", ",\n]", "repaired_comma", {}, {}),
    "white space of another kind": ('"args": {}', '"args":\x0b{}', "repaired_control_character", {}, {}),
    "key twice within": (
        '"args": {}', '"args": {"a": [{"b": 1, "b": {"c": 2}}]}', "repaired_duplicate_key", {"a": [{"b": {"c": 2}}]}, {},
    ),
    "comma at the end of arguments": ('"args": {}', '"args": {"a": 1, }', "repaired_comma", {"a": 1}, {}),
    "comma at the end of an event": ('"args": {}', '"args": {},', "repaired_comma", {}, {}),
    "comment before a key": ('"args": {}', '/* "x": { */ "args": {"a": 1}', "repaired_comment", {"a": 1}, {}),
    "comment after the array": (', "traceName"', ', /* " */ "traceName"', "repaired_comment", {}, {}),
    "key twice": (
        '"args": {}', '"args": {"a": 1, "stream": 1, "\\u0073tream": 7}', "repaired_duplicate_key",
        {"a": 1, "stream": 7}, {},
    ),
    "key twice in an unknown one": (
        '"args": {}', '"args": {}, "zz": {"a": {"a": 1, "a": 2}}', "repaired_duplicate_key", {}, {"a": {"a": 2}},
    ),
    "comma at the end of a list": ('"args": {}', '"args": {"a": [1,\n]}', "repaired_comma", {"a": [1]}, {}),
    "comma at the end": ('"t.json"}', '"t.json" ,}', "repaired_comma", {}, {}),
    "comment in arguments": ('"args": {}', '"args": {"a": 1 // "b": 2}\n}', "repaired_comment", {"a": 1}, {}),
    "comment between entries": ("[\n{", '[ // the first: {"ph": "X"},\n {', "repaired_comment", {}, {}),
    "comment at the end of the array": ("\n]", "\n/* done ] } */]", "repaired_comment", {}, {}),
    "comment in the metadata": ('"schemaVersion"', '/* " */ "schemaVersion"', "repaired_comment", {}, {}),
    "comment at the end": ('"t.json"}', '"t.json"} // {}', "repaired_comment", {}, {}),
}  # fmt: skip


@pytest.mark.parametrize("pieces", first_of([((900, 400),), ((12 << 20, 2 << 20),)], 1))
@pytest.mark.parametrize("name", first_of(LOOSE, 4))
def test_what_viewers_read_beyond_json_is_read_and_found(tmp_path: Path, name: str, pieces: tuple[int, int]) -> None:
    old, new, finding, args, more = LOOSE[name]
    with pieces_of(*pieces):
        text = trace(*[GOOD] * 9).replace(old.encode(), new.encode(), 1)
        staged, findings, rows, con = stage(tmp_path, text)
    assert (len(rows), {row[1:] for row in rows}) == (9, {("aten::add", 10_000, 5_000)})
    assert staged.metadata == {"schemaVersion": 1, "traceName": "t.json"}
    assert (findings, staged.status) == ({finding: 2 if name == "comment at the beginning" else 1}, "repaired")
    query = "SELECT args, json_extract(extra, ['$.attr', '$.zz']) FROM events LIMIT 1"
    ((its_args, extra),) = con.execute(query).fetchall()
    assert json.loads(its_args) == args
    assert [json.loads(value) for value in extra or [] if value] == ([more] if more else [])


@pytest.mark.slow  # tests above and test_event_ids.py cover duplicate keys
def test_a_key_twice_is_found_behind_a_piece_with_other_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both duplicate keys are found, in a piece in the middle and in the last piece."""
    pieces, looked = [], reader.has_duplicate_key
    monkeypatch.setattr(
        reader, "has_duplicate_key", lambda table, known: pieces.append(looked(table, known)) or pieces[-1]
    )
    twice = GOOD.replace(b'"args": {}', b'"args": {"a": 1, "a": 2}')
    with pieces_of(300, 150):
        _, findings, rows, _ = stage(tmp_path, trace(*[GOOD] * 24, twice, *[GOOD] * 24, twice))
    assert (findings, len(rows)) == ({"repaired_duplicate_key": 2}, 50)
    assert False in pieces and pieces.count(True) > 1  # a piece that is read in another way is checked again


def test_text_that_only_looks_like_this_is_untouched(tmp_path: Path) -> None:
    """Slashes, commas before brackets, and braces in strings are not repaired.

    Equal keys in different objects are not duplicate keys.
    """
    texts = ["http://x/*y*/", "a,]", "f<1, >, }", "::{lambda()#1}", '{"a": {"a": 1}}']
    args = {"a": texts, "b": {"a": 1, "b": {"a": 1}}, "c": [{"a": 1}, {"a": 2}]}
    event = GOOD.replace(b'"args": {}', b'"args": ' + json.dumps(args).encode())
    staged, findings, _, con = stage(tmp_path, trace(event, GOOD))
    assert (findings, staged.status) == ({}, "ok")
    assert json.loads(con.execute("SELECT args FROM events WHERE event_id = 0").fetchall()[0][0]) == args


@pytest.mark.slow  # test_keys.py; a test above covers repaired events
def test_unknown_keys_of_events_are_kept(tmp_path: Path) -> None:
    events = [
        {
            "ph": "X",
            "name": "a",
            "ts": 1,
            "dur": 1,
            "args": {"v": 1},
            "Collective": {"a": [1, "x"]},
            "q\"/~'": None,
            "PH": "Z",
        },
        {
            "ph": "X",
            "name": "b",
            "ts": 2,
            "dur": 1,
            "tts": 5,
            "stack": [{"x": 1}],
            "attr": {"b": 1},
            "args": {},
            "k": "}",
        },
        {"ph": "X", "name": "c", "ts": 3, "dur": 1},
    ]
    for beside in (GOOD, GOOD.replace(b'"args": {}', b'"args": {"v": NaN}')):  # read by DuckDB, and repaired
        _, findings, _, con = stage(tmp_path, trace(*(json.dumps(event).encode() for event in events), beside))
        extras = [
            text and json.loads(text)
            for (text,) in con.execute("SELECT extra FROM events ORDER BY event_id").fetchall()
        ]
        nothing = dict.fromkeys(("tts", "tdur", "cname", "sf", "stack"))
        assert extras == [
            {**nothing, "Collective": {"a": [1, "x"]}, "q\"/~'": None, "PH": "Z"},
            {**nothing, "tts": "5", "stack": [{"x": 1}], "attr": {"b": 1}, "k": "}"},
            None,
            None,
        ]
        assert set(findings) <= {"repaired_nan"}


@pytest.mark.parametrize(
    ("key", "word"),
    first_of(
        [("cat", "NaN"), ("ts", "-Infinity"), ("args", "[NaN]"), ("cat", "-Infinity"), ("ts", "NaN")]
        + [("args", '{"a": Infinity}')]
        + [(key, word) for key in ("ph", "bp", "cname", "dur", "zz", "args") for word in ("NaN", "-Infinity")]
        + [(key, word) for key in ("attr", "stack", "zz") for word in ("[NaN]", '{"a": Infinity}')],
        3,
    ),
)
def test_a_bare_word_anywhere_is_counted(tmp_path: Path, key: str, word: str) -> None:
    event = (
        GOOD.replace(b'"args": {}, ', b"")[:-1].replace(f'"{key}"'.encode(), b'"_"') + f', "{key}": {word}}}'.encode()
    )
    _, findings, _, con = stage(tmp_path, trace(GOOD, event))
    assert findings.get("repaired_nan") == 1
    text = str(con.execute("SELECT * FROM events WHERE event_id = 1").fetchall())
    assert "NaN" not in text and "Infinity" not in text


@pytest.mark.parametrize(
    "member", first_of(['"ts": 1.5', '"dur": "~1.5"', '"ts": "1.5"', '"ts": "~5"', '"ts": "~~1.5"'], 1)
)
def test_arguments_named_as_times_stay_as_they_are(tmp_path: Path, member: str) -> None:
    event = GOOD.replace(b'"args": {}', f'"args": {{{member}, "l": [{{{member}}}]}}'.encode())
    for beside in (
        GOOD,
        GOOD.replace(b'"ts": 10', b'"ts": 1234567890.1230'),
        GOOD.replace(b'"args": {}', b'"args": {"v": NaN}'),
    ):
        _, findings, rows, con = stage(tmp_path, trace(event, beside))
        ((args,),) = con.execute("SELECT args FROM events WHERE event_id = 0").fetchall()
        assert json.loads(args) == json.loads(f'{{{member}, "l": [{{{member}}}]}}')
        assert rows[0][2:] == (10_000, 5_000) and set(findings) <= {"repaired_nan"}


def table_of(text: bytes) -> tuple[Any, ...]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "t.json"
        path.write_bytes(text)
        read = load_events(ReadRequest(path, Path(folder)))
        assert isinstance(read, ReadTrace)
        rows = parquet.read_table(Path(folder) / f"{read.trace_id}.parquet").to_pylist()
    for row in rows:
        row["args"], row["extra"] = (text and json.loads(text) for text in (row["args"], row["extra"]))
    return rows, read.findings, read.metadata, read.status


nested = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.sampled_from((1.5, "x", "~5", "NaN", "1.5", "}", "é")),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(("ts", "dur", "a", "name")), inner, max_size=2)
    ),
    max_leaves=4,
)
events = st.fixed_dictionaries(
    {
        "ph": st.sampled_from("XBEi"),
        "ts": st.sampled_from((1, 2.125, "~5", "0x10", "17.5", "1e3", 9e15, 1712195495505583.123, "", None)),
    },
    optional={
        **{key: nested for key in ("args", "attr", "stack", "zz", "PH", "a/b")},
        "dur": st.sampled_from((1, "~2", 9e15, -3, "0x1", 2.0005)),
        "cat": st.sampled_from(("Kernel", "NaN", "x")),
        "tts": st.sampled_from((1, "2")),
    },
)


@pytest.mark.slow  # 5 s
@settings(max_examples=examples(12), deadline=None)
@given(st.lists(events, min_size=1, max_size=6))
def test_both_readers_give_the_same(trace_events: list[dict]) -> None:
    text = json.dumps({"traceEvents": trace_events, "traceName": "x"}).encode()
    plain = table_of(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader._Pieces, "_plainly", lambda *_: None)
        assert table_of(text) == plain


@pytest.mark.parametrize("no_space", first_of(["\x00", "\x0b", "\x0c"], 1))
@pytest.mark.parametrize("where", ["[@{0}, {0}]", "[{0}@, {0}]", "[{0},@ {0}]", "[{0}, {0}@]", "[{0}, {0}]@"])
def test_what_is_no_space_in_json_is_left_out_and_found(tmp_path: Path, no_space: str, where: str) -> None:
    """Characters that only DuckDB accepts as whitespace between entries are removed and reported."""
    event = '{"ph": "X", "name": "a", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": 1, "dur": 2}'
    path = tmp_path / "a.json"
    path.write_text('{"traceEvents": ' + where.replace("{0}", event).replace("@", no_space) + ', "a": 1}')
    trace = load_events(ReadRequest(path, tmp_path))
    assert isinstance(trace, ReadTrace)
    assert (trace.n_events, trace.status) == (2, "repaired")
    assert "repaired_control_character" in [finding.check_name for finding in trace.findings]


@pytest.mark.parametrize("more", ["", '"unknown": 1, '])
def test_an_object_where_a_name_should_be_is_its_text(tmp_path: Path, more: str) -> None:
    """The stored text of an object is its text in the file.

    If a double cannot hold some times, times are quoted while reading, but the stored text does not contain these
    quotes.
    """
    inner = '{"ts":1700000000000000.123456,"dur":2.5}'
    path = tmp_path / "a.json"
    event = '{"ph": "X", "name": NAME, "tid": {"ts":"~1.5"}, "ts": 1700000000000000.123456, "dur": 2}'
    path.write_text(f"[{event.replace('NAME', inner).replace('{', '{' + more, 1)}]")
    read = load_events(ReadRequest(path, tmp_path))
    rows = parquet.read_table(tmp_path / f"{read.trace_id}.parquet", columns=["name", "tid"]).to_pylist()
    assert rows == [{"name": inner, "tid": '{"ts":"~1.5"}'}]
