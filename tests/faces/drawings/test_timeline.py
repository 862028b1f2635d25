"""The merged timeline of a capture: it has all events, on one clock, and its arrows begin and end in slices."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import duckdb
import pytest
from typer.testing import CliRunner

from pipelines.faces.cli.app import app
from pipelines.faces.drawings.timeline import NOT_ALIGNED, TABLES, NoTimeline, _base, _Rank, write_timeline
from pipelines.lake import Lake
from pipelines.lake.publish.analyst_file import analyst
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize.run_order import materialize_all
from pipelines.synthetic import CaptureSpec, write_capture

OFFSETS = (0, 5_000_000, -3_000_000)
SPEC = CaptureSpec(ranks=3, steps=3, straggler=1, clock_offset_ns=OFFSETS, include_python_frames=True, seed=3)
FLOWS = ("s", "t", "f")


def merged(path: Path) -> list[dict[str, Any]]:
    packed = path.read_bytes()
    return json.loads(gzip.decompress(packed) if path.suffix == ".gz" else packed)["traceEvents"]


def ns(microseconds: float) -> int:
    return round(microseconds * 1000)


def by_rank(events: list[dict]) -> dict[int, list[dict]]:
    """Return the events of each rank, without the arrows between ranks."""
    events_by_rank: dict[int, list[dict]] = defaultdict(list)
    for event in events:
        if event.get("cat") != "collective":
            events_by_rank[event["pid"] // 10_000].append(event)
    return events_by_rank


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("timeline") / "capture"
    write_capture(SPEC, folder)
    return folder


@pytest.fixture(scope="module")
def con(folder: Path) -> duckdb.DuckDBPyConnection:
    lake = Lake(folder.parent / "lake")
    ingest([str(folder)], lake)
    materialize_all(lake, TABLES)
    return analyst(lake)


@pytest.fixture(scope="module")
def capture_id(con: duckdb.DuckDBPyConnection) -> str:
    return con.execute("SELECT capture_id FROM captures").fetchall()[0][0]


@pytest.fixture(scope="module")
def whole(con: duckdb.DuckDBPyConnection, capture_id: str, folder: Path) -> list[dict]:
    return merged(write_timeline(con, capture_id, folder.parent / "whole.json.gz").path)


def test_every_event_of_every_rank_is_in_it_moved_by_its_offset(
    whole: list[dict], folder: Path, con: duckdb.DuckDBPyConnection
) -> None:
    offsets = dict(con.execute("SELECT rank, offset_ns FROM clock_offsets").fetchall())
    base = min(ns(event["ts"]) for event in whole if event["ph"] == "X")
    shifts = {}
    for rank, events in by_rank(whole).items():
        file_events = json.loads(gzip.decompress((folder / f"rank{rank}.json.gz").read_bytes()))["traceEvents"]
        kept = [event for event in file_events if not event["name"].startswith("process_")]
        own = [event for event in events if not event["name"].startswith("process_")]
        assert Counter(event["ph"] for event in own) == Counter(event["ph"] for event in kept)
        moved = set()
        for before, after in zip(kept, own, strict=True):
            assert (before["name"], before.get("cat"), before.get("args")) == (
                after["name"],
                after.get("cat"),
                after.get("args"),
            )
            if before["ph"] == "X":
                assert ns(before["dur"]) == ns(after["dur"])
                moved.add(ns(after["ts"]) - ns(before["ts"]))
        assert len(moved) == 1
        shifts[rank] = moved.pop()
    assert base >= 0 and set(shifts) == {0, 1, 2}
    for rank, planted in enumerate(OFFSETS):
        assert shifts[0] - shifts[rank] == offsets[rank]
        assert abs(offsets[rank] - planted) < 2_000


def test_the_kernels_of_a_collective_end_together(whole: list[dict], folder: Path) -> None:
    def spread(ranks: dict[int, list[dict]]) -> int:
        ends = [
            [ns(e["ts"]) + ns(e["dur"]) for e in events if e["ph"] == "X" and "AllReduce" in e["name"]]
            for _, events in sorted(ranks.items())
        ]
        return max(max(same) - min(same) for same in zip(*ends, strict=True))

    file_events = {
        r: json.loads(gzip.decompress((folder / f"rank{r}.json.gz").read_bytes()))["traceEvents"] for r in range(3)
    }
    assert spread(file_events) > 7_000_000
    assert spread(by_rank(whole)) < 5_000


def assert_arrows(events: list[dict]) -> int:
    """Check that each arrow has a start and an end, each within a slice of its thread.

    Return how many arrows join ranks.
    """
    slices: dict[tuple, list[tuple[int, int]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            slices[event["pid"], event["tid"]].append((ns(event["ts"]), ns(event["ts"]) + ns(event["dur"])))
    arrows: dict[tuple, list[dict]] = defaultdict(list)
    for event in events:
        if event["ph"] in FLOWS:
            arrows[event["cat"], event["name"], event["id"]].append(event)
            at = ns(event["ts"])
            assert any(start <= at <= end for start, end in slices[event["pid"], event["tid"]]), event
    for parts in arrows.values():
        kinds = [part["ph"] for part in parts]
        assert (kinds[0], kinds[-1]) == ("s", "f") and kinds.count("s") == kinds.count("f") == 1
    return sum(cat == "collective" for cat, _, _ in arrows)


def test_arrows_lead_from_rank_to_rank_to_the_last_one(
    whole: list[dict], con: duckdb.DuckDBPyConnection, capture_id: str
) -> None:
    last = dict(con.execute("SELECT collective_id, culprit_clock_rank FROM collectives").fetchall())
    assert assert_arrows(whole) == len(last) > 5
    assert "s" in {event["ph"] for event in whole if event.get("cat") == "ac2g"}
    for event in whole:
        if event.get("cat") == "collective" and event["ph"] == "f":
            assert event["pid"] // 10_000 == last[int(event["name"].split()[1])]
    times = [event["ts"] for event in whole if event.get("cat") == "collective" and event["name"] == "collective 0"]
    assert len(times) == 3 and times == sorted(times)


def test_collectives_that_are_not_used_have_no_arrow(
    con: duckdb.DuckDBPyConnection, capture_id: str, tmp_path: Path
) -> None:
    """Refused collectives have no arrow.

    Their ranks do not leave together, so it is unknown whether a rank waited for the last.
    """
    own = copied(con)
    own.execute("UPDATE collectives SET refused_reason = 'noisy_ends: 400 us' WHERE collective_id <> 3")
    events = merged(write_timeline(own, capture_id, tmp_path / "used.json").path)
    assert {event["name"] for event in events if event.get("cat") == "collective"} == {"collective 3"}


def test_one_step(con: duckdb.DuckDBPyConnection, capture_id: str, tmp_path: Path, whole: list[dict]) -> None:
    step_events = merged(write_timeline(con, capture_id, tmp_path / "one.json", step=1, with_python=False).path)
    assert_arrows(step_events)
    assert not {event["cat"] for event in step_events if event.get("cat") == "python_function"}
    assert {event["cat"] for event in whole if event.get("cat") == "python_function"}
    for rank, events in by_rank(step_events).items():
        step = next(event for event in events if event["name"] == "ProfilerStep#1")
        for event in events:
            if event["ph"] == "X":
                assert event["ts"] < step["ts"] + step["dur"] and event["ts"] + event["dur"] >= step["ts"], rank
        full = [e for e in by_rank(whole)[rank] if e["ph"] == "X" and e["cat"] == "kernel"]
        kernels = [e for e in events if e["ph"] == "X" and e["cat"] == "kernel"]
        assert 0 < len(kernels) < len(full)
    with pytest.raises(NoTimeline, match="has step 99: they have steps 0, 1") as error:
        write_timeline(con, capture_id, tmp_path / "none.json", step=99)
    assert error.value.hint == ""
    assert [path.name for path in tmp_path.iterdir()] == ["one.json"]


def copied(con: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """Copy the tables from which a timeline is made, so that the test can change them."""
    own = duckdb.connect()
    for table in (*TABLES, "events", "findings"):
        rows = con.sql(f"FROM {table}").to_arrow_table()
        own.execute(f"CREATE TABLE {table} AS FROM rows")
        del rows
    return own


def test_arrows_that_leave_the_step_are_left_out(
    con: duckdb.DuckDBPyConnection, capture_id: str, tmp_path: Path
) -> None:
    own = copied(con)
    own.execute("UPDATE profiler_steps SET end_ns = start_ns + (end_ns - start_ns) // 2")
    events = merged(write_timeline(own, capture_id, tmp_path / "half.json", step=1).path)
    assert_arrows(events)
    inside = "SELECT count(*) FROM events AS e JOIN profiler_steps AS s USING (trace_id) WHERE s.step = 1 AND e.cat = 'ac2g' "
    ends = {
        ph: own.execute(f"{inside} AND ph = '{ph}' AND e.start_ns BETWEEN s.start_ns AND s.end_ns").fetchall()
        for ph in "sf"
    }
    assert ends["s"] > ends["f"] == [(sum(e["ph"] == "f" and e["cat"] == "ac2g" for e in events),)]


def test_a_rank_that_is_not_aligned_has_no_place_among_the_others(
    con: duckdb.DuckDBPyConnection, capture_id: str, tmp_path: Path
) -> None:
    """A rank whose clock is not aligned has no arrows to other ranks.

    Its collectives are matched, but their times on the other ranks' clock are unknown.
    """
    own = copied(con)
    own.execute("UPDATE clock_offsets SET offset_ns = NULL, error_ns = NULL WHERE rank = 2")
    written = write_timeline(own, capture_id, tmp_path / "two.json")
    assert (written.ranks, written.not_aligned) == ([0, 1, 2], [2])
    events = merged(written.path)
    assert_arrows(events)
    assert {event["pid"] // 10_000 for event in events if event.get("cat") == "collective"} == {0, 1}


def test_events_without_a_time_are_not_drawn_and_those_without_a_process_stay_with_their_rank(
    con: duckdb.DuckDBPyConnection, capture_id: str, tmp_path: Path, whole: list[dict]
) -> None:
    own = copied(con)
    of_rank = "(SELECT trace_id FROM capture_ranks WHERE rank = 1)"
    operators = f"SELECT event_id FROM events WHERE trace_id = {of_rank} AND cat = 'cpu_op' ORDER BY event_id"
    first, second, third = [number for (number,) in own.execute(f"{operators} LIMIT 3").fetchall()]
    for event_id, change in ((first, ""), (second, ""), (third, ", start_ns = NULL")):
        name = "no time" if change else "no process"
        own.execute(
            f"UPDATE events SET pid = NULL, name = '{name}'{change} WHERE trace_id = {of_rank} AND event_id = {event_id}"
        )
    written = write_timeline(own, capture_id, tmp_path / "odd.json")
    events = merged(written.path)
    assert written.left_out == 1 and len([e for e in events if e["name"] == "no time"]) == 0
    without = [event for event in events if event["name"] == "no process"]
    assert len(without) == 2 and {event["pid"] // 10_000 for event in without} == {1}
    (pid,) = {event["pid"] for event in without}
    names = [e["args"]["name"] for e in events if e["name"] == "process_name" and e["pid"] == pid]
    assert names == ["rank 1: no process"]
    assert write_timeline(own, capture_id, tmp_path / "step.json", step=1).left_out == 0
    assert min(event["ts"] for event in events if event["ph"] == "X") == min(e["ts"] for e in whole if e["ph"] == "X")


def test_a_clock_that_drifts_is_stretched_exactly() -> None:
    from pipelines.faces.drawings.timeline import _by_line

    first, last = (10**18 + 7, 10**18), (10**18 + 10**12 + 7 + 20_000_000, 10**18 + 10**12)
    moved = _by_line(first, last)
    assert (moved(first[0]), moved(last[0])) == (first[1], last[1])
    middle = (first[0] + last[0]) // 2
    assert abs(moved(middle) - (first[1] + last[1]) // 2) <= 1


@pytest.mark.slow  # the function that it calls is tested above
def test_the_command_says_which_clocks_are_not_aligned(tmp_path: Path) -> None:
    write_capture(CaptureSpec(ranks=2, steps=1), tmp_path / "short")  # too few collectives
    target = tmp_path / "merged.json"
    said = CliRunner().invoke(app, ["timeline", str(tmp_path / "short"), "--out", str(target)])
    assert said.exit_code == 0 and "rank 0, 1" in said.stderr and "clock_offsets" in said.stderr
    names = {event["args"]["name"] for event in merged(target) if event["name"] == "process_name"}
    assert all(NOT_ALIGNED in name for name in names) and assert_arrows(merged(target)) == 0
    said = CliRunner().invoke(app, ["timeline", str(tmp_path / "short"), "--out", str(target), "--json"])
    assert json.loads(said.stdout) | {"path": ""} == {
        "path": "",
        "ranks": [0, 1],
        "not_aligned": [0, 1],
        "error_us": None,
        "n_arrows": 0,
        "caveats": [],
    }
    said = CliRunner().invoke(app, ["timeline", str(tmp_path / "short"), "--step", "7"])
    assert (said.exit_code, "has step 7" in said.stderr) == (1, True)


@pytest.mark.slow
def test_a_real_capture(shared: Path, tmp_path: Path) -> None:
    target = tmp_path / "dlrm.json"
    folder = shared / "traces" / "ranks" / "dlrm_8"
    said = CliRunner().invoke(app, ["timeline", str(folder), "--out", str(target), "--json", "--without-python"])
    answer = json.loads(said.stdout)
    assert len(answer["ranks"]) == 8 and answer["n_arrows"] >= 8
    assert answer["error_us"] is None or answer["error_us"] < 1_000
    events = merged(target)
    assert set(by_rank(events)) == set(answer["ranks"])
    ends = [e for e in events if e.get("cat") == "collective"]
    slices = {(e["pid"], e["tid"], e["ts"]) for e in events if e["ph"] == "X"}
    assert all((e["pid"], e["tid"], e["ts"]) in slices for e in ends)


def test_of_many_ranks_the_worst_and_the_median_are_drawn(con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    (capture_id,) = con.execute("SELECT capture_id FROM captures").fetchall()[0]
    worst = con.execute("SELECT rank FROM straggler_ranks ORDER BY caused_wait_ns DESC, rank").fetchall()
    written = write_timeline(con, capture_id, tmp_path / "some.json", most=2)
    assert written.ranks == sorted((worst[0][0], worst[1][0])) and worst[0][0] == SPEC.straggler
    assert written.shown == "2 of 3 ranks: those that most waiting goes back to, and the median"
    assert set(by_rank(merged(tmp_path / "some.json"))) == set(written.ranks)
    assert write_timeline(con, capture_id, tmp_path / "all.json", most=0).shown == ""


def test_a_rank_without_slices_does_not_move_the_others_to_1970() -> None:
    second = 1_000_000_000
    with duckdb.connect() as con:
        con.execute(
            f"CREATE TABLE events AS SELECT 't0' AS trace_id, 'X' AS ph, {1_790_000_000 * second + 5} AS start_ns"
        )
        ranks = [_Rank(rank, f"t{rank}", lambda ns: ns, True, {}, {}) for rank in (0, 1)]
        assert _base(con, ranks) == 1_790_000_000 * second
        assert _base(con, ranks[1:]) == 0
