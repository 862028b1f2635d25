"""Builders of short traces with graphs, and the blocks of a replay, found by trying every period."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tests.harness import call, kernel, x

Event = dict[str, Any]
Op = tuple[str, list[list[int]]]  # (operator, shapes of its arguments)


def replay(
    names: Iterable[str],
    at: float,
    correlation: int,
    *,
    nodes: Sequence[int] = (),
    streams: Sequence[int] = (),
    times: Sequence[float] = (),
    call_name: str = "cudaGraphLaunch",
) -> list[Event]:
    """Return a graph launch and its kernels of 3 µs, 4 µs apart. A name may end in its grid after an @."""
    events = [call(call_name, at, 2, correlation)]
    for place, name in enumerate(names):
        events.append(work(name, times[place] if times else at + 10 + 4 * place, correlation))
        stream = streams[place] if streams else 7
        events[-1] |= {"tid": stream}
        events[-1]["args"] |= {"stream": stream}
        if nodes:
            events[-1]["args"] |= {"graph id": 5, "graph node id": (5 << 32) + nodes[place]}
    return events


def work(name: str, at: float, correlation: int) -> Event:
    """Return a kernel of 3 µs."""
    plain, _, grid = name.partition("@")
    event = kernel(plain, at, 3, correlation, cat="gpu_memset" if plain == "Memset" else "kernel")
    if grid:
        event["args"] |= {"grid": [int(grid), 1, 1], "block": [128, 1, 1]}
    return event


def captured(ops: Iterable[Op | None], at: float, correlation: int, *, tid: int = 1) -> list[Event]:
    """Return a stream capture in which each operator makes one call that launches nothing.

    An entry None is a call outside operators.
    """
    events = [call("cudaStreamBeginCapture", at, 1, correlation, tid)]
    for place, op in enumerate(ops, 1):
        begin = at + 10 * place
        if op:
            events.append(x("cpu_op", op[0], begin, 8, tid, **{"Input Dims": op[1]}))
        name = "cudaMemsetAsync" if op and op[0] == "aten::zero_" else "cudaLaunchKernel"
        events.append(call(name, begin + 2, 3, correlation + place, tid))
    events.append(call("cudaStreamEndCapture", events[-1]["ts"] + 10, 1, correlation + 900, tid))
    return events


def eager(ops: Iterable[tuple[Op | None, str]], at: float, correlation: int) -> list[Event]:
    """Return operators that launch one kernel each."""
    events = []
    for place, (op, name) in enumerate(ops):
        begin = at + 10 * place
        if op:
            events.append(x("cpu_op", op[0], begin, 8, **{"Input Dims": op[1]}))
        events.append(call("cudaLaunchKernel", begin + 2, 3, correlation + place))
        events.append(work(name, begin + 6, correlation + place))
    return events


def blocks(signatures: Sequence[Any], kernels: Sequence[bool] = ()) -> tuple[int, int, int] | None:
    """Return (period, index of the first block's begin, length covered by the period) by the rule of _graph_periods.

    None if there is no block. `kernels`: which of the work is a kernel, not a copy or a memset; by default all of it.
    """
    n, candidates = len(signatures), []
    for period in range(1, n // 3 + 1):
        start = None
        for at in range(n - period + 1):
            if at < n - period and signatures[at] == signatures[at + period]:
                start = at if start is None else start
            elif start is not None:
                if not kernels or any(kernels[start : at + period]):
                    candidates.append((start - at - period, period, start))
                start = None
    candidates = [candidate for candidate in candidates if -candidate[0] >= 3 * candidate[1] and -2 * candidate[0] >= n]
    if not candidates or min(candidates)[1] < 2:
        return None
    covered, period, start = min(candidates)
    return period, start, -covered
