"""Operators of a profiler trace joined with nodes of an execution trace.

They are joined by number if the numbers mean the same, otherwise by order.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipelines.readers.execution import load_execution
from pipelines.readers.execution.align import align
from pipelines.readers.inputs.single_trace import load_trace
from tests.harness import connect, memory, x
from tests.readers.execution.make import Op, write

NAMES = ["a", "b", "a", "c", "b", "d"]


def joined(
    tmp_path: Path, numbers: dict[str, list[int]], ops: list[Op], names: list[str] = NAMES
) -> tuple[str, int, list[tuple[str, str]]]:
    events: list[dict[str, Any]] = []
    for i, name in enumerate(names):
        events.append(x("cpu_op", name, 10 * i, 5, **{key: of[i] for key, of in numbers.items()}))
    con, trace_id = connect(events)
    summary = load_execution(con, write(tmp_path / "et.json", ops), trace_id)
    pairs = con.execute(
        "SELECT e.event_id, n.name FROM operator_nodes JOIN events AS e USING (trace_id, event_id) "
        "JOIN execution_nodes AS n USING (trace_id, node_id) ORDER BY ALL"
    ).fetchall()
    return summary.method, summary.n_joined, pairs


def test_by_record_function_id_whatever_the_order(tmp_path: Path) -> None:
    ops = [Op(name, rf_id=50 - i) for i, name in enumerate(NAMES)]
    numbers = {"Record function id": [50, 49, 48, 47, 46, 45], "External id": [1, 2, 3, 4, 5, 6]}
    method, n, pairs = joined(tmp_path, numbers, ops)
    assert (method, n) == ("record_function_id", 6)
    assert pairs == list(enumerate(NAMES))


def test_by_external_id(tmp_path: Path) -> None:
    ops = [Op(name, rf_id=7 + i) for i, name in enumerate(NAMES[:4])]
    assert joined(tmp_path, {"External id": [7, 8, 9, 10, 11, 12]}, ops)[:2] == ("external_id", 4)


def test_numbers_whose_names_disagree_are_not_believed(tmp_path: Path) -> None:
    ops = [Op(name, rf_id=8 + i) for i, name in enumerate(NAMES)]
    method, n, pairs = joined(tmp_path, {"External id": [7, 8, 9, 10, 11, 12]}, ops)
    assert (method, n, pairs) == ("order", 6, list(enumerate(NAMES)))


def test_other_work_is_not_joined(tmp_path: Path) -> None:
    assert joined(tmp_path, {}, [Op(name) for name in ("u", "v", "a", "w")]) == ("none", 0, [])


def test_loading_again_replaces(tmp_path: Path) -> None:
    con, trace_id = connect([x("cpu_op", "a", 0, 5)])
    for _ in range(2):
        load_execution(con, write(tmp_path / "et.json", [Op("a", [1], [2])]), trace_id)
    counts = [
        con.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0]
        for table in ("execution_nodes", "execution_tensors", "operator_nodes", "execution_summary")
    ]
    assert counts == [2, 2, 1, 1]


def test_align_steps_over_what_only_one_side_has() -> None:
    layer = list("abcdefghij")
    a = ["start", *layer, "x", *layer, *layer, "end"]
    b = ["other", "start", *layer, *layer, "y", "z", *layer, "end"]
    pairs = align(a, b)
    assert [a[i] for i, _ in pairs] == ["start", *layer * 3, "end"]
    assert all(a[i] == b[j] for i, j in pairs)
    assert align([], b) == align(a, []) == align(["q"], b) == []


@pytest.mark.parametrize("rank", [0, 5])
def test_every_operator_of_dlrm_is_joined(shared: Path, rank: int) -> None:
    """Every operator of DLRM is joined, although numbers agree only by accident.

    This PyTorch counts External ids per thread, and rf_ids over all threads.
    """
    folder, con = shared / "traces" / "ranks" / "dlrm_8", memory()
    trace_id = load_trace(con, folder / f"worker{rank}.json.gz").trace_id
    summary = load_execution(con, folder / f"execution_trace_{rank}.json.gz", trace_id)
    assert (summary.schema, summary.method, summary.share) == ("1.0.1", "order", 1.0)
    assert (summary.n_operators, summary.n_nodes) == (1633, 1672)
    by_number = con.execute(
        "SELECT count(*), count(*) FILTER (WHERE e.name = n.name) FROM events AS e JOIN execution_nodes AS n "
        "ON n.rf_id = e.external_id WHERE e.cat = 'cpu_op'"
    ).fetchall()[0]
    assert by_number[0] > 1500 and by_number[1] < 100
