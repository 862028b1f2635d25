"""Changes that scenarios make to the weights of a graph: host time inside intervals, GPU work, waits, and single edges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from pipelines.critical_path.graph.dependency_graph import ArrayGraph
from pipelines.critical_path.graph.stack_order import Ints
from pipelines.critical_path.whatif.scenario import ScenarioError
from pipelines.critical_path.whatif.timeline import Flags, Floats, Stretches, Timeline


@dataclass(frozen=True)
class Selection:
    """The edges, GPU work and waits that a target selects.

    `share` is how much of each edge is selected (m,), 0 to 1. `work` is the selected GPU work (k,), `waits` the
    selected waits of the host (m,). None selects nothing of that kind.

    A factor scales the selected share of edges and the time of GPU work. Removing GPU work also removes the delays
    before it and the host's own waits for it. Waits can only be removed.
    """

    share: Floats | None = None
    work: Flags | None = None
    waits: Flags | None = None
    is_known: bool = False
    """Whether the target exists, even if no part of it can be removed."""

    def __bool__(self) -> bool:
        return self.is_known or any(
            part is not None and bool(part.any()) for part in (self.share, self.work, self.waits)
        )


def union(parts: Sequence[Selection]) -> Selection:
    """Return the union of the selections. An edge that several of them select gets its largest share."""
    shares, works, waits = (
        [part for part in column if part is not None] for column in zip(*map(_parts, parts), strict=True)
    )
    return Selection(
        np.maximum.reduce(shares) if shares else None,
        np.logical_or.reduce(works) if works else None,
        np.logical_or.reduce(waits) if waits else None,
        any(part.is_known for part in parts),
    )


def _parts(selection: Selection) -> tuple[Floats | None, Flags | None, Flags | None]:
    return selection.share, selection.work, selection.waits


def inclusive(timeline: Timeline, stretches: Stretches) -> Selection:
    """Select everything inside intervals of the host: its time, its waits, and the GPU work launched there."""
    return Selection(timeline.share(stretches), timeline.launched(stretches), timeline.waits(stretches))


@dataclass
class Change:
    """The change of each edge (m,).

    `factor` multiplies the edge's weight. `gone` is whether the edge is removed, so that its destination does not wait
    for its source. `ahead_ns` is the duration of the work done concurrently with the window, and a lower bound on the
    window's length.
    """

    timeline: Timeline
    factor: Floats = field(init=False)
    gone: Flags = field(init=False)
    ahead_ns: int = 0

    def __post_init__(self) -> None:
        self.factor = np.ones(len(self.timeline.src))
        self.gone = np.zeros(len(self.timeline.src), dtype=bool)

    def apply(self, selection: Selection, factor: float) -> None:
        """Multiply the time of a selection by a factor. A factor of 0 removes the selection."""
        line = self.timeline
        share = np.zeros(len(self.factor)) if selection.share is None else selection.share.copy()
        if selection.work is not None:
            share[line.is_own & (line.owner >= 0) & selection.work[line.owner]] = 1
            if factor == 0:
                share[line.to_work & selection.work[line.dst] & ~line.is_work_wait] = 1
                self.gone |= line.own_waits(selection.work)
        if selection.waits is not None and factor == 0:
            self.gone |= selection.waits
        self.factor *= 1 - share * (1 - factor)

    def do_ahead(self, selections: Sequence[Selection], graph: ArrayGraph) -> None:
        """Remove selections, as changed so far, from the window, because they are done concurrently with it.

        A selection takes as long as a window that contains only the selection, because streams and threads run
        concurrently. Selections also run concurrently with each other. But their GPU work takes at least as long as a
        window that contains only that GPU work, because a stream runs one activity after another.
        """
        line, together = self.timeline, np.zeros(len(self.factor))
        for selection in selections:
            share = self._timed(selection)
            self.ahead_ns = max(self.ahead_ns, self._alone_ns(share, graph))
            np.maximum(together, share, out=together)
        if len(selections) > 1:
            on_gpu = line.is_own & (line.owner >= 0) & line.is_work[line.owner]
            self.ahead_ns = max(self.ahead_ns, self._alone_ns(together * on_gpu, graph))
        for selection in selections:
            self.apply(selection, 0)

    def _timed(self, selection: Selection) -> Floats:
        """Return the share of each edge (m,) that is done ahead. Waits of the host are excluded."""
        line = self.timeline
        share = np.zeros(len(self.factor)) if selection.share is None else selection.share * ~line.is_host_wait
        if selection.work is not None:
            share[line.is_own & (line.owner >= 0) & selection.work[line.owner]] = 1
        return share

    def _alone_ns(self, share: Floats, graph: ArrayGraph) -> int:
        """Return the length of a window that contains only these shares of the edges, ns."""
        alone = np.rint(graph.weight * share * self.factor).astype(np.int64)
        return int(graph.forward(alone).max(initial=0))

    def of(self, weight: Ints, dst: Ints) -> npt.NDArray[np.int64]:
        """Return the changed weights (m,), integer ns. `dst` are the destination nodes of the edges.

        Raises ScenarioError.
        """
        return changed(weight, dst, self.factor, self.gone)


def changed(weight: Ints, dst: Ints, factor: Floats, gone: Flags) -> npt.NDArray[np.int64]:
    """Return weights (m,) times factors, integer ns. A removed edge weighs so little that no path contains it.

    A node keeps its edges if all edges into it are removed, because it would otherwise start with the window. Raises
    ScenarioError if the times overflow.
    """
    scaled = weight * factor
    if np.abs(scaled).sum() >= 2**62:
        raise ScenarioError("the factors are so large that times overflow 64 bits")
    # Round in place, because a capture has millions of edges.
    result = np.rint(scaled, out=scaled).astype(np.int64)
    del scaled
    # Unscaled weights are copied, because a double may not represent all their digits.
    np.copyto(result, weight, where=factor == 1)
    if gone.any():
        stays = np.bincount(dst[~gone], minlength=int(dst.max()) + 1)
        never = -(int(result[result > 0].sum()) + 1)
        result[gone & (stays[dst] > 0)] = never
    return result
