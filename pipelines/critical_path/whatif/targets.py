"""What a scenario can name, and what of the window it selects. In names `*` and `?` match any text and any character; brackets
are literal, because names of C++ functions are full of them.

With everything inside it: host time, calls, their waits for the GPU, and the GPU work that was launched there, on its thread and on
threads that work for it. A factor scales all of that but the waits; `--remove` deletes it.

- `aten::linear`, `normalize`, `enumerate(DataLoader)*`: operators, calls, annotations and Python functions by name. Of a
  kernel's name the kernels. `outside operators, thread 12`: the host time of a thread that nothing owns.

Host time alone:

- `self:NAME`: what operators and calls take themselves; of an annotation or a Python function the host time in it that is
  outside operators. What it launches stays.
- `class:CPU`: that of all operators and calls. `host_gap`: all that is outside operators. `host`: both.

GPU work, deleted with the delays before it and with the host's own waits for it: those of the call that launched it, or of
the same operator.

- `kernel:GLOB`: kernels and copies by name.
- `op:aten::mm`, `module:Linear_*`: of operators or modules by name, launched or run by a graph replay; a module holds the
  work of the modules in it. `layer:3`: of a layer of graph replays, as `repetition` in `graph_kernels`.
- `stream:7`: on that stream, whatever the device.
- `class:COMMUNICATION`: of that class of the profile, and of classes that count as it (`class_kinds`).

Waits, which can only go:

- `wait:NAME`, `wait:*`: calls inside NAME, or all calls, no longer wait for the GPU; what they do besides stays.

Causes:

- `cause:data_loading`, `cause:copies:Memcpy HtoD*`: what `why` counts as the cause, or as one name of it.
- `eager`: what a CUDA graph or a compiled step does not do: operators, launches, and the Python between them up to
  `eager_gap_ns`. Waits stay.

Edges of the graph:

- `edge:KERNEL_LAUNCH_DELAY`, `edge:critical_path_kernel_launch_delay` (HTA's text): every edge of that type.
- `edge:EARLIER_WORK`: waits at the window's start for GPU work that was launched before it, whatever their type.
- `rank:3`: every edge of that rank's trace; `rank:3:NAME` in a capture: any of the above on that rank.
- short names: `launch_overhead`, `kernel_gaps`, … (`scenario.SHORT`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from pipelines.base.errors import TracelakeError
from pipelines.base.kernel_names import glob_pattern
from pipelines.critical_path.graph.bounds import CPU as CPU_CLASS
from pipelines.critical_path.graph.bounds import HOST as HOST_CLASS
from pipelines.critical_path.graph.dependency_graph import Ints
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

_PREFIXES = ("name", "self", "wait", "kernel", "cause", "class", "stream", "rank", "edge", *KINDS)
_EAGER = "eager"
_HTA_PREFIX = "critical_path_"
_OF_HTA = {text.removeprefix(_HTA_PREFIX).upper(): name for name, text in HTA_TYPES.items()}


class NothingMatches(TracelakeError, LookupError):
    """A target that selects no edge of the window; the message lists what there is."""


def owner_kinds(scenario: Scenario) -> list[str]:
    """Returns which of op, module and layer its targets name (`rank:2:op:NAME`, too): then the window needs its owners."""
    targets = (re.sub(r"^rank:\d+:", "", target) for target in scenario.targets)
    named = {kind for kind, colon, _ in (target.partition(":") for target in targets) if colon}
    return [kind for kind in KINDS if kind in named]


def names_causes(scenario: Scenario) -> bool:
    """Whether its targets name causes (`rank:2:cause:optimizer`, too): then the window needs them."""
    targets = (re.sub(r"^rank:\d+:", "", target) for target in scenario.targets)
    return any(target == _EAGER or target.startswith("cause:") for target in targets)


def change_of(window: Window, scenario: Scenario) -> Change:
    """Returns what becomes of the window's edges. Raises NothingMatches and ScenarioError."""
    change, targets = Change(window.timeline), _Targets(window)
    for target, factor in scenario.scale:
        change.apply(targets.selected(target, factor), factor)
    for target in scenario.ahead:
        change.do_ahead(targets.selected(target, 0), window.graph.weight)
    if scenario.perfect_overlap:
        change.factor *= hidden_communication(window)
    return change


class _Targets:
    """Looks up what targets select in a window."""

    def __init__(self, window: Window) -> None:
        self.window, self.line = window, window.timeline

    def selected(self, target: str, factor: float) -> Selection:
        parts = [self._part(part, factor) for part in GROUPS.get(target, (SHORT.get(target, target),))]
        if not any(parts):
            near, there = self._near(target), _what_there_is(self.window)
            raise NothingMatches(f"{target!r} matches nothing in this window{near or '.'} {there}")
        return union(parts)

    def _near(self, target: str) -> str:
        """The question for names that may be meant, if a target names events and some are like it."""
        prefix, what = _prefix(target)
        if prefix not in ("name", "self", "wait", "kernel"):
            return ""
        near = [_short(name) for name in near_names(what, self._nameable(prefix))]
        if prefix != "name":
            near = [f"{prefix}:{name}" for name in near]
        return f"; did you mean {', '.join(near)}?" if near else ""

    def _nameable(self, prefix: str) -> set[str]:
        """Names of the window's events that a target with this prefix may have."""
        events, line = self.window.events, self.line
        chosen = np.ones(len(events.family), dtype=bool)
        if prefix == "wait":
            chosen = line.holding(np.unique(line.dst[line.is_host_wait]))
        elif prefix != "name":
            chosen = line.is_work == (prefix == "kernel")
        return {events.families[i][1] for i in np.unique(events.family[chosen]).tolist()}

    def _part(self, target: str, factor: float) -> Selection:
        prefix, what = _prefix(target)
        w = self.window
        if prefix in KINDS:
            return Selection(work=self._owned_work(prefix, what))
        if target == _EAGER:
            return self._causes(target).eager(self.line)
        if prefix == "cause":
            return self._causes(target).selected(what)
        if prefix == "wait":
            return self._waits(what, factor)
        if prefix == "stream":
            chosen = [i for i, (_, stream) in enumerate(w.events.streams) if str(stream) == what]
            return Selection(work=np.isin(w.events.stream, chosen))
        if prefix == "rank":
            return Selection(np.full(len(w.kind), float(str(w.rank) == what)))
        if prefix == "edge":
            kind = what.removeprefix(_HTA_PREFIX).upper()
            kind = _OF_HTA.get(kind, kind)
            return Selection((np.array(w.kinds) == kind)[w.kind].astype(float))
        if prefix == "class":
            classes = counting_as(what.upper())
            chosen = w.events.of_families(lambda known, _: known in classes)
            return self._self(chosen) if what.upper() == CPU_CLASS else Selection(work=chosen)
        if prefix == "kernel":
            return Selection(work=self._named(what) & self.line.is_work)
        if prefix == "self":
            return self._self(self._named(what), what)
        return union([self._inclusive(what), Selection(work=self._named(what) & self.line.is_work)])

    def _named(self, what: str) -> Flags:
        pattern = glob_pattern(what)
        return self.window.events.of_families(lambda _, name: bool(pattern.fullmatch(name)))

    def _inclusive(self, what: str) -> Selection:
        """All that is inside operators, calls, annotations and functions of a name, and the host time of threads."""
        selection = inclusive(self.line, self._stretches(what))
        return union([selection, Selection(self._of_threads(what).astype(float))])

    def _stretches(self, what: str) -> Stretches:
        stretches = self.line.of_events(self._named(what))
        if self.window.named_stretches is None:
            return stretches
        return self.line.with_helpers(stretches.and_also(self.window.named_stretches(what)))

    def _waits(self, what: str, factor: float) -> Selection:
        if factor:
            raise ScenarioError(f"wait:{what} can only go: use --remove wait:{what}")
        if what == "*":
            return Selection(waits=self.line.is_host_wait)
        return Selection(waits=self.line.waits(self._stretches(what)))

    def _self(self, chosen: Flags, what: str = "") -> Selection:
        """The own time of operators and calls, and of annotations and functions the host time in them outside operators."""
        w = self.window
        own = np.append(chosen & ~self.line.is_work, False)[w.own_time_of]  # -1, nobody's, is the last
        is_outer = w.events.of_families(lambda known, _: known == HOST_CLASS)
        own |= np.append(w.inside(chosen & is_outer), False)[w.gap_owner]
        if what:
            own |= self._of_threads(what)
        return Selection(own.astype(float))

    def _causes(self, target: str) -> CauseEdges:
        if self.window.causes is None:
            raise ScenarioError(f"{target} needs the trace, and a path that covers its window (profile default)")
        return self.window.causes

    def _of_threads(self, what: str) -> Flags:
        """Which edges are host time of a thread by name that nothing owns."""
        pattern = glob_pattern(what)
        threads = np.array([bool(pattern.fullmatch(name)) for name in self.window.thread_names], dtype=bool)
        return np.append(threads, False)[self.window.gap_thread]

    def _owned_work(self, kind: str, what: str) -> Flags:
        owners = self.window.owners
        if owners is None:
            raise ScenarioError(
                f"{kind}:{what} needs the trace: a saved path does not say to which operator or module a kernel belongs"
            )
        pattern = glob_pattern(what)
        chosen = [ids for name, ids in owners.ids[kind].items() if pattern.fullmatch(name)]
        ids = np.unique(np.concatenate(chosen)) if chosen else np.empty(0, dtype=np.int64)
        return np.isin(self.window.events.event_id, ids)


def _prefix(target: str) -> tuple[str, str]:
    """Returns what a target names things by, and their name."""
    prefix, colon, what = target.partition(":")
    return (prefix, what) if colon and prefix in _PREFIXES else ("name", target)


def _what_there_is(window: Window) -> str:
    time = np.bincount(window.family, window.graph.weight, minlength=len(window.events.families) + 1)[:-1]
    longest = [_short(window.events.families[i][1]) for i in np.argsort(-time, kind="stable")[:10]]
    classes = sorted({known for known, _ in window.events.families} - {HOST_CLASS})
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
    """The names with most GPU work in the window."""
    there = {name: int(np.isin(ids, window.events.event_id).sum()) for name, ids in names.items()}
    most = sorted((name for name in there if there[name]), key=lambda name: (-there[name], name))
    return "|".join(map(_short, most[:10])) or "(none)"


def _short(name: str) -> str:
    return name if len(name) <= 60 else f"{name[:57]}*"
