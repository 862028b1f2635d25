"""Memory, collectives, hangs and operators by shape on the page of two ranks, whose numbers were worked out by hand."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipelines.faces.cli.fleet.flight_recorder import conclusion
from pipelines.faces.report.pictures.curve import STRETCHES, carried
from pipelines.faces.report.sections.hangs import _stuck_on
from pipelines.models.questions import rows_of_question
from pipelines.readers.flight_recorder.rows import verdict_rows
from pipelines.readers.flight_recorder.verdicts import judge
from tests.faces.report.read_page import Page, report
from tests.faces.report.test_page import CODES, SECTIONS
from tests.harness import call, kernel, op, x
from tests.readers.flight_recorder.make import call as call_of
from tests.readers.flight_recorder.make import made, waits

H100 = [{"id": i, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 80 << 30, "numSms": 132} for i in range(2)]
TOTALS = ((0, 1000, 5000), (40, 3000, 5000), (41, -1500, 5000), (90, 500, 6000))  # µs, bytes, reserved
START = 700  # bytes in use when the trace begins


def memory(ts: float, size: int, address: int, allocated: int, reserved: int) -> dict[str, Any]:
    args = {"Bytes": size, "Device Type": 1, "Device Id": 0, "Addr": address}
    args |= {"Total Allocated": allocated, "Total Reserved": reserved}
    return {
        "ph": "i",
        "cat": "cpu_instant_event",
        "s": "t",
        "name": "[memory]",
        "pid": 1,
        "tid": 1,
        "ts": ts,
        "args": args,
    }


def collective(name: str, start: float, us: float, elements: int, rank: int, correlation: int) -> dict[str, Any]:
    event = kernel("ncclDevKernel_Generic", start, us, correlation, stream=20, device=rank)
    event["args"] |= {
        "Collective name": name,
        "In msg nelems": elements,
        "Out msg nelems": elements,
        "dtype": "BFloat16",
    }
    return event | {
        "args": event["args"] | {"Group size": 2, "Process Group Name": "0", "Process Group Ranks": "[0, 1]"}
    }


def trace(rank: int) -> dict[str, Any]:
    """Return a step with two products of 1024³ in 100 and 300 µs, one of 64³ in 50 µs, and four collectives."""
    events = [x("user_annotation", "ProfilerStep#1", 0, 2000)]
    for number, (size, us) in enumerate(((1024, 100), (1024, 300), (64, 50)), 1):
        shapes = {"Input Dims": [[size, size]] * 2, "Input type": ["c10::BFloat16"] * 2, "Concrete Inputs": ["", ""]}
        events += [
            x("cpu_op", "aten::mm", 400 * number, 50, **shapes),
            call("cudaLaunchKernel", 400 * number + 1, 5, number),
            kernel("gemm", 400 * number + 60, us, number, device=rank),
        ]
    for number, (name, us, elements) in enumerate(
        (("allreduce", 10, 1000), ("allreduce", 30, 1000), ("allreduce", 15, 64), ("broadcast", 20, 1000)), 4
    ):
        events.append(call("cudaLaunchKernel", 1600 + 10 * number, 5, number))
        events.append(collective(name, 2000 + 100 * number, us, elements, rank, number))
    if rank == 0:
        total = START
        for number, (ts, size, reserved) in enumerate(TOTALS):
            total += size
            events.append(memory(ts, size, number, total, reserved))
    return {"distributedInfo": {"rank": rank, "world_size": 2}, "deviceProperties": H100, "traceEvents": events}


def dump(rank: int) -> dict[str, Any]:
    """Return a rank's Flight Recorder dump. Rank 1 does not call the third collective."""
    entries = [
        {
            "record_id": number, "process_group": ["0", "default"], "collective_seq_id": number, "p2p_seq_id": 0,
            "profiling_name": "nccl:all_reduce", "time_created_ns": 10**18 + number, "input_sizes": [[8]],
            "output_sizes": [[8]], "input_dtypes": ["Float"], "output_dtypes": ["Float"],
            "state": "completed" if number < 3 else "scheduled",
        }
        for number in range(1, 4 - rank)
    ]  # fmt: skip
    groups = {"0": {"name": "0", "desc": "default", "ranks": "[0, 1]"}}
    return {"version": "2.10", "pg_config": groups, "entries": entries}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the traces and dumps of a job."""
    made = tmp_path_factory.mktemp("made") / "job"
    made.mkdir()
    for rank in range(2):
        (made / f"rank{rank}.json").write_text(json.dumps(trace(rank)))
        (made / f"dump_{rank}").write_text(json.dumps(dump(rank)))
    return made


@pytest.fixture(scope="module")
def page(folder: Path) -> Page:
    return report(folder.parent, folder, "--rank", 0)


def numbers(rows: list[dict[str, str | None]], *keys: str) -> list[tuple[float | None, ...]]:
    return [tuple(None if row[key] is None else float(row[key] or 0) for key in keys) for row in rows]


def near(value: float) -> Any:
    return pytest.approx(value, rel=1e-9)


def test_every_section_is_there_in_words(page: Page) -> None:
    """The page has every section, in words instead of codes.

    The page of a capture in a lake has the same sections (test_page.py, slow).
    """
    assert set(SECTIONS) <= set(page.texts)
    assert "script" not in page.tags and not {"src", "onload"} & page.attributes
    text = "".join(page.texts.values())
    assert not [name for name in CODES if name in text]


def test_memory_s_peaks_and_who_has_none(page: Page) -> None:
    keys = ("rank", "device_type", "peak_allocated_bytes", "peak_reserved_bytes", "peak_relative_bytes", "net_bytes")
    assert numbers(page.rows("memory_peaks"), *keys, "n_allocs", "n_frees") == [(0, 1, 4700, 6000, 4000, 3000, 3, 1)]
    assert "no [memory] events in the trace of rank 1: record with profile_memory=True" in page.texts["memory"]


def test_memory_s_curve_has_the_steps_of_the_trace(page: Page) -> None:
    used, held = page.lines["first"], page.lines["second"]
    ground = used[0][1]
    whole = ground - min(y for _, y in held)  # 6000 bytes
    levels = [round((ground - y) / whole * 6000, -2) for _, y in used[1:-1]]
    assert list(dict.fromkeys(levels)) == [1700, 4700, 3200, 3700]
    width = used[-1][0] - used[0][0]
    rise = next(x for x, y in used if (ground - y) / whole > 0.75)
    assert (rise - used[0][0]) / width == pytest.approx(40 / 90, abs=1 / STRETCHES)


@pytest.mark.parametrize("seed", range(4))
def test_stretches_are_the_highest_of_every_nanosecond(seed: int) -> None:
    dice = random.Random(seed)
    times = sorted(dice.sample(range(10**6), (1, 2, 40, 300)[seed]))
    events = [(ts, seq, dice.randrange(-50, 50), dice.randrange(100)) for seq, ts in enumerate(times)]
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE memory_timeline (trace_id VARCHAR, device_type BIGINT, device BIGINT, at_ns BIGINT, seq BIGINT, "
        "net_bytes BIGINT, allocated_bytes BIGINT, reserved_bytes BIGINT)"
    )
    con.executemany("INSERT INTO memory_timeline VALUES ('t', 1, NULL, ?, ?, ?, NULL, ?)", events)
    con.execute("CREATE TABLE traces AS SELECT 't' AS trace_id, 'j' AS job, 'f' AS file, 0 AS rank")
    rows = rows_of_question(con, "memory-over-time", trace="t")
    used, held = (carried(rows, f"most_{of}", f"last_{of}") for of in ("bytes", "reserved_bytes"))
    first, length = times[0], times[-1] - times[0]
    assert {(row["span_ns"], row["is_relative"], row["device"]) for row in rows} == {(length, True, None)}
    places = [(ts - first) * STRETCHES // (length + 1) for ts in times]
    for curve, of in ((used, 2), (held, 3)):
        for place, highest in enumerate(curve):
            inside = [event[of] for event, at in zip(events, places, strict=True) if at == place]
            before = [event[of] for event, at in zip(events, places, strict=True) if at < place]
            assert highest == max(inside + before[-1:])


def test_collectives_are_summed_by_kind_and_size_the_worst_first(page: Page) -> None:
    keys = (
        "bytes",
        "group_size",
        "n",
        "duration_ns",
        "ideal_ns",
        "algbw_gigabytes_per_s",
        "busbw_lower_gigabytes_per_s",
        "link_utilization",
    )
    expected = [(2000, 2, 40_000), (2000, 1, 20_000), (128, 1, 15_000)]
    assert numbers(page.rows("collective_bandwidth_by_size"), *keys) == [
        (size, 2, n, ns, near(n * size / 450), near(n * size / ns), near(n * size / ns), near(n * size / ns / 450))
        for size, n, ns in expected
    ]
    assert "Of rank 0, the one asked for" in page.texts["collectives"]


def test_operators_of_equal_shapes_are_one_row_with_what_could_be_gained(page: Page) -> None:
    rows = numbers(page.rows("op_shape_utilization"), "n_ops", "gpu_ns", "above_ns", "tflops", "mfu")
    large, moved = 2 * 2 * 1024**3, 3 * 2 * 64**2
    tflops = large / 4e8, 2 * 64**3 / 5e7
    assert rows == [
        (2, 400_000, near(400_000 - large / 989.4e3), near(tflops[0]), near(tflops[0] / 989.4)),
        (1, 50_000, near(50_000 - moved / 3350), near(tflops[1]), near(tflops[1] / 989.4)),
    ]
    assert "1024x1024, 1024x1024" in page.texts["utilization"]


def test_the_hang_is_told_with_who_is_the_reason(page: Page) -> None:
    text = page.texts["hangs"]
    assert "the job is stuck on all_reduce number 3 of group 0: rank 1 did not call it; rank 0 waits" in text
    assert "2 dumps; 0 of 5 calls are found in the traces" in text
    assert page.texts["verdict"].startswith("In shortThe job is stuck on all_reduce number 3 of group 0")
    assert [(row["seq"], row["is_root"]) for row in page.rows("flight_recorder_verdicts")] == [("3", "True")]


GROUP = {"0": {"name": "0", "desc": "", "ranks": "[0, 1, 2]"}}


@pytest.mark.parametrize(
    ("calls", "begins", "why"),
    [
        ([waits(1), waits(1), waits(1)], 0, "all ranks joined and none completed"),
        ([waits(1), waits(1)], 0, "all ranks with a dump joined and none completed; rank 2 left no dump"),
        ([waits(1), waits(1, "broadcast"), waits(1, "reduce")], 0, "ranks 0, 1, 2 called another operation"),
        ([call_of(1), waits(1), call_of(1)], 0, "rank 1 has not finished it, the others have"),
        ([waits(1), waits(1), None], 9, "rank 2 may not have called it (their ring buffers no longer show it); ranks"),
        ([waits(1), None], 9, "rank 1 may not have called it"),
    ],
)
def test_a_hang_is_worded_as_by_the_command(
    tmp_path: Path, calls: list[dict[str, Any] | None], begins: int, why: str
) -> None:
    """A rank whose call is None has a call of another group, after the calls that its ring buffer lost."""
    other = call_of(7, group="1")
    dumps = [
        made(tmp_path, rank, of or other, groups=GROUP, begins=0 if of else begins) for rank, of in enumerate(calls)
    ]
    verdict = judge(dumps)
    (root,) = (row for row in verdict_rows(verdict) if row["is_root"])
    where, said = _stuck_on(root)
    assert said.startswith(why) and where in conclusion(verdict) and said in conclusion(verdict)


@pytest.fixture(scope="module")
def bare_page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """Return the page of a trace without names and arguments. It has an annotation, GPU work and [memory] events."""
    events = [
        x("user_annotation", "", 0, 100),
        op("aten::mm", 0, 50),
        call("cudaLaunchKernel", 5, 5, 1),
        kernel("", 20, 40, 1),
        *({"ph": "i", "name": "[memory]", "pid": 100, "tid": 1, "ts": ts} for ts in (10, 30)),
    ]
    path = tmp_path_factory.mktemp("bare") / "t.json"
    path.write_text(json.dumps({"traceEvents": [{**event, "name": event["name"] or None} for event in events]}))
    return report(path.parent, path)


@pytest.mark.slow(together="report without names")  # 4 s
def test_memory_events_without_their_arguments_draw_nothing(bare_page: Page) -> None:
    """Memory events without arguments give counts of events but no sizes.

    The page exists, although the trace records nothing about memory.
    """
    (row,) = bare_page.rows("memory_peaks")
    assert {key for key, value in row.items() if value is not None} <= {"n_allocs", "n_frees"}


@pytest.mark.slow(together="report without names")
def test_a_page_of_events_without_names(bare_page: Page) -> None:
    """The page describes work without a name. Annotations without a name are not spans."""
    assert [(row["shown"], row["duration_ns"]) for row in bare_page.rows("kernels")] == [(None, "40000")]
    assert "Work without a name takes the most GPU time" in bare_page.texts["verdict"]
    assert "no profiler steps, annotations, modules or tasks" in bare_page.texts["spans"]
