"""Which operator a call is in, counted from outside: what a person wrote."""

from __future__ import annotations

import numpy as np

from pipelines.critical_path.graph.stack_order import Ints
from pipelines.critical_path.whatif.timeline import Flags, Timeline


def outermost(line: Timeline, operators: Flags, calls: Ints) -> Ints:
    """Returns for each call the outermost of the operators (k,) around it, as places among the events; itself outside of all."""
    of = np.flatnonzero(operators & (line.end > line.at))
    of = of[np.lexsort((-line.end[of], line.at[of], line.thread[of]))]
    if not len(of):
        return calls
    _, number = np.unique(line.thread[of], return_inverse=True)
    wide = int(line.end[of].max()) - int(line.at[of].min()) + 1
    reach = np.maximum.accumulate(line.end[of] + number * wide)
    outer = of[np.append(True, (line.at[of] + number * wide)[1:] >= reach[:-1])]
    threads, first = np.unique(line.thread[outer], return_index=True)
    last = np.append(first[1:], len(outer))
    result = calls.copy()
    for thread, begin, end in zip(threads.tolist(), first.tolist(), last.tolist(), strict=True):
        mine = np.flatnonzero(line.thread[calls] == thread)
        place = begin + np.searchsorted(line.at[outer[begin:end]], line.at[calls[mine]], side="right") - 1
        around = outer[np.maximum(place, begin)]
        inside = (place >= begin) & (line.end[calls[mine]] <= line.end[around])
        result[mine[inside]] = around[inside]
    return result
