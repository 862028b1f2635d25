"""The fixes for a capture, each retimed through all ranks.

A fix changes the program on all ranks, or speeds up a late rank to the other ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from pipelines.base.datafiles import threshold
from pipelines.critical_path.causes.edge_causes import CAUSES, NAME, STREAM, EdgeCauses
from pipelines.critical_path.causes.fix_candidates import Candidate, candidates
from pipelines.critical_path.causes.fixes import Fix, judged, largest_host_cause
from pipelines.critical_path.causes.savings import Rows, path_rows
from pipelines.critical_path.causes.window_rows import NameFacts
from pipelines.critical_path.graph.stack_order import Ints
from pipelines.critical_path.whatif.scenario import Scenario
from pipelines.critical_path.whatif.window import Window
from pipelines.fleet.path.retimed import Retimed

MOST_EDGES = threshold("retimed_edges")
_PERCENT = threshold("fix_percent")
_NAMES, _NEARLY_ALL = 3, 0.9
"""Up to _NAMES names of a cause are sped up if they have this share of its excess time, otherwise the whole cause."""
_NOT_SCALED = "synchronization"
"""A cause that is not scaled, because its time is a wait, and the awaited work is what makes the rank late."""


Key = tuple[int, int]
"""A cause, as an index into CAUSES, and the number of its name. A name has the same number on all ranks."""


@dataclass(frozen=True)
class RankCauses:
    """The causes of a rank's edges (m,). `cause`: an index into CAUSES. `key`: a number of the cause's name."""

    cause: npt.NDArray[np.int8]
    key: npt.NDArray[np.int32]

    @classmethod
    def of(cls, causes: EdgeCauses, text: Ints) -> RankCauses:
        """Convert `causes` to numbers that are comparable between ranks.

        `text` (n,): the number of each name's text. Equal texts have equal numbers in all traces.
        """
        named = causes.named_after == NAME
        key = np.where(named, text[np.where(named, causes.number, 0)], 0)
        key = np.where(causes.named_after == STREAM, causes.number, key) * 4 + causes.named_after
        return cls(causes.cause.astype(np.int8), (key & 0x7FFFFFFF).astype(np.int32))

    def key_of(self, edge: int) -> Key:
        """Return the cause of an edge and the number of its name."""
        return int(self.cause[edge]), int(self.key[edge])


@dataclass
class RankOnPath:
    """A rank of a capture whose path is known, with its window and the causes of its edges.

    path: indices of the rank's edges on the path, in order. late: how long the other ranks waited for this rank, ns, by
    cause, name and key of the name.
    """

    rank: int
    window: Window
    causes: RankCauses
    path: list[int] = field(default_factory=list)
    late: dict[tuple[str, str, int], int] = field(default_factory=dict)


def capture_fixes(whole: Retimed, ranks: Sequence[RankOnPath], facts: NameFacts) -> list[Fix]:
    """Return the fixes with their savings, largest first.

    `ranks`: the capture's ranks, in order. `facts`: as in `candidates`.
    """
    length = whole.length_ns
    changes, host_cause = dict[tuple[str, str], Candidate](), None
    # If several ranks have the same change, the last rank's change replaces the others.
    for rank, rows in _by_part_of_path(ranks):
        host_cause = largest_host_cause(rows, length)
        changes |= {(change.fix, change.name): change for change in candidates(rank.window, rows, length, facts)}
    tried = [*changes.values(), *_even(ranks, length)]
    return judged(tried, whole.saved_ns, whole.removed, whole.shared_gpu, length, host_cause)


def _by_part_of_path(ranks: Sequence[RankOnPath]) -> Iterator[tuple[RankOnPath, Rows]]:
    """Yield each rank with the causes of its part of the path. The rank with the largest part comes last."""
    for rank in sorted(ranks, key=lambda rank: int(rank.window.graph.weight[rank.path].sum())):
        causes, path = rank.window.causes, np.array(rank.path, dtype=np.int64)
        assert causes is not None
        zeros = np.zeros(len(path), dtype=np.int64)
        rows, _ = path_rows(rank.window.graph.weight, path, causes.edges, zeros, zeros, rank.window.inferred)
        yield rank, rows


def _even(ranks: Sequence[RankOnPath], length: int) -> Iterator[Candidate]:
    """Yield the change that makes each late rank as fast as the median of the other ranks."""
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
    """Return the targets of a cause and their factors.

    If up to _NAMES names cause nearly all of the rank's excess over the other ranks, only these names are scaled.
    Otherwise the whole cause is scaled.
    """
    times_by_name = {name: _times(late, ranks, cause, name[1]) for name in names}
    names_by_excess = sorted(names, key=lambda name: (_longer(times_by_name[name]), name), reverse=True)
    excess_ns = [_longer(times_by_name[name]) for name in names_by_excess]
    largest_names = names_by_excess[:_NAMES]
    if sum(excess_ns[:_NAMES]) < _NEARLY_ALL * sum(excess_ns):
        return [(cause, _factor(_times(late, ranks, cause)))]
    return [(f"{cause}:{name[0]}", _factor(times_by_name[name])) for name in largest_names]


def _times(late: RankOnPath, ranks: Sequence[RankOnPath], cause: str, key: int | None = None) -> tuple[int, int]:
    """Return the rank's time for a cause, or for one of its names, and the median of the other ranks' times, ns."""
    other_times = sorted(_time(rank, cause, key) for rank in ranks if rank is not late)
    return _time(late, cause, key), other_times[(len(other_times) - 1) // 2]


def _longer(times: tuple[int, int]) -> int:
    return max(times[0] - times[1], 0)


def _factor(times: tuple[int, int]) -> float:
    rank_ns, median_ns = times
    return round(median_ns / rank_ns, 4) if rank_ns else 1.0


def _time(rank: RankOnPath, cause: str, key: int | None) -> int:
    is_chosen = rank.causes.cause == CAUSES.index(cause)
    if key is not None:
        is_chosen &= rank.causes.key == key
    return int(rank.window.graph.weight[is_chosen].sum())
