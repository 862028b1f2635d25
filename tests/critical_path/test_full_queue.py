"""Launches that block because their stream's queue is full, and launches that are slow for other reasons."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from pipelines.synthetic import CaptureSpec, write_capture
from pipelines.synthetic.capture import Capture
from tests.batch import Batch
from tests.critical_path.invariants import check_rule_in
from tests.critical_path.test_covers import TABLES, path_in
from tests.harness import call, connect_all, create_step, each, kernel

Events = list[dict[str, Any]]
KERNEL_US = 50


def launches(
    n: int,
    limit: int = 10**6,
    took: Any = lambda i: 5,
    name: str = "cudaLaunchKernel",
    late: float = 6,
    since: int = 0,
    kernel_us: float = KERNEL_US,
) -> Events:
    """Return consecutive calls and their kernels.

    From number `since` on, a call blocks while the queue contains `limit` launches, and returns `late` us after there
    is room.
    """
    trace: Events = []
    now, ends = 0.0, []
    for i in range(n):
        end = now + took(i)
        if since <= i >= limit and ends[i - limit] > now:
            end = max(end, ends[i - limit] + late)
        start = max(now + 6, ends[-1] + 1 if ends else 0)
        ends.append(start + kernel_us)
        trace += [call(name, now, end - now, i + 1), kernel("k", start, kernel_us, i + 1)]
        now = end + 1
    return trace


def behind_copies(n: int, limit: int, late: float = 8) -> Events:
    """Return launches of small kernels, and a long copy from the host before every seventh kernel.

    Copies take no room in the queue. A launch that a copy holds up returns `late` us after the copy.
    """
    trace: Events = []
    now, free, begins = 0.0, 0.0, []
    for i in range(n):
        if i % 7 == 0:
            trace += [call("cudaMemcpyAsync", now, 3, 1000 + i)]
            trace += [
                kernel("Memcpy HtoD (Pinned -> Device)", max(free, now + 6), 300, 1000 + i) | {"cat": "gpu_memcpy"}
            ]
            free, now = max(free, now + 6) + 301, now + 4
        end = now + 5
        if i >= limit and begins[i - limit] > now:
            end = max(end, begins[i - limit] + (late if begins[i - limit] - now > 250 else 8))
        begins.append(max(free, now + 6))
        free = begins[-1] + 6
        trace += [call("cudaLaunchKernel", now, end - now, i + 1), kernel("k", begins[-1], 5, i + 1)]
        now = end + 1
    return trace


def jitter(at: float, by: float) -> Any:
    rng = random.Random(3)
    return lambda i: rng.uniform(at - by, at + by)


WANDERING = jitter(51, 25)
FULL = {
    "cuda": launches(200, 120),
    "hip": launches(200, 100, name="hipModuleLaunchKernel"),
    "with copies in between": [
        {**e, "name": "Memcpy DtoD", "cat": "gpu_memcpy"} if e["name"] == "k" and i % 14 == 1 else e
        for i, e in enumerate(launches(200, 120))
    ],
}
NOT_FULL = {
    "the queue is short": launches(200, 60),
    "slow as it grows": launches(200, took=lambda i: 40 if i > 120 else 5),
    "slow as it shrinks": launches(200, took=lambda i: 60 if i > 150 else 5),
    "slow at random": launches(220, took=lambda i: 900 if i % 20 == 7 else 5),
    "as slow as the kernels": launches(300, took=lambda i: WANDERING(i) if i > 140 else 5),
    "as slow, at one depth": launches(300, took=lambda i: 50 if i > 140 else 5),
    "late": launches(200, 120, late=30),
    "the queue was deeper before": launches(220, 120, since=160),
}


@pytest.mark.slow  # 6 s
def test_a_full_queue_is_found_by_its_depth() -> None:
    all_waits = [
        con.execute("SELECT event_id, source_event_id FROM _queue_waits ORDER BY ALL").fetchall()
        for con in each([*FULL.values(), *NOT_FULL.values()], "_profiles", "_queue_waits")
    ]
    for name, limit, waits in zip(FULL, (120, 100, 120), all_waits, strict=False):
        assert waits == [(2 * i, 2 * (i - limit) + 1) for i in range(limit, 200)], name
    assert dict(zip(NOT_FULL, all_waits[len(FULL) :], strict=True)) == {name: [] for name in NOT_FULL}


@pytest.mark.slow  # 4 s
def test_launches_whose_work_the_file_lacks_are_in_the_queue() -> None:
    """In a file that is truncated while the queue is full, the last launches waited for work whose kernels are missing.

    Copies among the launches count, and clocks may disagree. A call waits for nothing if it is quick, returns at
    another time or while there was room, or belongs to another thread or stream.
    """

    def late(e: dict[str, Any], **changed: Any) -> dict[str, Any]:
        return {**e, **changed} if e["args"]["correlation"] > 170 else e

    def between(i: int) -> dict[str, Any]:
        before = cut[i]
        return call("cudaLaunchKernel", before["ts"] + before["dur"] + 0.25, 0.5, 5000 + i)

    usual = launches(200, 120)
    cut = usual[: 2 * 170] + usual[2 * 170 :: 2]
    copies = [late(e, name="cudaMemcpyAsync") if i % 3 else e for i, e in enumerate(cut)]
    early = [late(e, dur=e["dur"] - 5.5) for e in cut]  # by the host's clock, before the kernel begins
    slow = [late(e, dur=e["dur"] - 25) for e in cut]  # the calls return halfway through a kernel
    # There is room for twenty launches, however many earlier launches have no work in the file.
    room = [*cut[: 2 * 170], *cut[2 * 170 + 20 :], *(between(2 * i) for i in range(40, 100))]
    quick, other = [*cut, between(350)], [late(e, tid=2) for e in cut]
    elsewhere = [*cut, *(late(e, args={**e["args"], "stream": 8}) for e in usual[2 * 170 + 1 :: 2])]
    all_waits = [
        con.execute("SELECT event_id, source_event_id FROM _queue_waits ORDER BY ALL").fetchall()
        for con in each([cut, early, quick, copies, slow, room, other, elsewhere], "_profiles", "_queue_waits")
    ]
    known, more = ([(2 * i, 2 * (i - 120) + 1) for i in range(*ends)] for ends in ((120, 170), (170, 200)))
    more = [(340 + i, source) for i, (_, source) in enumerate(more)]
    assert all_waits[0] == all_waits[1] == all_waits[2] == known + more
    assert all_waits[3] == known + [wait for wait in more if "Launch" in copies[wait[0]]["name"]]
    assert all_waits[4:] == [known] * 4


@pytest.mark.slow  # 4 s
def test_copies_from_the_host_hold_up_the_queue_and_take_no_room() -> None:
    """On an H100 that copies, 1,021 launches wait behind any number of copies, and none of them is slow by itself."""
    traces = [behind_copies(400, 120, late) for late in (8, 40)]
    query = """
        SELECT c.correlation - 1, arg_max(w.name, w.start_ns) FROM _queue_waits AS q
        JOIN events AS c ON c.event_id = q.event_id JOIN events AS w ON w.event_id = q.source_event_id
        GROUP BY ALL ORDER BY 1
    """
    expected = ["Memcpy HtoD (Pinned -> Device)" if (i - 120) % 7 == 0 else "k" for i in range(120, 400)]
    for con in each(traces, "_profiles", "_queue_waits", "events"):
        assert con.execute(query).fetchall() == [*zip(range(120, 400), expected, strict=True)]
    synced = [[*trace, call("cudaDeviceSynchronize", 9000, 14000, 9999)] for trace in traces]
    for con in each(synced, *TABLES):
        assert sum(us for who, us, _ in path_in(con) if who == "cudaLaunchKernel") < 50


SYNCED = [*launches(200, 120), call("cudaDeviceSynchronize", 3900, 6400, 900)]
# Truncated while the queue is full: the kernel that made room binds the last launch.
FULL_AT_THE_END = [e for i, e in enumerate(launches(200, 120)) if i % 2 == 0 or i < 2 * 85]
# Copies within a device take room in the queue, and the call of such a copy counts as blocking.
COPIES = [
    {**e, "name": "Memcpy DtoD (Device -> Device)", "cat": "gpu_memcpy"} if e["name"] == "k" else e
    for e in launches(200, 120, name="cudaMemcpy")
]
LOADS = launches(500, 120, took=lambda i: {125: 3005, 130: 905}.get(i, 5))  # the queue empties during the first


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    spec = CaptureSpec(ranks=1, steps=2, shape="full_queue", tokens=100, ops_per_layer=2, op_ns=4000, queue_limit=110)
    return write_capture(spec, tmp_path_factory.mktemp("full_queue"))


@pytest.fixture(scope="module")
def traces(capture: Capture) -> Batch:
    """Compute the traces of the tests below."""
    batch = Batch(*TABLES, "critical_path_nodes", "critical_path_events", steps_of="_call_claims")
    batch.add_all([("synced", SYNCED), ("full at the end", FULL_AT_THE_END), ("copies", COPIES), ("loads", LOADS)])
    batch.add("with copies in between", FULL["with copies in between"])
    batch.add("capture", capture.ranks[0].path)
    return batch


def test_a_launch_that_blocked_waited_for_the_stream(traces: Batch) -> None:
    """If the queue is full, kernels make up the path, although launch calls cover as much of the window."""
    synced = path_in(traces.show("synced"))
    of_launches = sum(us for who, us, _ in synced if who == "cudaLaunchKernel")
    of_kernels = sum(us for who, us, _ in synced if who == "k")
    assert of_kernels >= 195 * KERNEL_US and of_launches < 50
    cut = path_in(traces.show("full at the end"))
    assert sum(us for who, us, _ in cut if who == "k") > 70 * KERNEL_US


def test_every_launch_that_blocked_is_found(traces: Batch, capture: Capture) -> None:
    query = "SELECT count(*) FILTER (WHERE has_waited), count(*) FROM call_waits WHERE is_launch"
    ((waited, possible),) = traces.show_step("call_waits", "capture").execute(query).fetchall()
    assert waited == capture.ranks[0].truth.machine.blocked_launches > 50 and possible == 400 - 110


def test_a_copy_that_blocks_and_finds_the_queue_full_has_one_edge_for_each_wait(traces: Batch) -> None:
    con = traces.show_step("call_waits", "copies")
    assert con.execute("SELECT count(*) FROM call_waits WHERE is_launch").fetchall() == [(80,)]
    query = "SELECT count(*), count(DISTINCT edge_id) FROM critical_path_edges GROUP BY src_node_id, dst_node_id"
    assert set(con.execute(query).fetchall()) == {(1, 1)}
    query = "SELECT count(*) = count(DISTINCT edge_id) FROM critical_path_edges"
    assert con.execute(query).fetchall() == [(True,)]


def test_a_full_queue_keeps_the_rule(traces: Batch) -> None:
    con = traces.show("with copies in between")
    assert con.execute("SELECT count(*) FROM critical_path").fetchall()[0][0]
    check_rule_in(con)


def test_what_a_launch_takes_is_no_average_with_one_that_loads_a_module(traces: Batch) -> None:
    con = traces.show_step("bound_calls", "loads")
    assert con.execute("SELECT DISTINCT need_ns FROM bound_calls").fetchall() == [(5000,)]


@pytest.mark.slow  # a large trace
def test_a_v100_whose_queue_holds_1022(shared: Path) -> None:
    con, _ = connect_all([shared / "traces" / "single" / "v100_ns_absolute.json.gz"])
    create_step(con, "_call_claims", "call_waits")
    query = "SELECT count(*), max(end_ns - source_end_ns) FROM call_waits WHERE is_launch AND has_waited"
    ((n, longest),) = con.execute(query).fetchall()
    assert n == 1271 and longest < 25_000
