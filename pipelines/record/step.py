"""One sampled step: hooks on all modules, and on the nodes of the autograd graph where a module's backward begins and
ends; afterwards a row a span.

A module's backward runs from when the gradient of one of its outputs arrives to the last of its nodes that hands a
gradient on, to an input or a parameter. Hooks on nodes, and not PyTorch's module hooks for the backward pass, because
those change the graph: a module after them may not work in place.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from pipelines.record.clocks import Clock
from pipelines.record.graph import boundary, class_of, tensors_in
from pipelines.record.operators import OperatorCalls

Inputs = tuple[str, str, str | None, str | None]
"""What decides the work in a span: name, phase, shapes and types of its inputs."""


@dataclass(eq=False)
class Span:
    """A span that is being measured. Marks are (of the clock, host's ns)."""

    span_id: int
    parent: Span | None
    name: str
    kind: str
    phase: str
    tid: int
    before: set[Any] = field(default_factory=set)  # nodes of its inputs, before it may change them in place
    shapes: str | None = None
    dtypes: str | None = None
    begin: tuple[Any, int] | None = None
    end: tuple[Any, int] | None = None
    is_failed: bool = False
    backward: Span | None = None

    @property
    def depth(self) -> int:
        return 0 if self.parent is None else self.parent.depth + 1

    @property
    def inputs(self) -> Inputs:
        return self.name, self.phase, self.shapes, self.dtypes


class SampledStep:
    """A step whose spans are measured: `recorded()` around it, `rows()` once `is_done`.

    A census counts the operators in the spans, too, which makes them slower.
    """

    def __init__(
        self, number: int, names: dict[torch.nn.Module, str], clock: Clock, *, is_census: bool = False
    ) -> None:
        self.number, self._names, self._clock = number, names, clock
        self._calls = OperatorCalls(self._owner) if is_census else None
        self._nodes: dict[Any, Span] = {}  # of a census: the innermost span that made a node of the graph
        self._spans: list[Span] = []
        self._stacks: dict[int, list[Span]] = {}
        self._handles: list[Any] = []
        self._lock = threading.Lock()  # the backward pass has threads of its own
        self.started_ns = time.time_ns()
        self._offset = self.started_ns - time.perf_counter_ns()

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Measure what runs inside; afterwards no hook is left on the model or the graph."""
        root = self._new(None, "step", "step", "step")
        self._stacks[root.tid] = [root]
        self._begin(root)
        try:
            for module in self._names:
                before = module.register_forward_pre_hook(self._before_forward, with_kwargs=True)
                self._handles += [before, module.register_forward_hook(self._after_forward, always_call=True)]
            with self._counting():
                yield
        except BaseException:
            root.is_failed = True
            raise
        finally:
            for handle in self._handles:
                handle.remove()
            self._handles.clear()
            self._nodes.clear()  # they hold the graph
            self._end(root)
            for span in self._spans:
                self._settle(span, root)

    @contextmanager
    def _counting(self) -> Iterator[None]:
        if self._calls is None:
            yield
            return
        # Compiled code would refuse to run beside a mode that sees its operators.
        with torch.compiler.set_stance("force_eager"), self._calls:
            yield

    def _settle(self, span: Span, root: Span) -> None:
        span.before = set()
        if span.begin and not span.end:  # the step raised inside of it
            span.end, span.is_failed = root.end, True
        if span.parent is root and root.shapes is None:  # what went into a step went into its first module
            root.shapes, root.dtypes = span.shapes, span.dtypes
        if span.backward:
            span.backward.shapes, span.backward.dtypes = span.shapes, span.dtypes
            outer = span.parent
            while outer and not outer.backward:
                outer = outer.parent
            span.backward.parent = outer.backward if outer else root

    @property
    def is_done(self) -> bool:
        """All its marks were passed: the step's own end is the last."""
        root = self._spans[0]
        return root.end is not None and self._clock.is_done(root.end[0])

    @property
    def inputs(self) -> set[Inputs]:
        """The inputs of its spans, after it."""
        return {span.inputs for span in self._spans if span.begin and not span.is_failed}

    def rows(self) -> list[dict[str, Any]]:
        """A row a span that began, outer ones first; times are ns, starts since the Unix epoch."""
        root = self._spans[0]
        return [self._row(span, root) for span in self._spans if span.begin and span.end]

    def operator_rows(self) -> list[dict[str, Any]]:
        """A row a span, operator and arguments, with its calls in the span and those inside; none without a census."""
        rows: dict[Any, dict[str, Any]] = {}
        for (span_id, call), n in self._calls.counts.items() if self._calls else ():
            inner = outer = self._spans[span_id]
            while outer:
                told = dict(zip(("op", "dims", "types", "concrete"), call, strict=True))
                empty = {"n_calls": 0, "n_calls_own": 0, "n_calls_recompute": 0}
                row = rows.setdefault(
                    (outer.span_id, call), {"step": self.number, "span_id": outer.span_id, **told, **empty}
                )
                row["n_calls"] += n
                row["n_calls_own"] += n if outer is inner else 0
                row["n_calls_recompute"] += n if inner.phase == "recompute" else 0
                outer = outer.parent
        return list(rows.values())

    def _owner(self) -> int:
        """The span that an operator belongs to that is called now on this thread."""
        thread = threading.get_native_id()
        innermost = self._stacks.get(thread, self._spans[:1])[-1]
        node = torch._C._current_autograd_node()
        if node is None or innermost.phase == "recompute":
            return innermost.span_id
        made_by = self._nodes.get(node)
        return made_by.backward.span_id if made_by and made_by.backward else self._spans[0].span_id

    def _row(self, span: Span, root: Span) -> dict[str, Any]:
        assert span.begin and span.end and root.begin
        return {
            "step": self.number,
            "span_id": span.span_id,
            "parent_id": span.parent.span_id if span.parent else None,
            "depth": span.depth,
            "name": span.name,
            "class": span.kind,
            "phase": span.phase,
            "tid": span.tid,
            "ts_ns": root.begin[1] + self._offset + self._clock.between(root.begin[0], span.begin[0]),
            "dur_ns": self._clock.between(span.begin[0], span.end[0]),
            "host_dur_ns": span.end[1] - span.begin[1],
            "input_shapes": span.shapes,
            "input_dtypes": span.dtypes,
            "clock": self._clock.name,
            "is_failed": span.is_failed,
            "is_census": self._calls is not None,
        }

    def _new(self, parent: Span | None, name: str, kind: str, phase: str) -> Span:
        with self._lock:
            span = Span(len(self._spans), parent, name, kind, phase, threading.get_native_id())
            self._spans.append(span)
        return span

    def _begin(self, span: Span) -> None:
        span.begin = self._clock.mark(), time.perf_counter_ns()

    def _end(self, span: Span) -> None:
        span.end = self._clock.mark(), time.perf_counter_ns()

    def _before_forward(self, module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        stack = self._stacks.setdefault(threading.get_native_id(), [self._spans[0]])
        phase = "forward" if torch._C._current_graph_task_id() == -1 else "recompute"
        span = self._new(stack[-1], self._names[module], class_of(module), phase)
        inputs = tensors_in((args, kwargs))
        span.before = {tensor.grad_fn for tensor in inputs if tensor.grad_fn is not None}
        span.shapes = json.dumps([list(tensor.shape) for tensor in inputs])
        span.dtypes = json.dumps([str(tensor.dtype).removeprefix("torch.") for tensor in inputs])
        stack.append(span)
        self._begin(span)

    def _after_forward(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        stack = self._stacks[threading.get_native_id()]
        name = self._names[module]
        while len(stack) > 1:
            span = stack.pop()
            self._end(span)
            if span.name == name:
                break
            span.is_failed = span.phase != "recompute"  # its own hook did not run
        else:
            return
        if (
            output is None and sys.exc_info()[0] is not None
        ):  # it raised; a recomputation is ended so when it has enough
            span.is_failed = span.phase != "recompute"
            return
        self._watch_backward(span, output)

    def _watch_backward(self, span: Span, output: Any) -> None:
        """Hooks where gradients enter the module's part of the graph, and where they leave it."""
        entries, exits, nodes = boundary(tensors_in(output), span.before)
        span.before = set()
        if self._calls:
            for node in nodes:
                self._nodes.setdefault(node, span)  # modules inside ended before
        if not exits:
            return
        backward = span.backward = self._new(None, span.name, span.kind, "backward")

        def enter(_: Any) -> None:
            self._begin_backward(span)

        def leave(*_: Any) -> None:
            if backward.begin is not None:
                self._end(backward)

        self._handles += [node.register_prehook(enter) for node in entries]
        self._handles += [node.register_hook(leave) for node in exits]

    def _begin_backward(self, span: Span) -> None:
        """The modules around it begin with it: at one node, the hooks of the inner module come first."""
        if span.parent:
            self._begin_backward(span.parent)
        if span.backward and span.backward.begin is None:
            span.backward.tid = threading.get_native_id()
            self._begin(span.backward)
