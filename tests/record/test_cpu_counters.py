"""CPU counters by span.

Most virtual machines have no hardware counters. Software events of the kernel replace them here, through the same
system call.
"""

from __future__ import annotations

import errno
import mmap
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pipelines.record.perf_event import thread_counters
from pipelines.record.perf_event.thread_counters import ThreadCounters, between

_SOFTWARE = 1  # PERF_TYPE_SOFTWARE: 1 task clock, 2 page faults
STAND_INS = ({"cycles": (_SOFTWARE, 1)}, {"cache_misses": (_SOFTWARE, 2), "cache_references": (77, 0)})
PAGES = 300


def touch() -> None:
    """Write to pages that the process has not used yet."""
    with mmap.mmap(-1, PAGES * mmap.PAGESIZE) as memory:
        for page in range(PAGES):
            memory[page * mmap.PAGESIZE] = 1


@pytest.fixture
def counters(monkeypatch: pytest.MonkeyPatch) -> Any:
    if sys.platform != "linux":
        pytest.skip("perf_event_open is Linux's")
    monkeypatch.setattr(thread_counters, "EVENTS", STAND_INS)
    reader = ThreadCounters()
    if reader.source.startswith("none"):
        pytest.skip(reader.source)
    yield reader
    reader.close()


def test_what_a_thread_does_is_counted_for_it_alone(counters: ThreadCounters) -> None:
    assert counters.source.startswith("perf_event: cycles, cache_misses; no cache_references: ")
    counters.read()
    first = counters.read()
    other = threading.Thread(target=touch)
    other.start()
    other.join()
    second = counters.read()
    touch()
    third = counters.read()
    quiet, busy = between(first, second), between(second, third)
    assert quiet.keys() == {"cycles", "cache_misses", "counter_coverage"} and busy["counter_coverage"] == 1.0
    assert quiet["cache_misses"] < PAGES / 2 <= PAGES <= busy["cache_misses"] < 2 * PAGES  # pyright: ignore[reportOperatorIssue, reportOptionalOperand]
    assert busy["cycles"] > 1000  # pyright: ignore[reportOperatorIssue, reportOptionalOperand]
    counters.close()
    assert counters.read() is None


def test_events_that_take_turns_are_scaled_up() -> None:
    names = ("cycles", "instructions")
    before = [(names, (100, 50, 7, 0)), (("cache_misses",), (100, 100, 1))]
    after = [(names, (300, 100, 17, 4)), (("cache_misses",), (300, 300, 5))]
    assert between(before, after) == {"cycles": 40, "instructions": 16, "cache_misses": 4, "counter_coverage": 0.25}
    never = [(names, (300, 50, 7, 0)), (("cache_misses",), (300, 300, 5))]
    assert between(before, never) == {
        "cycles": None, "instructions": None, "cache_misses": 4, "counter_coverage": 0.0,
    }  # fmt: skip
    assert between(None, after) == {} == between(before, None)


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.EACCES, "kernel.perf_event_paranoid is 4): sysctl kernel.perf_event_paranoid=2, or CAP_PERFMON"),
        (errno.ENOENT, "does not expose its hardware counters"),
        (errno.ENOSYS, "no perf_event_open"),
    ],
)
def test_what_is_missing_is_said(number: int, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "paranoid").write_text("4\n")
    monkeypatch.setattr(thread_counters, "PARANOID", tmp_path / "paranoid")
    monkeypatch.setattr(thread_counters, "_open", lambda *_: (-1, number))
    if sys.platform == "linux" and thread_counters.platform.machine() in thread_counters._SYSCALL:
        reader = ThreadCounters()
        assert reader.source.startswith("none: ") and reason in reader.source and reader.read() is None


@pytest.mark.slow
def test_spans_have_counts_and_the_recording_says_of_what(counters: ThreadCounters, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from pipelines.record.spans import record_spans

    for asked in (True, False):
        out = tmp_path / str(asked)
        with record_spans(torch.nn.Linear(2, 2), out, 1.0, cpu_counters=asked) as spans:
            with spans.step(), spans.span("touches"):
                touch()
            with spans.span("aside", always=True):
                touch()
        (recording,) = (pq.read_table(path).to_pylist()[0] for path in out.rglob("recordings.parquet"))
        rows = [row for path in sorted(out.rglob("span_samples*")) for row in pq.read_table(path).to_pylist()]
        assert [row["name"] for row in rows] == ["step", "touches", "aside"]
        if asked:
            assert recording["cpu_source"] == counters.source
            counts = [(row["cache_misses"], row["counter_coverage"]) for row in rows]
            assert all(n >= PAGES and share == 1.0 for n, share in counts), counts
            assert counts[1][0] < 2 * PAGES and counts[2][0] < 2 * PAGES and counts[0][0] >= counts[1][0], counts
        else:
            assert recording["cpu_source"] is None
            assert all(row["cache_misses"] is None and row["counter_coverage"] is None for row in rows)
        assert all(row["instructions"] is None for row in rows)


def test_a_span_that_ends_in_another_thread_has_no_counts(counters: ThreadCounters) -> None:
    pytest.importorskip("torch")
    from pipelines.record.clocks import HostClock
    from pipelines.record.step import SampledStep

    step = SampledStep(0, (), HostClock(), lambda *_: None, counters=counters)
    spans = [step._new(None, "backward", "Linear", "backward") for _ in range(2)]
    other = threading.Thread(target=step._begin, args=(spans[0],))
    other.start()
    other.join()
    step._begin(spans[1])
    for span in spans:
        step._end(span)
    assert [span.counted == {} for span in spans] == [True, False]


def test_the_files_of_a_thread_are_closed_when_it_ends(counters: ThreadCounters) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        thread = threading.Thread(target=counters.read)
        thread.start()
        thread.join()
    assert len(os.listdir("/proc/self/fd")) <= before + 2
    assert counters.read() is not None  # the counters of this thread are open
