"""Sentences that state why a job hangs, for the kinds of findings in Flight Recorder dumps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_SAYS = {
    "missing_rank": "{culprits} did not call it; {waiting} {wait}",
    "op_mismatch": "{culprits} called another operation",
    "size_mismatch": "{culprits} called it with other sizes",
    "dtype_mismatch": "{culprits} called it with other dtypes",
    "state_split": "{culprits} {have} not finished it, the others have",
    "not_started": "the streams of {culprits} are blocked by something before it",
    "all_joined_not_completed": "all ranks joined and none completed: look at the network and at NCCL's log",
    "missing_peer": "{culprits} did not take part; {waiting} {wait}",
    "transfer_not_completed": "both sides joined and it does not end: look at the network",
}
_UNTOLD = "{culprits} may not have called it (their ring buffers no longer show it); {waiting} {wait}"
_WITHOUT_DUMPS = "all ranks with a dump joined and none completed; {missing} left no dump: look there first"


def stuck_on(op: str | None, seq: int, group: str) -> str:
    """Return the words for the collective on which the ranks of a group diverge. `op`: None if they disagree on it."""
    return f"the job is stuck on {op or 'a collective'} number {seq} of group {group}"


def why_stuck(
    kind: str,
    culprits: Sequence[int],
    waiting: Sequence[int],
    dump_missing: Sequence[int],
    is_ambiguous: bool,
    ops: Mapping[int, str],
) -> str:
    """Return the words in which a finding describes the ranks. `ops`: operation by rank, empty if unknown."""
    template = _SAYS[kind]
    if lacks_dumps(kind, dump_missing):
        template = _WITHOUT_DUMPS
    elif kind == "missing_rank" and is_ambiguous:
        template = _UNTOLD
    sentence = template.format(
        culprits=named_ranks(culprits),
        waiting=named_ranks(waiting),
        wait="waits" if len(waiting) == 1 else "wait",
        have="has" if len(culprits) == 1 else "have",
        missing=named_ranks(dump_missing),
    )
    listed = ", ".join(f"rank {rank} {op}" for rank, op in sorted(ops.items()))
    return f"{sentence}: {listed}" if kind == "op_mismatch" and listed else sentence


def lacks_dumps(kind: str, dump_missing: Sequence[int]) -> bool:
    """Return whether the ranks without a dump are the first suspects."""
    return kind == "all_joined_not_completed" and bool(dump_missing)


def named_ranks(ranks: Sequence[int]) -> str:
    """Return ranks as text, such as `rank 3` or `ranks 3, 4`."""
    return f"rank{'s' if len(ranks) > 1 else ''} {short_ranks(ranks)}"


def short_ranks(ranks: Sequence[int], limit: int = 8) -> str:
    """Return the first `limit` ranks as text, followed by the total number if there are more."""
    more = f", … {len(ranks)} in all" if len(ranks) > limit else ""
    return ", ".join(map(str, ranks[:limit])) + more
