"""Loads of experts: split sizes as PyTorch writes them, and a capture whose numbers can be added up by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.lake import Lake
from pipelines.lake.read.sandbox import LockedLake
from pipelines.modelling.split_sizes import peers
from pipelines.models.catalog import load_catalog
from pipelines.models.questions import load_questions
from pipelines.readers.ingest import ingest
from pipelines.runs.materialize.run_order import materialize_all
from tests.effort import examples
from tests.fleet.fleet_world import BASE_NS
from tests.harness import call, each, kernel, rows_of, x

LOAD = "peer, peer_rank, sent_rows, received_rows, sent_bytes, received_bytes, all_sent_rows, all_received_rows"


def format_list(numbers: list[int]) -> str:
    """Return a list as PyTorch's format_list writes it, truncated after 30 numbers."""
    return f"[{', '.join(map(str, numbers[:30]))}{', ...' if len(numbers) > 30 else ''}]"


def exchange(
    sent: list[int], received: list[int], width: int = 4, start: float = 0, dur: float = 10, **more: Any
) -> dict:
    args = {
        "Collective name": "all_to_allv", "dtype": "BFloat16", "Group size": len(sent), "Process Group Name": "ep",
        "Process Group Ranks": format_list(list(range(len(sent)))), "In msg nelems": sum(sent) * width,
        "Out msg nelems": sum(received) * width, "In split size": format_list(sent), "Out split size": format_list(received),
    }  # fmt: skip
    event = kernel("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", start, dur, 1, stream=9)
    return event | {"args": event["args"] | args | more}


def test_rows_and_bytes_of_each_peer() -> None:
    """Each row has 4 elements of 2 bytes."""
    assert rows_of([exchange([3, 0, 5], [1, 2, 0])], "expert_load", LOAD) == [
        (0, 0, 3, 1, 24, 8, 8, 3),
        (1, 1, 0, 2, 0, 16, 8, 3),
        (2, 2, 5, 0, 40, 0, 8, 3),
    ]


def test_sizes_that_no_message_has_are_unknown() -> None:
    """Sizes that no message can have are unknown.

    Each element has two bytes. The file is corrupt, and the other traces of its batch must not fail because of it.
    """
    largest = (2**63 - 1) // 2 // 3
    row_bytes = {largest * 3: largest * 2, (largest + 1) * 3: None, -3: None}
    events = [
        exchange([1, 2], [1, 2], start=20 * place, **dict.fromkeys(("In msg nelems", "Out msg nelems"), n))
        for place, n in enumerate(row_bytes)
    ]
    rows = rows_of(events, "expert_load", "sent_bytes, received_bytes", "event_id, peer")
    assert rows == [(n and n * of, n and n * of) for n in row_bytes.values() for of in (1, 2)]


def test_sizes_of_the_call_count_where_the_kernel_has_none() -> None:
    comms_op = x("cpu_op", "record_param_comms", 0, 5, **exchange([3, 4], [1, 2])["args"], **{"External id": 77})
    bare = kernel("ncclDevKernel_SendRecv", 20, 9, 1, stream=9)
    bare["args"]["External id"] = 77
    rows = rows_of([comms_op, bare], "expert_load", "event_id, peer, sent_rows, received_rows, duration_ns")
    assert rows == [(1, 0, 3, 1, 9000), (1, 1, 4, 2, 9000)]


NO_SIZES: tuple[dict[str, Any], ...] = (
    {"In split size": "[]", "Out split size": "[]"},
    {"In split size": "nonsense", "Out split size": "[1, -2]"},
    {"In split size": None, "Out split size": "[1,,2]"},
    {"In split size": "[99999999999999999999]", "Out split size": ""},
    {"Collective name": "allreduce"},
)


def test_no_sizes_no_rows() -> None:
    traces = [[exchange([3, 4], [1, 2], **more)] for more in NO_SIZES]
    for more, con in zip(NO_SIZES, each(traces, "expert_load"), strict=True):
        assert con.execute(f"SELECT {LOAD} FROM expert_load").fetchall() == [], more


def test_what_is_not_written_is_null() -> None:
    """Loads that the trace does not contain are NULL.

    The cases are a truncated list, rows of unequal length, an unknown type, and a list on one side only.
    """
    cut = exchange([1] * 31, [2] * 31)
    uneven = exchange([3, 4], [1, 2])
    uneven["args"] |= {"In msg nelems": 29}
    unknown = exchange([3, 4], [1, 2], dtype="Qint8")
    one_side = exchange([3, 4], [1, 2])
    one_side["args"] |= {"Out split size": "[]"}
    loads = [con.execute(f"SELECT {LOAD} FROM expert_load ORDER BY peer").fetchall() for con in each(
        [[cut], [uneven], [unknown], [one_side]], "expert_load"
    )]  # fmt: skip
    assert loads[0] == [(peer, peer, 1, 2, None, None, None, None) for peer in range(30)]
    assert loads[1][0] == (0, 0, 3, 1, None, 8, 7, 3)
    assert loads[2][0] == (0, 0, 3, 1, None, None, 7, 3)
    assert loads[3] == [(0, 0, 3, None, 24, None, 7, None), (1, 1, 4, None, 32, None, 7, None)]


@settings(max_examples=examples(80), deadline=None)
@given(st.lists(st.integers(0, 2**40), max_size=40), st.lists(st.integers(0, 2**40), max_size=40))
def test_lists_come_back(sent: list[int], received: list[int]) -> None:
    rows = peers(format_list(sent), format_list(received), None)
    for numbers, place, total in ((sent, 2, 4), (received, 3, 5)):
        assert [row[place] for row in rows if row[place] is not None] == numbers[:30]
        assert {row[total] for row in rows} <= {sum(numbers) if 0 < len(numbers) <= 30 else None}
    assert [row[0] for row in rows] == list(range(min(30, max(len(sent), len(received)))))


@settings(max_examples=examples(80), deadline=None)
@given(st.text(alphabet="[]0123456789, .-x", max_size=30), st.none() | st.text(max_size=9))
def test_any_text_is_read_or_left(sent: str, received: str | None) -> None:
    for row in peers(sent, received, sent):
        assert all(value is None or value >= 0 for value in row)


# A capture ------------------------------------------------------------------------------------------------------------

# Rows that rank i sends to rank j in each of three layers.
EVEN = [[5, 5, 5], [5, 5, 5], [5, 5, 5]]
LAYERS = [[[10, 30, 0], [10, 20, 5], [10, 10, 10]], EVEN, EVEN]
STARTS = (100, 400, 700, 1000, 1300, 1600)  # µs: dispatch and combine of each layer
# Delay of each rank at each of them, µs. Rank 1 has the most rows, and is late to the first combine.
LATE = {0: (0, 0, 0, 0, 0, 0), 1: (0, 60, 0, 20, 0, 0), 2: (0, 0, 7, 0, 0, 0)}


def rank_trace(rank: int, **more: Any) -> dict[str, Any]:
    events = [x("user_annotation", "ProfilerStep#1", 50, 1800)]
    for number, start in enumerate(STARTS):
        rows = LAYERS[number // 2]
        sent, received = rows[rank], [row[rank] for row in rows]
        if number % 2:  # received rows are sent back
            sent, received = received, sent
        latest, late = max(times[number] for times in LATE.values()), LATE[rank][number]
        begin, end = start + late, start + latest + 20
        done = exchange(sent, received, start=begin, dur=end - begin, **more)
        done["args"] |= {"correlation": number + 1}
        events += [call("cudaLaunchKernel", begin - 20, 3, number + 1), done]
    info = {"rank": rank, "world_size": 3}
    return {"distributedInfo": info, "baseTimeNanoseconds": BASE_NS, "traceEvents": events}


def balance(folder: Path, ranks: tuple[int, ...] = (0, 1, 2), **more: Any) -> tuple[list[dict], list[dict]]:
    """Return the rows of expert_balance and the answer of the saved question."""
    (folder / "job").mkdir()
    for rank in ranks:
        (folder / "job" / f"rank{rank}.json").write_text(json.dumps(rank_trace(rank, **more)))
    lake = Lake(folder / "lake")
    ingest([str(folder / "job")], lake, job="moe")
    materialize_all(lake, ["captures", "expert_load", "expert_balance"])
    queries = ("SELECT * FROM expert_balance ORDER BY collective_id", load_questions()["expert-balance"].sql)
    answers = []
    with LockedLake(lake) as locked:
        for query in queries:
            with locked.asked(query) as answer:
                assert answer is not None
                answers.append([dict(zip(answer.columns, row, strict=True)) for row in answer.rows()])
    return answers[0], answers[1]


@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(st.lists(st.none() | st.integers(0, 50), min_size=2, max_size=4), min_size=1, max_size=4),
    st.integers(0, 5),
)
def test_balance_is_that_of_the_loads(collectives: list[list[int | None]], missing: int) -> None:
    """The balance equals that of the loads, as computed here.

    The model runs on tables in their state after matching.

    None is an unknown load, and `missing` ranks have no trace.
    """
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE expert_load (trace_id VARCHAR, event_id BIGINT, all_received_rows BIGINT, received_bytes BIGINT)"
    )
    con.execute(
        "CREATE TABLE collective_ranks (capture_id VARCHAR, collective_id BIGINT, rank BIGINT, trace_id VARCHAR, event_id BIGINT)"
    )
    con.execute(
        "CREATE TABLE collectives (capture_id VARCHAR, collective_id BIGINT, lane BIGINT, step BIGINT, group_name VARCHAR, "
        "group_size BIGINT, kind VARCHAR, wait_ns BIGINT, culprit_rank BIGINT, refused_reason VARCHAR)"
    )
    for number, loads in enumerate(collectives):
        size = len(loads) + missing
        con.execute(
            f"INSERT INTO collectives VALUES ('c', {number}, 0, 1, 'ep', {size}, 'alltoall', {100 * number}, 0, NULL)"
        )
        for rank, load in enumerate(loads):
            con.execute(f"INSERT INTO collective_ranks VALUES ('c', {number}, {rank}, 't{rank}', {number})")
            if load is not None:  # the load comes from two ranks
                for part in (load // 2, load - load // 2):
                    con.execute(f"INSERT INTO expert_load VALUES ('t{rank}', {number}, {load}, {8 * part})")
    expected = []
    for number, loads in enumerate(collectives):
        known = [load for load in loads if load is not None]
        if known:
            mean = sum(known) / len(known)
            is_whole = len(known) == len(loads) and not missing and mean > 0
            after = 100 * (number + 1) if number + 1 < len(collectives) else None
            busiest = loads.index(max(known))
            waited = None if after is None else busiest == 0
            imbalance = max(known) / mean if is_whole else None
            expected.append(
                (number, len(known), min(known), max(known), mean, 8 * max(known), imbalance, busiest, after, waited)
            )
    columns = "collective_id, n_ranks_known, min_rows, max_rows, mean_rows, max_bytes, imbalance, busiest_rank, next_wait_ns, is_waited_for"
    model = load_catalog().models["expert_balance"].sql
    assert con.execute(f"SELECT {columns} FROM ({model}) ORDER BY 1").fetchall() == expected
    con.execute("UPDATE collectives SET refused_reason = 'noisy_ends: 400 us'")
    waits = con.execute(f"SELECT DISTINCT wait_ns, next_wait_ns, is_waited_for FROM ({model})").fetchall()
    assert waits in ([], [(None, None, None)])


@pytest.mark.slow
def test_the_balance_of_a_capture_added_up_by_hand(tmp_path: Path) -> None:
    """The ranks receive 30, 60 and 15 rows in the first dispatch.

    In the combine they receive the rows sent: 40, 35 and 30.
    """
    rows, (answer,) = balance(tmp_path)
    columns = ("group_size", "n_ranks_known", "min_rows", "max_rows", "mean_rows", "max_bytes", "busiest_rank")
    even = (3, 3, 15, 15, 15.0, 15 * 8, 0)
    assert [tuple(row[name] for name in columns) for row in rows] == [
        (3, 3, 15, 60, 35.0, 60 * 8, 1),
        (3, 3, 30, 40, 35.0, 40 * 8, 0),
        *[even] * 4,
    ]
    assert [row["imbalance"] for row in rows] == [60 / 35, 40 / 35, 1.0, 1.0, 1.0, 1.0]
    waits = [0, 2 * 60_000, 2 * 7000, 2 * 20_000, 0, 0]
    assert [row["wait_ns"] for row in rows] == waits
    assert [row["next_wait_ns"] for row in rows] == [*waits[1:], None]
    # Late ranks: rank 1 at the first combine, rank 2 at the second dispatch, rank 1 at the second combine.
    assert [row["is_waited_for"] for row in rows] == [True, False, False, True, True, None]
    assert (answer["n_collectives"], answer["max_imbalance"], answer["wait_ms"]) == (6, 1.714, 0.174)
    assert (answer["wait_after_ms"], answer["for_busiest_ms"]) == (0.174, 0.12)


@pytest.mark.slow
def test_no_balance_without_all_ranks(tmp_path: Path) -> None:
    rows, (answer,) = balance(tmp_path, ranks=(0, 1))
    assert [(row["group_size"], row["n_ranks_known"], row["imbalance"]) for row in rows] == [(3, 2, None)] * 6
    assert answer["max_imbalance"] is None
