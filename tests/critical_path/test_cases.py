"""The thirteen small traces on which HTA errs or fails.

`hta` reproduces HTA's result, and `default` gives the result of design §6.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest

from pipelines.critical_path.answer.path_answer import PathAnswer
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from tests.harness import answers, connect

CASES = ("S1", "S2", "S3", "S4", "S5", "S6", "S7", "S9", "S9b", "S10", "S11", "S12", "S13")
Edges = set[tuple[int, bool, int, bool, str]]


@cache
def solved(folder: Path, profile: str) -> dict[str, tuple[PathAnswer, dict]]:
    """Return the answer and the edges of all cases, by case; the models run once."""
    by_case = {}
    for case, (con, answer) in zip(CASES, answers((folder / f"{case}.json" for case in CASES), profile), strict=True):
        rows = con.execute(
            "SELECT src_event_id, src_is_start, dst_event_id, dst_is_start, edge_type, weight_ns / 1000 FROM critical_path_edges"
        ).fetchall()
        by_case[case] = answer, {tuple(row[:5]): row[5] for row in rows}
    return by_case


def solve(shared: Path, case: str, profile: str) -> tuple[PathAnswer, dict]:
    return solved(shared / "golden" / "cases", profile)[case]


@pytest.mark.slow  # 5 s
@pytest.mark.parametrize("case", CASES)
def test_hta_profile_gives_htas_answer(shared: Path, case: str) -> None:
    expected = json.loads((shared / "golden" / "cases" / f"{case}.hta.json").read_text())
    if "error" in expected:
        pytest.skip(f"HTA fails here: {expected['error'][:60]}")
    answer, edges = solve(shared, case, "hta")
    assert edges == {(a, b, c, d, kind): weight for a, b, c, d, weight, _, kind in expected["edges"]}
    assert answer.success == expected["success"]
    if answer.success:
        assert answer.length_us == expected["length"]


@pytest.mark.slow  # 5 s
@pytest.mark.parametrize(
    ("case", "length_us"),
    [
        (
            "S1",
            400.0,
        ),  # until the sync returns: launch → g1 30, three kernels 300, gaps 10 + 10, return 40
        ("S2", 200.0),
        ("S3", 200.0),
        ("S4", 105.0),  # from the start of a to the end of b, on two threads
        ("S7", 520.0),  # dev0: 10 + 10 + 500; dev1 does not wait for it
        ("S10", 110.0),  # a and b cross, so 100 to 180 counts once, then 20 until c, and c
        ("S11", 5905.0),  # no cut-off at 1.5 ms: the whole time from a to the end of k2
        ("S12", 80.0),  # cooperative launch and 2D copy: 10 + 20 + 20 + gap 10 + 20
        ("S13", 230.0),  # to the end of k1, for which the sync did not wait
    ],
)
def test_default_lengths(shared: Path, case: str, length_us: float) -> None:
    answer, _ = solve(shared, case, "default")
    assert (answer.success, answer.length_us) == (True, length_us)


@pytest.mark.parametrize(
    ("case", "edges"),
    [
        ("S1", {(1, True, k, True, "KERNEL_LAUNCH_DELAY") for k in (2, 3, 4)}),
        ("S2", {(2, False, 12, True, "SYNC_DEPENDENCY"), (5, False, 12, True, "SYNC_DEPENDENCY")}),
        ("S4", {(1, True, 1, False, "OPERATOR_KERNEL"), (3, True, 3, False, "OPERATOR_KERNEL")}),
        ("S6", {(2, False, 9, True, "SYNC_DEPENDENCY")}),
        ("S7", {(3, True, 4, True, "KERNEL_LAUNCH_DELAY")}),
        ("S9", {(2, False, 7, True, "SYNC_DEPENDENCY")}),
        ("S9b", {(3, False, 8, True, "SYNC_DEPENDENCY")}),
        ("S12", {(1, True, 2, True, "KERNEL_LAUNCH_DELAY"), (3, True, 4, True, "KERNEL_LAUNCH_DELAY")}),
    ],
)
def test_default_has_the_edges_that_hta_lacks(shared: Path, case: str, edges: Edges) -> None:
    _, weights = solve(shared, case, "default")
    assert edges <= set(weights)
    assert case != "S7" or not [e for e in weights if e[4] == "KERNEL_KERNEL_DELAY"]


@pytest.mark.slow  # 2 s
def test_a_wait_that_ends_before_its_work_is_a_finding(shared: Path) -> None:
    con, _ = connect(shared / "golden" / "cases" / "S13.json")
    run_models(con, load_catalog(), ["quality"])
    findings = dict(con.execute("SELECT check_name, n FROM quality").fetchall())
    assert findings["sync_against_time"] == 1
