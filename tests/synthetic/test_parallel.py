"""Captures with nested process groups: every collective is complete, and the files contain what was simulated."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from pipelines.synthetic import Capture, CaptureSpec, write_capture
from pipelines.synthetic.groups import groups_of, world

SPEC = CaptureSpec(
    ranks=16, steps=2, layers=1, ops_per_layer=1, compute_streams=1, straggler=9, shape="parallel", tensor=2, pipeline=2
)


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    return write_capture(SPEC, tmp_path_factory.mktemp("parallel"))


def collectives(capture: Capture) -> dict[tuple[str, int], dict[int, dict[str, Any]]]:
    """Return the kernel of each rank by group and sequence number."""
    by_collective: defaultdict[tuple[str, int], dict[int, dict[str, Any]]] = defaultdict(dict)
    for rank, path in enumerate(capture.paths):
        for event in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]:
            if event.get("cat") == "kernel" and "Seq" in event["args"]:
                key = event["args"]["Process Group Name"], event["args"]["Seq"]
                assert rank not in by_collective[key]
                by_collective[key][rank] = event
    return by_collective


def test_every_rank_of_a_group_takes_part_and_all_leave_after_the_last_has_come(capture: Capture) -> None:
    by_collective = collectives(capture)
    assert len(by_collective) == capture.n_collectives
    for (name, _), kernels in by_collective.items():
        args = [kernel["args"] for kernel in kernels.values()]
        assert {(a["Process Group Name"], a["Process Group Ranks"]) for a in args} == {(name, str(sorted(kernels)))}
        assert {a["Group size"] for a in args} == {len(kernels)}
        last = max(kernel["ts"] for kernel in kernels.values())
        assert all(kernel["ts"] + kernel["dur"] > last for kernel in kernels.values())
    groups = {tuple(kernels) for kernels in by_collective.values()}
    assert groups == {
        tuple(range(16)),
        *((rank, rank + 1) for rank in range(0, 16, 2)),  # tensor
        *(tuple(range(stage + place, stage + 8, 2)) for stage in (0, 8) for place in (0, 1)),  # data
        *((rank, rank + 8) for rank in range(8)),  # pipeline
    }


def test_what_is_sent_is_received(capture: Capture) -> None:
    sides: Counter[tuple[str, ...]] = Counter()
    for (name, _), kernels in collectives(capture).items():
        if name.startswith("pp"):
            sides[tuple(kernels[rank]["args"]["Collective name"] for rank in sorted(kernels))] += 1
    assert sides == {("send", "recv"): 8 * SPEC.steps, ("recv", "send"): 8 * SPEC.steps}


def test_the_same_spec_gives_the_same_bytes(capture: Capture, tmp_path: Path) -> None:
    again = write_capture(SPEC, tmp_path)
    assert [path.read_bytes() for path in again.paths] == [path.read_bytes() for path in capture.paths]


def test_ranks_that_are_not_whole_groups() -> None:
    with pytest.raises(ValueError, match="10 ranks are not whole groups of 4 x 1"):
        CaptureSpec(ranks=10, shape="parallel", tensor=4)


def test_long_lists_of_ranks_are_written_as_pytorch_does() -> None:
    assert '"[0, 1, 2' in world(30).args("allreduce", 1, 0) and "..." not in world(30).args("allreduce", 1, 0)
    assert ', 28, ..., 30]"' in world(31).args("allreduce", 1, 0)
    spec = CaptureSpec(ranks=1000, shape="parallel", tensor=8, pipeline=5)
    assert groups_of(spec, 628).data.ranks == tuple(range(604, 800, 8))
