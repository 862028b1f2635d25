"""A bad file never stops a good one: each bad file becomes its own row, and the others are ingested."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pipelines.readers.inputs.events
import pipelines.readers.kineto.events_file
from pipelines.base.paths import UnusablePath, path_text, text_path
from pipelines.lake import Lake
from pipelines.readers.ingest import ingest
from pipelines.readers.inputs import EventInput
from pipelines.readers.origin import describe_origin
from tests.effort import first_of
from tests.lake.world import write_trace

ODD_BYTES = os.fsdecode(b"caf\xe9")


def taken(folder: Path, lake: Lake) -> tuple[dict[str, str], list[tuple], list[tuple]]:
    """Return the status by file name, and the rows of `traces` and of `rejects`."""
    report = ingest([folder], lake)
    with lake.connect(["traces", "rejects"]) as con:
        traces = con.execute("SELECT path, rank, world_size, trace_start_ns FROM traces ORDER BY path").fetchall()
        known = ("rejects",) in con.execute("SHOW TABLES").fetchall()
        rejects = con.execute("SELECT path, reason FROM rejects ORDER BY path").fetchall() if known else []
    return {text_path(row.path).name: row.status for row in report.rows}, traces, rejects


def checks(lake: Lake) -> dict[str, int]:
    with lake.connect(["findings"]) as con:
        return dict(con.execute("SELECT check_name, sum(n)::INT FROM findings GROUP BY 1").fetchall())


NUMBERS = {
    "rank infinite": '"distributedInfo": {"rank": 1e999, "world_size": 4}',
    "rank 2^63": '"distributedInfo": {"rank": 9223372036854775808, "world_size": 4}',
    "rank of 5,000 digits": f'"distributedInfo": {{"rank": {"9" * 5000}, "world_size": 4}}',
    "rank of 25 digits": f'"distributedInfo": {{"rank": {"9" * 25}, "world_size": 4}}',
    "rank is text": '"distributedInfo": {"rank": "first", "world_size": 4}',
    "base infinite": '"baseTimeNanoseconds": 1e999, "distributedInfo": {"world_size": 4}',
    "base of 24 digits": f'"baseTimeNanoseconds": 1{"0" * 23}, "distributedInfo": {{"world_size": 4}}',
    "base at the edge": '"baseTimeNanoseconds": 9223372036854775000, "distributedInfo": {"world_size": 4}',
    "base is a list": '"baseTimeNanoseconds": [1], "distributedInfo": {"world_size": 4}',
}


@pytest.mark.slow  # 6 s
def test_a_number_that_does_not_fit_is_left_out_and_counted(tmp_path: Path) -> None:
    """A number that does not fit is omitted and counted, whether it is before or after the events.

    The good files of the batch are ingested, and the metadata remains valid JSON.
    """
    write_trace(tmp_path / "in" / "good.json", 1)
    files = {}
    for at, (what, metadata) in enumerate(NUMBERS.items()):
        for behind in (False, True):
            bad = write_trace(tmp_path / "in" / f"bad {at} {behind}.json", 2 + 2 * at + behind)
            files[str(bad)] = what
            text = bad.read_text()
            bad.write_text(text[:-1] + ", " + metadata + "}" if behind else "{" + metadata + ", " + text[1:])
    lake = Lake(tmp_path / "lake")
    status, _, rejects = taken(tmp_path / "in", lake)
    assert (set(status.values()), len(status), rejects) == ({"ok"}, len(files) + 1, [])
    with lake.connect(["traces", "findings"]) as con:
        rows = con.execute(
            "SELECT path, rank, world_size, trace_start_ns < 100_000, json_valid(metadata), check_name, n "
            "FROM traces LEFT JOIN findings USING (trace_id) WHERE path NOT LIKE '%good.json'"
        ).fetchall()
    expected = {what: (None, 4, True, True, "unusable_number", 1) for what in NUMBERS}
    assert {files[path]: tuple(values) for path, *values in rows} == expected
    assert len(rows) == len(files)


def test_a_rank_in_the_name_that_does_not_fit(tmp_path: Path) -> None:
    write_trace(tmp_path / "in" / "rank99999999999999999999.json", 1)
    lake = Lake(tmp_path / "lake")
    assert taken(tmp_path / "in", lake)[1][0][1] is None
    assert checks(lake) == {"unusable_number": 1}


@pytest.mark.slow
@pytest.mark.parametrize("name", [f"{ODD_BYTES}/x.json", "a\\x41.json", "x\n.json"])
def test_any_name_of_a_file_can_be_stored_and_found_again(tmp_path: Path, name: str) -> None:
    write_trace(tmp_path / "in" / "good.json", 1)
    write_trace(tmp_path / "in" / name, 2)
    (tmp_path / "in" / name).with_name(f"{ODD_BYTES}-bad.json").write_text("none")
    lake = Lake(tmp_path / "lake")
    status, traces, rejects = taken(tmp_path / "in", lake)
    assert sorted(status.values()) == ["ok", "ok", "rejected"]
    assert {text_path(path) for path, *_ in traces} == {tmp_path / "in" / "good.json", tmp_path / "in" / name}
    assert text_path(rejects[0][0]).name == f"{ODD_BYTES}-bad.json"
    assert [row.status for row in ingest([tmp_path / "in"], lake).rows].count("known") == 2


@given(st.binary(min_size=1, max_size=12).filter(lambda raw: not {0, 47} & set(raw)))
def test_a_paths_text_is_utf8_and_gives_the_path_back(raw: bytes) -> None:
    path = Path(os.fsdecode(raw))
    text = path_text(path)
    assert text_path(text.encode().decode()) == path
    if b"\\x" not in raw and text.isascii() and raw.isascii():
        assert text == str(path)


@pytest.mark.slow  # a test below covers files that cannot be checked
def test_a_path_that_is_too_long_is_a_row(tmp_path: Path) -> None:
    write_trace(tmp_path / "in" / "good.json", 1)
    here = os.getcwd()
    os.chdir(tmp_path / "in")
    try:
        for _ in range(20):
            os.mkdir("d" * 250)
            os.chdir("d" * 250)
        Path("x.json").write_text("{}")
    finally:
        os.chdir(here)
    status, traces, rejects = taken(tmp_path / "in", Lake(tmp_path / "lake"))
    assert sorted(status.values()) == ["ok", "rejected"]
    assert len(traces) == 1 and "too long" in rejects[0][1]


def test_what_cannot_be_looked_at_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files and folders that cannot be checked become rows.

    A folder without x permission can be listed, but its files cannot be checked. Another folder cannot be listed.
    """
    write_trace(tmp_path / "in" / "good.json", 1)
    for name in ("x/a.json", "r/b.json"):
        write_trace(tmp_path / "in" / name, 2)
    stat, scandir = os.stat, os.scandir

    def no_x(path, *args, **kwargs):
        if str(path).startswith(f"{tmp_path}/in/x/"):
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, *args, **kwargs)

    def no_r(path):
        if str(path) == f"{tmp_path}/in/r":
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "stat", no_x)
    monkeypatch.setattr(os, "scandir", no_r)
    status, _, rejects = taken(tmp_path / "in", Lake(tmp_path / "lake"))
    assert status == {"good.json": "ok", "a.json": "rejected", "r": "rejected"}
    assert [Path(path).name for path, _ in rejects] == ["r", "a.json"]
    assert all("Permission denied" in reason for _, reason in rejects)


@pytest.mark.parametrize(
    ("where", "error"),
    first_of(
        [
            ("load_events", RecursionError("deep \ud800")),
            ("describe_origin", MemoryError()),
            ("insert_trace", OverflowError("too large")),
        ],
        1,
    ),
)
def test_whatever_is_raised_rejects_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, error: Exception
) -> None:
    for rank in range(3):
        write_trace(tmp_path / "in" / f"rank{rank}.json", rank)
    called, real = (
        [],
        getattr(
            pipelines.readers.kineto.events_file if where == "load_events" else pipelines.readers.inputs.events, where
        ),
    )

    def at_times(*args, **kwargs):
        called.append(where)
        done = real(*args, **kwargs)
        if len(called) == 2:
            raise error
        return done

    if where == "load_events":
        monkeypatch.setattr(pipelines.readers.kineto.events_file, "INPUT", EventInput((), at_times))
    else:
        monkeypatch.setattr(pipelines.readers.inputs.events, where, at_times)
    lake = Lake(tmp_path / "lake")
    status, traces, rejects = taken(tmp_path / "in", lake)
    assert status == {"rank0.json": "ok", "rank1.json": "rejected", "rank2.json": "ok"}
    assert [Path(path).name for path, *_ in traces] == ["rank0.json", "rank2.json"]
    assert type(error).__name__ in rejects[0][1]
    with lake.connect(["traces", "events", "findings"]) as con:
        assert con.execute("SELECT count(DISTINCT trace_id) FROM events").fetchall() == [(2,)]


@pytest.mark.slow  # tests/readers/test_ingest.py tests another wrong pattern
def test_what_no_file_can_be_blamed_for_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_trace(tmp_path / "in" / "rank0.json", 1)
    monkeypatch.setenv("TRACELAKE_RANK_PATTERN", "(")
    with pytest.raises(ValueError, match="not a regular expression"):
        ingest([tmp_path / "in"], Lake(tmp_path / "lake"))


def test_a_lake_that_duckdb_cannot_open_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnusablePath, match="rename"):
        Lake(tmp_path / ODD_BYTES)


def test_the_origin_of_a_folder_that_is_no_utf8() -> None:
    assert describe_origin(Path("/a") / ODD_BYTES / "rank1.json", {}, None)["rank"] == 1
    json.dumps(describe_origin(Path("/a/rank1.json"), {}, None))
