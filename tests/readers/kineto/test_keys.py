"""Every key of every entry is read, wherever in the file it first occurs.

The reader infers nothing from earlier entries.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from pipelines.readers.kineto import ReadRequest, ReadTrace, reader
from pipelines.readers.kineto.events_file import load_events
from tests.effort import first_of
from tests.readers.kineto.test_event_ids import pieces_of

N = 400
PLAIN = {"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 2, "ts": 1, "dur": 2}


def rows_of(folder: Path, entries: list[Any] | str) -> list[dict[str, Any]]:
    text = entries if isinstance(entries, str) else json.dumps(entries)
    (folder / "trace.json").write_text(f'{{"traceEvents": {text}}}')
    staged = load_events(ReadRequest(folder / "trace.json", folder))
    assert isinstance(staged, ReadTrace) and staged.status == "ok"
    return parquet.read_table(folder / f"{staged.trace_id}.parquet").to_pylist()


def some(key: str, value: Any, every: int) -> list[dict[str, Any]]:
    """Return entries of which every `every`-th has a key, but not the first; with `every` N, only the last entry."""
    return [{**PLAIN, **({key: value} if i % every == every - 1 else {})} for i in range(N)]


@pytest.mark.parametrize("every", first_of([N, 10, 1], 1))
def test_arguments_that_few_entries_have_are_read(tmp_path: Path, every: int) -> None:
    rows = rows_of(tmp_path, some("args", {"stream": 7, "correlation": 3, "bytes": 5}, every))
    assert [row["args"] is not None for row in rows] == [i % every == every - 1 for i in range(N)]
    read = {(row["stream"], row["correlation"], row["bytes"]) for row in rows if row["args"]}
    assert read == {(7, 3, 5)} and sum(row["stream"] is not None for row in rows) == N // every


@pytest.mark.parametrize("first", first_of([None, {}, [], "text", 0], 2))
def test_what_the_first_entry_has_as_arguments_decides_nothing(tmp_path: Path, first: Any) -> None:
    """The arguments of the first entry do not decide how later arguments are read.

    After a null, DuckDB 2.0 would infer NULL for all entries. After an object, DuckDB 1.5 would infer objects for all.
    """
    rows = rows_of(tmp_path, [{**PLAIN, "args": first}, *some("args", {"stream": 7}, 2)])
    assert sum(row["stream"] == 7 for row in rows) == N // 2
    assert rows[0]["args"] == (None if first is None else json.dumps(first))


def test_every_known_key_in_one_entry_of_ten_and_in_the_last(tmp_path: Path) -> None:
    texts = ("id", "bp", "s", "tts", "tdur", "cname", "sf")
    rows = rows_of(tmp_path, [{**PLAIN, **({key: "x" for key in texts} if i % 10 == 9 else {})} for i in range(N)])
    ends = {i for i in range(N) if i % 10 == 9}
    assert {i for i, row in enumerate(rows) if (row["flow_id"], row["bp"], row["scope"]) == ("x", "x", "x")} == ends
    assert {i for i, row in enumerate(rows) if row["extra"]} == ends
    assert {json.loads(row["extra"])["cname"] for row in rows if row["extra"]} == {"x"}
    assert rows_of(tmp_path, some("attr", {"b": 1}, N))[-1]["args"] == '{"b":1}'
    assert json.loads(rows_of(tmp_path, some("stack", [1], N))[-1]["extra"])["stack"] == [1]


@pytest.mark.parametrize("key", first_of(["Args", "zzz", "", "NAME", "Name", "arg", "args "], 3))
@pytest.mark.parametrize("every", first_of([N, 10], 1))
def test_an_unknown_key_is_kept_whichever_entries_have_it(tmp_path: Path, key: str, every: int) -> None:
    """An unknown key is kept even if it differs from a known key only in case.

    DuckDB's column names are case-insensitive.
    """
    rows = rows_of(tmp_path, some(key, 5, every))
    assert [i for i, row in enumerate(rows) if row["extra"]] == [*range(every - 1, N, every)]
    assert json.loads(rows[-1]["extra"])[key] == 5 and {row["name"] for row in rows} == {"a"}


def test_a_key_is_what_its_escapes_say(tmp_path: Path) -> None:
    entry = json.dumps(PLAIN)[:-1]
    rows = rows_of(tmp_path, f'[{entry}}}, {entry}, "\\u0061rgs": {{"stream": 7}}}}, {entry}, "\\u0041rgs": 1}}]')
    assert (rows[1]["stream"], rows[1]["extra"]) == (7, None)
    assert json.loads(rows[2]["extra"])["Args"] == 1


def test_an_unknown_key_in_one_piece_of_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pieces before the unknown key are read by their known keys. The arguments of all pieces are complete."""
    read: list[str] = []
    for name in ("exact_times", "all_keys"):
        of_piece = getattr(reader, name)
        monkeypatch.setattr(reader, name, lambda *v, name=name, of=of_piece, **m: read.append(name) or of(*v, **m))
    entries = some("args", {"stream": 7}, 1)
    entries[N // 2]["zzz"] = {"a": 1}
    with pieces_of(4000, 500):
        rows = rows_of(tmp_path, entries)
    assert {row["stream"] for row in rows} == {7}
    assert json.loads(rows[N // 2]["extra"])["zzz"] == {"a": 1}
    assert {"exact_times", "all_keys"} <= {*read}


@pytest.mark.parametrize("entries", first_of([[None, {}, PLAIN], [{"args": None}, PLAIN], [], [None], [{}]], 2))
def test_entries_without_keys(tmp_path: Path, entries: list[Any]) -> None:
    (tmp_path / "x").mkdir()
    rows = rows_of(tmp_path, [*entries, PLAIN])
    assert [row["name"] for row in rows] == [(entry or {}).get("name") for entry in (*entries, PLAIN)]
