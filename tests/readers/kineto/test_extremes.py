"""Times and numbers out of range, and strange arguments.

The file is ingested, bad values are counted, and models work.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.critical_path.graph.windows import request_windows, usual_windows
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from pipelines.readers.kineto.numbers import LATEST_NS, LONGEST_NS
from tests.effort import LISTS, SLOW, at_once, first_of
from tests.harness import connect_all
from tests.readers.kineto.test_malformed import GOOD, stage, trace

FAR, LONG = LATEST_NS // 1000, LONGEST_NS // 1000  # us


@pytest.mark.parametrize(
    ("field", "text", "ns", "finding"),
    first_of(
        [
            ("ts", f"{FAR + 1}", None, "time_out_of_range"),
            ("ts", '"~5"', None, "time_not_a_number"),
            ("ts", '"15E-1"', 1500, None),
            ("dur", f"{LONG + 1}", None, "time_out_of_range"),
            ("dur", str(LONG), LONG * 1000, None),
            *(
                ("ts", text, None, "time_out_of_range")
                for text in (
                    *("-9223372036854775", "-9223372036854775.808", "18446744073709551.615", '"18446744073709551.615"'),
                    *("9223372036854775807", "1e300", "1e999", "-1e999", "9" * 400, "9" * 30 + ".5"),
                )
            ),
            *(
                ("ts", text, None, "time_not_a_number")
                for text in ('"0x10"', '"0b1"', '"~5.5"', '"~~5"', '"-"', '""', '"x"', "true")
            ),
            *(("ts", f'"{text}"', ns, None) for text, ns in ((" 5 ", 5000), ("+5", 5000), (".5", 500), ("5.", 5000))),
            *(("ts", text, ns, None) for text, ns in (("15e-1", 1500), ("1.5e3", 1_500_000))),
            *(("dur", text, None, "time_out_of_range") for text in ("9e15", "-9e15", "1e999", "9" * 400)),
            *(("dur", text, None, "time_not_a_number") for text in ('"0x10"', '"~5"')),
        ],
        5,
    ),
)
def test_times_are_exact_or_null_and_counted(tmp_path: Path, field: str, text: str, ns: int, finding: str) -> None:
    was = b'"ts": 10' if field == "ts" else b'"dur": 5'
    changed = GOOD.replace(was, f'"{field}": {text}'.encode())
    # If another event has digits that a double cannot hold, times are quoted while reading.
    for beside in (GOOD, GOOD.replace(b'"ts": 10', b'"ts": 1234567890.1230')):
        _, findings, rows, con = stage(tmp_path, trace(beside, changed, GOOD))
        assert rows[1][2 if field == "ts" else 3] == ns
        assert findings == ({finding: 1} if finding else {})
        assert con.execute("SELECT count(*) FROM events WHERE end_ns <> start_ns + duration_ns").fetchall() == [(0,)]
        assert con.execute("SELECT end_ns IS NULL FROM events WHERE event_id = 1").fetchall() == [(ns is None,)]


@pytest.mark.slow
def test_a_base_that_pushes_times_out_of_range(tmp_path: Path) -> None:
    events = trace(GOOD, GOOD.replace(b'"ts": 10', f'"ts": {FAR}'.encode()))
    base = b'"baseTimeNanoseconds": 1700000000000000000, '
    before, behind = events.replace(b'"schema', base + b'"schema'), events.replace(b'"traceName', base + b'"traceName')
    for text in (before, behind, behind[:-1] + b', "x": "' + b"y" * (10 << 20) + b'"}'):
        _, findings, rows, _ = stage(tmp_path, text)
        assert [row[2] for row in rows] == [1_700_000_000_000_010_000, None]
        assert findings == {"time_out_of_range": 1}


def test_a_begin_event_that_is_open_for_too_long(tmp_path: Path) -> None:
    begin, end = ({"ph": ph, "name": "f", "pid": 1, "tid": 1, "ts": ts} for ph, ts in (("B", -FAR), ("E", FAR)))
    _, findings, rows, _ = stage(tmp_path, json.dumps([begin, end]).encode())
    assert ([row[2:] for row in rows], findings) == ([(-FAR * 1000, None), (None, None)], {"time_out_of_range": 2})


@pytest.mark.parametrize("at", first_of([-FAR, FAR, 0], 2))
def test_times_of_one_file_lie_together(tmp_path: Path, at: int) -> None:
    """A time that is far from the median of the file's times is dropped. Times of metadata do not count."""
    near = [{"ph": "X", "name": "f", "ts": at + i * (1 if at <= 0 else -1), "dur": 1} for i in range(3)]
    far = [{"ph": "X", "name": "g", "ts": FAR // 2, "dur": 2}, {"ph": "M", "name": "process_name", "ts": -5}]
    _, findings, rows, _ = stage(tmp_path, json.dumps([far[0], *near, far[1]]).encode())
    assert [row[2:] for row in rows[:4]] == [(None, 2000), *((event["ts"] * 1000, 1000) for event in near)]
    assert findings == {"time_out_of_range": 1}


LAUNCHES = [
    event
    for i in range(6)
    for event in (
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 100 * i, "dur": 50,
         "args": {"External id": i, "Input Dims": [[4, 8], [8, 2]], "Input type": ["float", "float"], "Sequence number": i}},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 100 * i + 5, "dur": 9,
         "args": {"External id": i, "correlation": i + 1}},
        {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce" if i == 3 else "gemm", "pid": 0, "tid": 7 + i % 2,
         "ts": 100 * i + 20, "dur": 60, "args": {"External id": i, "correlation": i + 1, "stream": 7 + i % 2, "device": 0}},
        {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD", "pid": 0, "tid": 7, "ts": 100 * i + 82, "dur": 3,
         "args": {"correlation": i + 100, "stream": 7, "device": 0, "bytes": 1 << 20}},
        {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": 100 * i + 7,
         "args": {"Bytes": 512, "Total Allocated": 1024, "Total Reserved": 4096, "Device Type": 1, "Device Id": 0, "Addr": i}},
    )
] + [
    {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{i}", "pid": 1, "tid": 1, "ts": 300 * i, "dur": 299} for i in range(2)
]  # fmt: skip
EXTREMES = (
    *(-9223372036854775.808, 18446744073709551.615, -FAR, FAR, -FAR / 2, FAR / 2, LONG, -LONG, LONG / 2, 0, -1, 9e15),
    *(2**63 - 1, -(2**63), 2**62, 2**53, 10**19, 10**30, 1e308, None, True, "", "x", [], {}),
)
BROKEN = (
    *(
        "[[1,2],[",
        "[",
        "]",
        "{",
        "[[]]",
        "[1,2",
        "'",
        "\0",
        "NaN",
        "[NaN]",
        "9" * 30,
        "tensor(",
        "(" * 300,
        "[" * 100_000,
    ),
    *([[2**62, 2**62]], [[-1, -5]], [None], [["a"]], [[1, [2]]], [1e308], {"a": 1}, ["float"] * 3, [[0, 0], [0, 0]]),
)


def all_models(*traces: list) -> None:
    """Run every model over traces with these events together, and check that every trace is ingested."""
    catalog = load_catalog()
    metadata = {"distributedInfo": {"rank": 0, "world_size": 2}}
    con, trace_ids = connect_all({"traceEvents": events, **metadata} for events in traces)
    with con:
        request_windows(con, usual_windows(con, trace_ids))
        run_models(con, catalog, catalog.materialized)
        counted = con.execute("SELECT trace_id, n_events FROM traces").fetchall()
    assert sorted(counted) == sorted((trace_id, len(LAUNCHES)) for trace_id in trace_ids)
    assert len({*trace_ids}) == len(traces)


@st.composite
def spoiled(draw: st.DrawFn) -> list:
    """Draw launches of kernels with some extreme fields."""
    events = json.loads(json.dumps(LAUNCHES))
    for _ in range(draw(st.integers(1, 4))):
        event = draw(st.sampled_from(events))
        args = draw(st.booleans())
        into = event["args"] if args and "args" in event else event
        keys = (
            sorted({*into} - {"args"}) if into is not event else ["ts", "dur", "ts", "dur", "pid", "tid", "name", "cat"]
        )
        into[draw(st.sampled_from(keys))] = draw(st.sampled_from(EXTREMES) | st.sampled_from(BROKEN))
    return events


def far(*places: tuple[int, str, object]) -> list:
    events = json.loads(json.dumps(LAUNCHES))
    for at, key, value in places:
        (events[at] if key in events[at] else events[at]["args"])[key] = value
    return events


WORST = (
    far((2, "ts", -FAR), (7, "ts", FAR), (12, "ts", -FAR), (17, "ts", FAR)),
    far(*((at, "dur", LONG) for at in range(len(LAUNCHES)))),
    far(
        (3, "bytes", 2**63 - 1),
        (8, "bytes", 2**63 - 1),
        (4, "Bytes", 2**63 - 1),
        (9, "Bytes", 2**63 - 1),
        (14, "Bytes", -(2**63)),
    ),
    far((0, "Input Dims", "[[1,2],["), (5, "Input Dims", "[" * 100_000), (10, "Input Dims", [[2**62, 2**62]])),
)


@pytest.mark.slow  # a test below covers every value of every field
@settings(max_examples=min(LISTS, 3), deadline=None)
@given(at_once(spoiled(), 8))
def test_no_model_stumbles(traces: list[list]) -> None:
    all_models(*traces, *WORST)


@pytest.mark.slow
def test_no_model_stumbles_over_any_value_of_any_field() -> None:
    """One connection contains a trace for each field of each kind of event and each value.

    Every 97th trace is used, and with SLOW=1 every 29th.
    """
    traces: list[list] = []
    for at in (*range(5), len(LAUNCHES) - 1):
        for of_args, key in [(False, key) for key in LAUNCHES[at]] + [
            (True, key) for key in LAUNCHES[at].get("args", ())
        ]:
            for value in (*EXTREMES, *BROKEN):
                events = json.loads(json.dumps(LAUNCHES))
                (events[at]["args"] if of_args else events[at])[key] = value
                traces.append(events)
    all_models(*traces[:: 29 if SLOW else 97])
