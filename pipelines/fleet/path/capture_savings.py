"""How much shorter a capture is without a cause: the graphs of all its ranks retimed together, with its edges at nothing.

On all ranks: what they do alike costs the capture as much on one as on all. What only one of them does is waiting for a late
rank, which is told from the arrivals (`segment_causes.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipelines.base.database import trim
from pipelines.critical_path.causes.edge_causes import NAME, STREAM, Found
from pipelines.critical_path.causes.savings import LEAST_PERCENT, Retimed, Shares
from pipelines.critical_path.graph.stack_order import Ints
from pipelines.fleet.path.joined import JoinedGraph
from pipelines.fleet.path.rank_graph import FRAME, GPU

_MOST = 6
"""Causes of a capture that are retimed, and as many names: what is shown."""
_EDGES = 24_000_000
"""Edges that are looked at for that: about 5 s; of a capture of more edges fewer are, and of one of more nodes than this none."""
_NODES = 2_000_000

Key = tuple[int, int]
"""A cause, as a place in CAUSES, and what it is named after, the same for all ranks."""


@dataclass(frozen=True)
class RankCauses:
    """The causes of a rank's edges (m,): the place in CAUSES, `key`: what it is named after; and of synchronizations that nothing
    needed the edges that wait, those that are their own time, and whose they are (keys); `freed` and `freed_with` as in Found.
    """

    cause: npt.NDArray[np.int8]
    key: npt.NDArray[np.int32]
    waits: Ints
    waits_of: Ints
    spent: Ints
    spent_of: Ints
    freed: Ints
    freed_with: Ints

    @classmethod
    def of(cls, found: Found, text: Ints) -> RankCauses:
        """`text` (n,): the number of each name that is the same for the same text in all traces."""
        named = found.named_after == NAME
        key = np.where(named, text[np.where(named, found.number, 0)], 0)
        key = np.where(found.named_after == STREAM, found.number, key) * 4 + found.named_after
        waits, spent = np.flatnonzero(found.cut >= 0), np.flatnonzero(found.spent >= 0)
        whose = (text[found.cut[waits]] * 4 + NAME, text[found.spent[spent]] * 4 + NAME)
        keys = (key & 0x7FFFFFFF).astype(np.int32)
        return cls(found.cause.astype(np.int8), keys, waits, whose[0], spent, whose[1], found.freed, found.freed_with)


@dataclass(frozen=True)
class Savings:
    """What a capture is shorter without a name of a cause, and without all of a cause, ns; no entry where that was not computed."""

    of_row: dict[Key, int]
    of_cause: dict[int, int]


def savings(joined: JoinedGraph, causes: Sequence[RankCauses], time: dict[Key, int]) -> Savings:
    """Returns what the largest causes of a path save. `time`: that of each on the path, ns; `causes`: of each rank, in order."""
    length = sum(time.values())
    if len(joined) > _NODES or not length:
        return Savings({}, {})
    graph, begin, own = joined.timed()
    left = min(2 * _MOST, _EDGES // max(len(own), 1))
    by_cause: dict[int, int] = {}
    for (cause, _), ns in time.items():
        by_cause[cause] = by_cause.get(cause, 0) + ns

    def largest(found: dict) -> list:
        return sorted((k for k in found if 100 * found[k] >= LEAST_PERCENT * length), key=lambda k: (-found[k], k))[
            :_MOST
        ]

    names = largest(time)
    shares = _shares(causes, own, names)
    del own
    side = np.concatenate([of_rank.side for of_rank in joined.ranks])
    is_end = np.concatenate([of_rank.node % 2 == 1 for of_rank in joined.ranks])
    first, last = (np.flatnonzero(of).astype(graph.src.dtype) for of in (side != FRAME, (side == GPU) & is_end))
    del side, is_end
    trim()  # what it took to tell edges apart
    window = Retimed(graph, shares, length, begin, (first, last))
    of_cause = {cause: window.without_cause(cause) for cause in largest(by_cause)[:left]}
    left -= len(of_cause)
    of_row: dict[Key, int] = {}
    for row, (cause, key) in enumerate(names[:left]):
        alone = cause in of_cause and by_cause[cause] == time[cause, key]
        of_row[cause, key] = of_cause[cause] if alone else window.without_row(row, cause, key)
    return Savings(of_row, of_cause)


def _shares(causes: Sequence[RankCauses], own: Ints, names: Sequence[Key]) -> Shares:
    """What the edges of the joined graph belong to: those out of a collective to what its kernel does."""
    cause, key = (np.concatenate([getattr(one, name) for one in causes]) for name in ("cause", "key"))
    first = np.append(0, np.cumsum([len(one.cause) for one in causes]))[:-1]
    row = np.full(len(cause), -1, dtype=np.int32)
    for number, (of, what) in enumerate(names):
        row[(cause == of) & (key == what)] = number
    nothing = own < 0
    place = np.full(len(cause), -1, dtype=np.int32)
    place[own[~nothing]] = np.flatnonzero(~nothing)

    def edges_of(name: str) -> Ints:
        return place[np.concatenate([getattr(one, name) + base for one, base in zip(causes, first, strict=True)])]

    parts = []
    for name in ("waits", "spent"):
        edges = edges_of(name)
        of_whom = np.concatenate([getattr(one, f"{name}_of") for one in causes])
        parts += [edges[edges >= 0], of_whom[edges >= 0]]
    freed, copy = edges_of("freed"), edges_of("freed_with")
    there = (freed >= 0) & (copy >= 0)
    parts += [freed[there], copy[there]]
    return Shares(np.where(nothing, np.int32(-1), row[own]), np.where(nothing, np.int8(-1), cause[own]), *parts)
