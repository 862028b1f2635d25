"""All ranks of a capture retimed together, compared with simulated captures that run again with a faster rank."""

from __future__ import annotations

import gzip
import json
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import duckdb
import numpy as np
import pytest
from typer.testing import CliRunner

from pipelines.critical_path.whatif.owners import Owners
from pipelines.critical_path.whatif.scenario import Scenario
from pipelines.faces.cli.app import app
from pipelines.fleet.path import retimed as module
from pipelines.fleet.path.capture_walks import JoinableRank
from pipelines.fleet.path.load_capture import _left_out
from pipelines.fleet.path.rank_graph import CPU, FRAME, GPU
from pipelines.fleet.path.retimed import Retimed, _Change, of_joined
from pipelines.synthetic import Capture, CaptureSpec, write_capture
from tests.fleet.path.make import Case, Event, joined
from tests.fleet.path.opened_once import opened_once

SPEC = CaptureSpec(ranks=3, steps=3, straggler=1, seed=5, layers=3)


def us(capture: Capture) -> float:
    """Return how long a capture takes, in us. Its ranks begin together."""
    return max(rank.truth.full.length_ns for rank in capture.ranks) / 1000


@pytest.fixture(scope="module", autouse=True)
def once() -> Iterator[None]:
    with opened_once("pipelines.faces.cli.fleet.whatif_capture"):
        yield


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Capture]:
    folder = tmp_path_factory.mktemp("capture")
    return folder, write_capture(SPEC, folder)


def asked(folder: Path, *words: str) -> dict:
    done = CliRunner().invoke(app, ["what-if", str(folder), *words, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.mark.slow  # 4 s
def test_the_straggler_as_fast_as_the_others(capture: tuple[Path, Capture], tmp_path: Path) -> None:
    folder, before = capture
    actual = write_capture(replace(SPEC, straggler=None), tmp_path)
    answer = asked(folder, "--scale", f"rank:1:class:COMPUTATION={1 / SPEC.straggler_slowdown}")
    # The hosts end some microseconds after the last GPU work, where the length of a capture ends.
    assert us(before) * (1 - 1e-3) < answer["before"]["length_us"] < us(before)
    assert answer["ranks"]["1"]["before_us"] == pytest.approx(us(before), rel=1e-4)
    assert answer["after"]["length_us"] == pytest.approx(us(actual), rel=0.002)
    # Another rank that gets faster still waits for this rank.
    other = asked(folder, "--scale", "rank:0:class:COMPUTATION=0.5")
    assert other["after"]["length_us"] > 0.98 * other["before"]["length_us"]
    (caveat,) = answer["caveats"]  # its communication is on a separate stream
    assert set(answer["ranks"]) == {"0", "1", "2"} and "streams overlaps" in caveat["detail"]
    assert "(ranks 1)" in caveat["detail"]  # only its work changes


@pytest.mark.slow  # 5 s; tests/critical_path/whatif tests an operator of one rank
def test_the_kernels_of_an_operator_faster_on_every_rank_and_on_one(
    capture: tuple[Path, Capture], tmp_path: Path
) -> None:
    folder, before = capture
    actual = before.again({"sm90_xmma_gemm*": 0.5}, tmp_path)
    products = [word for op in ("mm", "addmm") for word in ("--scale", f"op:aten::{op}=0.5")]
    answer = asked(folder, *products)
    assert answer["after"]["length_us"] == pytest.approx(us(actual), rel=0.002)
    of_rank_1 = asked(folder, *(word.replace("op:", "rank:1:op:") for word in products))
    assert of_rank_1 == asked(folder, "--scale", "rank:1:sm90_xmma_gemm*=0.5")
    assert answer["after"]["length_us"] <= of_rank_1["after"]["length_us"] < 0.95 * of_rank_1["before"]["length_us"]


def spans(path: Path, communicates: bool) -> list[tuple[float, float]]:
    """Return sorted starts and ends (us) of a rank's collectives, or of its other kernels."""
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    kernels = [e for e in events if e.get("cat") == "kernel" and e["name"].startswith("nccl") == communicates]
    return sorted((e["ts"], e["ts"] + e["dur"]) for e in kernels)


def union(stretches: list[tuple[float, float]]) -> float:
    total, until = 0.0, 0.0
    for start, end in stretches:
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


@pytest.mark.slow
@pytest.mark.parametrize(("collective_ns", "computation"), [(SPEC.collective_ns, 1), (3_000_000, 0.5)])
def test_perfect_overlap_hides_transfers_behind_computation_and_no_waiting(
    tmp_path: Path, collective_ns: int, computation: float
) -> None:
    """`--perfect-overlap` leaves the share 1 - P / C of a rank's transfers (P: its computation, C: its transfers).

    With a fast network nothing remains. Waiting for the late rank remains in any case.
    """
    changed = ["--scale", f"class:COMPUTATION={computation}"]
    paths = write_capture(replace(SPEC, collective_ns=collective_ns, collective_skew_ns=0), tmp_path).paths
    collectives = [spans(path, True) for path in paths]
    arrived = [max(start for start, _ in of_ranks) for of_ranks in zip(*collectives, strict=True)]
    words: list[str] = []
    for rank, path in enumerate(paths):
        transfers = sum(end - last for (_, end), last in zip(collectives[rank], arrived, strict=True))
        left = max(0.0, 1 - computation * union(spans(path, False)) / transfers)
        words += ["--scale", f"rank:{rank}:class:COMMUNICATION={left}"]
    hidden, scaled = asked(tmp_path, "--perfect-overlap", *changed), asked(tmp_path, *words, *changed)
    assert hidden["after"]["length_us"] == pytest.approx(scaled["after"]["length_us"], rel=1e-3)
    without_transfers = asked(tmp_path, "--remove", "class:COMMUNICATION", *changed)["after"]["length_us"]
    is_all = collective_ns == SPEC.collective_ns
    assert (hidden["after"]["length_us"] == pytest.approx(without_transfers, rel=1e-3)) == is_all


def test_a_collective_lasts_from_its_own_start_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The duration of a collective is the weight of the edge from its start to its end, 30 of 50 ns.

    The edge of weight 0 from its start to work that waited for it does not count.
    """
    events = {"own_time_of": [0, 0, 1], "src_event": [0, 0, 1], "dst_event": [0, 1, 1], "kind": [0, 0, 0]}
    window = SimpleNamespace(
        events=SimpleNamespace(dur=np.array([50, 20])), **{name: np.array(of) for name, of in events.items()}
    )
    lasting: list[list[int]] = []

    def noted(_: object, factor: np.ndarray, durations: np.ndarray) -> np.ndarray:
        lasting.append(durations.tolist())
        return factor

    monkeypatch.setattr(module, "hidden_communication", noted)
    graph, nothing = SimpleNamespace(weight=np.array([30, 0, 20])), np.zeros(0, dtype=np.int64)
    rank, edge = SimpleNamespace(window=window), np.arange(3)
    whole = Retimed([rank], graph, nothing, edge, np.zeros(3, np.int64), nothing, nothing)  # pyright: ignore[reportArgumentType]
    whole._overlap(_Change(np.ones(3), np.zeros(3, dtype=bool)))
    assert lasting == [[30, 20]]


def test_what_no_operator_selects_is_told() -> None:
    windows = [SimpleNamespace(window=SimpleNamespace(owners=Owners({}, {"op": of}))) for of in (0.0, 31.26)]
    nothing = np.zeros(0, dtype=np.int64)
    whole = Retimed(windows, None, *[nothing] * 5)  # pyright: ignore[reportArgumentType]
    (said,) = whole._unselected(Scenario((("rank:1:op:aten::mm", 0.5),)))
    assert said.startswith("up to 31.3 % of a rank's GPU time ran in graph replays whose operator is unknown")
    assert not [*whole._unselected(Scenario((("op", 0.5), ("class:CPU", 0.5))))]


@pytest.mark.parametrize(
    ("sides", "takes"), [((FRAME, CPU, GPU, CPU), 40), ((CPU, GPU, FRAME, CPU), 30), ((FRAME, CPU, CPU, CPU), 60)]
)
def test_from_the_first_event_but_a_frame_to_the_end_of_the_last_gpu_work(sides: tuple[int, ...], takes: int) -> None:
    """A capture lasts from its first event that is not a Python frame to the end of the last GPU work.

    Without GPU work the end of the last event counts. Four consecutive events take 10, 20, 20 and 20 ns.
    """
    starts = ((0, 10), (10, 20), (30, 20), (50, 20))
    whole = joined(Case(tuple(Event(f"e{at}", 0, 0, at, ns) for at, ns in starts)))
    (rank,) = whole.ranks
    whole = replace(whole, ranks=(replace(rank, side=np.repeat(np.array(sides, np.int8), 2)),))
    retimed = of_joined([], whole, [np.arange(len(rank.src))])
    assert retimed.length_ns == takes
    ahead = _Change(np.ones(0), np.zeros(0, dtype=bool), ahead_ns=100)
    # `ahead_ns` includes the frame before the first operator, which is not in the length
    assert retimed._length(retimed._before, ahead) == takes


@pytest.mark.parametrize(
    ("factors", "saves"),
    [((0, 0), 20), ((1, 0), 20), ((1, 0.5), 20), ((1, 0.6), 20), ((1, 0.8), 10), ((0, 1), 0), ((2, 1), -10)],
)
def test_a_changed_capture_is_measured_from_the_unchanged_start(
    monkeypatch: pytest.MonkeyPatch, factors: tuple[float, float], saves: int
) -> None:
    """Frames end at 30 and at 50, where operators start.

    Kernels wait for each other and end at 80, so the length is 50.
    """
    events: list[Event] = []
    for rank, ready in enumerate((30, 50)):
        times = ((0, ready, None), (ready, 5, None), (ready + 5, 75 - ready, "c"))
        events += [Event(f"e{rank}{at}", rank, 0, at, ns, instance) for at, ns, instance in times]
    whole = joined(Case(tuple(events)))
    sides = np.repeat(np.array([FRAME, CPU, GPU], np.int8), 2)
    whole = replace(whole, ranks=tuple(replace(rank, side=sides) for rank in whole.ranks))
    changes = [
        SimpleNamespace(
            factor=np.where(rank.src == 0, factor, 1.0),
            gone=np.zeros(len(rank.src), dtype=bool),
            timeline=SimpleNamespace(dst_ns=np.full(len(rank.src), 10 * (number + 1))),
        )
        for number, (rank, factor) in enumerate(zip(whole.ranks, factors, strict=True))
    ]
    monkeypatch.setattr(module, "change_of", lambda change, _: change)
    ranks = [SimpleNamespace(rank=number, window=change) for number, change in enumerate(changes)]
    retimed = of_joined(ranks, whole, [np.arange(len(rank.src)) for rank in whole.ranks])  # pyright: ignore[reportArgumentType]
    assert retimed.length_ns == 50
    frames = Scenario((("frames", 0.0),))
    assert retimed.saved_ns(frames) == saves
    shorter = [ready * (1 - factor) for ready, factor in zip((30, 50), factors, strict=True) if factor < 1]
    removed = retimed.removed(frames)
    assert sorted(removed.ns.tolist()) == pytest.approx(sorted(shorter)) and not len(removed.call)
    changes[1].gone[0] = True  # it represents the wait of a call of 20 ns
    assert retimed.removed(frames).waited.tolist() == [20]


@pytest.mark.slow  # five commands on three ranks; tests/critical_path/whatif tests wrong names in scenarios
def test_what_cannot_be_asked(capture: tuple[Path, Capture]) -> None:
    folder, _ = capture
    for words, said in (
        (["--scale", "rank:7:cpu=0.5"], "no rank 7"),
        (["--scale", "nothing like it=0.5"], "matches nothing"),
        (["--remove", "cpu", "--remove", "nothing like it"], "matches nothing"),
        (["--perfect-overlap", "--remove", "nothing like it"], "matches nothing"),
        (["--sensitivity"], "all ranks of the capture together"),
    ):
        done = CliRunner().invoke(app, ["what-if", str(folder), *words])
        assert done.exit_code == 1 and said in " ".join(done.output.split())
    text = CliRunner().invoke(app, ["what-if", str(folder), "--remove", "cpu"]).stdout
    assert "the capture takes" in text


@pytest.mark.slow  # 3 s; test_caveats.py tests a rank's caveats
def test_what_the_numbers_lack_is_told_beside_them(tmp_path: Path) -> None:
    """The caveats of an answer are in its JSON and its text.

    A rank without collectives has no common clock with the others. Without cuda_sync rows waits are inferred.
    """
    for path in write_capture(SPEC, tmp_path).paths:
        trace = json.loads(gzip.decompress(path.read_bytes()))
        gone = ("nccl",) if path.name == "rank2.json.gz" else ()
        trace["traceEvents"] = [
            e
            for e in trace["traceEvents"]
            if e.get("cat") != "cuda_sync" and not any(word in e["name"].lower() for word in gone)
        ]
        path.write_bytes(gzip.compress(json.dumps(trace).encode()))
    answer = asked(tmp_path, "--remove", "cpu")
    assert set(answer["ranks"]) == {"0", "1"} and answer["inferred_waits"] > 0
    left_out, unseen, lost = (caveat["detail"] for caveat in answer["caveats"])
    assert "left out" in left_out and left_out.endswith(": 2")
    assert "no cuda_sync events" in unseen and unseen.endswith("(ranks 0, 1)")
    assert answer["caveats"][2]["caveat"] == "lost_kernels" and lost.startswith("rank2")
    text = " ".join(CliRunner().invoke(app, ["what-if", str(tmp_path), "--remove", "cpu"]).stdout.split())
    assert left_out in text and f"{answer['inferred_waits']:,} waits of this graph are inferred" in text


@pytest.mark.slow  # 5 s; faces/cli/test_why.py tests a single rank
def test_a_gain_of_gaps_that_may_be_events_is_told_as_for_one_rank(tmp_path: Path) -> None:
    """A gain from gaps in which events may be unrecorded has the same caveat as for one rank.

    All ranks pause for 5 ms before a kernel that was queued.
    """
    for path in write_capture(SPEC, tmp_path).paths:
        trace = json.loads(gzip.decompress(path.read_bytes()))
        timed = [e for e in trace["traceEvents"] if e["ph"] == "X"]
        launched = {e["args"]["correlation"]: e["ts"] for e in timed if e["cat"] == "cuda_runtime"}
        work = [e for e in timed if e["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")]
        pause = next(
            e["ts"]
            for e in sorted(work, key=lambda e: e["ts"])
            if launched.get(e["args"]["correlation"], e["ts"]) < e["ts"] - 20
            and not any(other["ts"] < e["ts"] < other["ts"] + other["dur"] for other in work)
        )
        for e in timed:
            if e["ts"] >= pause:
                e["ts"] += 5000
            elif e["ts"] + e["dur"] > pause:
                e["dur"] += 5000
        path.write_bytes(gzip.compress(json.dumps(trace).encode()))
    (caveat,) = asked(tmp_path, "--remove", "kernel_gaps", "--remove", "launch_overhead")["caveats"]
    detail = caveat["detail"]
    assert detail.startswith("5.") and "of rank" in detail and "gaps over 1 ms in which nothing ran" in detail
    output = (
        CliRunner().invoke(app, ["what-if", str(path), "--remove", "kernel_gaps", "--remove", "launch_overhead"]).stdout
    )
    assert detail.partition(" are ")[2] in " ".join(output.split())
    (caveat,) = asked(tmp_path, "--scale", "communication=0.5")["caveats"]
    assert "streams overlaps" in caveat["detail"] and "(ranks 0, 1, 2)" in caveat["detail"]


def drifting(folder: Path) -> None:
    """Write a capture whose steps begin one second apart, so that a drift shows.

    The clock of rank 1 runs 20 ppm too fast.
    """
    for number, path in enumerate(write_capture(replace(SPEC, steps=6, bucket_layers=1), folder).paths):
        trace = json.loads(gzip.decompress(path.read_bytes()))
        timed = [e for e in trace["traceEvents"] if e["ph"] == "X"]
        steps = sorted(e["ts"] for e in timed if e["name"].startswith("ProfilerStep") and e["cat"] == "user_annotation")
        for e in timed:
            e["ts"] += 1e6 * bisect_right(steps, e["ts"])
            e["ts"] = round(e["ts"] * (1.00002 if number == 1 else 1), 3)
        path.write_bytes(gzip.compress(json.dumps(trace).encode()))


@pytest.mark.slow  # test_captures tests the caveat of clocks; the test above tests that caveats are printed
def test_a_clock_that_drifts_is_told_beside_the_numbers(tmp_path: Path) -> None:
    drifting(tmp_path)
    (caveat,) = asked(tmp_path, "--remove", "cpu")["caveats"]
    # Clocks have no noise here, so the smallest slope counts as a drift, and other ranks may be listed as well.
    said, _, ranks = caveat["detail"].partition(": ")
    assert "clocks drift" in said and "1" in ranks.split(", ")


def test_a_file_without_a_rank_is_no_rank_that_is_left_out() -> None:
    with duckdb.connect() as con:
        con.execute(
            "CREATE TABLE capture_ranks AS FROM (VALUES ('c', 0), ('c', 1), ('c', NULL)) AS t(capture_id, rank)"
        )
        ranks = [JoinableRank(rank, f"trace{rank}", 0, 1) for rank in (0, 1)]
        assert list(_left_out(con, "c", ranks)) == []
        (caveat,) = _left_out(con, "c", ranks[:1])
    assert caveat.endswith("cannot be joined: 1")
