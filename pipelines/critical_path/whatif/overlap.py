"""Perfect overlap: what if communication ran concurrently with computation wherever there is computation?"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pipelines.base.datafiles import rule_rows
from pipelines.critical_path.graph.stack_order import Ints
from pipelines.critical_path.whatif.window import Window


def counting_as(name: str) -> list[str]:
    """Returns the classes of kernels whose time counts as that of this class, and itself."""
    return [name, *(row["class"] for row in rule_rows("class_kinds") if row["counts_as"] == name)]


def hidden_communication(window: Window, takes: Ints | None = None) -> npt.NDArray[np.float64]:
    """Returns a factor for each edge (m,): what is left of communication once computation hides as much as it can. `takes`: of each event
    (k,) the ns at its end that count, if that is not all of it.

    On each device, P is the time in which at least one COMPUTATION kernel of the graph runs and C the same for
    COMMUNICATION. Computation can hide no more than its own time: the share min(1, P / C) of every communication
    kernel's own time is hidden, so its edge weighs (1 - min(1, P / C)) of what it did: 0 if there is at least as much
    computation as communication. Order stays (who waits for a collective still does), and so do launch delays and gaps
    between kernels. It does not ask whether a schedule exists that overlaps so much: the result is a lower bound on the
    path: the most that bucketing and pipelining could achieve.
    """
    events = window.events
    computing = counting_as("COMPUTATION")
    computes = events.of_families(lambda known, _: known in computing)
    communicates = events.of_families(lambda known, _: known == "COMMUNICATION")
    device = np.append(np.array([device for device, _ in events.streams], dtype=np.int64), -1)[events.stream]
    last = events.dur if takes is None else takes
    left = np.ones(len(events.event_id) + 1)  # the last entry: edges that are not an event's own time
    for number in np.unique(device[events.stream >= 0]):
        here = (device == number) & (events.stream >= 0)
        communication = here & communicates
        busy = _covered(events.ts, events.dur, here & computes)
        if communicating := _covered(events.ts + events.dur - last, last, communication):
            left[:-1][communication] = 1 - min(1.0, busy / communicating)
    return left[window.own_time_of]


def _covered(ts: Ints, dur: Ints, chosen: npt.NDArray[np.bool_]) -> int:
    """Returns the time in which at least one of the chosen events runs, ns."""
    order = np.argsort(ts[chosen], kind="stable")
    start = ts[chosen][order]
    if not len(start):
        return 0
    end = np.maximum.accumulate(start + dur[chosen][order])
    before = np.concatenate((start[:1], end[:-1]))
    return int(np.maximum(end - np.maximum(start, before), 0).sum())
