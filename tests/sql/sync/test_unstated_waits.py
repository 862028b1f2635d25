"""Waits whose rows do not name the record or its stream, compared with the same waits in rows that name both."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from pipelines.critical_path.whatif.before_after import what_if
from pipelines.critical_path.whatif.scenario import Scenario
from tests.batch import Batch
from tests.critical_path.whatif.windows import loaded
from tests.effort import first_of
from tests.harness import call, each, kernel, sync, x

Event = dict[str, Any]
Wait = tuple[str, int, str | None, str | None]
"""The call's name and time, the name of the work that had to end, and the name of the waiting work."""

CUDA = ("cudaLaunchKernel", "cudaEventRecordWithFlags", "cudaStreamWaitEvent")
SPELLINGS = {
    "cuda": CUDA,
    "older cuda": ("cudaLaunchKernel", "cudaEventRecord", "cudaStreamWaitEvent"),
    "driver": ("cuLaunchKernel", "cuEventRecord", "cuStreamWaitEvent"),
    "driver with flags": ("cuLaunchKernelEx", "cuEventRecordWithFlags", "cuStreamWaitEvent"),
    "hip": ("hipLaunchKernel", "hipEventRecordWithFlags", "hipStreamWaitEvent"),
}


class Program:
    """Launches, records and waits of threads, on a simulated GPU that runs each stream in order and honours waits."""

    def __init__(self, names: tuple[str, str, str] = CUDA) -> None:
        self.names = names
        self.events: list[Event] = []
        self.now, self.free, self.held = 0, {}, {}
        self.last: dict[int, str] = {}
        self.records: dict[
            int, tuple[int, int, int, str | None]
        ] = {}  # event number → correlation, stream, end, last work
        self.expected: list[Wait] = []
        self.pending: dict[int, list[int]] = {}
        self.correlations = count(1)

    def _call(self, name: str, tid: int) -> int:
        correlation = next(self.correlations)
        self.events.append(call(name, self.now, 2, correlation, tid))
        self.now += 4
        return correlation

    def launch(self, name: str, stream: int, us: int, tid: int = 1) -> None:
        correlation = self._call(self.names[0], tid)
        start = max(self.now + 3, self.free.get(stream, 0) + 2, self.held.pop(stream, 0) + 3)
        self.events.append(kernel(name, start, us, correlation, stream))
        self.free[stream], self.last[stream] = start + us, name
        for place in self.pending.pop(stream, []):
            self.expected[place] = (*self.expected[place][:3], name)

    def record(self, number: int, stream: int, tid: int = 1) -> None:
        correlation = self._call(self.names[1], tid)
        self.records[number] = (correlation, stream, self.free.get(stream, 0), self.last.get(stream))
        self.events.append(
            x("cuda_event", "cudaEvent", self.now, 0.001, stream, 0, correlation=correlation, stream=stream, device=0,
              event_id=number, context=1)
        )  # fmt: skip

    def wait(self, number: int, stream: int, tid: int = 1) -> None:
        at = self.now
        correlation = self._call(self.names[2], tid)
        recorded, on, until, last = self.records[number]
        self.held[stream] = max(self.held.get(stream, 0), until)
        self.pending.setdefault(stream, []).append(len(self.expected))
        self.expected.append((self.names[2], at, last, None))
        stated = {"wait_on_stream": on, "wait_on_cuda_event_record_corr_id": recorded, "wait_on_cuda_event_id": number}
        self.events.append(sync("Stream Wait Event", at, 1, correlation, stream, **stated))

    def synchronize(self, number: int, tid: int = 1) -> None:
        """Wait for an event on the host. The call returns 3 us after the end of the work before the event's record."""
        at = self.now
        recorded, on, until, last = self.records[number]
        correlation = next(self.correlations)
        end = max(at + 2, until + 3)
        self.events.append(call("cudaEventSynchronize", at, end - at, correlation, tid))
        self.now = end + 2
        self.expected.append(("cudaEventSynchronize", at, last, None))
        stated = {"wait_on_stream": on, "wait_on_cuda_event_record_corr_id": recorded, "wait_on_cuda_event_id": number}
        self.events.append(sync("Event Sync", at, end - at, correlation, -1, **stated))


def ping_pong(names: tuple[str, str, str] = CUDA, steps: int = 4, reuse: bool = False) -> Program:
    """Return a program in which two streams hand over to each other.

    The events are new ones, as wait_stream creates them, or two that are reused.
    """
    program, numbers = Program(names), count(100)
    program.launch("first", 7, 40)
    for step in range(steps):
        there, back = (1, 2) if reuse else (next(numbers), next(numbers))
        program.record(there, 7)
        program.wait(there, 8)
        program.launch(f"side {step}", 8, 90)
        program.launch(f"side end {step}", 8, 30)
        program.launch(f"main {step}", 7, 20)
        program.record(back, 8)
        program.wait(back, 7)
        program.launch(f"join {step}", 7, 10)
    return program


def branches(reuse: bool = True, steps: int = 3) -> Program:
    """Return a program in which one event forks three streams and three events join them.

    Each step records the events again.
    """
    program, numbers = Program(), count(100)
    program.launch("first", 7, 40)
    for step in range(steps):
        own = [1, 2, 3, 4] if reuse else [next(numbers) for _ in range(4)]
        program.record(own[0], 7)
        for place, stream in enumerate((20, 24, 28)):
            program.wait(own[0], stream)
            program.launch(f"branch {stream} {step}", stream, (60, 160, 110)[place])
            program.record(own[1 + place], stream)
        for number in own[1:]:
            program.wait(number, 7)
        program.launch(f"join {step}", 7, 10)
    return program


def early_event() -> Program:
    """Return a program in which a stream waits for an old record, while the recording stream continues."""
    program = Program()
    for step in range(3):
        program.launch(f"before {step}", 7, 100)
        program.record(1, 7)
        program.launch(f"after {step}", 7, 400)
        program.wait(1, 8)
        program.launch(f"side {step}", 8, 100)
        program.record(2, 8)
        program.wait(2, 7)
        program.launch(f"join {step}", 7, 10)
    return program


def on_two_threads() -> Program:
    """Return a program in which another thread recorded the event.

    The waiting thread recorded nothing, or another event.
    """
    program = Program()
    for step in range(3):
        program.launch(f"begin {step}", 7, 200, tid=1)
        program.record(1, 7, tid=1)
        program.wait(1, 8, tid=2)
        program.launch(f"side {step}", 8, 300, tid=2)
        program.record(2, 8, tid=2)
        program.wait(2, 7, tid=1)
        program.launch(f"end {step}", 7, 10, tid=1)
    return program


def on_the_host() -> Program:
    program = Program()
    for step in range(3):
        program.launch(f"side {step}", 8, 200)
        program.record(1, 8)
        program.launch(f"more {step}", 8, 500)
        program.synchronize(1)
        program.launch(f"main {step}", 7, 20)
    return program


def of_two_versions() -> Program:
    """Return a program in which one record in ten is a call of older CUDA."""
    program, numbers = ping_pong(steps=6), count(1)
    records = [event for event in program.events if event["name"] == CUDA[1] and next(numbers) % 10 == 0]
    assert len(records) == 1
    for event in records:
        event["name"] = SPELLINGS["older cuda"][1]
    return program


PROGRAMS: dict[str, Callable[[], Program]] = {
    **{spelling: lambda names=names: ping_pong(names) for spelling, names in SPELLINGS.items()},
    "two versions": of_two_versions,
    "reused": lambda: ping_pong(reuse=True),
    "branches": branches,
    "new events": lambda: branches(reuse=False),
    "early": early_event,
    "threads": on_two_threads,
    "host": on_the_host,
}
IS_WAIT = "cuda_sync"


def without_cuda_events(events: list[Event]) -> list[Event]:
    return [event for event in events if event["cat"] != "cuda_event"]


def with_some_cuda_events(events: list[Event], of: Callable[[int], bool]) -> list[Event]:
    """Return the events, with the cuda_event rows only of the n-th records that `of` chooses."""
    numbers = count()
    return [event for event in events if event["cat"] != "cuda_event" or of(next(numbers))]


def lacking(events: list[Event], *names: str, of: Callable[[int], bool] = lambda n: True) -> list[Event]:
    """Return the events, with -1 for these arguments of the n-th waits that `of` chooses."""
    numbers = count()
    return [
        {**event, "args": event["args"] | dict.fromkeys(names, -1)}
        if event["cat"] == IS_WAIT and of(next(numbers))
        else event
        for event in events
    ]


def without_rows(events: list[Event], of: Callable[[int], bool] = lambda n: True) -> list[Event]:
    numbers = count()
    return [event for event in events if event["cat"] != IS_WAIT or not of(next(numbers))]


STREAM, RECORD, NUMBER = "wait_on_stream", "wait_on_cuda_event_record_corr_id", "wait_on_cuda_event_id"
FORMS: dict[str, tuple[Callable[[list[Event]], list[Event]], set[str]]] = {
    "stated": (without_cuda_events, {"record_and_stream"}),
    "cuda 13": (lambda events: without_cuda_events(lacking(events, STREAM, RECORD)), {"calls"}),
    "no event number": (lambda events: without_cuda_events(lacking(events, STREAM, RECORD, NUMBER)), {"calls"}),
    "cuspy": (lambda events: without_cuda_events(lacking(events, STREAM)), {"record"}),
    "stream alone": (lambda events: without_cuda_events(lacking(events, RECORD)), {"stream"}),
    "cuda_event rows": (lambda events: lacking(events, STREAM, RECORD), {"cuda_event"}),
    "cuspy with cuda_event rows": (lambda events: lacking(events, STREAM), {"cuda_event"}),
    "one in three without a cuda_event row": (
        lambda events: with_some_cuda_events(lacking(events, STREAM, RECORD), of=lambda n: n % 3 != 1),
        {"cuda_event", "calls"},
    ),
    "one in three with a cuda_event row": (
        lambda events: with_some_cuda_events(lacking(events, STREAM, RECORD), of=lambda n: n % 3 == 1),
        {"cuda_event", "calls"},
    ),
    "one in three unstated": (
        lambda events: without_cuda_events(lacking(events, STREAM, RECORD, of=lambda n: n % 3 == 1)),
        {"record_and_stream", "calls"},
    ),
    "one in three stated": (
        lambda events: without_cuda_events(lacking(events, STREAM, RECORD, of=lambda n: n % 3 != 1)),
        {"record_and_stream", "calls"},
    ),
    "all kinds": (
        lambda events: without_cuda_events(
            lacking(lacking(events, STREAM, of=lambda n: n % 3 > 0), RECORD, of=lambda n: n % 3 == 2)
        ),
        {"record_and_stream", "record", "calls"},
    ),
    "all kinds with some cuda_event rows": (
        lambda events: with_some_cuda_events(
            lacking(lacking(events, STREAM, of=lambda n: n % 3 > 0), RECORD, of=lambda n: n % 3 == 2),
            of=lambda n: n % 2 == 0,
        ),
        {"record_and_stream", "record", "cuda_event", "calls"},
    ),
}  # fmt: skip
QUERY = """
    SELECT c.name, c.start_ns // 1000, s.name, k.name, w.evidence, w.is_inferred, r.name
    FROM event_waits AS w
    JOIN events AS c ON c.trace_id = w.trace_id AND c.event_id = w.wait_call_event_id
    LEFT JOIN events AS s ON s.trace_id = w.trace_id AND s.event_id = w.source_kernel_id
    LEFT JOIN events AS k ON k.trace_id = w.trace_id AND k.event_id = w.waiting_kernel_id
    LEFT JOIN events AS r ON r.trace_id = w.trace_id AND r.event_id = w.record_event_id
    ORDER BY c.start_ns
"""
BATCH = Batch("event_waits", "events", "_inferred_waits", "_profiles", steps_of="_event_waits")


def sources(numbers: list[int]) -> list[list[str | None]]:
    """Return, for each of these traces of the batch, the GPU work for which each wait waits."""
    return [[row[2] for row in BATCH.rows(number, QUERY)] for number in numbers]


# If several waits follow several records, only the event number shows which wait is for which record. Without it, the
# order of the records is used.
UNKNOWABLE = {("branches", "no event number"), ("new events", "no event number")}


CASES = [(name, form) for name in PROGRAMS for form in FORMS if (name, form) not in UNKNOWABLE]


def in_form(name: str, form: str) -> list[Event]:
    return FORMS[form][0](PROGRAMS[name]().events)


FIRST_CASES = {case: BATCH.append(in_form(*case)) for case in CASES[1::8]}


@pytest.mark.parametrize(
    "cases", first_of([[*FIRST_CASES], [case for case in CASES if case not in FIRST_CASES][::2]], 1)
)
def test_every_form_of_a_wait_gives_the_same_join(cases: list[tuple[str, str]]) -> None:
    """Each form of a wait gives the same joined work.

    The first eighth of the cases contains each program and each form.
    """
    assert {name for name, _ in FIRST_CASES} == PROGRAMS.keys() and {form for _, form in FIRST_CASES} == FORMS.keys()
    programs = {name: make() for name, make in PROGRAMS.items()}
    if cases[0] in FIRST_CASES:
        connections = (BATCH.show(FIRST_CASES[case]) for case in cases)
    else:
        connections = each([in_form(*case) for case in cases], "event_waits")
    for (name, form), con in zip(cases, connections, strict=True):
        rows = con.execute(QUERY).fetchall()
        assert [row[:4] for row in rows] == programs[name].expected, (name, form)
        assert {row[4] for row in rows} <= FORMS[form][1] | {"none"}, (name, form)
        assert all(row[5] == (row[4] in ("record", "stream", "calls", "none")) for row in rows)
        # Only the first wait on a thread without records has no evidence, because no work was running.
        assert [row[4] for row in rows].count("none") <= (name == "threads"), (name, form)
        assert all("EventRecord" in row[6] for row in rows if row[6] or row[4] not in ("none", "stream"))


LOST = {"all": lambda n: True, "some": lambda n: n % 3 == 1}
WITHOUT_ROWS = {
    (name, lost): BATCH.append(without_cuda_events(without_rows(PROGRAMS[name]().events, is_lost)))
    for name in ("cuda", "hip", "reused")
    for lost, is_lost in LOST.items()
}


def test_without_their_rows_waits_of_streams_are_known_by_their_calls() -> None:
    """Waits of streams whose rows are missing are inferred from their calls.

    All rows are missing (AMD), or one in three, as if the profiler had lost them.
    """
    for (name, form), number in WITHOUT_ROWS.items():
        rows = BATCH.rows(number, QUERY)
        assert [row[:4] for row in rows] == PROGRAMS[name]().expected, (name, form)
        assert {row[4] for row in rows} == ({"calls"} if form == "all" else {"record_and_stream", "calls"})


def shortened(traces: list[list[Event]]) -> list[float]:
    """Return by how many percent each trace would be shorter if the work of stream 8 took half as long."""
    answers = [next(what_if(window, [Scenario((("stream:8", 0.5),))])) for window in loaded(traces)]
    return [100 * (1 - compared.after.length_us / compared.before.length_us) for compared in answers]


@pytest.mark.slow  # 8 s
def test_what_a_change_saves_does_not_hang_on_the_form() -> None:
    events = ping_pong(steps=6).events
    forms = ("stated", "cuda 13", "cuspy", "one in three stated")
    traces = [*(FORMS[form][0](events) for form in forms), without_rows(without_cuda_events(events))]
    stated, *others = shortened(traces)
    assert stated > 20 and others == pytest.approx([stated] * 4, abs=0.5)


@pytest.mark.slow  # 4 s
def test_sixteen_times_as_many_in_any_order_of_streams() -> None:
    """In the random programs, pairs of streams hand over with events that are reused."""
    traces, expected = [], []
    for seed in range(6):
        rng, program = random.Random(seed), Program()
        streams = (7, 20, 24)
        for stream in streams:
            program.launch(f"first {stream}", stream, 30)
        for step in range(64):
            source, target = rng.sample(streams, 2)
            program.launch(f"work {step}", source, rng.randint(20, 200))
            number = streams.index(source)
            program.record(number, source)
            program.wait(number, target)
            program.launch(f"waiting {step}", target, rng.randint(20, 200))
        traces.append(FORMS["cuda 13"][0](program.events))
        expected.append(program.expected)
    n = right = 0
    for waits, con in zip(expected, each(traces, "event_waits"), strict=True):
        rows = con.execute(QUERY).fetchall()
        assert [row[3] for row in rows] == [wait[3] for wait in waits]
        n += len(waits)
        right += sum(row[2] == wait[2] for row, wait in zip(rows, waits, strict=True))
    assert right == n, (right, n)


QUALITY = {
    "stated": [("event_waits_record_and_stream", "info", 8)],
    "cuda 13": [("event_waits_calls", "warning", 8)],
    "cuspy": [("event_waits_record", "warning", 8)],
    "stream alone": [("event_waits_stream", "warning", 8)],
    "cuda_event rows": [("event_waits_cuda_event", "info", 8)],
    "all kinds": [("event_waits_calls", "warning", 2), ("event_waits_record", "warning", 3),
                  ("event_waits_record_and_stream", "info", 3)],
}  # fmt: skip


@pytest.mark.slow  # 5 s
def test_quality_counts_each_form_and_the_path_says_what_is_inferred() -> None:
    events = ping_pong().events
    query = "SELECT check_name, severity, n FROM quality WHERE check_name LIKE 'event_waits%' ORDER BY 1"
    caveats = "SELECT n FROM critical_path_caveats WHERE caveat = 'unstated_waits' AND window_id = 'full'"
    connections = each([FORMS[form][0](events) for form in QUALITY], "quality", "critical_path_caveats")
    for (form, rows), con in zip(QUALITY.items(), connections, strict=True):
        assert con.execute(query).fetchall() == rows, form
        unstated = sum(n for _, severity, n in rows if severity == "warning")
        assert con.execute(caveats).fetchall() == ([(unstated,)] if unstated else []), form


RECORDED = Path(__file__).parents[3] / "bench" / "pairs" / "recorded" / "h100"


@pytest.mark.slow  # 5 s
def test_programs_recorded_on_a_gpu() -> None:
    """In these programs, each event is recorded on one stream, by one thread, before each wait for it."""
    names = ("four_branches", "early_event", "wait_on_a_thread", "side_stream_binds")
    query = """
        SELECT e.wait_on_cuda_event_id, count(DISTINCT s.stream), count(DISTINCT r.tid), count(DISTINCT w.record_event_id), count(*),
            count(s.stream)
        FROM event_waits AS w
        JOIN events AS e ON e.trace_id = w.trace_id AND e.event_id = w.wait_event_id
        LEFT JOIN events AS s ON s.trace_id = w.trace_id AND s.event_id = w.source_kernel_id
        LEFT JOIN events AS r ON r.trace_id = w.trace_id AND r.event_id = w.record_event_id
        GROUP BY 1
    """
    shared = """
        SELECT count(*) FROM (
            SELECT w.record_event_id
            FROM event_waits AS w
            JOIN events AS e ON e.trace_id = w.trace_id AND e.event_id = w.wait_event_id
            GROUP BY 1
            HAVING count(DISTINCT e.wait_on_cuda_event_id) > 1
        )
    """
    traces = [RECORDED / f"{name}.A.json.gz" for name in names]
    for name, con in zip(names, each(traces, "event_waits"), strict=True):
        rows = con.execute(query).fetchall()
        assert {row[1:3] for row in rows} == {(1, 1)} or name == "side_stream_binds", (name, rows)
        # In the first step, no work was launched before the records, and one thread has no records.
        assert sum(row[5] for row in rows) >= sum(row[4] for row in rows) - 4, (name, rows)
        assert con.execute(shared).fetchall() == [(0,)], name


def choosing(likely: tuple[float, float], other: tuple[float, float], *, of_other_thread: bool = False) -> list[Event]:
    """Return a wait of stream 7 for stream 20 or stream 24. The thread launched on stream 20 just before the record.

    `likely`, `other`: start and end of the work on streams 20 and 24 in us. Stream 7 is free from 100 us on, and its
    work begins at 1000 us. With `of_other_thread`, another thread launches on stream 24 and records an event.
    """
    tid = 2 if of_other_thread else 1
    unstated = {STREAM: -1, RECORD: -1, NUMBER: 5}
    return [
        *(call("cudaLaunchKernel", 0, 2, 1), kernel("before", 5, 95, 1)),
        *(call("cudaLaunchKernel", 3, 2, 2, tid), kernel("other", other[0], other[1] - other[0], 2, 24)),
        *([call("cudaEventRecordWithFlags", 6, 2, 7, tid)] if of_other_thread else []),
        *(call("cudaLaunchKernel", 9, 2, 3), kernel("likely", likely[0], likely[1] - likely[0], 3, 20)),
        call("cudaEventRecordWithFlags", 12, 2, 4),
        *(call("cudaStreamWaitEvent", 15, 2, 5), sync("Stream Wait Event", 15, 1, 5, 7, **unstated)),
        *(call("cudaLaunchKernel", 18, 2, 6), kernel("waiting", 1000, 10, 6)),
    ]


EARLY = (20, 50)  # ends before stream 7 is free, so it delayed nothing
# name[/use]: the work that is waited for at a threshold, and 0.1 us beyond it
CHOICES = {
    # The likely stream, if its work ended at most 10 us before, whatever ended later. Otherwise the last to end.
    "wait_close_ns": (((20, 990), (20, 998), "likely"), ((20, 989.9), (20, 998), "other")),
    # Work that ended in the gap, at most 50 us before, however short.
    "wait_near_ns": ((EARLY, (940, 950), "other"), (EARLY, (940, 949.9), "likely")),
    # Or work that filled half of the gap of 900 us.
    "wait_fills_gap": ((EARLY, (400, 850), "other"), (EARLY, (400.1, 850), "likely")),
    # Or work that ended up to 2 us after the waiting work began, because clocks disagree.
    "clock_disagrees_ns": ((EARLY, (20, 1002), "other"), (EARLY, (20, 1002.1), "likely")),
}


AT_THRESHOLDS = {(name, case): BATCH.append(choosing(*case[:2])) for name, pair in CHOICES.items() for case in pair}


def test_which_stream_was_waited_for_at_each_threshold() -> None:
    for (name, (likely, other, source)), number in AT_THRESHOLDS.items():
        ((_, _, of, waiting, evidence, _, _),) = BATCH.rows(number, QUERY)
        assert (of, waiting, evidence) == (source, "waiting", "calls"), (name, likely, other)


CONTRADICTED = {
    case: BATCH.append(choosing(*case[:2], of_other_thread=case[2]))
    for case in (
        # Another thread's record counts only if the times support it.
        ((20, 1500), (20, 990), True, "other"),
        ((20, 1500), EARLY, True, None),
        # Otherwise, any work that ended in the gap.
        ((20, 1500), (800, 810), False, "other"),
        ((20, 1500), EARLY, False, None),
    )
}


def test_which_stream_was_waited_for_where_times_contradict_the_likely_one() -> None:
    for case, number in CONTRADICTED.items():
        ((_, _, source, waiting, evidence, _, _),) = BATCH.rows(number, QUERY)
        assert (source, waiting, evidence) == (case[-1], "waiting", "calls"), case


def recorded_again(n_later: int) -> list[Event]:
    """Return a wait whose row names no record, preceded by `n_later` records of work that ends later.

    The work that it waits for was recorded before these, and ends 5 us before the waiting work starts.
    """
    events = [call("cudaLaunchKernel", 0, 2, 1), kernel("before", 5, 95, 1)]
    for n in range(n_later + 1):
        name, start, us = ("first", 20, 975) if n == 0 else (f"later {n}", 1000 + 20 * n, 20)
        at, correlation = 10 + 8 * n, 10 + 2 * n
        events += [call("cudaLaunchKernel", at, 2, correlation), kernel(name, start, us, correlation, 20)]
        events.append(call("cudaEventRecordWithFlags", at + 4, 2, correlation + 1))
    unstated = {STREAM: -1, RECORD: -1, NUMBER: 5}
    return [
        *events,
        *(call("cudaStreamWaitEvent", 80, 2, 5), sync("Stream Wait Event", 80, 1, 5, 7, **unstated)),
        *(call("cudaLaunchKernel", 84, 2, 6), kernel("waiting", 1000, 10, 6)),
    ]


RECORDED_AGAIN = [BATCH.append(recorded_again(n)) for n in range(6)]


def test_the_record_is_at_most_the_fourth_before_the_wait() -> None:
    assert sources(RECORDED_AGAIN) == [["first"]] * 4 + [[None]] * 2


def returning(us: float, early: float) -> list[Event]:
    """Return a call that waits `us` for an event, and returns `early` us before the end of the awaited work."""
    unstated = {STREAM: -1, RECORD: -1, NUMBER: 5}
    return [
        *(call("cudaLaunchKernel", 0, 2, 1), kernel("work", 5, 15 + us + early, 1, 20)),
        call("cudaEventRecordWithFlags", 10, 2, 2),
        *(call("cudaEventSynchronize", 20, us, 3), sync("Event Sync", 20, us, 3, -1, **unstated)),
    ]


# name[/use]: the call's duration, and the maximum time by which it may return early, us
RETURNS = {
    "call_disagrees_ns": (500, 10),
    "call_disagrees_percent": (2000, 20),
    "call_disagrees_most_ns": (5000, 50),
    "call_disagrees_most_ns/a long call": (9000, 50),
}
BOUNDARIES = (CHOICES, RETURNS)
RETURNING = [BATCH.append(returning(us, early)) for us, most in RETURNS.values() for early in (most, most + 0.1)]


def test_how_early_a_call_returns_from_its_wait() -> None:
    assert sources(RETURNING) == [["work"], [None]] * len(RETURNS)


TOO_EARLY = [*returning(500, 30), call("cudaLaunchKernel", 14, 2, 9), kernel("ended", 19, 498, 9, 21)]
WITH_AND_WITHOUT_ROW = [BATCH.append(TOO_EARLY), BATCH.append(without_rows(TOO_EARLY))]


def test_a_row_that_shows_nothing_leaves_its_call_to_the_times() -> None:
    """If a row shows nothing, times decide which work its call waited for.

    The work before the record ends long after the call. So the call waited for the work that ended 3 us before its
    return.
    """
    query = (
        "SELECT c.start_ns, s.name, w.basis FROM _inferred_waits AS w JOIN events AS c USING (event_id) "
        "JOIN events AS s ON s.event_id = w.source_event_id WHERE w.basis <> 'call_order'"
    )
    for number in WITH_AND_WITHOUT_ROW:
        assert BATCH.rows(number, query) == [(20_000, "ended", "blocking_call")]


def three_waits() -> Program:
    program = Program()
    program.launch("earlier", 32, 30)
    program.record(9, 32)
    program.launch("first", 7, 300)
    program.record(1, 7)
    for stream in (20, 24, 28):
        program.wait(1, stream)
    for stream in (20, 24, 28):
        program.launch(f"branch {stream}", stream, 50)
    return program


THREE_WAITS = BATCH.append(FORMS["cuda 13"][0](three_waits().events))


def test_waits_in_a_row_for_one_event_share_its_record() -> None:
    assert [row[:4] for row in BATCH.rows(THREE_WAITS, QUERY)] == three_waits().expected


SECOND_ROW_LOST = BATCH.append(without_cuda_events(without_rows(early_event().events, lambda n: n == 1)))


def test_a_call_without_a_row_holds_up_no_work_that_a_row_holds_up() -> None:
    """A call without a row does not delay work that a row delays.

    The second wait has lost its row. The third wait delays the work that begins late on stream 8.
    """
    assert [row[3] for row in BATCH.rows(SECOND_ROW_LOST, QUERY)][:3] == ["side 0", "join 0", "side 1"]


LAUNCHES = [(110, 8), (112, 9), (114, 8), (116, 9)]
FOUR_LAUNCHES = BATCH.append([
    *(call("cudaLaunchKernel", 100, 2, 1), kernel("a", 110, 50, 1, 7), call("cudaEventRecord", 106, 1, 2)),
    call("cudaStreamWaitEvent", 110, 1, 3),
    *(e for i, (at, s) in enumerate(LAUNCHES) for e in (call("cudaLaunchKernel", at, 1, 10 + i), kernel("b", 165 + 9 * i, 5, 10 + i, s))),
])  # fmt: skip


def test_a_wait_without_a_row_may_hold_up_the_next_launch_and_the_first_on_each_other_stream() -> None:
    """A wait without a row may delay the thread's next launch and its first launch on each other stream.

    This applies to launches up to the thread's next call that waits. A launch at the time of the wait came after the
    wait.
    """
    query = "SELECT wait_event_id, waiting_kernel_id, is_next FROM wait_targets ORDER BY ALL"
    assert BATCH.show_step("wait_targets", FOUR_LAUNCHES).execute(query).fetchall() == [(3, 5, True), (3, 7, False)]


def shown_by_calls(*events: Event) -> int:
    """Append a trace in which only calls show that `b` waits, and return its number."""
    waits = [
        *(call("cudaEventRecord", 106, 1, 20), call("cudaStreamWaitEvent", 108, 1, 21)),
        *(call("cudaLaunchKernel", 112, 2, 22), kernel("b", 163, 10, 22, 8)),
    ]
    return BATCH.append([*events, *waits])


AT_ONCE = shown_by_calls(
    *(call("cudaLaunchKernel", 100, 2, 1), kernel("earlier", 105, 15, 1, 20)),
    *(call("cudaLaunchKernel", 106, 0, 2), kernel("at once", 110, 50, 2, 7)),
)


def test_work_launched_when_the_event_was_recorded_belongs_to_it() -> None:
    assert sources([AT_ONCE]) == [["at once"]]


OF_TWO_THREADS = shown_by_calls(
    *(call("cudaLaunchKernel", 100, 2, 1), kernel("own", 110, 50, 1, 7)),
    *(call("cudaLaunchKernel", 103, 2, 2, 2), kernel("other", 110, 51, 2, 20)),
)


def test_the_likely_stream_is_the_one_that_the_recording_thread_launched_on() -> None:
    """The likely stream of a record is the one on which the recording thread launched.

    Another thread's work, which was launched later and ended later, is not on the likely stream.
    """
    assert sources([OF_TWO_THREADS]) == [["own"]]
