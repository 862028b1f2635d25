"""The savings from removing a capture's largest causes.

Each removal is a scenario of `what-if`, on all ranks or on the late rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pipelines.critical_path.causes.fixes import options
from pipelines.critical_path.causes.savings import LEAST_PERCENT
from pipelines.critical_path.whatif.scenario import Scenario
from pipelines.critical_path.whatif.targets import NothingMatches
from pipelines.fleet.path.retimed import Retimed

LATE_RANK = "late_rank"
_MOST = 6
"""Maximum number of causes, and of names, that are retimed and shown."""
_EDGES = 24_000_000
"""Maximum number of edges visited by these retimings. The more edges a capture has, the fewer causes are retimed."""


@dataclass(frozen=True)
class OnPath:
    """The time that a path spends on a name of a cause, ns.

    `rank`: None for time in which no other rank waits, otherwise the rank that the others wait for in this time.
    `glob`: the pattern that selects the name in scenarios. `ns_without_edge`: the part of `ns` that no scenario can
    remove (before a rank's first event, or due to drifting clocks).
    """

    cause: str
    name: str
    glob: str
    rank: int | None
    ns: int
    ns_without_edge: int = 0

    @property
    def group(self) -> str:
        """Return the cause as the user sees it, which is LATE_RANK if other ranks wait."""
        return self.cause if self.rank is None else LATE_RANK


@dataclass(frozen=True)
class CauseSaving:
    """The saving from removing a name of a cause, or the whole cause (`name` is None), ns.

    `options`: the options of what-if for this scenario. For a late rank, the scenario removes `late_cause` on `rank`.
    """

    cause: str
    late_cause: str | None
    rank: int | None
    name: str | None
    options: str
    saves: int


_Request = tuple[str, str | None, int | None, str | None, list[str]]
"""The fields of a CauseSaving up to `name`, and the targets to remove."""


def cause_savings(whole: Retimed, on_path: Sequence[OnPath]) -> list[CauseSaving]:
    """Return the savings from removing the largest causes of a path, and their largest names."""
    length_ns = sum(item.ns for item in on_path)
    ns_by_group: dict[str, int] = {}
    for item in on_path:
        ns_by_group[item.group] = ns_by_group.get(item.group, 0) + item.ns
    causes = [
        group
        for group in sorted(ns_by_group, key=lambda group: (-ns_by_group[group], group))
        if _is_enough(ns_by_group[group], length_ns)
    ]
    names = [
        item
        for item in sorted(on_path, key=lambda item: (-item.ns, item.group, item.name))
        if _is_enough(item.ns, length_ns) and _is_removed([item], length_ns)
    ]
    requests: list[_Request] = [
        (group, None, None, None, targets)
        for group in causes[:_MOST]
        if (targets := _without(group, on_path, length_ns))
    ]
    requests += [
        (item.group, None if item.rank is None else item.cause, item.rank, item.name, [_target(item)])
        for item in names[:_MOST]
    ]
    return [*_saved(whole, requests[: _EDGES // max(len(whole.graph.src), 1)])]


def _saved(whole: Retimed, requests: Sequence[_Request]) -> Iterator[CauseSaving]:
    for cause, late_cause, rank, name, targets in requests:
        scenario = Scenario(tuple((target, 0.0) for target in targets))
        with suppress(NothingMatches):
            yield CauseSaving(cause, late_cause, rank, name, options(scenario), whole.saved_ns(scenario))


def _without(group: str, on_path: Sequence[OnPath], length_ns: int) -> list[str]:
    """Return the targets that remove all of a cause, or [] if a scenario cannot remove all of it.

    For LATE_RANK, remove the causes of the rank that the others wait for most. If several late ranks were changed, no
    rank would be left to wait for.
    """
    if group != LATE_RANK:
        of_group = [item for item in on_path if item.group == group]
        return [f"cause:{group}"] if _is_removed(of_group, length_ns) else []
    ns_by_cause: dict[tuple[int, str], int] = {}
    ns_by_rank: dict[int, int] = {}
    for item in on_path:
        if item.rank is not None:
            ns_by_cause[item.rank, item.cause] = ns_by_cause.get((item.rank, item.cause), 0) + item.ns
            ns_by_rank[item.rank] = ns_by_rank.get(item.rank, 0) + item.ns
    latest = min(ns_by_rank, key=lambda rank: (-ns_by_rank[rank], rank))
    if not _is_removed([item for item in on_path if item.rank == latest], length_ns):
        return []
    causes = sorted(cause for (rank, cause), ns in ns_by_cause.items() if rank == latest and _is_enough(ns, length_ns))
    return [f"rank:{latest}:cause:{cause}" for cause in causes]


def _target(item: OnPath) -> str:
    return f"{'' if item.rank is None else f'rank:{item.rank}:'}cause:{item.cause}:{item.glob}"


def _is_removed(items: Iterable[OnPath], length_ns: int) -> bool:
    """Return whether scenarios can remove the time of these items, except for a part that is too small to retime."""
    return not _is_enough(sum(item.ns_without_edge for item in items), length_ns)


def _is_enough(ns: int, length_ns: int) -> bool:
    return 100 * ns >= LEAST_PERCENT * length_ns
