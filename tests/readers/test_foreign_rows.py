"""Files of several ranks without a label, and events that no model reads: a finding limits every answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.readers.inputs.single_trace import load_trace
from tests.harness import call, kernel, memory, op, x

Event = dict[str, Any]


def foreign(events: list[Event], folder: Path, *, lean: bool = False) -> dict[str, tuple[int, str, str]]:
    path = folder / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    con = memory()
    load_trace(con, path, lean=lean)
    rows = con.execute("SELECT check_name, n, severity, detail FROM findings").fetchall()
    return {
        check: (n, severity, detail)
        for check, n, severity, detail in rows
        if check in ("unread_events", "merged_processes")
    }


def rank(pid: Any, first: int, n: int) -> list[Event]:
    """Return a process with `n` launches, numbered from `first` on."""
    launches = [{**call("cudaLaunchKernel", 10 * i, 5, first + i), "pid": pid} for i in range(n)]
    name = {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": "python"}}
    return [name, *launches, *(kernel("k", 10 * i + 6, 3, first + i) for i in range(n))]


BOUNDARIES = {
    "merged_shared_ids": (
        "merged_processes",
        [*rank(100, 1, 50), *rank(200, 31, 50)],
        [*rank(100, 1, 50), *rank(200, 32, 50)],
    ),
}


def test_a_file_is_merged_from_the_threshold_on(tmp_path: Path) -> None:
    check, merged, single = BOUNDARIES["merged_shared_ids"]
    assert set(foreign(merged, tmp_path)) == {check}
    assert foreign(single, tmp_path) == {}


@pytest.mark.parametrize("lean", [False, True])
def test_merged_files_are_named(lean: bool, tmp_path: Path) -> None:
    remedy = "numbers are of all ranks together: give the file of each rank, or the folder with them"
    # PyTorch's group_profile writes pids as {pid}_{rank}.
    n, severity, detail = foreign([*rank("100_0", 1, 30), *rank("100_1", 1, 30)], tmp_path, lean=lean)[
        "merged_processes"
    ]
    assert (n, severity) == (30, "error")
    assert detail == (
        "calls of 2 processes have 30 correlation ids in common, as where traces of several ranks were merged into one "
        f"file: calls have the GPU work of other ranks, and {remedy}"
    )
    # TraceFusion makes the ids distinct, and writes the rank into each event.
    fused = [*rank(100, 1, 3), *rank(10100, 1001, 3)]
    for event in fused:
        event["args"]["rank"] = int(event["pid"] == 10100)
    n, severity, detail = foreign(fused, tmp_path, lean=lean)["merged_processes"]
    assert (n, severity) == (2, "error")
    assert detail == f"the traces of 2 ranks were merged into the file (argument rank), so {remedy}"


def test_two_processes_of_one_rank_are_not_merged(tmp_path: Path) -> None:
    """Two processes of one rank do not count as merged traces of several ranks.

    A data loader's process that queries its devices shares a few ids with the main process.
    """
    assert foreign([*rank(100, 1, 50), *rank(200, 1, 5)], tmp_path) == {}
    stated = [*rank(100, 1, 5), *rank(200, 1001, 5)]
    for event in stated:
        event["args"]["rank"] = 3
    assert foreign(stated, tmp_path) == {}


def without_category(name: str, at: float, pid: Any) -> Event:
    return {"ph": "X", "name": name, "pid": pid, "tid": 7, "ts": at, "dur": 5, "args": {}}


def process(pid: Any, name: str) -> Event:
    return {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}


MISSING = "if these are the device's work, it is missing from all numbers"
UNREAD: dict[str, tuple[list[Event], str | None]] = {
    "Ascend": (
        [
            *(process(3, "Ascend Hardware"), process(2, "CANN")),
            *(op("aten::mm", 0, 9), without_category("MatMulV2", 10, 3), without_category("MatMulV2", 20, 3)),
            without_category("Node@launch", 5, 2),
        ],
        f"no GPU work is read, but 3 events have no category (2 of Ascend Hardware, 1 of CANN): {MISSING}",
    ),
    "JAX": (
        [process(1, "/device:GPU:0"), without_category("dot.1", 10, 1)],
        f"no GPU work is read, but 1 event has no category (1 of /device:GPU:0): {MISSING}; of JAX, give the "
        "*.xplane.pb next to it",
    ),
    "Gaudi": (
        [op("aten::mm", 0, 9), x("hpu_op", "TPC", 10, 5, 7, 0), x("hpu_op", "TPC", 20, 5, 7, 0)],
        f"no GPU work is read, but 2 events have no known category (2 of process 0 (hpu_op)): {MISSING}",
    ),
    "both, of many processes": (
        [*(without_category("a", 10 * i, i) for i in range(5)), x("own", "b", 90, 5, 7, 9)],
        "no GPU work is read, but 6 events have no category, or an unknown one (1 of process 0, 1 of process 1, "
        f"1 of process 2 and 3 more processes): {MISSING}",
    ),
    "own ranges of a known process": ([op("aten::mm", 0, 9), x("own", "range", 0, 20)], None),
    "nothing but operators": ([op("aten::mm", 0, 9)], None),
    "GPU work is there": ([kernel("k", 0, 5, 1), without_category("MatMulV2", 10, 3)], None),
    "only a copy": ([kernel("m", 0, 5, 1, cat="gpu_memcpy"), without_category("MatMulV2", 10, 3)], None),
}


@pytest.mark.parametrize("name", UNREAD)
def test_events_that_are_not_read_are_counted(name: str, tmp_path: Path) -> None:
    events, sentence = UNREAD[name]
    findings = foreign(events, tmp_path, lean=True)
    if sentence is None:
        assert findings == {}
    else:
        n_timed = sum(event["ph"] == "X" and event.get("cat") != "cpu_op" for event in events)
        assert findings == {"unread_events": (n_timed, "warning", sentence)}
