"""All ranks of a capture as one trace for Perfetto, on one clock, with processes per rank and arrows between ranks.

An arrow connects the kernels of a collective. The times of a rank are shifted by its offset in `clock_offsets`, and
scaled if its drift is significant. A rank without an offset keeps its own clock, and its name states that. Events are
written as a stream, so only the arrows between ranks are all in memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import duckdb

from pipelines.base.errors import TracelakeError
from pipelines.faces.drawings.chrome_trace import based, flow_of, trace_event, whole_seconds, write_trace
from pipelines.faces.drawings.trace_slice import listed
from pipelines.fleet.path.drift import drifting_ranks
from pipelines.fleet.stragglers import rank_count_caveat, worst_and_median
from pipelines.lake.read.one_trace import refuse_digest

TABLES = (
    "captures",
    "capture_ranks",
    "clock_offsets",
    "collective_ranks",
    "collectives",
    "profiler_steps",
    "straggler_ranks",
)
MOST = 64
"""Maximum number of ranks drawn by default, because Perfetto slows down with millions of slices."""
NOT_ALIGNED = "own clock, not aligned"
_BATCH = 20_000
_PIDS = 10_000  # process ids of rank r start at r * _PIDS
_BETWEEN_RANKS = 1 << 60  # above the ids of all ranks
_EVENTS = """
    SELECT e.ph, e.cat, e.name, e.pid, e.tid, e.start_ns, e.duration_ns, e.flow_id, e.bp, e.scope, e.args, e.extra
    FROM events AS e
    WHERE e.trace_id = $trace_id AND e.event_id >= $first AND e.event_id < $past AND e.ph IS NOT NULL
        AND (e.ph = 'M' OR e.start_ns IS NOT NULL)
        AND NOT (e.ph = 'M' AND starts_with(e.name, 'process_'))
        AND ($with_python OR coalesce(e.cat, '') <> 'python_function')
        AND ($since IS NULL OR e.ph = 'M' OR (e.start_ns < $until AND coalesce(e.end_ns, e.start_ns) >= $since AND e.ph <> 'E'))
        AND ($since IS NULL OR e.ph NOT IN ('s', 't', 'f') OR (e.cat, e.name, e.flow_id) IN (FROM _whole_flows))
    ORDER BY e.event_id
"""
_WHOLE_FLOWS = """
    CREATE OR REPLACE TEMP TABLE _whole_flows AS
    SELECT cat, name, flow_id FROM events
    WHERE trace_id = $trace_id AND ph IN ('s', 'f') AND start_ns >= $since AND start_ns < $until
    GROUP BY ALL
    HAVING count(DISTINCT ph) = 2
"""
_PROCESSES = """
    SELECT pid, any_value(args ->> 'name') FILTER (WHERE name = 'process_name'),
        any_value(args ->> 'labels') FILTER (WHERE name = 'process_labels'),
        coalesce(min(TRY_CAST(args ->> 'sort_index' AS BIGINT)) FILTER (WHERE name = 'process_sort_index'), 0) AS place
    FROM events
    WHERE trace_id = ? AND ph IS NOT NULL
    GROUP BY pid
    ORDER BY pid IS NULL, place, pid
"""
_WITHOUT_TIME = "SELECT count(*) FROM events WHERE trace_id = ? AND ph <> 'M' AND start_ns IS NULL"
_COLLECTIVES = """
    SELECT k.collective_id, k.rank, e.pid, e.tid, e.start_ns
    FROM collective_ranks AS k
    JOIN collectives AS c ON c.capture_id = k.capture_id AND c.collective_id = k.collective_id
    JOIN events AS e ON e.trace_id = k.trace_id AND e.event_id = k.event_id
    WHERE k.capture_id = ? AND c.refused_reason IS NULL
    ORDER BY k.collective_id, k.aligned_start_ns, k.rank
"""


class NoTimeline(TracelakeError, LookupError):
    """Raised if there is nothing to draw. The message states why."""


@dataclass(frozen=True)
class Timeline:
    """Result of writing a timeline. `error_us`: the largest error bar of an aligned clock, or None if no clock is aligned.

    `not_aligned`: ranks that keep their own clock. `shown`: a sentence that states which ranks are drawn, empty if all
    are. `left_out`: number of events of the drawn ranks that have no time (0 for a step, which contains no such event).
    """

    path: Path
    ranks: list[int]
    not_aligned: list[int]
    error_us: float | None
    n_arrows: int
    shown: str = ""
    left_out: int = 0


@dataclass(frozen=True)
class _Rank:
    """A rank's trace. `moved` maps its times to the common clock. `since`, `until`: the interval to draw, ns on its own clock."""

    number: int
    trace_id: str
    moved: Callable[[int], int]
    aligned: bool
    # Key None: events without a process, which a viewer would put into the process of rank 0.
    pids: dict[str | None, str]
    names: dict[str, str]
    since: int | None = None
    until: int | None = None

    def holds(self, start_ns: int) -> bool:
        """Return whether a time of the rank's own clock is drawn."""
        return self.since is None or self.until is None or self.since <= start_ns < self.until


def write_timeline(
    con: duckdb.DuckDBPyConnection,
    capture_id: str,
    target: Path,
    *,
    step: int | None = None,
    with_python: bool = True,
    most: int = MOST,
) -> Timeline:
    """Write the merged trace of a capture (gzip if the name ends in .gz) from TABLES, `events` and `findings` in `con`.

    `step`: draw only this profiler step, from its start to its end on each rank, without arrows that have one end
    outside. `with_python`: keep Python frames. `most`: if there are more ranks, draw only this many, the worst and the
    median (0: all). Raise NoTimeline if no rank has the step, OnlyDigest if the events are deleted.
    """
    refuse_digest(con, capture_id)
    drawn_ranks, selection = _shown(con, capture_id, most)
    ranks = _ranks(con, capture_id, step, drawn_ranks)
    if not ranks:
        raise NoTimeline("no ranks" if step is None else _without_step(con, capture_id, step, drawn_ranks))
    base_ns = _base(con, ranks)
    arrows = list(_arrows(con, capture_id, ranks, base_ns))
    errors = con.execute(
        "SELECT max(error_ns) FROM clock_offsets WHERE capture_id = ? AND offset_ns IS NOT NULL", [capture_id]
    ).fetchall()
    events_by_rank = (_events(con, rank, base_ns, with_python) for rank in ranks)
    lines = chain(chain.from_iterable(events_by_rank), chain.from_iterable(arrows))
    write_trace(target, "timeline", (rank.trace_id for rank in ranks), based(base_ns), lines)
    not_aligned = [rank.number for rank in ranks if not rank.aligned]
    left_out = 0 if step is not None else sum(con.execute(_WITHOUT_TIME, [r.trace_id]).fetchall()[0][0] for r in ranks)
    error_ns = errors[0][0] if len(not_aligned) < len(ranks) else None
    return Timeline(
        target,
        [r.number for r in ranks],
        not_aligned,
        None if error_ns is None else error_ns / 1e3,
        len(arrows),
        selection,
        left_out,
    )


def _shown(con: duckdb.DuckDBPyConnection, capture_id: str, max_ranks: int) -> tuple[set[int] | None, str]:
    """Return the ranks to draw (None: all), and a sentence about the selection (empty if all are drawn)."""
    rows = con.execute(
        "SELECT r.rank FROM capture_ranks AS r LEFT JOIN straggler_ranks AS s USING (capture_id, rank) "
        "WHERE r.capture_id = ? AND r.left_out_reason IS NULL "
        "ORDER BY greatest(s.caused_wait_ns, coalesce(s.root_wait_ns, 0)) DESC NULLS LAST, r.rank",
        [capture_id],
    ).fetchall()
    if max_ranks < 1 or len(rows) <= max_ranks:
        return None, ""
    selected = worst_and_median([rank for (rank,) in rows], max_ranks)
    return set(selected), rank_count_caveat(len(selected), len(rows))


def _ranks(
    con: duckdb.DuckDBPyConnection, capture_id: str, step: int | None, drawn_ranks: set[int] | None
) -> list[_Rank]:
    drifting = drifting_ranks(con, capture_id)
    rows = con.execute(
        "SELECT r.rank, r.trace_id, o.offset_ns, s.start_ns, s.end_ns FROM capture_ranks AS r "
        "LEFT JOIN clock_offsets AS o ON o.capture_id = r.capture_id AND o.rank = r.rank "
        "LEFT JOIN profiler_steps AS s ON s.trace_id = r.trace_id AND s.step = $step "
        "WHERE r.capture_id = $capture_id AND r.left_out_reason IS NULL AND ($step IS NULL OR s.step IS NOT NULL) "
        "ORDER BY r.rank",
        {"capture_id": capture_id, "step": step},
    ).fetchall()
    ranks = []
    for rank, trace_id, offset_ns, since, until in rows:
        if drawn_ranks is not None and rank not in drawn_ranks:
            continue
        moved = _by_line(*drifting[rank]) if rank in drifting else _by_offset(offset_ns or 0)
        note = "" if offset_ns is not None else f" ({NOT_ALIGNED})"
        pids, names = {}, {}
        for number, (pid, name, labels, _) in enumerate(con.execute(_PROCESSES, [trace_id]).fetchall()):
            pids[pid] = str(rank * _PIDS + number)
            process = "no process" if pid is None else f"pid {pid}" if pid.isdecimal() else pid
            names[pids[pid]] = " ".join(filter(None, (f"rank {rank}{note}:", name, labels or process)))
        ranks.append(_Rank(rank, trace_id, moved, offset_ns is not None, pids, names, since, until))
    return ranks


def _without_step(con: duckdb.DuckDBPyConnection, capture_id: str, step: int, drawn_ranks: set[int] | None) -> str:
    """Return the message that no rank has the step, with the existing steps."""
    rows = con.execute(
        "SELECT DISTINCT s.step, r.rank FROM capture_ranks AS r JOIN profiler_steps AS s USING (trace_id) "
        "WHERE r.capture_id = ? AND r.left_out_reason IS NULL ORDER BY 1",
        [capture_id],
    ).fetchall()
    steps = list(dict.fromkeys(number for number, rank in rows if drawn_ranks is None or rank in drawn_ranks))
    return (
        f"no rank of capture {capture_id} has step {step}: they have {listed(steps) if steps else 'no profiler steps'}"
    )


def _by_offset(offset_ns: int) -> Callable[[int], int]:
    return lambda start_ns: start_ns - offset_ns


def _by_line(first: tuple[int, int], last: tuple[int, int]) -> Callable[[int], int]:
    """Return the line through two points, each as (time on the rank's clock, time on the common clock) in ns.

    It uses integers, because floats are too coarse for ns since 1970.
    """
    (own_first, common), (own_later, common_later) = first, last
    more, over = (common_later - common) - (own_later - own_first), own_later - own_first
    return lambda start_ns: start_ns - own_first + common + (start_ns - own_first) * more // over


def _base(con: duckdb.DuckDBPyConnection, ranks: list[_Rank]) -> int:
    """Return the whole second at or before the first slice of all ranks (common clock, ns), or 0 without slices."""
    query = "SELECT min(start_ns) FROM events WHERE trace_id = ? AND ph IN ('X', 'B')"
    first_ns = (
        (rank, rank.since if rank.since is not None else con.execute(query, [rank.trace_id]).fetchall()[0][0])
        for rank in ranks
    )
    return whole_seconds(min((rank.moved(start_ns) for rank, start_ns in first_ns if start_ns is not None), default=0))


def _events(con: duckdb.DuckDBPyConnection, rank: _Rank, base_ns: int, with_python: bool) -> Iterator[str]:
    """Yield the events of a rank, one range of event_id at a time, so that no query sorts or loads all of them."""
    for number, (pid, name) in enumerate(rank.names.items()):
        order = {"process_name": {"name": name}, "process_sort_index": {"sort_index": rank.number * _PIDS + number}}
        for kind, args in order.items():
            yield trace_event("M", None, kind, pid, "0", 0, None, args=json.dumps(args))
    part = {"trace_id": rank.trace_id, "since": rank.since, "until": rank.until}
    if rank.since is not None:
        con.execute(_WHOLE_FLOWS, part)
    else:
        con.execute("CREATE OR REPLACE TEMP TABLE _whole_flows (cat VARCHAR, name VARCHAR, flow_id VARCHAR)")
    past = con.execute("SELECT coalesce(max(event_id) + 1, 0) FROM events WHERE trace_id = ?", [rank.trace_id])
    for first in range(0, past.fetchall()[0][0], _BATCH):
        values = {**part, "first": first, "past": first + _BATCH, "with_python": with_python}
        for ph, cat, name, pid, tid, start_ns, duration_ns, flow_id, bp, scope, args, extra in con.execute(
            _EVENTS, values
        ).fetchall():
            is_complete = ph == "B" and rank.since is not None and duration_ns is not None  # its E event may be outside
            yield trace_event(
                "X" if is_complete else ph,
                cat,
                name,
                rank.pids.get(pid),
                tid,
                0 if ph == "M" else rank.moved(start_ns) - base_ns,
                None if ph == "B" and not is_complete else duration_ns,
                flow_id=None if flow_id is None else flow_of(rank.number, flow_id),
                bp=bp,
                scope=scope,
                args=args,
                extra=extra,
            )


def _arrows(con: duckdb.DuckDBPyConnection, capture_id: str, ranks: list[_Rank], base_ns: int) -> Iterator[list[str]]:
    """Yield the arrow of each used collective through the kernels of its ranks, in the order in which they start.

    The other ranks waited for the last kernel. Ranks without an aligned clock are skipped, because they have no position in
    that order.
    """
    drawn = {rank.number: rank for rank in ranks if rank.aligned}
    kernels: dict[int, list[tuple[int, str, str]]] = {}
    for collective_id, number, pid, tid, start_ns in con.execute(_COLLECTIVES, [capture_id]).fetchall():
        rank = drawn.get(number)
        if rank is not None and rank.holds(start_ns) and pid in rank.pids:
            kernels.setdefault(collective_id, []).append((rank.moved(start_ns) - base_ns, rank.pids[pid], tid))
    for collective_id, ends in kernels.items():
        if len(ends) > 1:
            yield [
                trace_event(
                    "s" if not index else "f" if index == len(ends) - 1 else "t",
                    "collective",
                    f"collective {collective_id}",
                    pid,
                    tid,
                    time_ns,
                    None,
                    flow_id=str(_BETWEEN_RANKS + collective_id),
                    bp="e",
                )
                for index, (time_ns, pid, tid) in enumerate(sorted(ends))
            ]
