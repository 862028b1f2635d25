"""Search for the events that enclose a call: the outermost operator, and the innermost function of the user's code."""

from __future__ import annotations

import numpy as np

from pipelines.critical_path.causes.enclosing import Enclosing
from pipelines.critical_path.graph.stack_order import Ints
from pipelines.critical_path.whatif.timeline import Flags, Timeline


def outermost(line: Timeline, operators: Flags, calls: Ints) -> Ints:
    """Return the index of the outermost event of `operators` (k,) around each call.

    For a call outside all operators, it is the call's own index.
    """
    chosen = np.flatnonzero(operators & (line.end > line.at))
    chosen = chosen[np.lexsort((-line.end[chosen], line.at[chosen], line.thread[chosen]))]
    if not len(chosen):
        return calls
    _, number = np.unique(line.thread[chosen], return_inverse=True)
    wide = int(line.end[chosen].max()) - int(line.at[chosen].min()) + 1
    reach = np.maximum.accumulate(line.end[chosen] + number * wide)
    outer = chosen[np.append(True, (line.at[chosen] + number * wide)[1:] >= reach[:-1])]
    threads, first = np.unique(line.thread[outer], return_index=True)
    last = np.append(first[1:], len(outer))
    result = calls.copy()
    for thread, begin, end in zip(threads.tolist(), first.tolist(), last.tolist(), strict=True):
        mine = np.flatnonzero(line.thread[calls] == thread)
        index = begin + np.searchsorted(line.at[outer[begin:end]], line.at[calls[mine]], side="right") - 1
        around = outer[np.maximum(index, begin)]
        inside = (index >= begin) & (line.end[calls[mine]] <= line.end[around])
        result[mine[inside]] = around[inside]
    return result


def innermost(line: Timeline, functions: Flags, calls: Ints) -> Ints:
    """Return the index of the innermost event of `functions` (k,) around each call.

    For a call outside all functions, it is the call's own index.
    """
    marks = np.flatnonzero(functions & line.holding(calls))
    marks = marks[np.lexsort((-line.end[marks], line.at[marks], line.thread[marks]))]
    # `Enclosing` picks the lowest rank, so the function that begins last has the lowest.
    around = Enclosing.of(line.thread[marks], line.at[marks], line.end[marks], -np.arange(len(marks)))
    index = around.at_times(line.thread[calls], line.at[calls])
    return np.where(index < 0, calls, np.append(marks, -1)[index])
