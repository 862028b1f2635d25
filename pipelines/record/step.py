"""One sampled step, with hooks on modules and on the autograd nodes where a module's backward begins and ends.

Afterward, each span has one row. A module's backward runs from the arrival of the gradient of one of its outputs to the
last of its nodes that passes a gradient to an input or a parameter. Node hooks are used instead of PyTorch's backward
hooks of modules, because those change the graph so that a following module may not work in place.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from copy import copy
from functools import partial
from itertools import accumulate
from typing import Any

import torch

from pipelines.record.clocks import HOST_CALLS, Clock
from pipelines.record.modules.graph import class_of, part_of, tensors_in
from pipelines.record.modules.hooks import Hooks, Noted
from pipelines.record.modules.operators import OperatorCalls
from pipelines.record.modules.turns import Named
from pipelines.record.perf_event.thread_counters import ThreadCounters, between
from pipelines.record.span import Inputs, Span

OWN = "own"
"""Class and phase of spans of user code."""
_CURRENT: ContextVar[Span | None] = ContextVar("tracelake_own_span", default=None)


class SampledStep:
    """A step whose spans are measured. Run the step inside `recorded()`, and read `rows()` once `is_done`.

    A census also counts the operators in the spans, which makes the spans slower. Modules that cannot be measured are
    skipped and reported to `noted`. `of_all`: all modules of the model, if `modules` are only some of them. `untimed`:
    the spans whose work no clock timed in other steps, as in the property `untimed`.
    """

    def __init__(
        self,
        number: int,
        modules: Named,
        clock: Clock,
        noted: Noted,
        *,
        is_census: bool = False,
        first_id: int = 0,
        counters: ThreadCounters | None = None,
        of_all: Named | None = None,
        untimed: Collection[tuple[str, bool]] = (),
    ) -> None:
        self.number, self._clock, self._noted, self._untimed = number, clock, noted, untimed
        self._modules: Named = modules
        self._of_all: Named = of_all or modules
        self._n_modules = len({name for _, name in self._of_all})
        self._model_name = self._of_all[0][1] if self._of_all else ""
        self._is_whole = len(self._modules) == len(self._of_all)
        self._names = {id(module): name for module, name in self._modules}
        self._hooks = Hooks(noted)
        self._calls = OperatorCalls(self._owner, noted) if is_census else None
        self._nodes: dict[Any, Span] = {}  # in a census: graph node -> innermost span that created it
        self._spans: list[Span] = []
        self.n_spans = 0  # number of spans that began, including the step's own span
        self._first_id, self._counters = first_id, counters
        self._stacks: dict[int, list[Span]] = {}
        # A lock, because the backward pass has its own threads. It is reentrant, because the garbage collector may end
        # a generator's span.
        self._lock = threading.RLock()
        self._is_open, self._thread = True, threading.get_ident()
        self.start_ns = time.time_ns()
        self._offset = self.start_ns - time.perf_counter_ns()

    @property
    def is_own_thread(self) -> bool:
        """Return whether the calling thread runs the step."""
        return threading.get_ident() == self._thread

    @property
    def is_census(self) -> bool:
        return self._calls is not None

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Measure the block, then remove all hooks from the model and the graph. Exceptions pass through."""
        root = self._new(None, "step", "step", "step")
        self._stacks[root.tid] = [root]
        self._hooks.guarded(self._begin, "step", "step")(root)
        try:
            if root.begin and not self._is_whole:
                model, name = self._of_all[0]
                self._hooks.before_call(model, self._describe_around, name, class_of(model))
            for module, name in self._modules if root.begin else ():
                self._hooks.on_module(module, name, class_of(module), self._before_forward, self._after_forward)
            with self._counting():
                yield
        except BaseException:
            root.is_failed = True
            raise
        finally:
            self._is_open = False
            self._hooks.remove()
            self._hooks.guarded(self._finish, "step", "step")(root)

    def begin(self) -> None:
        """Start recording without module hooks, for spans outside a step. Call `end()` to stop.

        The step itself gets no row.
        """
        root = self._new(None, "step", "step", "step")
        self._stacks[root.tid] = [root]
        self._begin(root)

    def end(self) -> None:
        """Stop the recording that `begin` started."""
        self._is_open = False
        self._finish(self._spans[0])

    def take_ended(self) -> SampledStep:
        """Remove the ended spans from the recording that `begin` started, and return them as a separate recording."""
        part = copy(self)
        with self._lock:
            ended = [span for span in self._spans if span.end]
            part._spans = [self._spans[0], *ended]
            self._spans = [span for span in self._spans if span not in ended]
        return part

    @contextmanager
    def span(self, name: str, metadata: str | None, is_always: bool) -> Iterator[None]:
        """Record the user code in the block as a child of the innermost span open in this thread or task."""
        span = self._hooks.guarded(self._enter, name, OWN)(name, metadata, is_always)
        token = _CURRENT.set(span)
        try:
            yield
        except BaseException:
            if span is not None:
                span.is_failed = True
            raise
        finally:
            with suppress(ValueError):  # if another thread or task ends a generator, it runs in that context
                _CURRENT.reset(token)
            if span is not None:
                self._hooks.guarded(self._leave, name, OWN)(span)

    def _enter(self, name: str, metadata: str | None, is_always: bool) -> Span | None:
        if not self._is_open or not self._clock.can_mark():
            return None
        stack = self._stacks.setdefault(threading.get_native_id(), [self._spans[0]])
        span = self._new(self._around(stack), name, OWN, OWN)
        span.metadata, span.is_always = metadata, is_always
        self._begin(span)
        stack.append(span)
        return span

    def _leave(self, span: Span) -> None:
        stack = self._stacks.get(threading.get_native_id(), [])
        if span in stack:  # tasks of one thread may end in a different order than they began
            stack.remove(span)
        if span.end is None and self._is_open:
            self._end(span)

    def _around(self, stack: list[Span]) -> Span:
        """Return the innermost open span of the thread inside the current user span of this context.

        Several tasks may run on one thread, each with its own user spans, so the innermost span of the thread may
        belong to another task.
        """
        current = _CURRENT.get()
        if current is not None and (current.end is not None or current not in self._spans):
            current = None
        for span in reversed(stack):
            owner: Span | None = span
            while owner is not None and owner.kind != OWN:
                owner = owner.parent
            if owner is current:
                return span
        return current or self._spans[0]

    @contextmanager
    def _counting(self) -> Iterator[None]:
        with ExitStack() as stack:
            if self._calls is not None:
                try:
                    # Compiled code cannot run under a dispatch mode that sees its operators.
                    stack.enter_context(torch.compiler.set_stance("force_eager"))
                    stack.enter_context(self._calls)
                except Exception as error:
                    stack.close()
                    self._calls = None
                    self._noted("step", "step", f"no census: {error}")
            yield

    def _finish(self, root: Span) -> None:
        self._nodes.clear()  # the nodes keep the graph alive
        self._modules = self._of_all = ()
        if root.begin:
            self._end(root)
        for span in self._spans:
            self._settle(span, root)

    def _settle(self, span: Span, root: Span) -> None:
        span.before, span.inner = set(), {}
        if span.begin and not span.end:  # the step raised an exception inside the span
            span.end, span.is_failed = root.end, True
        if not self._is_whole and (span.name, span.kind == OWN) in self._untimed:
            span.clock = HOST_CALLS  # the untimed work may belong to a module that this step does not measure
        around = span.parent
        # A step and user code have the inputs of their first module, which is known only if all modules are measured.
        while self._is_whole and span.shapes and around and around.shapes is None:
            around.shapes, around.dtypes = span.shapes, span.dtypes
            around = around.parent
        if span.backward:
            span.backward.shapes, span.backward.dtypes = span.shapes, span.dtypes
            span.backward.clock = span.clock
            outer = span.parent
            while outer and not outer.backward:
                outer = outer.parent
            span.backward.parent = outer.backward if outer else root

    @property
    def is_done(self) -> bool:
        """Return whether the device has passed all marks of the step. Spans on other streams may end after the step."""
        marks = (mark for span in self._spans for mark in (span.end, span.begin) if mark)
        return all(self._clock.is_done(mark) for mark, _ in marks)

    @property
    def inputs(self) -> set[Inputs]:
        """Return the known inputs of the step's spans. Call this after the step."""
        known = (span for span in self._spans if self._is_whole or span.shapes is not None)
        return {span.inputs for span in known if span.begin and not span.is_failed}

    @property
    def untimed(self) -> set[tuple[str, bool]]:
        """Return the spans without a clock for their work, and the modules around them, as (name, is user code).

        This step may not have measured the modules around them.
        """
        spans = {(span.name, span.kind == OWN) for span in self._spans if span.clock == HOST_CALLS}
        names = [self._model_name, *(name for name, is_own in spans if not is_own)] if spans else []
        return spans | {(around, False) for name in names for around in accumulate(name.split("."), "{}.{}".format)}

    @property
    def hook_ns(self) -> dict[str, int]:
        """Return the time that the hooks of each measured module took, ns, by name."""
        return dict(self._hooks.hook_ns)

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per span that began, outer spans first. Times are ns, starts are since the Unix epoch."""
        root = self._spans[0]
        # The starts of a step's spans are the clock's times since the root's begin. Outside steps, these may be hours.
        # In hours, the device's clock drifts from the host's, and its 32-bit floats become coarse. So a span outside
        # steps starts at the host's time.
        rows = [
            {**span.row(span if self._first_id else root, self._clock, self._offset), "is_census": self.is_census}
            for span in self._spans
            if span.begin and span.end and root.begin and (span is not root or not self._first_id)
        ]
        for row in rows if self._first_id else ():  # spans outside steps have no step as parent
            row["depth"] -= 1
            row["parent_id"] = None if row["parent_id"] == self._first_id else row["parent_id"]
        return rows

    def module_rows(self) -> list[dict[str, Any]]:
        """Return one row per module that was measured, with the number of its calls. Empty outside steps."""
        n_calls = Counter(span.name for span in self._spans if span.phase in ("forward", "recompute") and span.begin)
        step = {"step": self.number, "is_census": self.is_census, "n_modules": self._n_modules}
        return [
            {**step, "name": name, "n_calls": n_calls[name], "hook_ns": hook_ns}
            for name, hook_ns in self.hook_ns.items()
        ]

    def operator_rows(self) -> list[dict[str, Any]]:
        """Return one row per span, operator and arguments, with the number of calls in the span and nested spans.

        Empty without a census.
        """
        rows: dict[Any, dict[str, Any]] = {}
        for (span_id, call), n in self._calls.counts.items() if self._calls else ():
            inner = outer = self._spans[span_id]
            while outer:
                columns = dict(zip(("op", "dims", "types", "concrete"), call, strict=True))
                empty = {"n_calls": 0, "n_calls_own": 0, "n_calls_recompute": 0}
                row = rows.setdefault(
                    (outer.span_id, call), {"step": self.number, "span_id": outer.span_id, **columns, **empty}
                )
                row["n_calls"] += n
                row["n_calls_own"] += n if outer is inner else 0
                row["n_calls_recompute"] += n if inner.phase == "recompute" else 0
                outer = outer.parent
        return list(rows.values())

    def _owner(self) -> int:
        """Return the id of the span to which an operator belongs that this thread calls now."""
        thread = threading.get_native_id()
        innermost = self._stacks.get(thread, self._spans[:1])[-1]
        node = torch._C._current_autograd_node()
        if node is None or innermost.phase == "recompute":
            return innermost.span_id
        made_by = self._nodes.get(node)
        return made_by.backward.span_id if made_by and made_by.backward else self._spans[0].span_id

    def _new(self, parent: Span | None, name: str, kind: str, phase: str) -> Span:
        with self._lock:
            span_id = self._first_id + self.n_spans
            span = Span(self.number, span_id, parent, name, kind, phase, threading.get_native_id())
            self._spans.append(span)
            self.n_spans += 1
        return span

    def _begin(self, span: Span) -> None:
        span.begin = self._clock.mark(), time.perf_counter_ns()
        if self._counters is not None:
            span.counting = threading.get_native_id(), self._counters.read()

    def _end(self, *spans: Span) -> None:
        """End spans at the same time."""
        thread, end = threading.get_native_id(), (self._clock.mark(), time.perf_counter_ns())
        counts = self._counters.read() if self._counters is not None else None
        for span in spans:
            if self._counters is not None and span.counting and span.counting[0] == thread:
                span.counted = between(span.counting[1], counts)
            span.end = end

    def _measures(self, module: torch.nn.Module) -> bool:
        """Return whether the module's call is measured.

        Calls of copies, calls during tracing and calls during a capture of the stream are not.
        """
        return id(module) in self._names and self._can_measure()

    def _can_measure(self) -> bool:
        return self._is_open and not torch._C._is_tracing() and self._clock.can_mark()

    def _describe_around(self, module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        """Describe the step and user code by the inputs of the model, even if the model itself is not measured."""
        if not self._of_all or module is not self._of_all[0][0] or not self._can_measure():
            return
        around: Span | None = self._stacks.get(threading.get_native_id(), self._spans[:1])[-1]
        inputs = tensors_in((args, kwargs))
        while around is not None and around.shapes is None:
            around.describe(inputs)
            around = around.parent

    def _before_forward(self, module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        if not self._measures(module):
            return
        stack = self._stacks.setdefault(threading.get_native_id(), [self._spans[0]])
        phase = "forward" if torch._C._current_graph_task_id() == -1 else "recompute"
        inputs = tensors_in((args, kwargs))
        span = self._new(stack[-1], self._names[id(module)], class_of(module), phase)
        span.before = {tensor.grad_fn for tensor in inputs if tensor.grad_fn is not None}
        span.describe(inputs)
        span.look_at(inputs, self._clock)
        self._begin(span)
        stack.append(span)

    def _after_forward(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        stack = self._stacks.get(threading.get_native_id(), [])
        name = self._names.get(id(module))
        if not self._measures(module) or all(
            span.name != name for span in stack[1:]
        ):  # the call began while the module was not measured
            return
        while True:
            span = stack.pop()
            self._end(span)
            if span.name == name:
                break
            span.is_failed = span.phase != "recompute"  # the span's own hook did not run
        # The module raised an exception. Activation recomputation also ends with one, once it has all tensors it needs.
        if output is None and sys.exc_info()[0] is not None:
            span.is_failed = span.phase != "recompute"
            return
        outputs = tensors_in(output)
        span.look_at(outputs, self._clock)
        self._watch_backward(span, outputs)

    def _watch_backward(self, span: Span, outputs: list[torch.Tensor]) -> None:
        """Install hooks where gradients enter the module's part of the graph, and where they leave it.

        The hooks of a module's part are also those of the modules around it, so each node is visited once in a step.
        """
        inner, part = span.inner, part_of(outputs, span.before, span.inner)
        span.before, span.inner = set(), {}
        if self._calls:
            for node in part.nodes:
                self._nodes.setdefault(node, span)
        if not part.has_exits:
            return
        span.backward = self._new(None, span.name, span.kind, "backward")
        around = span.parent
        while around is not None and around.kind == OWN:
            around = around.parent
        if around is not None and around is not self._spans[0]:  # nothing visits the nodes for the step itself
            around.inner |= dict.fromkeys(part.entries, part)
        for node in (node for node in part.entries if node not in inner):
            self._hooks.before_node(node, partial(self._begin_backward, span), span.name, span.kind)
        for node in part.exits:
            self._hooks.after_node(node, partial(self._end_backward, span), span.name, span.kind)

    def _begin_backward(self, span: Span) -> None:
        """Begin the backward of a span and its ancestors. At a shared node, the inner module's hooks run first."""
        if span.parent:
            self._begin_backward(span.parent)
        if span.backward and span.backward.begin is None:
            span.backward.tid = threading.get_native_id()
            self._begin(span.backward)

    def _end_backward(self, span: Span) -> None:
        """End the backward of a span and of its ancestors, until a later node of theirs ends it again."""
        spans: list[Span] = []
        around: Span | None = span
        while around is not None:
            if around.backward and around.backward.begin is not None:
                spans.append(around.backward)
            around = around.parent
        if spans:
            self._end(*spans)
