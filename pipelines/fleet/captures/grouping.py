"""Captures: the traces of one job whose ranks were profiled together.

Traces of one job in one folder are a group (`traces.group_id`). A folder, such as an inbox, may contain several
captures of a job. If a rank occurs more than once, the traces are sorted by start. A trace then begins a new capture if
it overlaps no preceding trace of the capture, or if the capture already has its rank at another time.

A capture is named after its first-ingested trace, so its id stays the same when late ranks arrive. The capture that
contains the group's first trace has the group's id. If the group's first trace was removed from the lake, no other
capture gets the id, because the id would then denote a different capture. If `forget` removed the trace that a capture
is named after, the capture's other traces keep its id. The last two rules do not apply to a DuckLake, which does not
record the removed traces.

A truncated file may have lost the base of its timestamps. Its date is then unknown even if the other traces have dates.
Such traces join the only capture of the group, or form separate captures if there are several. They never replace a
rank's dated trace.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import PurePath
from types import MappingProxyType

from pipelines.base.datafiles import threshold

_INFINITY = float("inf")
DATED_NS = threshold("dated_ns")
"""Times above this limit (2001-09-09) count from 1970, others from the boot of a host or from an unknown base."""
_SHOWN = 5  # maximum number of names in a sentence


@dataclass(frozen=True)
class RankTrace:
    """A committed trace, as in table `traces`. Times in ns; None if unknown."""

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
    ingest_batch_id: str | None = None  # the batch of its ingest run, if that batch was merged since then


@dataclass(frozen=True)
class Member:
    """A trace of a capture. `left_out_reason`: why it is not used; None if it is the rank's trace."""

    trace: RankTrace
    rank: int | None
    left_out_reason: str | None = None


@dataclass(frozen=True)
class Role:
    """A rank's group in a parallelism role, supplied by the user. `job` None matches any job."""

    job: str | None
    rank: int
    role: str
    group: str


@dataclass(frozen=True)
class Finding:
    """A fact that limits the conclusions from a capture, as a row of `capture_quality`."""

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
    lacking: tuple[str, ...] = ()
    """The tables from which a trace of the capture is missing, because a model failed on it, with the trace's id."""
    is_digest: bool = False
    """Whether the lake keeps only digests of its traces, so that its tables stay unchanged."""

    @property
    def ranks(self) -> list[Member]:
        """Return the used traces, one per rank, ordered by rank."""
        return sorted(
            (member for member in self.members if member.left_out_reason is None), key=lambda member: member.rank or 0
        )

    @property
    def content(self) -> str:
        """Return a hash over the traces, their use, the roles, the findings, and the tables without some trace.

        The findings may be about other jobs in the folder. If results computed from the capture may change, the hash
        changes.
        """
        parts = [f"{member.trace.trace_id}:{member.rank}:{member.left_out_reason}" for member in self.members]
        parts += [f"{role.rank}:{role.role}:{role.group}" for role in self.roles]
        parts += [f"{finding.check_name}:{finding.detail}" for finding in self.findings]
        parts += self.lacking
        return hashlib.sha256(";".join(sorted(parts)).encode()).hexdigest()[:16]


def find_captures(
    traces: Iterable[RankTrace],
    roles: Sequence[Role] = (),
    digests: Mapping[str, Collection[str]] = MappingProxyType({}),
    removed: Mapping[str, tuple[str, str]] = MappingProxyType({}),
    lacking: Mapping[str, Collection[str]] = MappingProxyType({}),
    kept: Mapping[str, str] = MappingProxyType({}),
) -> list[Capture]:
    """Return the captures that the traces form, ordered by capture_id.

    `roles`: the roles of ranks, supplied by the user. `digests`: the captures that were reduced to digests, with the
    ids of their traces. No further trace joins them. `removed`: by group, the batch and the id of the first-ingested
    trace that was removed from the lake. `lacking`: by trace id, the tables that do not contain the trace, because a
    model failed on it. `kept`: for captures whose naming trace was removed, the capture's id by the ids of the
    remaining traces.
    """
    groups: defaultdict[str, list[RankTrace]] = defaultdict(list)
    for trace in traces:
        groups[trace.group_id].append(trace)
    jobs = _jobs_by_folder(groups)
    digest_of = {trace_id: capture_id for capture_id, members in digests.items() for trace_id in members}
    captures = []
    for group_id, members in groups.items():
        first = min(map(ingested, members))
        _, first_id = min(first, removed.get(group_id, first))
        named_parts = list(_of_digests(members, digest_of))
        parts = _parts([trace for trace in members if trace.trace_id not in digest_of])
        parts.sort(key=lambda part: min(map(ingested, part)))  # the first-ingested part keeps a shared id
        own = [_own_id(group_id, part, first_id) for part in parts]
        taken = {*own, *(name for name, _ in named_parts)}
        for name, part in zip(own, parts, strict=True):
            _, named_by = min(map(ingested, part))
            kept_id = kept.get(named_by, name)
            part_id = name if kept_id in taken else kept_id
            taken.add(part_id)
            named_parts.append((part_id, part))
        for name, part in named_parts:
            capture = _capture(name, part)
            other_jobs = jobs[folder_of(part[0].path)] - {capture.job}
            findings = (*capture.findings, *_other_jobs(other_jobs))
            # If a trace superseded the digest's only trace, its capture has the digest's id, but complete traces.
            is_digest = {trace.trace_id for trace in part} <= {*digests.get(name, ())}
            roles_of_capture, absent = _roles(capture, roles), _lacking(part, lacking)
            captures.append(
                replace(capture, findings=findings, roles=roles_of_capture, lacking=absent, is_digest=is_digest)
            )
    return sorted(captures, key=lambda capture: capture.capture_id)


def _own_id(group_id: str, part: Sequence[RankTrace], first_id: str) -> str:
    """Return the id of a capture that consists of the traces `part`.

    It is the group's id if the capture contains `first_id`, the group's first-ingested trace. Otherwise, it is a hash
    over the group's id and the capture's first-ingested trace.
    """
    _, named_by = min(map(ingested, part))
    has_first = any(trace.trace_id == first_id for trace in part)
    return group_id if has_first else _hash(f"{group_id}\0{named_by}")


def _of_digests(traces: Iterable[RankTrace], digest_of: Mapping[str, str]) -> Iterable[tuple[str, list[RankTrace]]]:
    """Return the id and the traces of each capture that was reduced to a digest. `digest_of`: its id by trace."""
    members: defaultdict[str, list[RankTrace]] = defaultdict(list)
    for trace in traces:
        if capture_id := digest_of.get(trace.trace_id):
            members[capture_id].append(trace)
    return members.items()


def _lacking(traces: Iterable[RankTrace], lacking: Mapping[str, Collection[str]]) -> tuple[str, ...]:
    ids = (trace.trace_id for trace in traces if lacking)
    return tuple(sorted(f"{table} lacks {name}" for name in ids for table in lacking.get(name, ())))


def _roles(capture: Capture, roles: Sequence[Role]) -> tuple[Role, ...]:
    present = {member.rank for member in capture.ranks}
    own = (role for role in roles if role.rank in present and role.job in (None, capture.job))
    # A row for any job and the same row for this job are one role.
    return tuple(sorted({replace(role, job=capture.job) for role in own}, key=str))


def ingested(trace: RankTrace) -> tuple[str, str]:
    """Return the sort key of traces by ingestion: the batch that the trace was ingested in, and the trace's id."""
    return trace.ingest_batch_id or trace.batch_id, trace.trace_id


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def folder_of(path: str) -> str:
    """Return the folder of a trace file. Only traces of one folder form a capture."""
    return str(PurePath(path).parent)


def _jobs_by_folder(groups: dict[str, list[RankTrace]]) -> dict[str, set[str | None]]:
    jobs: defaultdict[str, set[str | None]] = defaultdict(set)
    for members in groups.values():
        jobs[folder_of(members[0].path)].add(members[0].job)
    return jobs


def _parts(traces: Sequence[RankTrace]) -> list[list[RankTrace]]:
    """Split the traces of a job in a folder into one list per capture."""
    if not traces:
        return []
    ranks = [trace.rank for trace in traces]
    if len(traces) == 1 or (None not in ranks and len(set(ranks)) == len(ranks)):
        return [list(traces)]
    dated = [trace for trace in traces if is_dated(trace)]
    if dated and len(dated) < len(traces):
        parts, undated = _parts(dated), [trace for trace in traces if not is_dated(trace)]
        return [parts[0] + undated] if len(parts) == 1 else parts + _parts(undated)
    parts: list[list[RankTrace]] = []
    end = -_INFINITY
    for trace in sorted(traces, key=lambda trace: (_start(trace), trace.trace_id)):
        same_rank = (
            [earlier for earlier in parts[-1] if earlier.rank == trace.rank and earlier.rank is not None]
            if parts
            else []
        )
        if not parts or _start(trace) > end or (same_rank and not any(_overlap(trace, other) for other in same_rank)):
            parts.append([])
            end = -_INFINITY
        parts[-1].append(trace)
        end = max(end, _end(trace))
    return parts


def is_dated(trace: RankTrace) -> bool:
    """Return whether the trace's times count from 1970."""
    return trace.trace_start_ns is not None and trace.trace_start_ns > DATED_NS


def _start(trace: RankTrace) -> float:
    return -_INFINITY if trace.trace_start_ns is None else trace.trace_start_ns


def _end(trace: RankTrace) -> float:
    return _start(trace) if trace.trace_end_ns is None else trace.trace_end_ns


def _overlap(first: RankTrace, second: RankTrace) -> bool:
    """Return whether two traces have the same start, or overlap by more than an instant.

    Windows of a rank may adjoin, so an instant does not count.
    """
    return _start(first) == _start(second) or (_start(first) < _end(second) and _start(second) < _end(first))


def _capture(capture_id: str, traces: Sequence[RankTrace]) -> Capture:
    world_size = _world_size(traces)
    members: list[Member] = []
    trace_by_rank: dict[int, RankTrace] = {}
    for trace in sorted(traces, key=lambda trace: (not is_dated(trace), -trace.n_events, trace.trace_id)):
        rank = 0 if trace.rank is None and len(traces) == 1 else trace.rank
        reason = _left_out(trace, rank, world_size, trace_by_rank)
        members.append(Member(trace, rank, reason))
        if rank is not None and reason is None:
            trace_by_rank[rank] = trace
    members.sort(key=lambda member: (member.rank is None, member.rank or 0, member.trace.trace_id))
    findings = _findings(members, world_size, traces)
    return Capture(capture_id, traces[0].job, world_size, tuple(members), tuple(findings))


def _world_size(traces: Sequence[RankTrace]) -> int | None:
    """Return the most frequent world size (on ties, the larger), or None if no trace has one."""
    n_traces_by_size = Counter(trace.world_size for trace in traces if trace.world_size is not None)
    return max(n_traces_by_size, key=lambda size: (n_traces_by_size[size], size)) if n_traces_by_size else None


def _left_out(
    trace: RankTrace, rank: int | None, world_size: int | None, trace_by_rank: dict[int, RankTrace]
) -> str | None:
    if rank is None:
        return "no_rank"
    if None not in (trace.world_size, world_size) and trace.world_size != world_size:
        return "other_job"
    if world_size is not None and rank >= world_size:
        return "other_job"
    return "rank_twice" if rank in trace_by_rank else None


_MEANINGS = {
    "rank_twice": ("warning", "two files for one rank: the one with a date and more events is used"),
    "other_job": ("warning", "rank of another job: its world size or rank does not match"),
    "no_rank": ("warning", "neither metadata nor file name gives the rank"),
}


def _findings(members: list[Member], world_size: int | None, traces: Sequence[RankTrace]) -> list[Finding]:
    findings = []
    for reason, (severity, meaning) in _MEANINGS.items():
        paths = [member.trace.path for member in members if member.left_out_reason == reason]
        if paths:
            findings.append(Finding(reason, severity, len(paths), f"{meaning}: {_some(paths)}"))
    present = {
        member.rank
        for member in members
        if member.left_out_reason is None and world_size and 0 <= (member.rank or 0) < world_size
    }
    if world_size is not None and len(present) < world_size:
        first_missing = [
            str(rank) for rank in islice((rank for rank in range(world_size) if rank not in present), _SHOWN)
        ]
        n = world_size - len(present)  # not len() of a list, because a file may claim any world size
        more = f" and {n - len(first_missing)} more" if n > len(first_missing) else ""
        findings.append(
            Finding(
                "missing_ranks",
                "warning",
                n,
                f"{n} of {world_size} ranks {'is' if n == 1 else 'are'} missing ({', '.join(first_missing)}{more}): "
                "who the others wait for is unknown",
            )
        )
    if world_size is None and len(traces) > 1:
        findings.append(Finding("no_world_size", "info", 1, "no trace records how many ranks the job has"))
    return findings


def _other_jobs(jobs: set[str | None]) -> list[Finding]:
    if not jobs:
        return []
    names = sorted(job or "(no name)" for job in jobs)
    detail = f"the folder also contains ranks of other jobs, which are separate captures: {_some(names)}"
    return [Finding("other_jobs_in_folder", "info", len(names), detail)]


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
