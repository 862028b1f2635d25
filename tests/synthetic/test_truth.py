"""The truth of captures, compared with edges summed by hand and with the path recomputed from the file."""

from __future__ import annotations

import gzip
import json
from fractions import Fraction
from pathlib import Path

import pytest

from pipelines.synthetic import CaptureSpec, write_capture
from tests.synthetic.textbook import TEXTBOOK, textbook

from .default_path import default_path_ns

Edge = tuple[str, str, int]

CPU_BOUND: list[Edge] = [("P", "op0", 1)]
for op in range(6):
    # Start of the operator, start and end of its launch, end; then the kernel of 10 µs, launched 6 µs before it.
    CPU_BOUND += [(f"op{op}", f"call{op}", 35), (f"call{op}", f"called{op}", 5), (f"called{op}", f"end{op}", 40)]
    CPU_BOUND += [(f"call{op}", f"kernel{op}", 6), (f"kernel{op}", f"done{op}", 10)]
    CPU_BOUND += [(f"end{op}", f"op{op + 1}" if op < 5 else "Q", 21)]

# Edges in µs. P, Q: the annotation's start and end, c: a launch call's start, C: its end, k: a kernel's start, K: its end,
# s, S: start and end of the sync.
BY_HAND: dict[str, list[Edge]] = {
    "chain": [
        ("P", "c0", 1), *[(f"c{i}", f"C{i}", 5) for i in range(5)], *[(f"C{i}", f"c{i + 1}", 1) for i in range(4)],
        ("c0", "k0", 6), *[(f"c{i}", f"k{i}", 6) for i in range(1, 5)],
        *[(f"k{i}", f"K{i}", 50) for i in range(5)], *[(f"K{i}", f"k{i + 1}", 1) for i in range(4)],
        ("C4", "s", 1), ("s", "S", 0), ("K4", "S", 2), ("S", "Q", 1),
    ],
    "two_streams": [
        ("P", "ca", 1), ("ca", "Ca", 5), ("Ca", "cb", 1), ("cb", "Cb", 5), ("Cb", "record", 1), ("record", "recorded", 2),
        ("recorded", "wait", 1), ("wait", "waited", 3), ("waited", "cc", 1), ("cc", "Cc", 5), ("Cc", "s", 1), ("s", "S", 0),
        ("ca", "ka", 6), ("ka", "Ka", 100), ("cb", "kb", 6), ("kb", "Kb", 300), ("Kb", "kc", 1), ("Ka", "kc", 1), ("cc", "kc", 6),
        ("kc", "Kc", 50), ("Kc", "S", 2), ("Kb", "S", 2), ("S", "Q", 1),
    ],
    "cpu_bound": CPU_BOUND,
    "comm_bound": [
        ("P", "ca", 1), ("ca", "Ca", 5), ("Ca", "r1", 1), ("r1", "R1", 2), ("R1", "w1", 1), ("w1", "W1", 3), ("W1", "cb", 1),
        ("cb", "Cb", 5), ("Cb", "r2", 1), ("r2", "R2", 2), ("R2", "w2", 1), ("w2", "W2", 3), ("W2", "cc", 1),
        ("cc", "Cc", 5), ("Cc", "s", 1), ("s", "S", 0), ("ca", "ka", 6), ("ka", "Ka", 40), ("Ka", "kb", 1), ("cb", "kb", 6),
        ("kb", "Kb", 400), ("Kb", "kc", 1), ("Ka", "kc", 1), ("cc", "kc", 6), ("kc", "Kc", 30), ("Kc", "S", 2),
        ("Kb", "S", 2), ("S", "Q", 1),
    ],
    "memory_bound": [
        ("P", "ca", 1), ("ca", "Ca", 5), ("Ca", "r", 1), ("r", "R", 2), ("R", "w", 1), ("w", "W", 3), ("W", "cb", 1),
        ("cb", "Cb", 5), ("Cb", "s", 1), ("s", "S", 0), ("ca", "ka", 6), ("ka", "Ka", 200), ("Ka", "kb", 1), ("cb", "kb", 6),
        ("kb", "Kb", 25), ("Kb", "S", 2), ("S", "Q", 1),
    ],
}  # fmt: skip


def longest_of_all_paths(edges: list[Edge]) -> int:
    """Return the length of the longest path, by trying every path."""

    def onwards(node: str) -> int:
        return max((weight + onwards(end) for start, end, weight in edges if start == node), default=0)

    # The longest path starts at a node without incoming edges, because no weight is negative.
    sources = {start for start, _, _ in edges} - {end for _, end, _ in edges}
    return max(onwards(node) for node in sources)


@pytest.mark.parametrize("name", TEXTBOOK)
def test_textbook_by_hand(name: str) -> None:
    case = textbook(name)
    assert longest_of_all_paths(BY_HAND[name]) * 1000 == case.expected.length_ns
    assert case.simulated == case.expected


@pytest.mark.parametrize("name", TEXTBOOK)
@pytest.mark.parametrize("fractional", [False, True])
def test_textbook_read_back(name: str, fractional: bool, tmp_path: Path) -> None:
    case = textbook(name, fractional_ts=fractional)
    document = json.loads(case.write(tmp_path).read_text(), parse_float=Fraction)
    assert default_path_ns(document["traceEvents"]) == case.expected.length_ns
    assert case.text == textbook(name, fractional_ts=fractional).text


@pytest.mark.parametrize("seed", range(6))
def test_general_captures_read_back(seed: int, tmp_path: Path) -> None:
    spec = CaptureSpec(
        ranks=1 + seed % 3, steps=2, seed=seed, compute_streams=1 + seed % 4, fractional_ts=seed % 2 == 0,
        op_ns=(24_000, 200_000, 90_000)[seed % 3], straggler=0 if seed == 4 else None, sync_each_step=seed != 5,
    )  # fmt: skip
    for rank in write_capture(spec, tmp_path).ranks:
        document = json.loads(gzip.decompress(rank.path.read_bytes()), parse_float=Fraction)
        assert default_path_ns(document["traceEvents"]) == rank.truth.full.length_ns
        for number, step in enumerate(rank.truth.steps):
            events = _window(document["traceEvents"], f"ProfilerStep#{number}")
            assert default_path_ns(events) == step.length_ns


def _window(events: list[dict], annotation: str) -> list[dict]:
    """Return the events of one annotation: its CPU events, and the GPU work and syncs that its calls launched."""
    note = next(e for e in events if e["name"] == annotation and e["cat"] == "user_annotation")
    begin, end = note["ts"], note["ts"] + note["dur"]
    on_cpu = ("cpu_op", "cuda_runtime", "user_annotation")
    cpu = [e for e in events if e.get("cat") in on_cpu and begin <= e["ts"] <= end]
    launched = {e["args"]["correlation"] for e in cpu if e["cat"] == "cuda_runtime"}
    gpu = ("kernel", "gpu_memcpy", "gpu_memset", "cuda_sync")
    return cpu + [e for e in events if e.get("cat") in gpu and e["args"]["correlation"] in launched]
