"""Memory snapshots in the lake, compared with the allocator: memory in use over time, its peak and its owners."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipelines.lake import Lake
from pipelines.lake.publish.analyst_file import analyst
from pipelines.models.catalog import load_catalog
from pipelines.models.questions import load_questions
from pipelines.readers.flight_recorder.dump import is_dump
from pipelines.readers.ingest import ingest
from pipelines.readers.memory_snapshots.lake import INPUT, snapshots
from pipelines.runs.materialize.per_trace import materialize
from tests.effort import examples, first_of
from tests.harness import x
from tests.readers.inputs.read_tables import loaded
from tests.readers.memory_snapshots.make import LEAK, MIB, START_US, USER, Allocator, snapshot, stack, training, write
from tests.readers.memory_snapshots.test_read import busy

VIEWS = ("snapshot_trace_matches", "snapshot_steps")


def rows(con: duckdb.DuckDBPyConnection, query: str) -> list[tuple[Any, ...]]:
    return con.execute(query).fetchall()


def ask(con: duckdb.DuckDBPyConnection, question: str) -> list[tuple[Any, ...]]:
    return rows(con, load_questions()[question].sql)


def taken(tmp_path: Path, *made: dict[str, Any]) -> duckdb.DuckDBPyConnection:
    """Return the tables of these snapshots and of a lake without traces."""
    paths = [write(tmp_path / f"rank{number}_snapshot.pickle", content) for number, content in enumerate(made)]
    con = loaded(INPUT, paths)
    con.execute("CREATE TABLE traces (trace_id VARCHAR, path VARCHAR, job VARCHAR, rank BIGINT, trace_start_ns BIGINT,"
                " trace_end_ns BIGINT)")  # fmt: skip
    con.execute("CREATE TABLE profiler_steps (trace_id VARCHAR, step BIGINT, start_ns BIGINT, end_ns BIGINT)")
    for view in VIEWS:
        con.execute(f"CREATE VIEW {view} AS {load_catalog().models[view].sql}")
    return con


def test_a_snapshot_is_a_row_and_comes_in_once(tmp_path: Path) -> None:
    """The test uses a complete lake.

    Broken snapshots are rejected by name, and steps come from the rank's trace if it has steps.
    """
    folder, lake, allocator = tmp_path / "in", Lake(tmp_path / "lake"), training(3)
    steps = [note["time_us"] - START_US for note in allocator.annotations]
    allocator.annotations = []
    whole = write(folder / "rank0_snapshot.pickle", snapshot(allocator)).read_bytes()
    (folder / "rank1.pickle").write_bytes(whole[: len(whole) // 2])
    (folder / "rank2.pickle").write_bytes(whole[:-1] + b"R.")
    (folder / "rank3.pickle.gz").write_bytes(gzip.compress(whole)[:-20])
    events = [
        x("user_annotation", f"ProfilerStep#{n}", begin, end - begin)
        for n, (begin, end) in enumerate(zip(steps[::2], steps[1::2], strict=True), 7)
    ]
    trace = {"distributedInfo": {"rank": 0}, "baseTimeNanoseconds": START_US * 1000, "traceEvents": events}
    (folder / "rank0.json").write_text(json.dumps(trace))
    outcomes = {Path(row.path).name: (row.status, row.reason) for row in ingest([folder], lake, job="j").rows}
    assert outcomes.pop("rank0_snapshot.pickle") == outcomes.pop("rank0.json") == ("ok", None)
    assert all(
        status == "rejected" and "a memory snapshot that cannot be read" in str(why)
        for status, why in outcomes.values()
    )
    assert len(outcomes) == 3 and "may run code" in str(outcomes["rank2.pickle"][1])
    packed = tmp_path / "again" / "rank0.pickle.gz"
    packed.parent.mkdir()
    packed.write_bytes(gzip.compress(whole))
    assert [row.status for row in ingest([packed], lake).rows] == ["known"]
    materialize(lake, ["profiler_steps"])
    query = (
        "SELECT file, rank, job, n_events, n_segments, n_stacks, n_annotations, n_unknown_actions FROM memory_snapshots"
    )
    with analyst(lake) as con:
        assert rows(con, query) == [
            ("rank0_snapshot.pickle", 0, "j", len(allocator.history), len(allocator.segments), 4, 0, 0)
        ]
        assert rows(con, "SELECT count(*) FROM rejects") == [(3,)]
        assert rows(con, "SELECT count(*) FROM snapshot_timeline") == [(len(allocator.history),)]
        # The trace has no operators, so only the code of the modules and the steps are known.
        held = [row[4:10] for row in ask(con, "snapshot-operators")]
        assert {row[:2] + row[3:4] for row in held} == {(None, None, None)} and {row[4] for row in held} == {None, 7}
        # The last step ends after the last event, so the memory in use at its end is unknown.
        growth = [(row[1], *row[4:]) for row in ask(con, "snapshot-growth")]
        kept = [round((30 * MIB + 100 + 3 * MIB * n) / 1e6, 2) for n in (1, 2)]
        assert growth == [(0, 7, kept[0], None, "trace"), (0, 8, kept[1], 3.15, "trace"), (0, 9, None, None, "trace")]


def check_levels(lake: duckdb.DuckDBPyConnection, allocators: list[Allocator]) -> None:
    """Check that each level of the timeline and the peak equal those that the allocators counted."""
    levels = rows(lake, "SELECT rank, device, allocated_bytes, reserved_bytes FROM snapshot_timeline JOIN memory_snapshots"
                  " USING (snapshot_id) ORDER BY rank, device, seq")  # fmt: skip
    expected = [(0, allocator.device, *level) for allocator in allocators for level in allocator.levels]
    assert levels == expected
    peaks = rows(lake, "SELECT device, allocated_bytes, reserved_bytes, peak_allocated_bytes, peak_reserved_bytes,"
                 " first_allocated_bytes, is_consistent, n_contradictions FROM snapshot_peaks ORDER BY device")  # fmt: skip
    for allocator, (device, allocated, reserved, peak, peak_reserved, first, is_consistent, n_contradictions) in zip(
        [allocator for allocator in allocators if allocator.history], peaks, strict=True
    ):
        assert (device, allocated, reserved) == (allocator.device, allocator.allocated, allocator.reserved)
        assert max(peak, first) == peak == max(first, *(level for level, _ in allocator.levels))
        assert peak_reserved >= max(level for _, level in allocator.levels)
        assert is_consistent and n_contradictions == 0
    sums = rows(lake, "SELECT device, sum(size_bytes), round(sum(size_percent), 3) FROM snapshot_peak_stacks"
                " GROUP BY device ORDER BY device")  # fmt: skip
    assert [(device, size, 100.0) for device, _, _, size, *_ in peaks if size] == sums


@pytest.mark.parametrize("max_entries", first_of([40, 1 << 60], 1))
def test_levels_are_those_of_the_allocator(tmp_path: Path, max_entries: int) -> None:
    """If the ring lost the beginning, the levels are counted backward from the snapshot."""
    whole = training(6, device=2)
    ring = Allocator(device=0, max_entries=max_entries)
    live = [ring.alloc(1000 * n + 1, stack(USER)) for n in range(60)]
    for address in live[::2]:
        ring.free(address)
    check_levels(taken(tmp_path, snapshot(ring, whole)), [ring, whole])


@pytest.mark.slow
@settings(max_examples=examples(12), deadline=None)
@example(1, 5)  # at the snapshot, another stream still uses released memory, and nothing else was released
@given(st.integers(0, 10**6), st.integers(5, 60))
def test_levels_of_any_history(tmp_path_factory: pytest.TempPathFactory, seed: int, n: int) -> None:
    allocator = busy(seed, n)
    check_levels(taken(tmp_path_factory.mktemp("any"), snapshot(allocator)), [allocator])


def brute_allocations(allocator: Allocator) -> Counter[tuple[Any, ...]]:
    """Return (address, size, alloc us, release us, state) by walking over the history and then over the blocks."""
    open_at: dict[int, dict[str, Any]] = {}
    done: list[tuple[Any, ...]] = []
    for event in allocator.history:
        address, action = event.get("addr", 0), event["action"]
        if action == "alloc":
            open_at[address] = event
        elif action == "free_completed":
            begun = open_at.pop(address, None)
            at = begun and begun["action"] == "alloc" and begun["time_us"]
            done.append((address, event["size"], at or None, event["time_us"], "released" if at else "before_history"))
        elif action == "free_requested" and address not in open_at:
            open_at[address] = event
    for address, event in open_at.items():
        is_seen = event["action"] == "alloc"
        at = event["time_us"] if is_seen else None
        done.append((address, event["size"], at, None, "live" if is_seen else "before_history"))
    for segment in allocator.segment_dicts():
        for block in segment["blocks"]:
            if block["state"] != "inactive" and block["address"] not in open_at:
                done.append((block["address"], block["requested_size"], None, None, "before_history"))
    return Counter(done)


@pytest.mark.parametrize("max_entries", first_of([60, 10_000, 7], 1))
def test_allocations_are_those_of_a_walk(tmp_path: Path, max_entries: int) -> None:
    allocator = busy(5, 200)
    allocator.history, allocator.levels = allocator.history[-max_entries:], allocator.levels[-max_entries:]
    lake = taken(tmp_path, snapshot(allocator))
    allocations = rows(
        lake, "SELECT address, size_bytes, alloc_ns // 1000, free_ns // 1000, state FROM snapshot_allocations"
    )
    assert Counter(allocations) == brute_allocations(allocator)
    lives = rows(lake, "SELECT count(*) FROM snapshot_allocations WHERE lifetime_ns <> free_ns - alloc_ns")
    assert lives == [(0,)]


def test_segments_say_what_pytorch_says_of_them(tmp_path: Path) -> None:
    """`segsum` of torch's own viewer, an independent reader, prints the same sums."""
    viewer = pytest.importorskip("torch.cuda._memory_viz", reason="needs torch")
    allocator = busy(9, 150)
    allocator.alloc(45 * MIB, stack(USER))
    made = snapshot(allocator)
    for segment in made["segments"]:  # the viewer counts memory that waits for a release as free
        for block in segment["blocks"]:
            block["state"] = "active_allocated" if block["state"] == "active_pending_free" else block["state"]
    lake = taken(tmp_path, made)
    ((total, used, rounding, free),) = rows(
        lake,
        "SELECT sum(total_bytes), sum(used_bytes), sum(rounding_bytes), sum(free_bytes) FROM snapshot_fragmentation",
    )
    printed = viewer.segsum(made)
    assert f"total_reserved: {viewer.Bytes(total)}\n" in printed
    assert f"total_allocated: {viewer.Bytes(used)}\n" in printed
    share = 100 * int(rounding) / int(rounding + free)
    assert f"total_free: {viewer.Bytes(rounding + free)} ({share:.1f}% internal)\n" in printed
    assert total == used + rounding + free


def test_stacks_at_the_snapshot_are_those_of_pytorchs_flame_graph(tmp_path: Path) -> None:
    viewer = pytest.importorskip("torch.cuda._memory_viz", reason="needs torch")
    allocator = busy(3, 120)
    made = snapshot(allocator)
    lake = taken(tmp_path, made)
    lines = viewer.memory(made, format_flamegraph=lambda text: text).splitlines()
    theirs: Counter[str] = Counter()
    for line in lines:
        where, _, size = line.rpartition(" ")
        _stream, state, frames = where.split(";", 2)
        if state != "inactive" and "<gaps>" not in frames:
            theirs[frames] += int(size)
    stacks = rows(lake, "SELECT coalesce((SELECT string_agg(regexp_extract(f.file, '[^/]*$') || ':' || f.line || ':' ||"
                  " f.function, ';' ORDER BY f.depth DESC) FROM snapshot_frames AS f WHERE f.stack_id = b.stack_id),"
                  " '<non-python>'), sum(requested_bytes) FROM snapshot_blocks AS b WHERE state <> 'inactive' GROUP BY 1")  # fmt: skip
    assert Counter({frames: int(size) for frames, size in stacks}) == theirs


def test_growth_is_what_each_step_keeps(tmp_path: Path) -> None:
    allocator = training(5, leaked=3 * MIB)
    lake = taken(tmp_path, snapshot(allocator))
    kept = [(30 * MIB + 100 + 3 * MIB * (n + 1)) / 1e6 for n in range(5)]
    assert ask(lake, "snapshot-growth") == [
        (
            "j",
            0,
            "rank0_snapshot.pickle",
            0,
            n,
            round(kept[n], 2),
            None if n == 0 else round(3 * MIB / 1e6, 2),
            "snapshot",
        )
        for n in range(5)
    ]
    (leak, model) = ask(lake, "snapshot-leaks")
    assert leak[4:7] == (f"{LEAK[0]}:{LEAK[1]} {LEAK[2]}", 5, 5)
    assert model[4:7] == ("/home/u/train.py:3 main", None, 1)
    peak = ask(lake, "snapshot-peak")
    assert [row[4:6] for row in peak] == [
        ("/home/u/train.py:3 main", 1), ("/home/u/train.py:10 forward", 3), (f"{LEAK[0]}:{LEAK[1]} {LEAK[2]}", 5),
    ]  # fmt: skip
    assert [row[7] for row in peak] == [
        round(100 * size / (60 * MIB + 121), 1) for size in (30 * MIB + 100, 15 * MIB + 21, 15 * MIB)
    ]


def test_a_trace_meets_a_snapshot_of_its_rank_and_time(tmp_path: Path) -> None:
    con = taken(tmp_path, snapshot(training(3)), snapshot(training(2)), snapshot(Allocator(now_us=START_US - 10**9)))
    ((first, last),) = rows(con, "SELECT first_event_ns, last_event_ns FROM memory_snapshots WHERE rank = 0")
    there = [
        ("of its time", "j", 0, first + 5, last + 5), ("before", "j", 0, first - 5, first - 1),
        ("of its folder", None, 0, first, last), ("of another job", "k", 0, first, last), ("later", "j", 1, last + 10**9, last + 10**10),
    ]  # fmt: skip
    for name, job, rank, begin, end in there:
        folder = tmp_path if name == "of its folder" else "/else"
        con.execute("INSERT INTO traces VALUES (?, ?, ?, ?, ?, ?)", [name, f"{folder}/t.json", job, rank, begin, end])
    assert rows(con, "SELECT s.rank, m.trace_id, m.start_ns - s.first_event_ns, m.end_ns - s.last_event_ns"
                " FROM snapshot_trace_matches AS m JOIN memory_snapshots AS s USING (snapshot_id) ORDER BY ALL") == [
        (0, "of its folder", 0, 0), (0, "of its time", 5, 0), (1, None, None, None), (2, None, None, None),
    ]  # fmt: skip


def test_without_a_history_there_is_the_state_alone(tmp_path: Path) -> None:
    allocator = training(2)
    made = snapshot(allocator)
    made["device_traces"] = []
    lake = taken(tmp_path, made)
    peaks = "SELECT allocated_bytes, peak_allocated_bytes, peak_seq, first_allocated_bytes, is_consistent FROM snapshot_peaks"
    assert rows(lake, peaks) == [(allocator.allocated, None, None, None, None)]
    assert rows(lake, "SELECT sum(size_bytes) FROM snapshot_peak_stacks") == [(allocator.allocated,)]


def test_a_history_that_ends_early_is_told(tmp_path: Path) -> None:
    """A snapshot that contradicts its history is reported as inconsistent.

    Here recording stopped before the snapshot, so memory that the history leaves in use no longer exists.
    """
    allocator = training(2)
    made = snapshot(allocator)
    last = allocator.segments[-1]
    made["segments"] = [segment for segment in made["segments"] if segment["address"] != last.address]
    lake = taken(tmp_path, made)
    ((n, is_consistent),) = rows(lake, "SELECT n_contradictions, is_consistent FROM snapshot_peaks")
    assert n > 0 and is_consistent is False


def test_releases_that_are_only_requested_count(tmp_path: Path) -> None:
    allocator = training(3)
    made = snapshot(allocator)
    made["device_traces"] = [[event for event in allocator.history if event["action"] != "free_completed"]]
    lake = taken(tmp_path, made)
    assert rows(lake, "SELECT peak_allocated_bytes, is_consistent FROM snapshot_peaks") == [
        (max(level for level, _ in allocator.levels), True)
    ]
    assert rows(lake, "SELECT count(*) FROM snapshot_allocations WHERE state = 'released'") == [(9,)]


def test_unknown_actions_and_out_of_memory_change_no_level(tmp_path: Path) -> None:
    allocator = training(1)
    allocator.out_of_memory(1 << 40, 12_345)
    allocator._add({"action": "made_up", "addr": 1, "size": 7, "stream": 0})
    lake = taken(tmp_path, snapshot(allocator))
    check_levels(lake, [allocator])
    assert rows(lake, "SELECT n_unknown_actions FROM memory_snapshots") == [(1,)]
    assert rows(lake, "SELECT size_bytes, device_free_bytes, address FROM snapshot_events WHERE action = 'oom'") == [
        (1 << 40, 12_345, None)
    ]
    assert rows(lake, "SELECT n_ooms FROM snapshot_peaks") == [(1,)]


def test_fragmentation_says_what_can_be_given_back(tmp_path: Path) -> None:
    allocator = Allocator()
    kept = [allocator.alloc(6 * MIB, stack(USER)) for _ in range(3)]
    gone = allocator.alloc(30 * MIB, stack(USER), stream=1)
    allocator.free(kept[1])
    allocator.free(gone)
    lake = taken(tmp_path, snapshot(allocator))
    answered = [row[3:] for row in ask(lake, "snapshot-fragmentation")]
    mb = {n: round(n * MIB / 1e6, 2) for n in (0, 6, 8, 12, 20, 30)}
    assert answered == [
        (0, 0, "0.0", 1, mb[20], mb[12], 0.0, 0.0, mb[8], mb[6]),
        (0, 1, "0.0", 1, mb[30], 0.0, 0.0, mb[30], 0.0, mb[30]),
    ]


def test_words_in_its_stacks_make_it_no_flight_recorder_dump(tmp_path: Path) -> None:
    allocator = Allocator()
    allocator.alloc(10, stack(("/u/version.py", 1, "version"), ("/u/x.py", 2, "pg_config"), ("/u/y.py", 2, "entries")))
    path = write(tmp_path / "rank0_snapshot.pickle", snapshot(allocator))
    assert not is_dump(path)
    assert [*snapshots([path])] == [path]


def test_no_surrogate_and_no_newline_stops_it(tmp_path: Path) -> None:
    allocator = Allocator()
    allocator.alloc(10, stack(("/u/\udcff\n.py", 1, "f")))
    ((file,),) = rows(taken(tmp_path, snapshot(allocator)), "SELECT file FROM snapshot_frames")
    assert file.endswith("\n.py") and file.encode()


def test_the_generator_is_read_by_pytorchs_viewer(tmp_path: Path) -> None:
    """The snapshots of these tests contain all keys that torch's own reader needs."""
    viewer = pytest.importorskip("torch.cuda._memory_viz", reason="needs torch")
    made = pickle.loads(write(tmp_path / "s.pickle", snapshot(busy(4, 80))).read_bytes())
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert "segments: " in viewer.segsum(made)
        assert viewer.segments(made, format_flamegraph=lambda text: text)
        assert "snapshot.pickle" in viewer.trace_plot(made)
    assert said.getvalue() == ""
