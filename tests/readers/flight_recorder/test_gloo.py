"""Verdicts on dumps that PyTorch itself wrote: jobs of three gloo ranks on this machine's CPU."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import duckdb
import pytest

from pipelines.faces.cli.fleet.flight_recorder import conclusion
from pipelines.lake import Lake
from pipelines.lake.publish.analyst_file import publish
from pipelines.readers.flight_recorder.dump import read_dump
from pipelines.readers.flight_recorder.verdicts import Verdict, judge
from pipelines.readers.ingest import ingest

pytestmark = [
    pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed"),  # importing it takes a second
    pytest.mark.slow(together="dumps of gloo"),  # test_verdicts.py checks the same verdicts on hand-made dumps
]
JOBS = Path(__file__).with_name("gloo_ranks.py")


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run the jobs, and return the folder with a folder per job.

    A job's folder contains its ranks' pickles, and its subfolder json the same dumps in JSON.
    """
    folder = tmp_path_factory.mktemp("gloo")
    program = subprocess.Popen(
        [sys.executable, str(JOBS), str(folder)], start_new_session=True, stderr=subprocess.PIPE, text=True
    )
    try:
        _, said = program.communicate(timeout=120)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)  # also kill its ranks, even if the program failed
    assert program.returncode == 0, said
    return folder


def verdict_of(folder: Path) -> Verdict:
    return judge([read_dump(path) for path in sorted(folder.glob("nccl_trace_rank_*"))])


def line_of(text: str) -> str:
    """Return `gloo_ranks.py:31 `, the place of a line of that file."""
    lines = JOBS.read_text().splitlines()
    (number,) = [at for at, line in enumerate(lines, 1) if line.strip() == text]
    return f"{JOBS.name}:{number} "


@pytest.mark.parametrize("form", ["", "json"])
@pytest.mark.parametrize(
    ("job", "expected"),
    [
        ("skipped", ("missing_rank", 5, (1,), (0, 2))),
        ("wrong_size", ("size_mismatch", 4, (2,), (0, 1))),
        ("wrong_order", ("op_mismatch", 4, (1,), (0, 2))),
    ],
)
def test_a_hang_is_a_hang_and_its_rank_is_named(dumps: Path, job: str, form: str, expected: tuple) -> None:
    verdict = verdict_of(dumps / job / form)
    assert verdict.verdict == "hang" and verdict.root is not None
    finding = verdict.root.finding
    assert finding and (finding.kind, finding.seq, finding.culprits, finding.waiting) == expected
    assert (verdict.root.group.name, verdict.root.group.ranks, verdict.root.confidence) == ("0", (0, 1, 2), "high")
    assert verdict.unplaced == () and verdict.doubts == ()


def test_the_frames_are_the_user_s(dumps: Path) -> None:
    root = verdict_of(dumps / "skipped").root
    assert root and root.finding
    called = line_of("dist.all_reduce(torch.ones(size), group=group)")
    assert {rank: Path(frame).name for rank, frame in root.finding.frames.items()} == {
        0: f"{called}train",
        2: f"{called}train",
    }
    assert root.finding.last_calls[1].startswith("all_reduce number 4 of group 0 at ")
    assert called in root.finding.last_calls[1]
    assert "last call: all_reduce number 4" in conclusion(verdict_of(dumps / "skipped"))


def test_a_rank_that_is_only_late_looks_like_a_hang_and_this_is_said(dumps: Path) -> None:
    root = verdict_of(dumps / "skipped").root
    assert root and root.finding and root.finding.may_be_slow  # the dump was taken long before the timeout of 40 s
    assert root.finding.timeout_ms == 40_000 and 0 < (root.finding.waited_ns or 0) < 40e9
    assert "whose timeout is 40 s: a rank that is merely late looks the same" in conclusion(
        verdict_of(dumps / "skipped")
    )
    order = verdict_of(dumps / "wrong_order").root
    assert order and order.finding and not order.finding.may_be_slow  # more time does not resolve a wrong order


@pytest.mark.parametrize("form", ["", "json"])
@pytest.mark.parametrize("job", ["slow", "all_kinds"])
def test_a_job_that_went_on_is_no_hang(dumps: Path, job: str, form: str) -> None:
    verdict = verdict_of(dumps / job / form)
    assert (verdict.verdict, verdict.root, verdict.doubts) == ("no_mismatch", None, ())
    last = max(verdict.groups[0].last_seq.values())
    assert last == 5 if job == "slow" else last > 10
    assert conclusion(verdict).startswith("no mismatch")


def test_a_dead_rank_leaves_no_dump_and_nobody_says_healthy(dumps: Path) -> None:
    verdict = verdict_of(dumps / "dead")
    assert sorted(path.name for path in (dumps / "dead").glob("error_*")) == ["error_0", "error_1"]
    assert verdict.verdict == "undecided" and verdict.groups[0].dump_missing == (2,)
    said = conclusion(verdict)
    assert said.startswith("undecided") and "no dump of rank 2; it may have died" in said and "healthy:" in said


def test_groups_without_ranks_in_the_dumps_are_those_that_call(dumps: Path) -> None:
    """With several groups, gloo's dumps do not list the ranks of any group, so the callers count as members.

    Several groups wait, but the root is rank 2's missing call.
    """
    verdict = verdict_of(dumps / "several_groups")
    assert {group.group.desc: group.group.ranks for group in verdict.groups} == {
        "default_pg": (0, 1, 2),
        "first": (0, 1),
        "second": (1, 2),
    }
    assert verdict.root and verdict.root.group.desc == "second" and verdict.root.finding
    assert verdict.root.finding.culprits == (2,) and verdict.root.finding.waiting == (1,)
    others = {group.group.desc: group.finding and group.finding.kind for group in verdict.groups}
    assert others == {"default_pg": "missing_rank", "first": None, "second": "missing_rank"}


def test_groups_called_in_another_order_wait_in_a_circle(dumps: Path) -> None:
    verdict = verdict_of(dumps / "crossed")
    assert verdict.verdict == "hang" and verdict.is_circle
    assert "do all ranks call the groups in the same order?" in conclusion(verdict)
    assert not verdict_of(dumps / "several_groups").is_circle


def test_they_come_into_the_lake_with_their_verdicts(dumps: Path, tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    jobs = ("skipped", "slow", "dead")
    report = ingest([path for job in jobs for path in (dumps / job).glob("nccl_trace_rank_*")], lake)
    assert [row.status for row in report.rows] == ["ok"] * 3
    with duckdb.connect(str(publish(lake)), read_only=True) as con:
        ask = "SELECT DISTINCT regexp_extract(folder, '[^/]*$'), verdict, doubts <> '[]' FROM flight_recorder_dumps ORDER BY 1"
        assert con.execute(ask).fetchall() == [
            ("dead", "undecided", True),
            ("skipped", "hang", False),
            ("slow", "no_mismatch", False),
        ]
        ask = "SELECT kind, culprits, frames ->> '0' LIKE '%gloo_ranks.py:% train', may_be_slow FROM flight_recorder_verdicts WHERE is_root"
        assert con.execute(ask).fetchall() == [("missing_rank", "[1]", True, True)]
        ask = """
            SELECT count(*), count(*) FILTER (WHERE NOT is_over), min(group_ranks) FROM flight_recorder_entries
            JOIN flight_recorder_dumps USING (set_id, rank) WHERE folder LIKE '%/skipped'"""
        assert con.execute(ask).fetchall() == [(5 + 4 + 5, 2, "[0, 1, 2]")]
