"""Verdicts on dumps: the eight hand-made cases, and each further rule on two to four ranks."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from pipelines.readers.flight_recorder.dump import Dump, DumpError, read_dump
from pipelines.readers.flight_recorder.findings import Finding
from pipelines.readers.flight_recorder.verdicts import GroupVerdict, judge

CASES = (
    "all_joined",
    "dump_absent",
    "healthy",
    "missing_rank",
    "op_mismatch",
    "op_mismatch_rank0",
    "size_mismatch",
    "two_groups",
)


def as_expected(verdict: GroupVerdict, expected: dict[str, Any]) -> dict[str, Any]:
    """Return the group's verdict, restricted to the keys of the expected verdict."""
    group, finding = verdict.group, verdict.finding
    said: dict[str, Any] = {
        "pg": group.name,
        "desc": group.desc,
        "ranks": list(group.ranks),
        "dump_missing": list(verdict.dump_missing),
        "first_common_seq": verdict.first_seq,
        "last_seq": {str(rank): seq for rank, seq in verdict.last_seq.items()},
        "finding": finding and {key: in_json(finding, key) for key in expected["finding"]},
        "confidence": verdict.confidence,
    }
    return {key: said[key] for key in expected}


def in_json(finding: Finding, key: str) -> Any:
    value = getattr(finding, key)
    if key == "ops":
        return {str(rank): op for rank, op in value.items()}
    return list(value) if isinstance(value, tuple) else value


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("pickled", [False, True])
def test_made_cases(shared: Path, tmp_path: Path, case: str, pickled: bool) -> None:
    folder = shared / "golden" / "modelling" / "fr"
    expected = json.loads((folder / f"{case}__expected.json").read_text())
    files = sorted((folder / case).iterdir())
    if pickled:
        files = [as_pickle(file, tmp_path) for file in files]
    verdict = judge([read_dump(file) for file in files])
    assert verdict.verdict == expected["verdict"]
    assert len(verdict.groups) == len(expected["groups"])
    for group, other in zip(verdict.groups, expected["groups"], strict=True):
        assert as_expected(group, other) == other
    assert (verdict.root and verdict.root.group.name) == (expected["root"] and expected["root"]["pg"])


def as_pickle(file: Path, folder: Path) -> Path:
    """Write the dump as PyTorch pickles it, with None where JSON has 0."""
    top = json.loads(file.read_text())
    for entry in top.get("entries", []):
        for key in ("time_discovered_started_ns", "time_discovered_completed_ns"):
            entry[key] = entry[key] or None
    target = folder / file.stem
    target.write_bytes(pickle.dumps(top))
    return target


def dump(folder: Path, rank: int, *calls: dict[str, Any], ranks: int = 3, version: str = "2.10") -> Dump:
    entries = [
        {
            "record_id": i,
            "process_group": ["0", "default_pg"],
            "collective_seq_id": i + 1,
            "profiling_name": "nccl:all_reduce",
            "state": "completed",
            "time_created_ns": 1_000 + i,
            "input_sizes": [[8]],
            "output_sizes": [[8]],
            "input_dtypes": ["Float"],
            "output_dtypes": ["Float"],
            **call,
        }
        for i, call in enumerate(calls)
    ]
    groups = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(ranks)))}}
    path = folder / f"dump_{rank}"
    path.write_text(json.dumps({"version": version, "pg_config": groups, "entries": entries}))
    return read_dump(path)


def finding(*dumps: Dump) -> tuple[str, int, tuple[int, ...], bool] | None:
    finding = judge(dumps).groups[0].finding
    return finding and (finding.kind, finding.seq, finding.culprits, finding.ambiguous)


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([{}, {}, {"output_dtypes": ["Half"]}], ("dtype_mismatch", 1, (2,), False)),
        ([{}, {"state": "started"}, {}], ("state_split", 1, (1,), False)),
        ([{"state": "started"}, {"state": "scheduled"}, {"state": "started"}], ("not_started", 1, (1,), False)),
        ([{"state": "scheduled"}] * 3, ("all_joined_not_completed", 1, (), False)),
        ([{"profiling_name": f"nccl:{op}"} for op in ("all_reduce", "broadcast", "reduce")], ("op_mismatch", 1, (0, 1, 2), True)),
        # Only the root has an output, which is legal.
        ([{"profiling_name": "nccl:gather", "output_sizes": s} for s in ([[8], [8], [8]], [], [])], None),
        ([{"profiling_name": "nccl:all_to_all", "input_sizes": [[n]], "output_sizes": [[8]]} for n in (4, 8, 12)], None),
        ([{"profiling_name": "nccl:all_to_all", "input_sizes": [[n]], "output_sizes": [[8]]} for n in (4, 8, 13)], ("size_mismatch", 1, (0, 1, 2), True)),
        ([{"profiling_name": "nccl:send 0->1", "is_p2p": True, "state": "started"}, {}, {}], ("missing_rank", 1, (0,), False)),
    ],
)  # fmt: skip
def test_each_rule(tmp_path: Path, calls: list[dict[str, Any]], expected: tuple | None) -> None:
    assert finding(*(dump(tmp_path, rank, call) for rank, call in enumerate(calls))) == expected


def test_old_dumps_have_no_sizes_of_all_to_all(tmp_path: Path) -> None:
    calls = [{"profiling_name": "nccl:all_to_all", "input_sizes": [[n]], "output_sizes": [[8]]} for n in (4, 8, 13)]
    assert finding(*(dump(tmp_path, rank, call, version="2.3") for rank, call in enumerate(calls))) is None


def test_all_to_all_sizes_are_compared_only_between_all_ranks(tmp_path: Path) -> None:
    uneven = [{"profiling_name": "nccl:all_to_all", "input_sizes": [[n]], "output_sizes": [[8]]} for n in (4, 8, 12)]
    overwritten = dump(tmp_path, 2, {"record_id": 5, "is_p2p": True, "profiling_name": "nccl:send 2->0"})
    for missing in ((), (overwritten,)):
        verdict = judge([*(dump(tmp_path, rank, call) for rank, call in enumerate(uneven[:2])), *missing])
        assert verdict.root is None
    hang = [[uneven[0], {"state": "started"}], [uneven[1]]]
    assert finding(*(dump(tmp_path, rank, *calls) for rank, calls in enumerate(hang))) == (
        "missing_rank",
        2,
        (1,),
        False,
    )


def test_rings_that_begin_at_different_calls_are_compared_where_they_overlap(tmp_path: Path) -> None:
    late = dump(tmp_path, 0, {"collective_seq_id": 7}, {"collective_seq_id": 8})
    early = dump(tmp_path, 1, *({"collective_seq_id": n} for n in range(4, 8)))
    assert finding(late, early, dump(tmp_path, 2, *({"collective_seq_id": n} for n in range(1, 9)))) == (
        "missing_rank",
        8,
        (1,),
        False,
    )


def test_two_dumps_of_a_rank(tmp_path: Path) -> None:
    with pytest.raises(DumpError, match=r"two dumps of rank 1: .*dump_1 and"):
        judge([dump(tmp_path, 1, {}), dump(tmp_path, 1, {})])


class Evil:
    def __reduce__(self) -> tuple:
        return print, ("loaded",)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (pickle.dumps({"version": "2.4", "entries": [Evil()]}), r"names builtins.print: no dump does"),
        (b"\x80\x04\x8c\x01xQ.", "refers to something outside itself: no dump does"),
        (b"\x80\x04 nonsense", "broken pickle"),
        (b'{"version": "2.10", "entries": [', "broken JSON"),
        (b'{"version": "1.0", "entries": []}', "version '1.0'"),
        (b'{"version": "2.10", "entries": [{"record_id": 1}]}', "profiling_name"),
        (pickle.dumps([1, 2]), "contains a list"),
    ],
)
def test_what_is_no_dump_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture, content: bytes, says: str) -> None:
    path = tmp_path / "dump_0"
    path.write_bytes(content)
    with pytest.raises(DumpError, match=says) as refused:
        read_dump(path)
    assert str(path) in str(refused.value)
    assert capsys.readouterr().out == ""


def test_a_name_without_a_rank_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DumpError, match="does not end in a rank"):
        read_dump(tmp_path / "dump")
