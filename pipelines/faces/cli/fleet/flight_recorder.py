"""`tracelake flight-recorder`: where the ranks of a hung job diverge."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from pipelines.base.foreign_text import visible
from pipelines.faces.cli.console import err, new_table, out, print_json
from pipelines.faces.cli.options import JsonOption, local
from pipelines.faces.hang_words import lacks_dumps, named_ranks, short_ranks, stuck_on, why_stuck

if TYPE_CHECKING:
    from pipelines.readers.flight_recorder.verdicts import GroupVerdict, Verdict

_MATCHED = "no mismatch: every collective that all ring buffers still hold completed on every rank"


def flight_recorder(
    files: Annotated[
        list[Path],
        typer.Argument(help="Dumps of all ranks (JSON or pickle), or their folder.", parser=local, metavar="FILE..."),
    ],
    json: JsonOption = False,
) -> None:
    """Compare the Flight Recorder dumps of a job's ranks: which rank is the job stuck on, and in which collective?

    Example: `tracelake flight-recorder /tmp/nccl_trace_rank_*`
    """
    from pipelines.readers.flight_recorder.dump import DumpError, is_dump, read_dump
    from pipelines.readers.flight_recorder.verdicts import judge

    paths: list[Path] = []
    for path in files:
        inside = sorted(path.iterdir()) if path.is_dir() else [path]
        dumps = [inner for inner in inside if is_dump(inner)] if path.is_dir() else inside
        if not dumps:
            raise DumpError(f"{path}: no Flight Recorder dumps in this folder; name the files")
        if non_dumps := [inner.name for inner in inside if inner not in dumps]:
            err.print(f"skipped, not dumps: {', '.join(non_dumps)}", soft_wrap=True)
        paths += dumps
    verdict = judge([read_dump(path) for path in paths])
    if json:
        print_json(as_json(verdict))
    else:
        out.print(groups_table(verdict))
        for line in conclusion(verdict).splitlines():
            out.print(line, soft_wrap=True)


def as_json(verdict: Verdict) -> dict[str, Any]:
    """Return the verdict with all process groups, for JSON."""
    groups = [_group_json(group) for group in verdict.groups]
    root = verdict.root and groups[verdict.groups.index(verdict.root)]
    unplaced = [vars(entry) for entry in verdict.unplaced]
    document = {"verdict": verdict.verdict, "root": root, "is_circle": verdict.is_circle, "groups": groups}
    return {**document, "doubts": verdict.doubts, "unplaced": unplaced}


def _group_json(verdict: GroupVerdict) -> dict[str, Any]:
    group, finding = verdict.group, verdict.finding
    return {
        "pg": group.name,
        "desc": group.desc,
        "ranks": group.ranks,
        "dump_missing": verdict.dump_missing,
        "first_common_seq": verdict.first_seq,
        "last_seq": verdict.last_seq,
        "finding": finding and {**vars(finding), "op": finding.op, "may_be_slow": finding.may_be_slow},
        "n_unfinished": verdict.n_unfinished,
        "members_inferred": group.is_inferred,
        "confidence": verdict.confidence,
    }


def groups_table(verdict: Verdict) -> Table:
    """Return a table with one row per process group."""
    table = new_table("group", "ranks", "compared from", "to", "finding", "at", "confidence")
    for group in verdict.groups:
        finding = group.finding
        name = f"{group.group.name} {group.group.desc}".strip()
        last = max(group.last_seq.values(), default=-1)
        table.add_row(
            name,
            short_ranks(group.group.ranks),
            *("" if n is None or n < 0 else str(n) for n in (group.first_seq, last)),
            finding.kind if finding else "none",
            str(finding.seq) if finding else "",
            group.confidence or "",
        )
    return table


def conclusion(verdict: Verdict) -> str:
    """Return the verdict and the next action, in a few lines of plain text."""
    return "\n".join(visible(line) for line in _lines(verdict))


def _lines(verdict: Verdict) -> list[str]:
    root = verdict.root
    doubts = [f"  {doubt}" for doubt in verdict.doubts]
    if root is None or root.finding is None:
        if verdict.doubts:
            return ["undecided: no mismatch was found, but the job cannot be shown to be healthy:", *doubts]
        return [_MATCHED]
    finding = root.finding
    sentence = why_stuck(
        finding.kind, finding.culprits, finding.waiting, root.dump_missing, finding.ambiguous, finding.ops
    )
    when = (
        f" ({datetime.fromtimestamp(finding.created_ns / 1e9, UTC):%Y-%m-%d %H:%M:%S} UTC)"
        if finding.created_ns
        else ""
    )
    lines = [f"{stuck_on(finding.op, finding.seq, root.group.name)}{when}: {sentence}"]
    lines += [f"  rank {rank}: {frame}" for rank, frame in sorted(finding.frames.items())]
    lines += [f"  rank {rank}, last call: {call}" for rank, call in sorted(finding.last_calls.items())]
    if finding.may_be_slow and finding.waited_ns is not None and finding.timeout_ms is not None:
        lines.append(
            f"written at most {finding.waited_ns / 1e9:.1f} s after the call, whose timeout is {finding.timeout_ms / 1e3:g} s: "
            "a rank that is merely late looks the same; dump again to distinguish them"
        )
    if root.dump_missing and not lacks_dumps(finding.kind, root.dump_missing):
        lines.append(f"dumps of {named_ranks(root.dump_missing)} are missing: get them, they may change the verdict")
    other_groups = [group.group.name for group in verdict.groups if group.finding and group is not root]
    if verdict.is_circle:
        lines.append(
            f"the rank that the others wait for is itself waiting in another group ({', '.join(other_groups)}): do all ranks call the groups in the same order?"
        )
    elif other_groups:
        lines.append(f"the findings of groups {', '.join(other_groups)} probably follow from it")
    return lines + (["also not compared:", *doubts] if doubts else [])
