"""Perfect overlap: communication is hidden as far as there is computation to hide it."""

from __future__ import annotations

import numpy as np

from pipelines.base.datafiles import rule_rows
from pipelines.critical_path.graph.stack_order import Ints
from pipelines.critical_path.whatif.timeline import Flags, Floats
from pipelines.critical_path.whatif.window import Window


def counting_as(name: str) -> list[str]:
    """Return a kernel class and the other classes that count as this class."""
    return [name, *(row["class"] for row in rule_rows("class_kinds") if row["counts_as"] == name)]


def hidden_communication(window: Window, changed: Floats, takes: Ints | None = None) -> Floats:
    """Return a factor for each edge (m,): the share of communication that computation cannot hide.

    `changed` (m,) is the factor of each edge's time from the other changes. `takes` (k,) is the part at the end of each
    event that counts, ns. None counts whole durations. On each device, P is the time in which at least one COMPUTATION
    kernel of the graph runs after these changes, and C is the same for COMMUNICATION. Computation can hide no more than
    its own time. So the share min(1, P / C) of every communication kernel's own time is hidden, and its edge is
    multiplied by 1 - min(1, P / C). The factor is 0 if there is at least as much computation as communication.

    The order stays, so a kernel that waits for a collective still waits for it. Launch delays and gaps between kernels
    stay, too. The function does not check whether a schedule with that much overlap exists. So the resulting path is a
    lower bound, the best that bucketing and pipelining could achieve.
    """
    events = window.events
    computing = counting_as("COMPUTATION")
    computes = events.of_families(lambda kernel_class, _: kernel_class in computing)
    communicates = events.of_families(lambda kernel_class, _: kernel_class == "COMMUNICATION")
    device = np.append(np.array([device for device, _ in events.streams], dtype=np.int64), -1)[events.stream]
    last = events.dur if takes is None else takes
    # The last entry is for edges that are not an event's self time.
    factor, of_event = np.ones((2, len(events.event_id) + 1))
    of_event[window.own_time_of] = changed
    for number in np.unique(device[events.stream >= 0]):
        on_device = (device == number) & (events.stream >= 0)
        communication = on_device & communicates
        busy = _covered(events.ts, events.dur, of_event[:-1], on_device & computes)
        if communicating := _covered(events.ts + events.dur - last, last, of_event[:-1], communication):
            factor[:-1][communication] = 1 - min(1.0, busy / communicating)
    return factor[window.own_time_of]


def _covered(ts: Ints, dur: Ints, factor: Floats, chosen: Flags) -> float:
    """Return the time in which at least one of the chosen events runs, ns, multiplied by the factor of the earliest."""
    order = np.argsort(ts[chosen], kind="stable")
    start = ts[chosen][order]
    if not len(start):
        return 0
    end = np.maximum.accumulate(start + dur[chosen][order])
    before = np.concatenate((start[:1], end[:-1]))
    return float((np.maximum(end - np.maximum(start, before), 0) * factor[chosen][order]).sum())
