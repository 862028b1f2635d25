"""The edges of a window by cause, for scenarios that name one: `what-if --remove cause:optimizer` gives what `why` says that it saves."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pipelines.base.datafiles import threshold
from pipelines.base.kernel_names import glob_pattern
from pipelines.critical_path.causes.edge_causes import CAUSES, NAME, Flags, Found
from pipelines.critical_path.graph.stack_order import Ints
from pipelines.critical_path.whatif.change import Selection
from pipelines.critical_path.whatif.timeline import Timeline

_EAGER_GAP_NS = threshold("eager_gap_ns")


@dataclass(frozen=True)
class CauseEdges:
    """What each edge of a window is a cause of, and `name`: what a cause of a kind (NAME, …) and number is called."""

    edges: Found
    name: Callable[[int, int], str]

    def selected(self, what: str) -> Selection:
        """Returns what `CAUSE` or `CAUSE:NAME` selects; nothing if no edge is of that cause."""
        cause, colon, glob = what.partition(":")
        of = self.edges
        if cause not in CAUSES:
            return Selection()
        chosen = of.cause == CAUSES.index(cause)
        pattern = glob_pattern(glob) if colon else None
        if cause == "synchronization":
            waits, spent = (self._with_name(number, pattern) for number in (of.cut, of.spent))
            return Selection(spent.astype(float), waits=waits, is_known=bool(chosen.any()))
        if pattern:
            chosen &= self._named(pattern, np.flatnonzero(chosen))
        waits = np.zeros(len(chosen), dtype=bool)
        waits[of.freed[chosen[of.freed_with]]] = True
        return Selection(chosen.astype(float), waits=waits)

    def eager(self, line: Timeline) -> Selection:
        """Returns what a CUDA graph or a compiled step does not do: operators, launches, and the Python between them."""
        of, short = self.edges, line.dst_at - line.src_at <= _EAGER_GAP_NS
        chosen = np.isin(of.cause, [CAUSES.index("host_operators"), CAUSES.index("launching")])
        chosen |= (of.cause == CAUSES.index("host_between_operators")) & short
        return Selection((chosen & ~line.is_host_wait).astype(float))

    def _named(self, pattern: re.Pattern[str], among: Ints) -> Flags:
        named = np.zeros(len(self.edges.cause), dtype=bool)
        pairs = np.stack((self.edges.named_after[among], self.edges.number[among]))
        distinct, of = np.unique(pairs, axis=1, return_inverse=True)
        fits = [bool(pattern.fullmatch(self.name(kind, number))) for kind, number in distinct.T.tolist()]
        named[among] = np.array(fits, dtype=bool)[of]
        return named

    def _with_name(self, number: Ints, pattern: re.Pattern[str] | None) -> Flags:
        there = number >= 0
        if pattern:
            fits = {of: bool(pattern.fullmatch(self.name(NAME, of))) for of in np.unique(number[there]).tolist()}
            there[there] = [fits[of] for of in number[there].tolist()]
        return there
