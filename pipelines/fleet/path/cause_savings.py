"""How much shorter a capture is without its largest causes: scenarios of `what-if`, on all its ranks, or on the one that is late."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from pipelines.critical_path.causes.fixes import options
from pipelines.critical_path.causes.savings import LEAST_PERCENT
from pipelines.critical_path.whatif.scenario import Scenario
from pipelines.critical_path.whatif.targets import NothingMatches
from pipelines.fleet.path.retimed import Retimed

LATE_RANK = "late_rank"
_MOST = 6
"""Causes of a capture that are retimed, and as many names: what is shown."""
_EDGES = 24_000_000
"""Edges that are looked at for that: of a capture of more edges fewer causes are retimed."""


@dataclass(frozen=True)
class OnPath:
    """What a path spends on a name of a cause, ns: all ranks, or what a rank does while the others wait for it. `glob`: the name in
    scenarios.
    """

    cause: str
    name: str
    glob: str
    rank: int | None
    ns: int

    @property
    def group(self) -> str:
        """The cause that people are shown."""
        return self.cause if self.rank is None else LATE_RANK


@dataclass(frozen=True)
class CauseSaving:
    """What a capture is shorter without a name of a cause, or without all of it (`name` is None), ns, and the options of what-if that
    it is retimed with. Of a late rank: without `late_cause` on `rank`.
    """

    cause: str
    late_cause: str | None
    rank: int | None
    name: str | None
    options: str
    saves: int


def cause_savings(whole: Retimed, on_path: Sequence[OnPath]) -> list[CauseSaving]:
    """Returns what the largest causes of a path save, and the largest names of them."""
    length = sum(one.ns for one in on_path)
    time: dict[str, int] = {}
    for one in on_path:
        time[one.group] = time.get(one.group, 0) + one.ns
    causes = [
        group for group in sorted(time, key=lambda group: (-time[group], group)) if _is_enough(time[group], length)
    ]
    names = [
        one for one in sorted(on_path, key=lambda one: (-one.ns, one.group, one.name)) if _is_enough(one.ns, length)
    ]
    asked: list[_Asked] = [
        (group, None, None, None, targets) for group in causes[:_MOST] if (targets := _without(group, on_path, length))
    ]
    asked += [
        (one.group, None if one.rank is None else one.cause, one.rank, one.name, [_target(one, one.glob)])
        for one in names[:_MOST]
    ]
    return [*_saved(whole, asked[: _EDGES // max(len(whole.graph.src), 1)])]


_Asked = tuple[str, str | None, int | None, str | None, list[str]]


def _saved(whole: Retimed, asked: Sequence[_Asked]) -> Iterator[CauseSaving]:
    for cause, late_cause, rank, name, targets in asked:
        scenario = Scenario(tuple((target, 0.0) for target in targets))
        with suppress(NothingMatches):
            yield CauseSaving(cause, late_cause, rank, name, options(scenario), whole.saved_ns(scenario))


def _without(group: str, on_path: Sequence[OnPath], length: int) -> list[str]:
    """The targets of all of a cause; of late ranks what the one does that the others wait for most: without what each of several does
    nobody would be left to wait for.
    """
    if group != LATE_RANK:
        return [f"cause:{group}"]
    late: dict[tuple[int, str], int] = {}
    of_rank: dict[int, int] = {}
    for one in on_path:
        if one.rank is not None:
            late[one.rank, one.cause] = late.get((one.rank, one.cause), 0) + one.ns
            of_rank[one.rank] = of_rank.get(one.rank, 0) + one.ns
    latest = min(of_rank, key=lambda rank: (-of_rank[rank], rank))
    causes = sorted(cause for (rank, cause), ns in late.items() if rank == latest and _is_enough(ns, length))
    return [f"rank:{latest}:cause:{cause}" for cause in causes]


def _target(one: OnPath, glob: str) -> str:
    return f"{'' if one.rank is None else f'rank:{one.rank}:'}cause:{one.cause}:{glob}"


def _is_enough(ns: int, length: int) -> bool:
    return 100 * ns >= LEAST_PERCENT * length
