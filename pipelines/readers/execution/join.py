"""Events of a profiler trace → nodes of an execution trace of the same run.

Three methods, most reliable first; the first that works is used for the whole trace:

1. `record_function_id`: the argument "Record function id" is the node's rf_id (PyTorch 2.2 and later).
2. `external_id`: the argument "External id" is the node's id. Older profilers number operators differently (PyTorch 2.1
hands out blocks of 1024 per thread), so ids count only if the operator names agree.
3. `order`: threads that ran the same operators are matched, and their operators by name and order.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import duckdb

from pipelines.models.sqltext import quoted
from pipelines.readers.execution.align import align
from pipelines.readers.execution.nodes import Node

SAME_NAMES = 0.9  # share of pairs with equal ids whose names must agree; below, the ids are unrelated
SAME_THREAD = 0.5  # share of a thread's nodes that must find their operator: below, it is another thread's work

_OPERATORS = """
    SELECT event_id, pid || ' ' || tid, name, external_id,
        CASE WHEN contains(args, 'Record function id') THEN TRY_CAST(args ->> '$."Record function id"' AS BIGINT) END
    FROM events
    WHERE trace_id = {} AND cat IN ('cpu_op', 'user_annotation') AND duration_ns IS NOT NULL AND name IS NOT NULL
    -- Of events that start together the profiler numbers the outer one first.
    ORDER BY pid, tid, start_ns, external_id NULLS LAST, duration_ns DESC, event_id
"""


class Operator(NamedTuple):
    """An operator or annotation of the profiler trace."""

    event_id: int
    thread: str
    name: str
    external_id: int | None
    record_function_id: int | None


class Joined(NamedTuple):
    """`pairs` of (event_id, node_id), and the method that found them: none if nothing did."""

    method: str
    pairs: list[tuple[int, int]]


def read_operators(con: duckdb.DuckDBPyConnection, trace_id: str) -> list[Operator]:
    """The operators of a trace by thread in order of start; `events` must hold the arguments for the first method."""
    return [Operator(*row) for row in con.execute(_OPERATORS.format(quoted(trace_id))).fetchall()]


def join_operators(operators: Sequence[Operator], nodes: Sequence[Node]) -> Joined:
    """Pair operators with nodes; each is in at most one pair."""
    named = [node for node in nodes if node.is_operator]
    numbered = {
        "record_function_id": [(o.record_function_id, o) for o in operators],
        "external_id": [(o.external_id, o) for o in operators],
    }
    for method, numbers in numbered.items():
        if pairs := _by_number(numbers, named):
            return Joined(method, pairs)
    pairs = _by_order(operators, named)
    return Joined("order" if pairs else "none", pairs)


def _by_number(numbers: list[tuple[int | None, Operator]], nodes: list[Node]) -> list[tuple[int, int]]:
    by_rf = {node.rf_id: node for node in nodes if node.rf_id > 0}
    found = {number: operator for number, operator in numbers if number in by_rf}
    same = [
        (operator.event_id, by_rf[number].node_id)
        for number, operator in found.items()
        if number and _name(operator.name) == _name(by_rf[number].name)
    ]
    return same if len(same) >= SAME_NAMES * max(len(found), 1) else []


def _name(name: str) -> str:
    """Returns the name without the step number: the two traces may have counted from different steps."""
    return "ProfilerStep#" if name.startswith("ProfilerStep#") else name


def _by_order(operators: Sequence[Operator], nodes: list[Node]) -> list[tuple[int, int]]:
    events: defaultdict[str, list[Operator]] = defaultdict(list)
    for operator in operators:
        events[operator.thread].append(operator)
    threads: defaultdict[int, list[Node]] = defaultdict(list)
    for node in sorted(nodes, key=lambda n: n.node_id):
        threads[node.tid].append(node)
    pairs: list[tuple[int, int]] = []
    for tid, thread in _matching(threads, events):
        ours, theirs = threads[tid], events[thread]
        aligned = align([_name(n.name) for n in ours], [_name(o.name) for o in theirs])
        if len(aligned) >= SAME_THREAD * len(ours):
            pairs += [(theirs[j].event_id, ours[i].node_id) for i, j in aligned]
    return pairs


def _matching(threads: dict[int, list[Node]], events: dict[str, list[Operator]]) -> list[tuple[int, str]]:
    """Returns pairs of threads that share most names, the largest share first; each thread is in at most one pair."""
    ours = {tid: Counter(_name(n.name) for n in nodes) for tid, nodes in threads.items()}
    theirs = {thread: Counter(_name(o.name) for o in found) for thread, found in events.items()}
    shared = [((a & b).total(), tid, thread) for tid, a in ours.items() for thread, b in theirs.items()]
    found: dict[int, str] = {}
    for n, tid, thread in sorted(shared, key=lambda s: (-s[0], s[1], s[2])):
        if n and tid not in found and thread not in found.values():
            found[tid] = thread
    return list(found.items())
