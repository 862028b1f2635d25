"""NCCL Inspector logs: every version's lines give the same rows, bad lines are reported, and ranks are joined."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.lake import Lake
from pipelines.lake.publish.analyst_file import analyst
from pipelines.models.questions import load_questions
from pipelines.readers.ingest import ingest
from pipelines.readers.inputs import file_sets
from pipelines.readers.nccl_inspector.lake import INPUT, is_log
from pipelines.readers.nccl_inspector.records import Records
from tests.effort import examples
from tests.readers.inputs.read_tables import loaded
from tests.readers.nccl_inspector.make_logs import DAY_US, START_US, Call, lines, write

VERSIONS = ("v4.0", "v4.1", "v4.2", "v4.3")
CALLS: list[Call] = [(n, 1 << 20, 100 + n) for n in range(1, 6)]


def rows(lake: Lake | duckdb.DuckDBPyConnection, query: str) -> list[tuple[Any, ...]]:
    if isinstance(lake, Lake):
        with analyst(lake) as con:
            return con.execute(query).fetchall()
    return lake.execute(query).fetchall()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("is_verbose", [False, True])
def test_every_version_says_the_same(tmp_path: Path, version: str, is_verbose: bool) -> None:
    path = write(tmp_path / "in" / "node0-pid4002.log", lines(2, CALLS, version, is_verbose=is_verbose))
    lake = loaded(INPUT, [path])
    is_new = version != "v4.0"
    assert rows(lake, "SELECT * EXCLUDE (log_id, batch_id, line) FROM inspector_collectives ORDER BY seq") == [
        (
            *("0x7f8c496ae9f661", "dp" if is_new else None, 2, 4, 1, "coll", "AllReduce", seq, None),
            *(("RING", "SIMPLE") if is_new else (None, None)),
            *(size, us * 1000, "kernel_gpu", round(size / us / 1e3, 6), round(round(size / us / 1e3, 6) * 1.5, 6)),
            *(START_US * 1000, START_US * 1000 if is_verbose else None),
        )
        for seq, size, us in CALLS
    ]
    query = "SELECT job, host, pid, version, n_collectives, n_dropped FROM inspector_logs"
    assert rows(lake, query) == [("j", "node0", 4002, version, 5, 0)]
    assert rows(lake, "SELECT * FROM inspector_findings") == []


def test_point_to_point_calls_and_what_was_dropped(tmp_path: Path) -> None:
    p2p = {
        **{"p2p": "Send", "p2p_sn": 9, "p2p_peer": 3, "p2p_msg_size_bytes": 8192, "p2p_exec_time_us": 12},
        **{"p2p_timing_source": "kernel_gpu", "p2p_algobw_gbs": 0.68, "p2p_busbw_gbs": 0.68},
    }
    path = write(tmp_path / "a.log", lines(0, CALLS[:1], "v4.3", p2p=[p2p], dropped=17))
    lake = loaded(INPUT, [path], ["inspector_matches"])
    query = "SELECT kind, name, seq, peer, size_bytes, duration_ns FROM inspector_collectives ORDER BY line"
    assert rows(lake, query)[1] == ("p2p", "Send", 9, 3, 8192, 12_000)
    assert rows(lake, "SELECT n_dropped FROM inspector_logs") == [(17,)]
    assert rows(lake, "SELECT * FROM inspector_matches") == []


@pytest.mark.parametrize(("us", "measured"), [(0, (None, None, None)), (1, (1000, 0.5, 0.5))])
def test_a_point_to_point_call_without_a_time(us: int, measured: tuple[float | None, ...]) -> None:
    """A time of 0 is unknown, because the plugin writes 0 if it does not know the kernel's time."""
    p2p = {"p2p": "Send", "p2p_sn": 9, "p2p_exec_time_us": us, "p2p_algobw_gbs": us / 2, "p2p_busbw_gbs": us / 2}
    (text,) = lines(0, [], "v4.1", p2p=[p2p])
    row = Records().row(text.encode())
    assert row and (row[13], *row[15:17]) == measured


def test_bad_lines_are_counted_with_the_first_of_them(tmp_path: Path) -> None:
    good = lines(0, CALLS, "v4.2")
    wrong = json.loads(good[-1])
    wrong["coll_perf"]["coll_exec_time_us"] = -4
    texts = [
        *good[:3],
        '{"header": {"id"',
        "[]",
        '{"header": {}, "metadata": {}}',
        json.dumps(wrong),
        "",
        *good[3:],
        "nothing",
    ]
    lake = Lake(tmp_path / "lake")
    (row,) = ingest([write(tmp_path / "a.log", texts)], lake).rows
    assert (row.status, row.n_events) == ("partial", 5)
    assert "5 lines could not be read" in str(row.reason)
    assert rows(lake, "SELECT fault, severity, n, detail FROM inspector_findings") == [
        ("not_a_record", "warning", 1, "line 5 is not an object"),
        ("not_json", "warning", 2, 'line 4 is not JSON: {"header": {"id"'),
        ("unknown_record", "warning", 1, "line 6 has neither coll_perf nor p2p_perf"),
        ("wrong_field", "warning", 1, "line 7: coll_exec_time_us is -4, not a whole number below 2^63"),
    ]


def test_a_record_of_v43_needs_its_dump(tmp_path: Path) -> None:
    """A line without its marker must not get the communicator of another dump, and missing lines are reported."""
    first, second = lines(0, CALLS[:3], "v4.3"), lines(0, CALLS[3:], "v4.3")
    texts = [*first[:-1], *second, second[-1]]  # one line is missing, and one is a surplus
    lake = loaded(INPUT, [write(tmp_path / "a.log", texts)])
    assert rows(lake, "SELECT fault, n, detail FROM inspector_findings ORDER BY fault") == [
        ("incomplete_dump", 1, "1 lines of a dump are missing before line 4"),
        ("no_communicator", 1, "line 7 does not say which communicator it is of"),
    ]
    assert rows(lake, "SELECT seq FROM inspector_collectives ORDER BY line") == [(1,), (2,), (4,), (5,)]


@pytest.mark.slow  # a test above covers one missing line
def test_each_missing_line_of_a_dump_counts(tmp_path: Path) -> None:
    (row,) = ingest([write(tmp_path / "a.log", lines(0, CALLS, "v4.3")[:-3])], lake := Lake(tmp_path / "lake")).rows
    assert row.reason == "3 lines could not be read or are missing: inspector_findings"
    assert rows(lake, "SELECT fault, n FROM inspector_findings") == [("incomplete_dump", 3)]


def test_a_log_that_has_grown_replaces_what_was_read_of_it(tmp_path: Path) -> None:
    lake, path = Lake(tmp_path / "lake"), tmp_path / "a.log"
    texts = lines(0, CALLS, "v4.1")
    path.write_text("\n".join(texts[:2]) + "\n" + texts[2][:40])
    assert [row.n_events for row in ingest([path], lake).rows] == [2]
    assert rows(lake, "SELECT fault, severity FROM inspector_findings") == [("cut_line", "info")]
    write(path, texts)
    assert [(row.status, row.n_events) for row in ingest([path], lake).rows] == [("ok", 5)]
    assert rows(lake, "SELECT seq FROM inspector_collectives ORDER BY line") == [(n,) for n in range(1, 6)]
    assert rows(lake, "SELECT count(*), max(n_collectives) FROM inspector_logs") == [(1, 5)]
    assert rows(lake, "SELECT * FROM inspector_findings") == []
    path.write_text("\n".join(texts[:3]) + "\n")  # an older copy adds nothing
    assert [row.status for row in ingest([path], lake).rows] == ["known"]


@pytest.mark.parametrize("grows", ["before it is read", "after it was read"])
def test_of_two_ingestions_at_once_the_longer_log_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grows: str
) -> None:
    """If two ingestions read a log concurrently, the longer log counts.

    The second ingestion runs while the first one reads the log.
    """
    path, texts, root = tmp_path / "a.log", lines(0, CALLS), tmp_path / "lake"
    write(path, texts[:3])
    take = file_sets._take

    def taken(*args: Any) -> Any:
        monkeypatch.setattr(file_sets, "_take", take)
        if grows == "before it is read":
            ingest([path], Lake(root))
            write(path, texts)
            return take(*args)
        result = take(*args)
        write(path, texts)
        ingest([path], Lake(root))
        return result

    monkeypatch.setattr(file_sets, "_take", taken)
    (row,) = ingest([path], Lake(root)).rows
    assert row.status == ("ok" if grows == "before it is read" else "known")
    assert rows(Lake(root), "SELECT n_lines, n_collectives FROM inspector_logs") == [(len(texts), 5)]
    assert rows(Lake(root), "SELECT count(*) FROM inspector_collectives") == [(5,)]


@pytest.mark.slow  # a test above covers a growing log
def test_a_damaged_log_is_not_taken_for_a_growing_one(tmp_path: Path) -> None:
    lake, path = Lake(tmp_path / "lake"), tmp_path / "a.log.gz"
    texts = lines(0, [(n, 1 << 20, 1 + n * n % 997) for n in range(3000)], "v4.1")
    packed = gzip.compress("\n".join(texts).encode(), 1)
    path.write_bytes(packed[:-3000] + bytes(40) + packed[-2960:])
    (row,) = ingest([path], lake).rows
    assert row.status == "partial" and 0 < (row.n_events or 0) < 3000
    ((severity, detail),) = rows(lake, "SELECT severity, detail FROM inspector_findings WHERE fault = 'damaged'")
    assert severity == "warning" and detail.startswith("gzip data damaged before compressed byte")
    path.write_bytes(gzip.compress(texts[0].encode())[:-1])
    (row,) = ingest([path], lake).rows
    assert row.status == "rejected" and "copy it again (gzip data is truncated at compressed byte" in str(row.reason)


@pytest.mark.parametrize(
    "text", ['{"traceEvents": []}', '{"header": 1}', "plain text", "", '{"inspector_output_format_version": 1']
)
def test_other_files_are_not_taken(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    assert not is_log(tmp_path / "a.json")


def made(seed: int, n_ranks: int, n_calls: int) -> dict[int, list[tuple[int, Call]]]:
    """Return (day, call) by rank, with some calls missing."""
    chance = random.Random(seed)
    return {
        rank: [
            (seq % 3, (seq, 1 << 20, chance.randint(1, 9)))
            for seq in range(n_calls)
            if chance.random() < 0.9
        ]
        for rank in range(n_ranks)
    }  # fmt: skip


def waits(by_rank: dict[int, list[tuple[int, Call]]]) -> dict[tuple[int, int], list[int]]:
    """Return sums by (day, rank), computed by walking over the calls.

    The sums are collectives seen with other ranks, times last, caused wait and own wait, both in us.
    """
    sums_by_rank: dict[tuple[int, int], list[int]] = {}
    for seq in {call[0] for calls in by_rank.values() for _, call in calls}:
        parts = [(call[2], rank, day) for rank, calls in by_rank.items() for day, call in calls if call[0] == seq]
        if len(parts) < 2:
            continue
        least, last, _ = min(parts)
        for us, rank, day in parts:
            sums = sums_by_rank.setdefault((day, rank), [0, 0, 0, 0])
            sums[0] += 1
            sums[3] += us - least
            if rank == last:
                sums[1] += max(parts)[0] > least
                sums[2] += sum(other - least for other, *_ in parts)
    return sums_by_rank


def test_a_call_without_a_duration_takes_no_part_in_the_waiting(tmp_path: Path) -> None:
    for rank, us in enumerate((100, 130, 50)):
        record = json.loads(lines(rank, [(1, 1 << 20, us)], "v4.1")[0])
        if rank == 2:
            del record["coll_perf"]["coll_exec_time_us"]
        write(tmp_path / f"rank{rank}.log", [json.dumps(record)])
    lake = loaded(INPUT, sorted(tmp_path.iterdir()), ["inspector_matches"])
    query = "SELECT rank, n_seen, waited_ns, is_last, caused_wait_ns FROM inspector_matches ORDER BY rank"
    assert rows(lake, query) == [(0, 3, 0, True, 30_000), (1, 3, 30_000, False, 0), (2, 3, None, None, None)]


def test_a_time_of_the_enqueue_takes_no_part_in_the_waiting(tmp_path: Path) -> None:
    """collective_cpu means that the plugin does not know the kernel's time.

    Only one time of call 2 is a kernel's, so none can be compared.
    """
    clocks_by_rank = {0: ("kernel_gpu", "kernel_gpu"), 1: ("kernel_cpu", "collective_cpu"), 2: ("collective_cpu",) * 2}
    for rank, clocks in clocks_by_rank.items():
        records = [
            json.loads(text) for text in lines(rank, [(n, 1 << 20, (500, 530, 4)[rank]) for n in (1, 2)], "v4.1")
        ]
        for record, clock in zip(records, clocks, strict=True):
            record["coll_perf"]["coll_timing_source"] = clock
        write(tmp_path / f"rank{rank}.log", map(json.dumps, records))
    lake = loaded(INPUT, sorted(tmp_path.iterdir()), ["inspector_matches"])
    columns = "seq, rank, n_seen, n_timed, duration_ns, waited_ns, is_last, caused_wait_ns"
    assert rows(lake, f"SELECT {columns} FROM inspector_matches ORDER BY seq, rank") == [
        (1, 0, 3, 2, 500_000, 0, True, 30_000),
        (1, 1, 3, 2, 530_000, 30_000, False, 0),
        (1, 2, 3, 2, 4_000, None, None, None),
        (2, 0, 3, 1, 500_000, None, None, None),
        (2, 1, 3, 1, 530_000, None, None, None),
        (2, 2, 3, 1, 4_000, None, None, None),
    ]
    answered = rows(lake, load_questions()["slow-collectives"].sql)
    assert [(row[4], *row[6:]) for row in answered] == [
        (0, 2, 1, 0.03, 0.0, 3.1, 2),
        (1, 2, 0, 0.0, 0.03, 3.0, 2),
        (2, 2, 0, None, None, None, 2),
    ]


@pytest.mark.slow
@settings(max_examples=examples(12), deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 20))
def test_who_the_others_wait_for_is_what_a_walk_finds(
    tmp_path_factory: pytest.TempPathFactory, seed: int, n_ranks: int, n_calls: int
) -> None:
    folder, by_rank = tmp_path_factory.mktemp("i"), made(seed, n_ranks, n_calls)
    for rank, calls in by_rank.items():
        texts = [text for day, call in calls for text in lines(rank, [call], at_us=START_US + day * DAY_US)]
        if texts:
            write(folder / "in" / f"rank{rank}.log", texts)
    if not (folder / "in").is_dir():
        return
    lake = loaded(INPUT, sorted((folder / "in").iterdir()), ["inspector_matches"])
    answered = rows(lake, load_questions()["slow-collectives"].sql)
    first = min(row[0] for row in answered) if answered else None
    assert first is None or first.toordinal() >= 719163 + START_US // DAY_US
    sums_by_rank = {
        (row[0].toordinal() - 719163 - START_US // DAY_US, row[4]): [
            row[6],
            row[7],
            round(row[8] * 1000),
            round(row[9] * 1000),
        ]
        for row in answered
    }
    # The answers have milliseconds with two digits (10 us), so the table is compared.
    exact = rows(lake, f"SELECT (dumped_ns // 1000 - {START_US}) // {DAY_US}, rank, count(*), count(*) FILTER (is_last),"
                 " sum(caused_wait_ns) // 1000, sum(waited_ns) // 1000 FROM inspector_matches GROUP BY 1, 2"
                 )  # fmt: skip
    expected = waits(by_rank)
    assert {(day, rank): [*map(int, rest)] for day, rank, *rest in exact} == expected
    assert {key: sums[:2] for key, sums in sums_by_rank.items()} == {key: sums[:2] for key, sums in expected.items()}


@settings(max_examples=examples(300), deadline=None)
@given(
    st.lists(
        st.one_of(st.binary(max_size=60), st.sampled_from([t.encode() for v in VERSIONS for t in lines(0, CALLS, v)]))
    ),
    st.data(),
)
def test_any_line_is_a_row_or_a_finding(texts: list[bytes], data: st.DataObject) -> None:
    """No line is ignored silently: each is a row, a marker of a dump, or counted."""
    records, n_rows = Records(), 0
    for text in texts:
        if data.draw(st.booleans()) and text:
            at = data.draw(st.integers(0, len(text) - 1))
            text = text[:at] + data.draw(st.binary(min_size=1, max_size=3)) + text[at + 1 :]
        before = sum(fault.n for fault in records.faults.by_name.values())
        row = records.row(text)
        added = sum(fault.n for fault in records.faults.by_name.values()) - before
        n_rows += row is not None
        assert row is None or len(row) == 19
        assert row is not None or added or b"dump_stats" in text or b"proxy" in text
    records.finish(False)
    assert n_rows <= len(texts) and records.n_lines == len(texts)
