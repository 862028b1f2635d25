"""Join of the events of a profiler trace with the nodes of an execution trace of the same run.

There are three methods. The first method in this order that works is used for the whole trace, because it is the most
reliable:

1. `record_function_id`: the argument "Record function id" is the node's rf_id (PyTorch 2.2 and later).
2. `external_id`: the argument "External id" is the node's rf_id. Older profilers number operators differently (PyTorch
   2.1 in blocks of 1024 per thread), so ids count only if the operator names agree.
3. `order`: threads that ran the same operators are matched, and their operators are matched by name and order.
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
SAME_THREAD = 0.5  # share of a thread's nodes that must match an operator; below, the threads are different

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
    """Pairs (event_id, node_id), and the method that matched them ("none" without pairs)."""

    method: str
    pairs: list[tuple[int, int]]


def read_operators(con: duckdb.DuckDBPyConnection, trace_id: str) -> list[Operator]:
    """Return the operators of a trace, by thread in order of start.

    The method record_function_id needs the arguments in `events`.
    """
    return [Operator(*row) for row in con.execute(_OPERATORS.format(quoted(trace_id))).fetchall()]


def join_operators(operators: Sequence[Operator], nodes: Sequence[Node]) -> Joined:
    """Pair operators with nodes. Each operator and each node is in at most one pair."""
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
    operators_by_number = {number: operator for number, operator in numbers if number in by_rf}
    pairs = [
        (operator.event_id, by_rf[number].node_id)
        for number, operator in operators_by_number.items()
        if number and _name(operator.name) == _name(by_rf[number].name)
    ]
    return pairs if len(pairs) >= SAME_NAMES * max(len(operators_by_number), 1) else []


def _name(name: str) -> str:
    """Return the name without the step number, because the two traces may count steps differently."""
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
        thread_nodes, thread_operators = threads[tid], events[thread]
        aligned = align([_name(n.name) for n in thread_nodes], [_name(o.name) for o in thread_operators])
        if len(aligned) >= SAME_THREAD * len(thread_nodes):
            pairs += [(thread_operators[j].event_id, thread_nodes[i].node_id) for i, j in aligned]
    return pairs


def _matching(threads: dict[int, list[Node]], events: dict[str, list[Operator]]) -> list[tuple[int, str]]:
    """Return pairs of threads with names in common, the largest number of common names first.

    Each thread is in at most one pair.
    """
    node_names = {tid: Counter(_name(n.name) for n in nodes) for tid, nodes in threads.items()}
    operator_names = {thread: Counter(_name(o.name) for o in operators) for thread, operators in events.items()}
    shared = [((a & b).total(), tid, thread) for tid, a in node_names.items() for thread, b in operator_names.items()]
    thread_by_tid: dict[int, str] = {}
    for n, tid, thread in sorted(shared, key=lambda s: (-s[0], s[1], s[2])):
        if n and tid not in thread_by_tid and thread not in thread_by_tid.values():
            thread_by_tid[tid] = thread
    return list(thread_by_tid.items())
