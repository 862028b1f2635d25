"""Traces → captures: the ranks of one job that were profiled together.

Traces of one job in one folder are a group (`traces.group_id`). A folder, such as an inbox, may hold several captures
of a job. If a rank occurs more than once, the traces are sorted by start, and a new capture begins with a trace that
overlaps no other in time, or whose rank is already there at another time. A capture is named after its first-ingested
trace, so that its id stays when late ranks arrive; the capture with the group's first trace has the group's id.

A file that ends early may have lost the base that its times are relative to: it does not tell when it was, where the others
do. It joins the only capture that there is, but never takes the place of a rank's dated trace.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import PurePath

from pipelines.base.datafiles import threshold

_INFINITY = float("inf")
DATED_NS = threshold("dated_ns")
"""Times after this, 2001-09-09, are counted from 1970; others from the boot of a host, or from a base that is not known."""
_SHOWN = 5  # names listed in a sentence


@dataclass(frozen=True)
class RankTrace:
    """A committed trace, as in table `traces`. Times in ns; None is unknown."""

    trace_id: str
    batch_id: str
    path: str
    group_id: str
    job: str | None
    rank: int | None
    world_size: int | None
    trace_start_ns: int | None
    trace_end_ns: int | None
    n_events: int = 0
    ingest_batch_id: str | None = None  # that of its ingest run, if its batch was merged since


@dataclass(frozen=True)
class Member:
    """A trace of a capture. `left_out_reason`: why it is not used (None: it is the rank's trace)."""

    trace: RankTrace
    rank: int | None
    left_out_reason: str | None = None


@dataclass(frozen=True)
class Role:
    """A rank's group in a parallelism role, as given by the user; `job` None is any job."""

    job: str | None
    rank: int
    role: str
    group: str


@dataclass(frozen=True)
class Finding:
    """Something about a capture that limits what can be concluded: a row of `capture_quality`."""

    check_name: str
    severity: str
    n: int
    detail: str


@dataclass(frozen=True)
class Capture:
    """Ranks of a job that were profiled together."""

    capture_id: str
    job: str | None
    world_size: int | None
    members: tuple[Member, ...]
    findings: tuple[Finding, ...]
    roles: tuple[Role, ...] = ()

    @property
    def ranks(self) -> list[Member]:
        """Returns the traces that are used, one per rank, ordered by rank."""
        return sorted((m for m in self.members if m.left_out_reason is None), key=lambda m: m.rank or 0)

    @property
    def content(self) -> str:
        """Returns a hash over its traces and how they are used: it changes when results computed from them may change."""
        parts = [f"{m.trace.trace_id}:{m.rank}:{m.left_out_reason}" for m in self.members]
        parts += [f"{r.rank}:{r.role}:{r.group}" for r in self.roles]
        return hashlib.sha256(";".join(sorted(parts)).encode()).hexdigest()[:16]


def find_captures(traces: Iterable[RankTrace], roles: Sequence[Role] = ()) -> list[Capture]:
    """Returns the captures that the traces form, by capture_id; `roles`: what the user tells about ranks."""
    groups: defaultdict[str, list[RankTrace]] = defaultdict(list)
    for trace in traces:
        groups[trace.group_id].append(trace)
    jobs = _jobs_by_folder(groups)
    found = []
    for group_id, members in groups.items():
        parts = _parts(members)
        first = min(members, key=_ingested).trace_id
        for part in parts:
            named_by = min(part, key=_ingested).trace_id
            name = group_id if named_by == first else _hash(f"{group_id}\0{named_by}")
            capture = _capture(name, part)
            others = jobs[folder_of(part[0].path)] - {capture.job}
            findings = (*capture.findings, *_other_jobs(others))
            found.append(replace(capture, findings=findings, roles=_roles(capture, roles)))
    return sorted(found, key=lambda capture: capture.capture_id)


def _roles(capture: Capture, roles: Sequence[Role]) -> tuple[Role, ...]:
    present = {member.rank for member in capture.ranks}
    return tuple(sorted({r for r in roles if r.rank in present and r.job in (None, capture.job)}, key=str))


def _ingested(trace: RankTrace) -> tuple[str, str]:
    return trace.ingest_batch_id or trace.batch_id, trace.trace_id


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def folder_of(path: str) -> str:
    """Returns the folder that a trace was found in: only traces of one folder form a capture."""
    return str(PurePath(path).parent)


def _jobs_by_folder(groups: dict[str, list[RankTrace]]) -> dict[str, set[str | None]]:
    jobs: defaultdict[str, set[str | None]] = defaultdict(set)
    for members in groups.values():
        jobs[folder_of(members[0].path)].add(members[0].job)
    return jobs


def _parts(traces: Sequence[RankTrace]) -> list[list[RankTrace]]:
    """Splits the traces of a job in a folder into one list per capture."""
    ranks = [trace.rank for trace in traces]
    if len(traces) == 1 or (None not in ranks and len(set(ranks)) == len(ranks)):
        return [list(traces)]
    dated = [trace for trace in traces if is_dated(trace)]
    if dated and len(dated) < len(traces):
        parts, rest = _parts(dated), [trace for trace in traces if not is_dated(trace)]
        return [parts[0] + rest] if len(parts) == 1 else parts + _parts(rest)
    parts: list[list[RankTrace]] = []
    end = -_INFINITY
    for trace in sorted(traces, key=lambda t: (_start(t), t.trace_id)):
        again = [t for t in parts[-1] if t.rank == trace.rank and t.rank is not None] if parts else []
        if not parts or _start(trace) > end or (again and not any(_overlap(trace, other) for other in again)):
            parts.append([])
            end = -_INFINITY
        parts[-1].append(trace)
        end = max(end, _end(trace))
    return parts


def is_dated(trace: RankTrace) -> bool:
    """Whether its times are counted from 1970."""
    return trace.trace_start_ns is not None and trace.trace_start_ns > DATED_NS


def _start(trace: RankTrace) -> float:
    return -_INFINITY if trace.trace_start_ns is None else trace.trace_start_ns


def _end(trace: RankTrace) -> float:
    return _start(trace) if trace.trace_end_ns is None else trace.trace_end_ns


def _overlap(one: RankTrace, other: RankTrace) -> bool:
    """True if the overlap is more than a touch: a rank's windows may follow each other without a gap."""
    return _start(one) == _start(other) or (_start(one) < _end(other) and _start(other) < _end(one))


def _capture(capture_id: str, traces: Sequence[RankTrace]) -> Capture:
    world_size = _world_size(traces)
    members: list[Member] = []
    of_rank: dict[int, RankTrace] = {}
    for trace in sorted(traces, key=lambda t: (not is_dated(t), -t.n_events, t.trace_id)):
        rank = 0 if trace.rank is None and len(traces) == 1 else trace.rank
        reason = _left_out(trace, rank, world_size, of_rank)
        members.append(Member(trace, rank, reason))
        if rank is not None and reason is None:
            of_rank[rank] = trace
    members.sort(key=lambda m: (m.rank is None, m.rank or 0, m.trace.trace_id))
    findings = _findings(members, world_size, traces)
    return Capture(capture_id, traces[0].job, world_size, tuple(members), tuple(findings))


def _world_size(traces: Sequence[RankTrace]) -> int | None:
    """Returns the most frequent value; the larger of two that are equally frequent."""
    said = Counter(trace.world_size for trace in traces if trace.world_size is not None)
    return max(said, key=lambda size: (said[size], size)) if said else None


def _left_out(trace: RankTrace, rank: int | None, world_size: int | None, taken: dict[int, RankTrace]) -> str | None:
    if rank is None:
        return "no_rank"
    if None not in (trace.world_size, world_size) and trace.world_size != world_size:
        return "other_job"
    if world_size is not None and rank >= world_size:
        return "other_job"
    return "rank_twice" if rank in taken else None


_MEANINGS = {
    "rank_twice": ("warning", "two files for one rank: the one with more events is used"),
    "other_job": ("warning", "rank of another job: its world size or rank does not match"),
    "no_rank": ("warning", "neither metadata nor file name gives the rank"),
}


def _findings(members: list[Member], world_size: int | None, traces: Sequence[RankTrace]) -> list[Finding]:
    found = []
    for reason, (severity, meaning) in _MEANINGS.items():
        paths = [m.trace.path for m in members if m.left_out_reason == reason]
        if paths:
            found.append(Finding(reason, severity, len(paths), f"{meaning}: {_some(paths)}"))
    present = {m.rank for m in members if m.left_out_reason is None and world_size and 0 <= (m.rank or 0) < world_size}
    if world_size is not None and len(present) < world_size:
        first = [str(rank) for rank in islice((r for r in range(world_size) if r not in present), _SHOWN)]
        n = world_size - len(present)  # not counted one by one: a file may claim any size
        more = f" and {n - len(first)} more" if n > len(first) else ""
        found.append(
            Finding("missing_ranks", "info", n, f"{n} of {world_size} ranks are missing: {', '.join(first)}{more}")
        )
    if world_size is None and len(traces) > 1:
        found.append(Finding("no_world_size", "info", 1, "no trace says how many ranks the job has"))
    return found


def _other_jobs(jobs: set[str | None]) -> list[Finding]:
    if not jobs:
        return []
    names = sorted(job or "(no name)" for job in jobs)
    detail = f"the folder also holds ranks of other jobs, which are separate captures: {_some(names)}"
    return [Finding("other_jobs_in_folder", "info", len(names), detail)]


def _some(names: Sequence[str], shown: int = _SHOWN) -> str:
    rest = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + rest
