"""The edges of a window by cause, for scenarios that name a cause.

`what-if --remove cause:optimizer` saves as much time as `why` prints for that cause.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pipelines.base.datafiles import threshold
from pipelines.base.kernel_names import glob_pattern
from pipelines.critical_path.causes.edge_causes import CAUSES, NAME, EdgeCauses, Flags
from pipelines.critical_path.graph.stack_order import Ints
from pipelines.critical_path.whatif.change import Selection
from pipelines.critical_path.whatif.timeline import Timeline

_EAGER_GAP_NS = threshold("eager_gap_ns")


@dataclass(frozen=True)
class CauseEdges:
    """The cause of each edge of a window.

    `name` returns the text for a kind of name (NAME, …) and a number.
    """

    edges: EdgeCauses
    name: Callable[[int, int], str]

    def selected(self, what: str) -> Selection:
        """Return the selection for `CAUSE` or `CAUSE:NAME`, which is empty if no edge has that cause."""
        cause, colon, glob = what.partition(":")
        edges = self.edges
        if cause not in CAUSES:
            return Selection()
        chosen = edges.cause == CAUSES.index(cause)
        pattern = glob_pattern(glob) if colon else None
        if pattern:
            chosen &= self._named(pattern, np.flatnonzero(chosen))
        if cause == "synchronization":
            waits, spent = (self._with_name(number, pattern) for number in (edges.cut, edges.spent))
            return Selection(spent.astype(float), waits=waits, is_known=bool(chosen.any()))
        waits = np.zeros(len(chosen), dtype=bool)
        waits[edges.freed[chosen[edges.freed_with]]] = True
        return Selection(chosen.astype(float), waits=waits)

    def eager(self, line: Timeline) -> Selection:
        """Select the time that a CUDA graph or a compiled step avoids: operators, launches, and short gaps."""
        edges, short = self.edges, line.dst_at - line.src_at <= _EAGER_GAP_NS
        chosen = np.isin(edges.cause, [CAUSES.index("host_operators"), CAUSES.index("launching")])
        chosen |= (edges.cause == CAUSES.index("host_between_operators")) & short
        return Selection((chosen & ~line.is_host_wait).astype(float))

    def _named(self, pattern: re.Pattern[str], among: Ints) -> Flags:
        named = np.zeros(len(self.edges.cause), dtype=bool)
        pairs = np.stack((self.edges.named_after[among], self.edges.number[among]))
        distinct, pair_index = np.unique(pairs, axis=1, return_inverse=True)
        fits = [bool(pattern.fullmatch(self.name(kind, number))) for kind, number in distinct.T.tolist()]
        named[among] = np.array(fits, dtype=bool)[pair_index]
        return named

    def _with_name(self, number: Ints, pattern: re.Pattern[str] | None) -> Flags:
        is_chosen = number >= 0
        if pattern:
            fits = {
                name_no: bool(pattern.fullmatch(self.name(NAME, name_no)))
                for name_no in np.unique(number[is_chosen]).tolist()
            }
            is_chosen[is_chosen] = [fits[name_no] for name_no in number[is_chosen].tolist()]
        return is_chosen
