"""Captures of N ranks: the same spec gives the same bytes, the machine obeys its own rules, and the truth adds up."""

from __future__ import annotations

import gzip
import itertools
import json
import subprocess
import sys
from collections import defaultdict
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from pipelines.synthetic import Capture, CaptureSpec, steps_for, write_capture

SPEC = CaptureSpec(ranks=3, steps=3, straggler=1, clock_offset_ns=(0, 250_000, -40_000), include_python_frames=True)
WORK = ("kernel", "gpu_memcpy", "gpu_memset")
Event = dict[str, Any]


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    return write_capture(SPEC, tmp_path_factory.mktemp("capture"))


def read(path: Path) -> dict[str, Any]:
    """Return a document with times as exact fractions of µs."""
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return json.loads(raw, parse_float=Fraction)


def ns(event: Event) -> tuple[int, int]:
    """Return the start and end in ns since the clock's base."""
    start, dur = event["ts"] * 1000, event["dur"] * 1000
    assert int(start) == start and int(dur) == dur
    return int(start), int(start + dur)


def work_of(events: list[Event]) -> list[Event]:
    return [e for e in events if e.get("cat") in WORK]


def by_correlation(events: list[Event]) -> dict[int, Event]:
    return {e["args"]["correlation"]: e for e in events if e.get("cat") == "cuda_runtime"}


def test_same_spec_same_bytes(tmp_path: Path, capture: Capture) -> None:
    again = write_capture(SPEC, tmp_path)
    assert [p.read_bytes() for p in again.paths] == [p.read_bytes() for p in capture.paths]
    other = write_capture(replace(SPEC, seed=1), tmp_path / "other")
    assert other.paths[0].read_bytes() != capture.paths[0].read_bytes()


def test_document_is_kineto(capture: Capture) -> None:
    for rank in capture.ranks:
        document = read(rank.path)
        assert len(document["traceEvents"]) == rank.n_events
        assert document["distributedInfo"]["rank"] == rank.rank
        assert document["distributedInfo"]["world_size"] == 3
        assert {"schemaVersion", "deviceProperties", "baseTimeNanoseconds"} < set(document)
        keys = list(document)
        assert keys.index("traceName") > keys.index("traceEvents")
        kinds = {e.get("cat") for e in document["traceEvents"]}
        assert {"cuda_sync", "ac2g", "python_function", "gpu_user_annotation", "Trace", *WORK} < kinds


def test_streams_work_in_order_without_overlap(capture: Capture) -> None:
    for rank in capture.ranks:
        events = read(rank.path)["traceEvents"]
        calls, queues = by_correlation(events), defaultdict(list)
        for event in work_of(events):
            launch = calls[event["args"]["correlation"]]
            assert ns(launch)[0] < ns(event)[0]
            queues[event["args"]["stream"]].append((ns(launch)[0], *ns(event)))
        assert len(queues) >= 4
        for queue in queues.values():
            queue.sort()
            assert all(a[2] < b[1] for a, b in itertools.pairwise(queue))


def test_waits_are_respected(capture: Capture) -> None:
    for rank in capture.ranks:
        events = read(rank.path)["traceEvents"]
        calls, work = by_correlation(events), work_of(events)
        launched = sorted((ns(calls[w["args"]["correlation"]])[0], w["args"]["stream"], *ns(w)) for w in work)
        n_waits = 0
        for row in (e for e in events if e.get("cat") == "cuda_sync" and "wait_on_stream" in e["args"]):
            args = row["args"]
            recorded = ns(calls[args["wait_on_cuda_event_record_corr_id"]])[0]
            source = [w for w in launched if w[1] == args["wait_on_stream"] and w[0] < recorded][-1]
            call = calls[args["correlation"]]
            if row["name"] == "Event Sync":
                assert ns(call)[1] >= source[3]
                continue
            target = next(w for w in launched if w[1] == args["stream"] and w[0] > ns(call)[0])
            assert target[2] > source[3]
            n_waits += 1
        assert n_waits > 10


def test_syncs_end_after_the_work(capture: Capture) -> None:
    for rank in capture.ranks:
        events = read(rank.path)["traceEvents"]
        calls, work = by_correlation(events), work_of(events)
        for row in (e for e in events if e["name"] in ("Stream Sync", "Context Sync")):
            start, end = ns(calls[row["args"]["correlation"]])
            before = [w for w in work if ns(calls[w["args"]["correlation"]])[0] < start]
            mine = [w for w in before if row["args"]["stream"] in (-1, w["args"]["stream"])]
            assert mine and max(ns(w)[1] for w in mine) < end


def test_every_correlation_has_its_flow(capture: Capture) -> None:
    events = read(capture.paths[0])["traceEvents"]
    correlations = {e["args"]["correlation"] for e in work_of(events)}
    flows = {ph: {e["id"] for e in events if e["ph"] == ph} for ph in "sf"}
    assert flows["s"] == flows["f"] == correlations <= set(by_correlation(events))


def test_cpu_events_nest(capture: Capture) -> None:
    events = [e for e in read(capture.paths[0])["traceEvents"] if e.get("ph") == "X" and e["pid"] == 1000]
    threads = defaultdict(list)
    for event in events:
        threads[event["tid"]].append(ns(event))
    assert len(threads) == 2
    for spans in threads.values():
        open_ends: list[int] = []
        for start, end in sorted(spans):
            while open_ends and open_ends[-1] < start:
                open_ends.pop()
            assert not open_ends or end < open_ends[-1]
            open_ends.append(end)


def test_collectives_end_together_after_the_last_has_come(capture: Capture) -> None:
    groups: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for rank in capture.ranks:
        for event in read(rank.path)["traceEvents"]:
            if "nccl" in event["name"] and event.get("cat") == "kernel":
                start, end = ns(event)
                offset = rank.truth.clock_offset_ns
                groups[event["args"]["Seq"]].append((start - offset, end - offset))
    assert len(groups) == capture.n_collectives == 6
    for group in groups.values():
        assert len(group) == 3
        ends = [end for _, end in group]
        assert max(ends) - min(ends) <= SPEC.collective_skew_ns
        assert min(ends) > max(start for start, _ in group)
    waits = [sum(max(s for s, _ in g) - g[i][0] for g in groups.values()) for i in range(3)]
    assert waits == [rank.truth.collective_wait_ns for rank in capture.ranks]
    assert capture.straggler == 1
    assert capture.ranks[1].truth.arrived_last > 3


def test_breakdown_against_a_count_of_every_stretch(capture: Capture) -> None:
    for rank in capture.ranks:
        spans = [(*ns(e), "nccl" in e["name"], e["cat"] == "kernel") for e in work_of(read(rank.path)["traceEvents"])]
        cuts = sorted({t for s in spans for t in s[:2]})
        busy = compute = exposed = 0
        for a, b in itertools.pairwise(cuts):
            inside = [s for s in spans if s[0] <= a and b <= s[1]]
            is_compute = any(kernel and not comm for _, _, comm, kernel in inside)
            busy += (b - a) * bool(inside)
            compute += (b - a) * is_compute
            exposed += (b - a) * (any(comm for _, _, comm, _ in inside) and not is_compute)
        truth = rank.truth.breakdown
        assert (truth.busy_ns, truth.compute_ns, truth.exposed_communication_ns) == (busy, compute, exposed)
        assert truth.span_ns == cuts[-1] - cuts[0] == truth.busy_ns + truth.idle_ns


def test_steps_add_up_to_the_full_path(capture: Capture) -> None:
    for rank in capture.ranks:
        truth = rank.truth
        events = read(rank.path)["traceEvents"]
        steps = sorted(ns(e) for e in events if e["name"].startswith("ProfilerStep#") and e["cat"] == "user_annotation")
        assert [step.length_ns for step in truth.steps] == [end - start for start, end in steps]
        assert sum(truth.full.bound_by.values()) == truth.full.length_ns == steps[-1][1] - steps[0][0]
        assert truth.machine.idle_syncs == 0
        assert sum(truth.machine.n_kernels.values()) == sum(truth.machine.rule.values())


def test_whole_microseconds(tmp_path: Path) -> None:
    spec = CaptureSpec(ranks=1, steps=1, fractional_ts=False, gz=False, sync_each_step=False)
    capture = write_capture(spec, tmp_path)
    document = json.loads(capture.paths[0].read_text())
    assert "baseTimeNanoseconds" not in document
    assert all(isinstance(e["ts"], int) for e in document["traceEvents"])
    assert capture.ranks[0].truth.steps == []


def test_size_can_be_chosen(tmp_path: Path) -> None:
    spec = CaptureSpec(ranks=1, gz=False)
    spec = replace(spec, steps=steps_for(spec, 2_000_000))
    size = write_capture(spec, tmp_path).paths[0].stat().st_size
    assert 0.9 * 2_000_000 < size < 1.1 * 2_000_000


@pytest.mark.parametrize("wrong", [{"ranks": 0}, {"straggler": 2}, {"fractional_ts": False, "clock_offset_ns": (1,)}])
def test_impossible_specs_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        CaptureSpec(**wrong)


@pytest.mark.slow
def test_memory_does_not_grow_with_size(tmp_path: Path) -> None:
    code = (
        "import resource, sys; from pipelines.synthetic import CaptureSpec, write_capture\n"
        "c = write_capture(CaptureSpec(ranks=1, steps=int(sys.argv[1]), layers=12, gz=False), sys.argv[2])\n"
        "print(c.paths[0].stat().st_size, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    sizes = []
    for steps in (30, 150):
        run = [sys.executable, "-c", code, str(steps), str(tmp_path / str(steps))]
        done = subprocess.run(run, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True)
        sizes.append([int(word) for word in done.stdout.split()])
    (small, small_rss), (large, large_rss) = sizes
    assert large > 4.5 * small > 20_000_000
    assert large_rss < 1.2 * small_rss


def test_a_server_names_its_steps_as_vllm_does(tmp_path: Path) -> None:
    spec = CaptureSpec(ranks=1, steps=2, shape="serving", tokens=3, sync_each_step=False, gz=False)
    events = json.loads(write_capture(spec, tmp_path).paths[0].read_bytes())["traceEvents"]
    steps = [event["name"] for event in events if event.get("cat") == "user_annotation"]
    batch = ["execute_context_8(4096)_generation_0(0)", *["execute_context_0(0)_generation_8(8)"] * 3]
    assert steps == batch * 2
