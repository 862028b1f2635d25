"""The cause of each edge of a window's graph, by the edge's type, the enclosing events and the awaited GPU work.

Causes are numbers, because a graph has millions of edges. Their texts are in `sql/rules/causes/cause_kinds.csv`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipelines.base.datafiles import rule_rows, threshold
from pipelines.critical_path.causes.cause_names import CauseRule
from pipelines.critical_path.causes.enclosing import Enclosing
from pipelines.critical_path.graph.edge_types import EDGE_TYPES
from pipelines.critical_path.graph.stack_order import Ints

Flags = npt.NDArray[np.bool_]

CAUSES = tuple(row["cause"] for row in rule_rows("cause_kinds"))
"""All causes. A cause's number is its index in this tuple."""
KINDS = ("frame", "annotation", "operator", "call", "kernel", "communication", "copy", "fill", "wait")
"""Kinds of names in _event_names. A kind's number is its index in this tuple."""
NAME, THREAD, STREAM, BEFORE = range(4)
"""Kinds of names of edges: an event's name, an event's thread, an event's stream, or work from before the window."""

_CODE = {name: kind.edge_code for name, kind in EDGE_TYPES.items()}
_OWN, _LAUNCH, _GAP = _CODE["OPERATOR_KERNEL"], _CODE["KERNEL_LAUNCH_DELAY"], _CODE["HOST_GAP"]
_BETWEEN_WORK, _WAIT, _HAND_OFF = _CODE["KERNEL_KERNEL_DELAY"], _CODE["SYNC_DEPENDENCY"], _CODE["THREAD_HAND_OFF"]
_FRAME, _ANNOTATION, _OPERATOR, _CALL, _KERNEL, _COMMUNICATION, _COPY, _FILL, _IDLE = range(len(KINDS))
_LAST = 1 << 30  # a rank above those of all rules, so that it never wins
_QUEUED_NS = threshold("queued_gap_ns")
_FIRST_NS, _TIMES_THE_OTHERS = threshold("first_call_ns"), threshold("first_call_times")


@dataclass(frozen=True)
class Names:
    """The distinct names of a trace (n,). A name's index is its number minus 1.

    `kind` is an index into KINDS (-1: none), and `rule` the index of the rule (-1: none). `n_events` is the number of
    events with the name, and `duration` their total duration, ns. `is_step` marks profiler steps, `to_host` copies to
    the host, and `pageable` copies of pageable memory. `text` is the name, and `work_class` the class of GPU work.
    `same_text` is the first name of the trace with the same text. Two names may have the same text, such as an operator
    and its kernel, which have different categories.
    """

    kind: Ints
    rule: Ints
    n_events: Ints
    duration: Ints
    is_step: Flags
    to_host: Flags
    pageable: Flags
    text: list[str]
    work_class: list[str | None]
    same_text: Ints


@dataclass(frozen=True)
class Events:
    """The events of a window in order of event_id (k,).

    Times are in ns since the path's start. `thread` is -1 on the GPU. `name` is an index into Names. `launch` is the
    index of the call that launched GPU work, and `shown` the index of the displayed owner. Both are -1 if there is
    none. `stream` and `device` are -1 on the host.
    """

    event_id: Ints
    at: Ints
    duration: Ints
    thread: Ints
    is_work: Flags
    name: Ints
    launch: Ints
    shown: Ints
    is_first: Flags
    stream: Ints
    device: Ints

    @property
    def end(self) -> Ints:
        return self.at + self.duration

    def at_node(self, node: Ints) -> Ints:
        """Return the time of nodes (twice the event_id, plus 1 for the event's end), ns."""
        event = np.searchsorted(self.event_id, node >> 1)
        return self.at[event] + self.duration[event] * (node & 1)


@dataclass(frozen=True)
class Edges:
    """The edges of a window (m,).

    `src` and `dst` are node ids. `weight` is the weight on the path, ns. `code` is the type. `attributed` is the event
    whose time the edge represents (-1: none). `earlier` marks waits for work from before the window.
    """

    src: Ints
    dst: Ints
    weight: Ints
    code: Ints
    attributed: Ints
    earlier: Flags


@dataclass
class EdgeCauses:
    """The cause of each edge (m,).

    `named_after` is the kind of name (NAME, …), and `number` the number of that name, thread or stream. `instance` is
    the index of the event that is displayed for the edge.

    `cut` and `spent` are names of unneeded synchronizations. `cut` is set if the edge is the wait of a synchronization,
    and `spent` if the edge is its self time. Both are -1 for all other edges.

    `freed` are indices of edges that are waits of the host. `freed_with` are the edges of the copies or calls that
    cause these waits.
    """

    cause: Ints
    named_after: Ints
    number: Ints
    instance: Ints
    cut: Ints
    spent: Ints
    freed: Ints
    freed_with: Ints


def stream_name(number: int) -> str:
    """Return the name of a stream. -1 is GPU work without a stream."""
    return "no stream" if number == -1 else f"stream {number}"


def edge_causes(edges: Edges, events: Events, names: Names, rules: Sequence[CauseRule]) -> EdgeCauses:
    """Return the causes of all edges of a window. Each edge has exactly one cause, so the causes partition its time."""
    return _Window(edges, events, names, rules).classify()


class _Window:
    def __init__(self, edges: Edges, events: Events, names: Names, rules: Sequence[CauseRule]) -> None:
        self.edges, self.events, self.names = edges, events, names
        self.kind = np.append(names.kind[events.name], -1)  # by event, with a last item for "no event" (index -1)
        self.text = names.same_text[events.name]
        name_index = np.append(events.name, -1)
        self.rule = np.where(name_index < 0, -1, names.rule[name_index])
        self.rank = np.array([rule.rank for rule in rules] + [_LAST])
        self.cause_of_rule = np.array([CAUSES.index(rule.cause) for rule in rules] + [-1])
        self.takes_gpu_work = np.array([rule.takes_gpu_work for rule in rules] + [False])
        index_of = np.full(int(events.event_id.max()) + 2, -1, dtype=np.int32)
        index_of[events.event_id] = np.arange(len(events.event_id))
        self.src_event, self.dst_event = index_of[edges.src >> 1], index_of[edges.dst >> 1]
        self.owner = index_of[edges.attributed]
        del index_of
        self.at = self._times(self.src_event, edges.src), self._times(self.dst_event, edges.dst)
        self.to_work = events.is_work[self.dst_event]
        self.operator = self._operators()
        self.result = self._nothing()

    def _times(self, event: Ints, node: Ints) -> Ints:
        return self.events.at[event] + self.events.duration[event] * (node & 1)

    def _operators(self) -> Ints:
        """Return the operator of each event (k + 1,), -1 if there is none.

        The operator of an operator is the operator itself. The operator of a call is the operator that contains the
        call, possibly inside other calls. The last item is for "no event" (index -1).
        """
        n = len(self.events.event_id)
        above = np.full(n + 1, -1, dtype=np.int32)
        leads = (self.edges.dst & 1 == 0) & (self.edges.code == _OWN) & ~self.to_work & (self.owner >= 0)
        leads &= self.owner != self.dst_event
        above[self.dst_event[leads]] = self.owner[leads]
        is_operator = self.kind == _OPERATOR
        is_operator[-1] = False
        operator = np.where(is_operator, np.arange(n + 1, dtype=np.int32), np.int32(-1))
        for _ in range(3):  # up to three nested calls
            operator = np.where(operator >= 0, operator, operator[above])
            operator[-1] = -1
        return operator

    def _nothing(self) -> EdgeCauses:
        m = len(self.edges.src)
        unknown = np.full(m, CAUSES.index("unknown"), dtype=np.int8)
        number = self.text[self.dst_event].astype(np.int64)
        nothing = np.full((2, m), -1, dtype=np.int32)
        none = np.zeros(0, dtype=np.int64)
        return EdgeCauses(
            unknown, np.full(m, NAME, dtype=np.int8), number, self.dst_event.copy(), nothing[0], nothing[1], none, none
        )

    def _set(
        self,
        which: Flags,
        cause: str | Ints,
        instance: Ints,
        named_after: int = NAME,
        number: Ints | None = None,
        named: Ints | None = None,
    ) -> None:
        """Set the cause, the displayed event and the name of the edges in `which`. The arrays are for all edges (m,).

        The name is `number`, or if it is None the name of event `named`, or if both are None the name of event
        `instance`.
        """
        result, indices = self.result, np.flatnonzero(which)
        result.cause[indices] = CAUSES.index(cause) if isinstance(cause, str) else cause[indices]
        result.instance[indices] = instance[indices]
        result.named_after[indices] = named_after
        result.number[indices] = (
            self.text[(instance if named is None else named)[indices]] if number is None else number[indices]
        )

    def classify(self) -> EdgeCauses:
        is_own = self.edges.code == _OWN
        kind = self.kind[self.owner]
        self._of_work(is_own & (kind >= _KERNEL), kind)
        self._of_host(is_own, kind)
        self._of_names(is_own & (kind >= _KERNEL))
        self._of_first_calls(is_own & ((kind == _OPERATOR) | (kind == _CALL)))
        self._of_synchronizations()
        self._of_blocking_copies(is_own)
        self._of_ends()
        self._set(self.edges.earlier, "earlier_work", self.dst_event, BEFORE, np.zeros_like(self.dst_event))
        return self.result

    def _of_work(self, is_own: Flags, kind: Ints) -> None:
        code, events = self.edges.code, self.events
        launch = events.launch[self.dst_event]
        launch_of_owner = np.append(events.launch, -1)[self.owner]
        operator = self.operator[launch_of_owner]
        named = np.where(operator >= 0, operator, self.owner)
        self._set(is_own & ((kind == _KERNEL) | (kind == _FILL)), "gpu_computing", self.owner, named=named)
        self._set(is_own & (kind == _COMMUNICATION), "communication", self.owner)
        self._set(is_own & (kind == _COPY), "copies", self.owner)
        self._set(is_own & (kind == _IDLE), "gpu_waiting", self.owner)
        delay = self.to_work & ~is_own
        self._set(delay, "launching", self.dst_event)
        self._set(delay & (launch >= 0), "launching", self.dst_event, named=launch)
        between = delay & ((code == _BETWEEN_WORK) | (code == _WAIT))
        self._set(between, "gpu_waiting", self.dst_event, STREAM, events.stream[self.dst_event])
        if not (events.thread >= 0).any():  # without host events, nothing shows whether work was queued in a long gap
            long = between & (self.edges.weight > _QUEUED_NS)
            self._set(long, "unknown", self.dst_event, STREAM, events.stream[self.dst_event])

    def _of_host(self, is_own: Flags, kind: Ints) -> None:
        events, code, owner = self.events, self.edges.code, self.owner
        thread = events.thread[self.dst_event]
        displayed = np.append(np.where(events.shown < 0, np.arange(len(events.shown)), events.shown), -1)[owner]
        gap = ~self.to_work & ((code == _GAP) | (code == _HAND_OFF) | is_own & (kind <= _ANNOTATION))
        owned = gap & (displayed >= 0) & ~self.names.is_step[events.name[displayed]]
        self._set(gap, "host_between_operators", self.dst_event, THREAD, thread)
        self._set(owned, "host_between_operators", displayed)
        self._set(is_own & (kind == _OPERATOR), "host_operators", owner)
        # The time between the end of the awaited work and the return of the call is the call's self time.
        wait = ~self.to_work & (code == _WAIT)
        call = np.where(wait, np.where(owner >= 0, owner, self.dst_event), owner)
        calls = (is_own | wait) & (self.kind[call] == _CALL)
        self._set(calls, "launching", call)
        pageable = np.full(len(events.event_id) + 1, -1, dtype=np.int32)
        copies = np.flatnonzero(self.names.pageable[events.name] & (events.launch >= 0))
        pageable[events.launch[copies]] = copies
        copied = calls & (pageable[call] >= 0)
        self._set(copied, "copies", call, named=pageable[call])
        rule = np.where(calls, self.rule[call], -1)
        self._set(calls & (rule >= 0), self.cause_of_rule[rule], call)
        operator = self.operator[call]
        waits_inside = (operator >= 0) & (self.cause_of_rule[rule] == CAUSES.index("synchronization"))
        self._set(calls & waits_inside, "host_operators", operator)

    def _of_names(self, is_own_work: Flags) -> None:
        """Set the cause of the edges inside events whose names identify a cause."""
        events = self.events
        marks = np.flatnonzero((self.rule[:-1] >= 0) & (self.kind[:-1] <= _OPERATOR) & (events.thread >= 0))
        if not len(marks):
            return
        around = Enclosing.of(events.thread[marks], events.at[marks], events.end[marks], self.rank[self.rule[marks]])
        launch = np.where(is_own_work, np.append(events.launch, -1)[self.owner], -1)
        inside = np.where(is_own_work, launch, self.dst_event)
        middle = self.at[1] - (self.edges.weight + 1) // 2
        at_ns = np.where(is_own_work, events.at[launch], np.maximum(middle, self.at[0]))
        index = around.at_times(np.where(inside >= 0, events.thread[inside], -1), at_ns)
        mark = np.where(index >= 0, marks[index], -1)
        rule = self.rule[mark]
        own_rule = np.where(self.kind[self.result.instance] == _CALL, self.rule[self.result.instance], -1)
        wins = (mark >= 0) & (self.rank[rule] < self.rank[own_rule])
        wins &= np.where(self.to_work, is_own_work & self.takes_gpu_work[rule], True)
        self._set(wins, self.cause_of_rule[rule], mark)

    def _of_first_calls(self, is_own: Flags) -> None:
        """Set the cause of the first operator or call of each name, if it takes far longer than the later ones."""
        events, names, owner = self.events, self.names, self.owner
        n_others = names.n_events[events.name] - 1
        others_ns = names.duration[events.name] - events.duration
        long = events.is_first & (events.duration >= _FIRST_NS)
        alone = (n_others == 0) & (self.kind[:-1] == _CALL) & (self.rule[:-1] < 0)
        first = long & (alone | (n_others > 0) & (events.duration * n_others >= _TIMES_THE_OTHERS * others_ns))
        # CUDA loads a module when its first kernel is launched.
        loads = events.is_work & events.is_first & (events.launch >= 0)
        loading = events.launch[loads]
        first[loading] |= events.duration[loading] >= _FIRST_NS
        first &= ~self._is_synchronization()  # a synchronization is long because the awaited work is
        generic = np.isin(self.result.cause, [CAUSES.index(c) for c in ("host_operators", "launching", "allocation")])
        self._set(is_own & generic & first[owner], "initialization", owner)

    def _is_synchronization(self) -> Flags:
        """Return which events are calls that wait for GPU work (k,)."""
        of_rule = self.cause_of_rule[self.rule[:-1]]
        return (of_rule == CAUSES.index("synchronization")) & (self.kind[:-1] == _CALL)

    def _generic(self) -> Flags:
        """Return which edges have a generic cause (m,): operators, launches, or gaps that are named after a thread.

        A generic cause follows from the edge's type alone, so a more specific cause may replace it.
        """
        host = np.isin(self.result.cause, [CAUSES.index("host_operators"), CAUSES.index("launching")])
        gap = (self.result.cause == CAUSES.index("host_between_operators")) & (self.result.named_after == THREAD)
        return host | gap

    def _of_synchronizations(self) -> None:
        """Set the cause of generic time after an unneeded synchronization, until the next GPU work starts.

        The GPU is idle in this time. Also set `cut` and `spent`.
        """
        events = self.events
        calls = self._is_synchronization() & (self.operator[:-1] < 0)
        # A wait is not always an edge of type _WAIT. If the call returns late, the edge is the call's self time. If the
        # work ends after the return (by the GPU's clock), the edge is the work's self time.
        wait = ~self.to_work & (self.edges.dst & 1 == 1) & events.is_work[self.src_event]
        needed = np.zeros(len(calls), dtype=bool)
        needed[self.dst_event[wait & self.names.to_host[events.name[self.src_event]]]] = True
        waited = np.zeros(len(calls), dtype=bool)
        waited[self.dst_event[wait]] = True
        unneeded = np.flatnonzero(calls & waited & ~needed)
        starts = np.sort(events.at[events.is_work])
        if not len(unneeded) or not len(starts):
            return
        unneeded = unneeded[np.argsort(events.end[unneeded], kind="stable")]
        ends = events.end[unneeded]
        following = np.append(starts, np.iinfo(np.int64).max)[np.searchsorted(starts, ends)]
        last = np.searchsorted(ends, self.at[0], side="right") - 1
        idle = (
            (last >= 0)
            & (self.at[1] <= following[np.maximum(last, 0)])
            & (following[np.maximum(last, 0)] < np.iinfo(np.int64).max)
        )
        sync = unneeded[np.maximum(last, 0)]
        self._set(idle & self._generic(), "synchronization", sync)
        chosen = np.zeros(len(calls), dtype=bool)
        chosen[unneeded] = True
        spent = (self.src_event == self.dst_event) & chosen[self.dst_event]
        for to, which in ((self.result.cut, wait & chosen[self.dst_event]), (self.result.spent, spent)):
            to[which] = self.text[self.dst_event[which]]

    def _of_blocking_copies(self, is_own: Flags) -> None:
        """Set `freed` and `freed_with`.

        An operator may launch a copy to the GPU and then wait for this copy. Removing the copy also removes the wait.
        """
        events, on_gpu = self.events, self.events.is_work[self.src_event]
        wait = on_gpu & ~self.to_work & (self.edges.dst & 1 == 1)
        wait &= (self.kind[self.src_event] == _COPY) & ~self.names.to_host[events.name[self.src_event]]
        launch = np.where(wait, events.launch[self.src_event], -1)
        operator = self.operator[launch]
        same = (launch == self.dst_event) | (operator >= 0) & (operator == self.operator[self.dst_event])
        freed = np.flatnonzero(wait & (launch >= 0) & same)
        own_edge = np.full(len(events.event_id) + 1, -1, dtype=np.int64)
        of_work = np.flatnonzero(is_own & (self.kind[self.owner] == _COPY) & on_gpu & self.to_work)
        own_edge[self.owner[of_work]] = of_work
        copy = own_edge[self.src_event[freed]]
        drained, with_call = self._drained(is_own)
        self.result.freed = np.append(freed[copy >= 0], drained)
        self.result.freed_with = np.append(copy[copy >= 0], with_call)

    def _drained(self, is_own: Flags) -> tuple[Ints, Ints]:
        """Return the waits of calls whose cause a rule for names identified, and the edges of those calls.

        For example, cudaFree waits for the GPU, and does not run without empty_cache(). Synchronizations are excluded
        because their waits are handled separately. Operators are excluded because they would still wait.
        """
        named = self.cause_of_rule[self.cause_of_rule != CAUSES.index("synchronization")]
        calls = np.flatnonzero(is_own & (self.src_event == self.dst_event) & (self.kind[self.dst_event] == _CALL))
        calls = calls[np.isin(self.result.cause[calls], named)]
        edge_of = np.full(len(self.events.event_id), -1, dtype=np.int64)
        edge_of[self.dst_event[calls]] = calls
        waits = np.flatnonzero(self.events.is_work[self.src_event] & ~self.to_work)
        by = edge_of[self.dst_event[waits]]
        return waits[by >= 0], by[by >= 0]

    def _of_ends(self) -> None:
        """Set the cause of generic host time before the first and after the last GPU work of the window."""
        work = self.events.is_work
        if not work.any():
            return
        generic = self._generic()
        for cause, which in (
            ("start", self.at[1] <= self.events.at[work].min()),
            ("end", self.at[0] >= self.events.end[work].max()),
        ):
            self.result.cause[generic & which] = CAUSES.index(cause)
