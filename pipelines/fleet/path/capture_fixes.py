"""What would help a capture: changes of the program on all ranks, and a late rank as fast as the others, each retimed through all ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from pipelines.base.datafiles import threshold
from pipelines.critical_path.causes.edge_causes import CAUSES, NAME, STREAM, Found
from pipelines.critical_path.causes.fix_candidates import Candidate, candidates
from pipelines.critical_path.causes.fixes import Fix, judged, largest_host_cause
from pipelines.critical_path.causes.savings import Rows, path_rows
from pipelines.critical_path.graph.stack_order import Ints
from pipelines.critical_path.whatif.scenario import Scenario
from pipelines.critical_path.whatif.timeline import Floats
from pipelines.critical_path.whatif.window import Window
from pipelines.fleet.path.retimed import Retimed

MOST_EDGES = threshold("retimed_edges")
_PERCENT = threshold("fix_percent")
_NAMES, _NEARLY_ALL = 3, 0.9
"""How many names of a cause are made as fast as the others', if they have so much of what makes a rank late."""
_NOT_SCALED = "synchronization"
"""The cause whose time is not its edges': a late rank that has it is late by what it waits for."""


Key = tuple[int, int]
"""A cause, as a place in CAUSES, and what it is named after, the same for all ranks."""


@dataclass(frozen=True)
class RankCauses:
    """The causes of a rank's edges (m,): the place in CAUSES, and `key`: what it is named after."""

    cause: npt.NDArray[np.int8]
    key: npt.NDArray[np.int32]

    @classmethod
    def of(cls, found: Found, text: Ints) -> RankCauses:
        """`text` (n,): the number of each name that is the same for the same text in all traces."""
        named = found.named_after == NAME
        key = np.where(named, text[np.where(named, found.number, 0)], 0)
        key = np.where(found.named_after == STREAM, found.number, key) * 4 + found.named_after
        return cls(found.cause.astype(np.int8), (key & 0x7FFFFFFF).astype(np.int32))

    def key_of(self, edge: int) -> Key:
        """Returns what an edge is of."""
        return int(self.cause[edge]), int(self.key[edge])


@dataclass
class RankOnPath:
    """A rank of a capture whose path is known: its window, the causes of its edges, and of the path the places of its edges in
    order, and how long the others waited for it, ns, by cause, name and key of the name.
    """

    rank: int
    window: Window
    causes: RankCauses
    path: list[int] = field(default_factory=list)
    late: dict[tuple[str, str, int], int] = field(default_factory=dict)


def capture_fixes(whole: Retimed, ranks: Sequence[RankOnPath], factors: Floats) -> list[Fix]:
    """Returns what fixes save, largest first. `ranks`: those of the capture, in order; `factors`: as in `candidates`."""
    length = whole.length_ns
    changes, host_cause = dict[tuple[str, str], Candidate](), None
    for rank, rows in _by_part_of_path(ranks):  # of a change that several ranks have, the last counts
        host_cause = largest_host_cause(rows, length)
        changes |= {(change.fix, change.name): change for change in candidates(rank.window, rows, length, factors)}
    return judged([*changes.values(), *_even(ranks, length)], whole.saved_ns, length, host_cause)


def _by_part_of_path(ranks: Sequence[RankOnPath]) -> Iterator[tuple[RankOnPath, Rows]]:
    """Each rank with the causes of its part of the path, the largest part last."""
    for rank in sorted(ranks, key=lambda rank: int(rank.window.graph.weight[rank.path].sum())):
        of, path = rank.window.causes, np.array(rank.path, dtype=np.int64)
        assert of is not None
        zeros = np.zeros(len(path), dtype=np.int64)
        rows, _ = path_rows(rank.window.graph.weight, path, of.edges, zeros, zeros, rank.window.inferred)
        yield rank, rows


def _even(ranks: Sequence[RankOnPath], length: int) -> Iterator[Candidate]:
    """A rank that the others wait for as fast as the median of them at what makes it late."""
    for rank in ranks:
        by_cause: dict[str, dict[tuple[str, int], int]] = {}
        for (cause, name, key), ns in rank.late.items():
            by_cause.setdefault(cause, {})[name, key] = ns
        scale = [
            (f"rank:{rank.rank}:cause:{target}", factor)
            for cause, names in by_cause.items()
            if 100 * sum(names.values()) >= _PERCENT * length and cause != _NOT_SCALED
            for target, factor in _scaled(rank, ranks, cause, [*names])
            if factor < 1
        ]
        if scale:
            yield Candidate("even_ranks", f"rank {rank.rank}", Scenario(tuple(sorted(scale))))


def _scaled(
    late: RankOnPath, ranks: Sequence[RankOnPath], cause: str, names: Sequence[tuple[str, int]]
) -> list[tuple[str, float]]:
    """Returns the targets of a cause and their factors: the few of the names that others wait for that have nearly all of what
    the rank takes longer than the others, else the whole cause.
    """
    own = {name: _times(late, ranks, cause, name[1]) for name in names}
    ordered = sorted(names, key=lambda name: (_longer(own[name]), name), reverse=True)
    longer = [_longer(own[name]) for name in ordered]
    longest = ordered[:_NAMES]
    if sum(longer[:_NAMES]) < _NEARLY_ALL * sum(longer):
        return [(cause, _factor(_times(late, ranks, cause)))]
    return [(f"{cause}:{name[0]}", _factor(own[name])) for name in longest]


def _times(late: RankOnPath, ranks: Sequence[RankOnPath], cause: str, key: int | None = None) -> tuple[int, int]:
    """Returns what a rank takes for a cause, or for a name of it, and what the median of the others takes, ns."""
    others = sorted(_time(rank, cause, key) for rank in ranks if rank is not late)
    return _time(late, cause, key), others[(len(others) - 1) // 2]


def _longer(times: tuple[int, int]) -> int:
    return max(times[0] - times[1], 0)


def _factor(times: tuple[int, int]) -> float:
    own, usual = times
    return round(usual / own, 4) if own else 1.0


def _time(rank: RankOnPath, cause: str, key: int | None) -> int:
    chosen = rank.causes.cause == CAUSES.index(cause)
    if key is not None:
        chosen &= rank.causes.key == key
    return int(rank.window.graph.weight[chosen].sum())
