"""Caveats about missing events that may change a scenario's gain: long gaps on the path and unrecorded stream waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pipelines.base.datafiles import threshold
from pipelines.critical_path.graph.edge_types import EDGE_TYPES
from pipelines.critical_path.graph.stack_order import Ints

if TYPE_CHECKING:
    from pipelines.critical_path.whatif.window import Events, Window

_LONG_NS = threshold("idle_gap_ns")
_REPORTED, _WARNED = threshold("beside_percent"), threshold("beside_warning_percent")
LACKING = (
    f"are gaps over {_LONG_NS // 1_000_000} ms in which nothing ran on the GPU although work was queued: events are missing from the trace, or something "
    "outside the trace used the GPU"
)


def long_gaps(window: Window, edges: Ints, weight: Ints) -> Ints:
    """Return the edges of `edges` that are gaps of over 1 ms before GPU work.

    Gaps that wait for work from before the window are excluded. `weight` are the weights of all edges of the window
    (m,), ns.
    """
    gaps = [window.kinds.index(name) for name, kind in EDGE_TYPES.items() if kind.is_gap and name in window.kinds]
    return edges[(weight[edges] > _LONG_NS) & np.isin(window.edge_type[edges], gaps) & ~window.earlier[edges]]


def idle_gaps(window: Window, gaps: Ints, weight: Ints, length_us: float) -> list[dict[str, Any]]:
    """Return the caveat `idle_gaps` of table `critical_path_caveats` about long gaps of a path of this length.

    The result is empty if the gaps are idle for at most 1 % of the path. `weight` is as in `long_gaps`.
    """
    length = length_us * 1000
    idle = _idle_ns(window, gaps, weight[gaps])
    if 100 * idle <= _REPORTED * length:
        return []
    detail = f"{round(idle / 1e6, 2)} ms of the path {LACKING}"
    severity = "warning" if 100 * idle > _WARNED * length else "info"
    return [{"caveat": "idle_gaps", "severity": severity, "n": 1, "time_us": idle / 1000, "detail": detail}]


def unseen_waits(window: Window) -> list[dict[str, Any]]:
    """Return the caveat that the trace does not record the waits of its streams. Empty for a single stream.

    Calls of cudaEventRecord and cudaStreamWaitEvent name neither the stream nor the event. Without cuda_sync rows that
    name them, only the order of calls is known, and times show a wait only if it delayed an event.
    """
    n = len(window.events.streams)
    if window.states_waits or n < 2:
        return []
    detail = (
        f"{n} streams, and no cuda_sync events that name what they waited for: which stream or call waited for which work is not in the "
        "trace, at best inferred. If work was held up both by the host and by another stream, the predicted gain is too large (in tests by up to 20 % of the window)"
    )
    return [{"caveat": "unseen_waits", "severity": "warning", "n": n, "time_us": None, "detail": detail}]


def _idle_ns(window: Window, edges: Ints, weight: Ints) -> int:
    """Return how long the GPU was idle in gaps that end at the start of their GPU work, ns."""
    if not len(edges):
        return 0
    end = window.events.ts[window.dst_event[edges]]
    return int((weight - (_busy_until(window.events, end) - _busy_until(window.events, end - weight))).sum())


def _busy_until(events: Events, times: Ints) -> Ints:
    """Return how long at least one GPU activity ran before each time, ns."""
    on_gpu = (events.stream >= 0) & (events.dur > 0)
    order = np.argsort(events.ts[on_gpu], kind="stable")
    start = events.ts[on_gpu][order]
    if not len(start):
        return np.zeros(len(times), dtype=np.int64)
    reached = np.maximum.accumulate(start + events.dur[on_gpu][order])
    begins: npt.NDArray[np.bool_] = np.append(True, start[1:] > reached[:-1])
    first, last = start[begins], reached[np.append(np.flatnonzero(begins)[1:] - 1, len(start) - 1)]
    before = np.append(0, np.cumsum(last - first))
    n_begun = np.searchsorted(first, times, side="right")
    running = np.where(n_begun > 0, np.minimum(times, last[n_begun - 1]) - last[n_begun - 1], 0)
    return before[n_begun] + running
