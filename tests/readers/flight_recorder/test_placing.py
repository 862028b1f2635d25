"""Properties of dumps of real jobs that a plain example does not have, and simulated jobs.

Examples are rings that lost calls, coalesced calls, transfers, and calls that fit no group. The simulated jobs are
healthy, or one of their ranks stops.
"""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from pipelines.faces.cli.fleet.flight_recorder import conclusion
from pipelines.lake import Lake
from pipelines.lake.commit.catalog_file import rebuild
from pipelines.lake.publish.analyst_file import publish
from pipelines.readers.flight_recorder.frames import user_frame
from pipelines.readers.flight_recorder.verdicts import Verdict, judge
from pipelines.readers.ingest import ingest
from tests.effort import SLOW
from tests.readers.flight_recorder.make import call, made, transfer, waits

PAIR = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
TWO = {**PAIR, "1": {"name": "1", "desc": "desc1", "ranks": "[0, 1]"}}


def judged(folder: Path, *ranks: list[dict[str, Any]], groups: Any = PAIR, **top: Any) -> Verdict:
    return judge([made(folder, rank, *calls, groups=groups, **top) for rank, calls in enumerate(ranks)])


def root_finding(verdict: Verdict) -> tuple | None:
    finding = verdict.root and verdict.root.finding
    return finding and (finding.kind, finding.seq, finding.culprits, finding.ambiguous)


def test_calls_that_fit_no_group_forbid_the_word_healthy(tmp_path: Path) -> None:
    verdict = judged(tmp_path, [call(1)], [call(1)], [call(1), call(2)])  # rank 2 is not in group 0
    assert (verdict.verdict, root_finding(verdict)) == ("undecided", None)
    assert [(unplaced.rank, unplaced.name, unplaced.n_calls) for unplaced in verdict.unplaced] == [(2, "0", 2)]
    assert "rank 2: 2 calls in group 0 fit no process group" in conclusion(verdict)


def test_a_group_that_one_dump_does_not_tell_is_that_of_the_others(tmp_path: Path) -> None:
    dumps = [made(tmp_path, 0, call(1), call(2)), made(tmp_path, 1, call(1), groups={})]
    assert root_finding(judge(dumps)) == ("missing_rank", 2, (1,), False)


def test_dumps_without_any_call_are_undecided(tmp_path: Path) -> None:
    verdict = judged(tmp_path, [], [])
    assert verdict.verdict == "undecided" and "TORCH_FR_BUFFER_SIZE" in conclusion(verdict)


def test_a_number_that_no_rank_recorded_is_not_missing(tmp_path: Path) -> None:
    both = [call(1), call(4)]  # gloo also counts calls that it does not record
    assert judged(tmp_path, both, both).verdict == "no_mismatch"


def test_a_ring_that_lost_a_group_s_calls_does_not_say_that_there_were_none(tmp_path: Path) -> None:
    """Rank 0's ring lost its call of a rarely used group, because rank 0 then called another group often.

    Rank 1's ring still contains its call of the rarely used group.
    """
    busy = [call(seq, group="1") for seq in range(50, 54)]
    rank0, rank1 = made(tmp_path, 0, *busy, groups=TWO, begins=60), made(tmp_path, 1, call(5), *busy, groups=TWO)
    assert judge([rank0, rank1]).verdict == "no_mismatch"
    stuck = made(tmp_path, 1, *busy, waits(5), groups=TWO)
    verdict = judge([rank0, stuck])
    assert (
        root_finding(verdict) == ("missing_rank", 5, (0,), True)
        and verdict.root
        and verdict.root.confidence == "low: rings overwritten"
    )
    assert "rank 0 may not have called it" in conclusion(verdict)
    # The counters outlive the ring: rank 0 called and completed number 5.
    through = {"0": {"last_enqueued_collective": "5", "last_completed_collective": "5"}}
    rank0 = made(tmp_path, 0, *busy, groups=TWO, begins=60, pg_status=through)
    assert root_finding(judge([rank0, stuck])) == ("state_split", 5, (1,), False)


def test_one_unfinished_call_that_nothing_compares_forbids_the_word_healthy(tmp_path: Path) -> None:
    """An unfinished call that no other ring contains rules out the verdict healthy.

    Rank 1's ring lost call 1, which is unfinished according to rank 0.
    """
    lost = made(tmp_path, 1, call(2), call(3), begins=1)
    verdict = judge([made(tmp_path, 0, waits(1), call(2), call(3)), lost])
    assert [group.n_unfinished for group in verdict.groups] == [1]
    assert (verdict.verdict, root_finding(verdict)) == ("undecided", None)
    (doubt,) = verdict.doubts
    assert "1 calls are unfinished" in doubt
    assert judge([made(tmp_path, 0, call(1), call(2), call(3)), lost]).verdict == "no_mismatch"


def test_dumps_of_unfinished_calls_only(tmp_path: Path) -> None:
    """If dumps contain only unfinished calls (TORCH_INCLUDE_ONLY_ACTIVE), missing calls count as completed.

    This applies to calls up to the number of the rank's counters.
    """
    status = {"0": {"last_enqueued_collective": 5, "last_completed_collective": 4}}
    slow = made(tmp_path, 0, waits(3), waits(4), waits(5), begins=2, pg_status=status)
    other = made(tmp_path, 1, waits(5), begins=4, pg_status=status)
    verdict = judge([slow, other])
    # By rank 0's counters, 3 and 4 are completed. Its entries were dumped before the watchdog noticed.
    assert root_finding(verdict) == ("all_joined_not_completed", 5, (), False)
    behind = {"0": {"last_enqueued_collective": 5, "last_completed_collective": 2}}
    slow = made(tmp_path, 0, waits(3), waits(4), waits(5), begins=2, pg_status=behind)
    assert root_finding(judge([slow, other])) == ("state_split", 3, (0,), False)
    idle = made(tmp_path, 1, pg_status={"0": {"last_enqueued_collective": 2, "last_completed_collective": 2}})
    assert root_finding(judge([slow, idle])) == ("missing_rank", 3, (1,), False)


@pytest.mark.parametrize("state", ["completed", "started"])
def test_coalesced_calls_have_the_state_of_their_end(tmp_path: Path, state: str) -> None:
    parts = [call(2, "_all_gather_base", state="scheduled", retired=False)] * 2
    calls = [call(1), *parts, call(2, "coalesced", state=state, input_sizes=[], output_sizes=[])]
    verdict = judged(tmp_path, calls, calls)
    assert root_finding(verdict) == (None if state == "completed" else ("all_joined_not_completed", 2, (), False))
    one_less = [call(1), parts[0], calls[-1]]
    assert root_finding(judged(tmp_path, calls, one_less))[:2] == ("op_mismatch", 2)  # pyright: ignore[reportOptionalSubscript]


def test_the_end_alone_is_a_call_too(tmp_path: Path) -> None:
    """The end of a coalesced call counts as a call. Before dump version 2.7, its parts were not recorded."""
    ends = [call(1, "coalesced"), waits(2, "coalesced")]
    assert root_finding(judged(tmp_path, ends, ends, version="2.4")) == ("all_joined_not_completed", 2, (), False)
    assert judged(tmp_path, ends[:1], ends[:1], version="2.4").verdict == "no_mismatch"


def test_a_ring_may_have_cut_coalesced_calls_apart(tmp_path: Path) -> None:
    parts = [
        call(2, "_all_gather_base", state="scheduled"),
        call(2, "broadcast", state="scheduled"),
        call(2, "coalesced"),
    ]
    whole, cut = made(tmp_path, 0, *parts, call(3)), made(tmp_path, 1, *parts[1:], call(3), begins=7)
    assert judge([whole, cut]).verdict == "no_mismatch"


def test_a_retired_call_that_did_not_complete_timed_out(tmp_path: Path) -> None:
    both = [call(1), waits(2, retired=True, timeout_ms=10**12)]
    verdict = judged(tmp_path, both, both)
    assert root_finding(verdict) == ("all_joined_not_completed", 2, (), False)
    assert (
        verdict.root
        and verdict.root.finding
        and verdict.root.finding.has_timed_out
        and not verdict.root.finding.may_be_slow
    )
    both[1] = waits(2, timeout_ms=10**15)
    verdict = judged(tmp_path, both, both)
    assert verdict.root and verdict.root.finding and verdict.root.finding.may_be_slow


def test_a_transfer_whose_peer_does_not_come_is_a_hang(tmp_path: Path) -> None:
    sends = [transfer(1, "send 0->1"), transfer(2, "send 0->1", state="started", retired=False)]
    verdict = judged(tmp_path, sends, [transfer(1, "recv 1<-0")])
    assert root_finding(verdict) == ("missing_peer", 2, (1,), False)
    assert "rank 1 did not take part; rank 0 waits" in conclusion(verdict)
    there = [transfer(1, "recv 1<-0"), transfer(2, "recv 1<-0", state="started", retired=False)]
    assert root_finding(judged(tmp_path, sends, there)) == ("transfer_not_completed", 2, (), False)
    assert judged(tmp_path, sends[:1], there[:1]).verdict == "no_mismatch"
    lost = [made(tmp_path, 0, *sends), made(tmp_path, 1, *there, begins=9)]
    assert root_finding(judge(lost)) == ("transfer_not_completed", 2, (), True)


def test_transfers_of_a_batch_have_the_state_of_their_end(tmp_path: Path) -> None:
    def batch(rank: int, **state: Any) -> list[dict[str, Any]]:
        parts = [f"send {rank}->{1 - rank}", f"recv {rank}<-{1 - rank}"]
        return [
            *(transfer(1, part, state="scheduled", retired=False) for part in parts),
            transfer(1, "coalesced", **state),
        ]

    assert judged(tmp_path, batch(0), batch(1)).verdict == "no_mismatch"
    stuck = {"state": "started", "retired": False}
    verdict = judged(tmp_path, batch(0, **stuck), batch(1, **stuck))
    assert root_finding(verdict) == ("transfer_not_completed", 1, (), False)
    odd = [transfer(1, "send 0->7", state="started", retired=False)]
    assert judged(tmp_path, odd, []).verdict == "undecided"  # rank 7 does not exist: not compared, not healthy


def test_only_the_root_of_a_scatter_has_inputs(tmp_path: Path) -> None:
    root = call(1, "scatter", input_sizes=[[8], [8]])
    other = call(1, "scatter", input_sizes=[], input_dtypes=[])
    assert judged(tmp_path, [root], [other]).verdict == "no_mismatch"
    verdict = judged(tmp_path, [root], [{**other, "output_dtypes": ["Half"]}])
    assert root_finding(verdict) == ("dtype_mismatch", 1, (0, 1), True)


def test_what_the_library_says_of_itself_does_no_harm(tmp_path: Path) -> None:
    dump = made(tmp_path, 0, call(1), nccl_comm_state={"0x12": {"rank": "0"}})
    assert dump.communication_state == '{"0x12": {"rank": "0"}}' and dump.pg_status is None


def test_a_lake_of_an_older_version_is_published_with_the_new_columns(tmp_path: Path) -> None:
    made(tmp_path / "in", 0, call(1))
    made(tmp_path / "in", 1, call(1))
    lake = Lake(tmp_path / "lake")
    ingest([tmp_path / "in"], lake)
    (file,) = lake.root.glob("flight_recorder_dumps/*/*.parquet")
    pq.write_table(pq.read_table(file).drop_columns(["verdict", "doubts"]), file)
    rebuild(lake.root)
    with duckdb.connect(str(publish(lake)), read_only=True) as con:
        assert con.execute("SELECT rank, verdict FROM flight_recorder_dumps ORDER BY 1").fetchall() == [
            (0, None),
            (1, None),
        ]


HERE, TORCH = "/home/me/job/train.py", "/opt/conda/lib/python3.11/site-packages/torch"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([f"{TORCH}/distributed/distributed_c10d.py", f"{TORCH}/distributed/c10d_logger.py", HERE], HERE),
        (["/src/pytorch/torch/distributed/distributed_c10d.py", "/src/pytorch/torch/nn/modules/module.py", HERE], HERE),
        (["/home/me/torch/utils/sync.py", HERE], "/home/me/torch/utils/sync.py"),
        ([f"{TORCH}/_ops.py", "/usr/lib/python3.11/contextlib.py", "<frozen runpy>", HERE], HERE),
        (["ProcessGroupNCCL.cpp", "??", "/usr/lib/python3/dist-packages/mylib/comm.py"], "/usr/lib/python3/dist-packages/mylib/comm.py"),
        ([f"{TORCH}/_ops.py", "/tmp/ipykernel_7/99.py"], "/tmp/ipykernel_7/99.py"),
        ([f"{TORCH}/_ops.py", "/usr/lib/python3.11/threading.py"], f"{TORCH}/_ops.py"),
    ],
)  # fmt: skip
def test_the_first_frame_of_the_user(files: list[str], expected: str) -> None:
    frames = [{"filename": file, "line": at, "name": "f"} for at, file in enumerate(files)]
    assert user_frame(frames) == f"{expected}:{files.index(expected)} f"


def test_no_frames() -> None:
    assert user_frame([]) is None


class Job:
    """A simulated job whose ranks call collectives of several groups in the same order.

    The ranks block in each call as gloo does, or run ahead as NCCL does. From its call number `stops_at` on, rank
    `stops` (if any) calls nothing, so ranks that need it wait.
    """

    def __init__(self, seed: int, is_gloo: bool, stops: bool) -> None:
        dice = random.Random(seed)
        self.n, self.is_gloo = dice.randint(2, 5), is_gloo
        ranks = list(range(self.n))
        subsets = [dice.sample(ranks, dice.randint(2, self.n)) for _ in range(dice.randint(0, 3))]
        self.groups = [tuple(ranks), *sorted({tuple(sorted(subset)) for subset in subsets})]
        self.plan = [(dice.randrange(len(self.groups)), dice.choice(("all_reduce", "broadcast"))) for _ in range(30)]
        self.culprit = dice.choice(ranks) if stops else None
        own = [at for at, (group, _) in enumerate(self.plan) if self.culprit in self.groups[group]]
        self.stops_at = dice.choice(own) if own else None
        self.ring = dice.choice((1, 3, 8, 100))
        self.calls = self._run()

    def _run(self) -> dict[int, list[dict[str, Any]]]:
        calls: dict[int, list[dict[str, Any]]] = {rank: [] for rank in range(self.n)}
        seqs: dict[int, int] = defaultdict(int)
        blocked: set[int] = set()
        for at, (group, op) in enumerate(self.plan):
            members = self.groups[group]
            if at == self.stops_at:
                blocked.add(self.culprit)  # pyright: ignore[reportArgumentType]
            seqs[group] += 1
            coming = [rank for rank in members if rank not in blocked]
            is_done = len(coming) == len(members)
            for rank in coming:
                fields = {} if is_done else {"state": "started", "retired": False}
                if self.is_gloo:
                    fields |= {"state": "scheduled", "profiling_name": f"gloo:{op}"}
                entry = call(seqs[group], op, str(group), time_created_ns=1_000 + 10 * at + rank, **fields)
                calls[rank].append({"record_id": len(calls[rank]), **entry})
            if not is_done:
                blocked |= set(coming)
        return calls

    def verdict(self, folder: Path) -> Verdict:
        config = {
            str(at): {"name": str(at), "desc": "default_pg" if at == 0 else f"desc{at}", "ranks": str(list(ranks))}
            for at, ranks in enumerate(self.groups)
        }
        if self.is_gloo:
            config = {"": {"name": "", "desc": "", "ranks": "[]" if len(self.groups) > 1 else str(list(range(self.n)))}}
        return judge([made(folder, rank, *self.calls[rank][-self.ring :], groups=config) for rank in range(self.n)])


@pytest.mark.parametrize("is_gloo", [False, True])
@pytest.mark.parametrize("seed", range(40 if SLOW else 12))
def test_a_simulated_job_that_is_healthy_is_healthy(tmp_path: Path, seed: int, is_gloo: bool) -> None:
    verdict = Job(seed, is_gloo, stops=False).verdict(tmp_path)
    assert (verdict.verdict, root_finding(verdict), verdict.doubts) == ("no_mismatch", None, ())


@pytest.mark.parametrize("is_gloo", [False, True])
@pytest.mark.parametrize("seed", range(40 if SLOW else 12))
def test_a_rank_that_stops_is_the_one_that_is_blamed(tmp_path: Path, seed: int, is_gloo: bool) -> None:
    job = Job(seed, is_gloo, stops=True)
    verdict = job.verdict(tmp_path)
    waiting = [entry for calls in job.calls.values() for entry in calls if not entry["retired"]]
    if not waiting:  # the rank stopped, but no other rank needed it any more
        assert verdict.verdict == "no_mismatch"
        return
    assert verdict.verdict == "hang" and verdict.root and verdict.root.finding
    if verdict.root.confidence == "low: members inferred":
        # The rank never called a collective of the group, or its ring lost the call.
        assert job.is_gloo and verdict.root.finding.culprits == ()
    else:
        assert verdict.root.finding.culprits == (job.culprit,)
        assert verdict.root.confidence == "high" or job.ring < 100
