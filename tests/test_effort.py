"""Shares of the slow tests, and the steps at which a test kills."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests import effort
from tests.effort import shares, steps

TESTS = {f"tests/{file}.py::test_{n}": None for file in ("a", "b", "c") for n in range(12)}


def test_each_share_has_some_of_each_file() -> None:
    share_of = shares(TESTS, 6)
    for file in ("a", "b", "c"):
        assert Counter(share for node, share in share_of.items() if f"/{file}." in node) == dict.fromkeys(
            range(1, 7), 2
        )
    # Files with one test each are in different shares.
    assert len({share for node, share in share_of.items() if node.endswith("::test_0")}) > 1


def test_other_files_move_no_test_to_another_share() -> None:
    alone = shares(dict([*TESTS.items()][12:24]), 6)
    assert alone == {node: share for node, share in shares(TESTS, 6).items() if node in alone}


def test_what_belongs_together_is_in_one_share() -> None:
    share_of = shares({node: "spark" if node.startswith("tests/b") else None for node in TESTS}, 6)
    assert len({share for node, share in share_of.items() if node.startswith("tests/b")}) == 1
    assert {node: share for node, share in share_of.items() if not node.startswith("tests/b")} == {
        node: share for node, share in shares(TESTS, 6).items() if not node.startswith("tests/b")
    }


def test_a_few_steps_are_those_of_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effort, "ALL_STEPS", False)
    monkeypatch.setattr(effort, "SEED", 7)
    monkeypatch.setattr(effort, "SLOW", False)
    first = steps(50, few=3)
    assert first == steps(50, few=3) and len(set(first)) == 3 and {*first} <= {*range(1, 51)}
    assert steps(2, few=3) == [1, 2]
    chosen = set()
    for seed in range(40):
        monkeypatch.setattr(effort, "SEED", seed)
        chosen |= {*steps(4)}
    assert chosen == {1, 2, 3, 4}
    monkeypatch.setattr(effort, "SLOW", True)
    assert len(steps(50, few=3)) == 6 and len(steps(5, few=3)) == 5
    monkeypatch.setattr(effort, "ALL_STEPS", True)
    assert steps(5) == [1, 2, 3, 4, 5]


def test_what_slow_asks_for() -> None:
    assert [effort.asked(text) for text in ("", "0", "1", "3/6")] == [
        *((False, None), (False, None), (True, None)),
        (False, (3, 6)),
    ]
    for wrong in ("yes", "0/6", "7/6", "3/", "2"):
        with pytest.raises(pytest.UsageError, match=f"SLOW={wrong}: give 1 for all"):
            effort.asked(wrong)


@pytest.mark.parametrize("alone", [False, True])
def test_a_run_has_the_quick_tests_and_its_share_of_the_slow_ones(alone: bool, tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(
        "import pytest\n"
        "@pytest.mark.slow\n@pytest.mark.parametrize('n', range(4))\ndef test_slow(n): print('ran', n)\n"
        "def test_quick(): print('ran quick')\n"
    )
    root = Path(__file__).resolve().parents[1]
    (node,) = (
        node for node, share in shares({f"test_a.py::test_slow[{n}]": None for n in range(4)}, 4).items() if share == 2
    )
    which = node.partition("[")[2][0]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-s", "-p", "tests.conftest", "test_a.py", *(["-k", which] if alone else [])],
        cwd=tmp_path,
        env={**os.environ, "SLOW": "2/4", "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
    )
    ran = {line.split("ran ")[1] for line in done.stdout.splitlines() if "ran " in line}
    assert ran == ({which} if alone else {which, "quick"}), done.stdout
