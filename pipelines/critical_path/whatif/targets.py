"""The target language of scenarios, and the part of a window that each target selects.

In names, `*` matches any text and `?` any character. `[*]` and `[?]` are these characters. Other brackets are literal,
because names of C++ functions are full of them.

A name selects events with everything inside them: host time, calls, their waits for the GPU, and the GPU work launched
there. This covers the event's own thread and the threads that work for it. A factor scales all of this except the
waits. `--remove` deletes all of it.

- `aten::linear`, `normalize`, `enumerate(DataLoader)*`: operators, calls, annotations and Python functions by name. The
  name of a kernel selects its kernels.
- `name:NAME`: the same, also if NAME itself is another target, such as an annotation `layer:3` or `host`.
- `outside operators, thread 12`: the host time of a thread that has no owner.

Host time alone:

- `self:NAME`: the self time of operators and calls. For an annotation or a Python function, it is the host time in it
  that is outside operators. The GPU work that it launches stays.
- `class:CPU`: the self time of all operators and calls.
- `host_gap`, `class:HOST` (as sensitivity calls it): all host time outside operators.
- `host`: both `class:CPU` and `host_gap`.

GPU work. It is deleted together with the delays before it and with the host's own waits for it, which are waits by the
call that launched it or by a call of the same operator:

- `kernel:GLOB`: kernels and copies by name.
- `gpu:NAME`: GPU work launched inside events by name, on their thread and on threads that work for it.
- `op:aten::mm`, `module:Linear_*`: GPU work of operators or modules by name, launched by them or run by a graph replay.
  A module includes the work of the modules in it.
- `layer:3`: GPU work of a layer of graph replays, as `repetition` in `graph_kernels`.
- `stream:7`: GPU work on that stream, on any device.
- `class:COMMUNICATION`: GPU work of that class of the profile, and of classes that count as it (`class_kinds`).

Waits, which can only be removed:

- `wait:NAME`, `wait:*`: calls inside NAME, or all calls, no longer wait for the GPU. Their other time stays.

Causes:

- `cause:data_loading`, `cause:copies:Memcpy HtoD*`: the time that `why` counts as the cause, or as one name of the
  cause.
- `eager`: the time that a CUDA graph or a compiled step avoids: operators, launches, and the Python code between them,
  up to `eager_gap_ns` at a time. Waits stay.

Edges of the graph:

- `edge:KERNEL_LAUNCH_DELAY`, `edge:critical_path_kernel_launch_delay` (HTA's text): every edge of that type.
- `edge:EARLIER_WORK`: waits at the window's start for GPU work that was launched before it, whatever their type.
- `rank:3`: every edge of that rank's trace. In a capture, `rank:3:NAME` is any of the targets above on that rank.
- short names: `launch_overhead`, `kernel_gaps`, … (`scenario.SHORT`, `scenario.GROUPS`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from pipelines.base.errors import TracelakeError
from pipelines.base.kernel_names import glob_pattern
from pipelines.critical_path.graph.bounds import CPU as CPU_CLASS
from pipelines.critical_path.graph.bounds import HOST as HOST_CLASS
from pipelines.critical_path.graph.chains import Ints
from pipelines.critical_path.graph.edge_types import HTA_TYPES
from pipelines.critical_path.whatif.change import Change, Selection, inclusive, union
from pipelines.critical_path.whatif.near_names import near_names
from pipelines.critical_path.whatif.overlap import counting_as, hidden_communication
from pipelines.critical_path.whatif.owners import KINDS
from pipelines.critical_path.whatif.scenario import GROUPS, SHORT, Scenario, ScenarioError
from pipelines.critical_path.whatif.timeline import Flags, Stretches
from pipelines.critical_path.whatif.window import Window

if TYPE_CHECKING:
    from pipelines.critical_path.causes.cause_edges import CauseEdges

_PREFIXES = ("name", "self", "wait", "gpu", "kernel", "cause", "class", "stream", "rank", "edge", *KINDS)
_EAGER = "eager"
_HTA_PREFIX = "critical_path_"
_OF_HTA = {text.removeprefix(_HTA_PREFIX).upper(): name for name, text in HTA_TYPES.items()}


class NothingMatches(TracelakeError, LookupError):
    """A target selects no edge of the window. The message lists the existing targets."""


def owner_kinds(scenario: Scenario) -> list[str]:
    """Return which of op, module and layer the scenario's targets name, including `rank:2:op:NAME`.

    If any, the window needs its owners.
    """
    targets = (re.sub(r"^rank:\d+:", "", target) for target in scenario.targets)
    named = {kind for kind, colon, _ in (target.partition(":") for target in targets) if colon}
    return [kind for kind in KINDS if kind in named]


def names_causes(scenario: Scenario) -> bool:
    """Return whether the scenario's targets name causes, including `rank:2:cause:optimizer`.

    If so, the window needs its causes.
    """
    targets = (re.sub(r"^rank:\d+:", "", target) for target in scenario.targets)
    return any(target == _EAGER or target.startswith("cause:") for target in targets)


def change_of(window: Window, scenario: Scenario) -> Change:
    """Return the changes of the window's edges. Raises NothingMatches and ScenarioError."""
    change, targets = Change(window.timeline), _Targets(window)
    for target, factor in scenario.scale:
        change.apply(targets.selected(target, factor), factor)
    change.do_ahead([targets.selected(target, 0) for target in scenario.ahead], window.graph)
    if scenario.perfect_overlap:
        change.factor *= hidden_communication(window, change.factor)
    return change


class _Targets:
    """A lookup of the part of a window that a target selects."""

    def __init__(self, window: Window) -> None:
        self.window, self.line = window, window.timeline

    def selected(self, target: str, factor: float) -> Selection:
        parts = [self._part(part, factor) for part in GROUPS.get(target, (SHORT.get(target, target),))]
        if not any(parts):
            near, existing = self._near(target), _what_there_is(self.window)
            raise NothingMatches(f"{target!r} matches nothing in this window{near or '.'} {existing}")
        return union(parts)

    def _near(self, target: str) -> str:
        """Return a question with similar names for the end of a message.

        The text is empty if the target does not name events, or if no name is similar.
        """
        prefix, text = _prefix(target)
        if prefix not in ("name", "self", "wait", "gpu", "kernel"):
            return ""
        near = [_short(name) for name in near_names(text, self._nameable(prefix))]
        if prefix != "name":
            near = [f"{prefix}:{name}" for name in near]
        return f"; did you mean {', '.join(near)}?" if near else ""

    def _nameable(self, prefix: str) -> set[str]:
        """Return the names of the window's events that a target with this prefix can select."""
        events, line = self.window.events, self.line
        chosen = np.ones(len(events.family), dtype=bool)
        if prefix == "wait":
            chosen = line.holding(np.unique(line.dst[line.is_host_wait]))
        elif prefix == "gpu":
            chosen = line.holding(np.unique(line.launch[line.launch >= 0]))
        elif prefix != "name":
            chosen = line.is_work == (prefix == "kernel")
        return {events.families[i][1] for i in np.unique(events.family[chosen]).tolist()}

    def _part(self, target: str, factor: float) -> Selection:
        prefix, text = _prefix(target)
        w = self.window
        if prefix in KINDS:
            return Selection(work=self._owned_work(prefix, text))
        if target == _EAGER:
            return self._causes(target).eager(self.line)
        if prefix == "cause":
            return self._causes(target).selected(text)
        if prefix == "wait":
            return self._waits(text, factor)
        if prefix == "gpu":
            return Selection(work=self.line.launched(self._stretches(text)))
        if prefix == "stream":
            chosen = [i for i, (_, stream) in enumerate(w.events.streams) if str(stream) == text]
            return Selection(work=np.isin(w.events.stream, chosen))
        if prefix == "rank":
            return Selection(np.full(len(w.kind), float(str(w.rank) == text)))
        if prefix == "edge":
            kind = text.removeprefix(_HTA_PREFIX).upper()
            kind = _OF_HTA.get(kind, kind)
            return Selection((np.array(w.kinds) == kind)[w.kind].astype(float))
        if prefix == "class" and text.upper() == HOST_CLASS:
            return union([self._part(part, factor) for part in GROUPS["host_gap"]])
        if prefix == "class":
            classes = counting_as(text.upper())
            chosen = w.events.of_families(lambda kernel_class, _: kernel_class in classes)
            return self._self(chosen) if text.upper() == CPU_CLASS else Selection(work=chosen)
        if prefix == "kernel":
            return Selection(work=self._named(text) & self.line.is_work)
        if prefix == "self":
            return self._self(self._named(text), text)
        return union([self._inclusive(text), Selection(work=self._named(text) & self.line.is_work)])

    def _named(self, glob: str) -> Flags:
        pattern = glob_pattern(glob)
        return self.window.events.of_families(lambda _, name: bool(pattern.fullmatch(name)))

    def _inclusive(self, glob: str) -> Selection:
        """Select everything inside host events whose names match `glob`.

        Also select the unowned host time of threads whose names match.
        """
        selection = inclusive(self.line, self._stretches(glob))
        return union([selection, Selection(self._of_threads(glob).astype(float))])

    def _stretches(self, glob: str) -> Stretches:
        stretches = self.line.of_events(self._named(glob))
        if self.window.named_stretches is None:
            return stretches
        return self.line.with_helpers(stretches.and_also(self.window.named_stretches(glob)))

    def _waits(self, glob: str, factor: float) -> Selection:
        if factor:
            raise ScenarioError(f"wait:{glob} can only be removed: use --remove wait:{glob}")
        if glob == "*":
            return Selection(waits=self.line.is_host_wait)
        return Selection(waits=self.line.waits(self._stretches(glob)))

    def _self(self, chosen: Flags, glob: str = "") -> Selection:
        """Select the self time of the chosen operators and calls.

        For annotations and functions, select the host time outside operators. `glob` also selects the unowned host time
        of threads by name.
        """
        w = self.window
        is_selected = np.append(chosen & ~self.line.is_work, False)[
            w.own_time_of
        ]  # index -1 (no owner) is the last entry
        is_outer = w.events.of_families(lambda kernel_class, _: kernel_class == HOST_CLASS)
        is_selected |= np.append(w.inside(chosen & is_outer), False)[w.gap_owner]
        if glob:
            is_selected |= self._of_threads(glob)
        return Selection(is_selected.astype(float))

    def _causes(self, target: str) -> CauseEdges:
        if self.window.causes is None:
            raise ScenarioError(
                f"{target} needs the trace, not a saved path, and a path that covers its window (not --profile hta)"
            )
        return self.window.causes

    def _of_threads(self, glob: str) -> Flags:
        """Return which edges (m,) are unowned host time of threads whose names match `glob`."""
        pattern = glob_pattern(glob)
        threads = np.array([bool(pattern.fullmatch(name)) for name in self.window.thread_names], dtype=bool)
        return np.append(threads, False)[self.window.gap_thread]

    def _owned_work(self, kind: str, glob: str) -> Flags:
        owners = self.window.owners
        if owners is None:
            raise ScenarioError(
                f"{kind}:{glob} needs the trace: a saved path does not say to which operator or module a kernel belongs"
            )
        pattern = glob_pattern(glob)
        chosen = [ids for name, ids in owners.ids[kind].items() if pattern.fullmatch(name)]
        ids = np.unique(np.concatenate(chosen)) if chosen else np.empty(0, dtype=np.int64)
        return np.isin(self.window.events.event_id, ids)


def by_name(name: str) -> str:
    """Return the target that selects events by a name: the name itself, unless it is also another target."""
    is_other = name in SHORT or name in GROUPS or name == _EAGER
    return f"name:{name}" if is_other or _prefix(name) != ("name", name) else name


def _prefix(target: str) -> tuple[str, str]:
    """Return the prefix of a target (`name` if it has none), and the text after it."""
    prefix, colon, text = target.partition(":")
    return (prefix, text) if colon and prefix in _PREFIXES else ("name", target)


def _what_there_is(window: Window) -> str:
    time = np.bincount(window.family, window.graph.weight, minlength=len(window.events.families) + 1)[:-1]
    longest = [_short(window.events.families[i][1]) for i in np.argsort(-time, kind="stable")[:10]]
    classes = sorted({kernel_class for kernel_class, _ in window.events.families} - {HOST_CLASS})
    streams = sorted({stream for _, stream in window.events.streams if stream is not None})
    kinds = [window.kinds[i] for i in sorted(window.kinds_present)]
    owners = window.owners.ids.items() if window.owners else ()
    owned = "".join(f"{kind}:{_owned(names, window)}; " for kind, names in owners)
    return (
        f"There are: {owned}class:{'|'.join(classes)}; stream:{'|'.join(map(str, streams)) or '(none)'}; "
        f"rank:{'(unknown)' if window.rank is None else window.rank}; edge:{'|'.join(kinds)}; {', '.join(dict.fromkeys([*SHORT, *GROUPS]))}; "
        f"names by their time: {'; '.join(longest)}"
    )


def _owned(names: dict[str, Ints], window: Window) -> str:
    """Return a text with the owners that have the most GPU activities in the window."""
    count_by_name = {name: int(np.isin(ids, window.events.event_id).sum()) for name, ids in names.items()}
    largest = sorted(
        (name for name in count_by_name if count_by_name[name]), key=lambda name: (-count_by_name[name], name)
    )
    return "|".join(map(_short, largest[:10])) or "(none)"


def _short(name: str) -> str:
    return name if len(name) <= 60 else f"{name[:57]}*"
