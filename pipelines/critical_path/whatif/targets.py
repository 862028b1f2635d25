"""What a scenario can name, and the edges it selects.

A target selects the time of events (edges that are an event's own time) or a kind of delay:

- `ampere_gemm*`, `name:ampere_gemm*`: events by name; `*` and `?` match any text and any character; brackets are
  literal, because names of C++ functions are full of them. For a CPU operator this is its own time, not that of its
  calls.
- `enumerate(DataLoader)*`, `normalize`: an annotation or a Python function by name is the host time inside it that is outside
  operators, of whatever runs there; `outside operators, thread 12` that of a thread which nothing owns.
- `class:COMMUNICATION`: kernels of that class of the profile, and of classes that count as it (`class_kinds`); `class:CPU`: all
  operators and calls.
- `stream:7`: GPU work on that stream, whatever the device.
- `op:aten::mm`, `module:Linear_*`: GPU work of operators or modules by name, launched or run by a graph replay; a module
  holds the work of the modules in it. `layer:3`: a layer of graph replays, as `repetition` in `graph_kernels`.
- `rank:3`: every edge of that rank's trace.
- `edge:KERNEL_LAUNCH_DELAY`, `edge:critical_path_kernel_launch_delay` (HTA's text): every edge of that type.
- `edge:EARLIER_WORK`: waits at the window's start for GPU work that was launched before it, whatever their type.
- `host`: all that host threads do, operators, calls and the time outside them; `host_gap`: only that.
- short names: `launch_overhead`, `kernel_gaps`, … (`scenario.SHORT`).
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from pipelines.base.errors import TracelakeError
from pipelines.base.kernel_names import glob_pattern
from pipelines.critical_path.graph.bounds import HOST as HOST_CLASS
from pipelines.critical_path.graph.dependency_graph import Ints
from pipelines.critical_path.graph.edge_types import HTA_TYPES
from pipelines.critical_path.whatif.overlap import counting_as, hidden_communication
from pipelines.critical_path.whatif.owners import KINDS
from pipelines.critical_path.whatif.scenario import GROUPS, SHORT, Scenario, ScenarioError
from pipelines.critical_path.whatif.window import Window

_PREFIXES = ("name", "class", "stream", "rank", "edge", *KINDS)
_HTA_PREFIX = "critical_path_"
_OF_HTA = {text.removeprefix(_HTA_PREFIX).upper(): name for name, text in HTA_TYPES.items()}


class NothingMatches(TracelakeError, LookupError):
    """A target that selects no edge of the window; the message lists what there is."""


def owner_kinds(scenario: Scenario) -> list[str]:
    """Returns which of op, module and layer its targets name (`rank:2:op:NAME`, too): then the window needs its owners."""
    targets = (re.sub(r"^rank:\d+:", "", target) for target, _ in scenario.scale)
    named = {kind for kind, colon, _ in (target.partition(":") for target in targets) if colon}
    return [kind for kind in KINDS if kind in named]


def factors(window: Window, scenario: Scenario) -> npt.NDArray[np.float64] | None:
    """Returns the factor for each edge's weight (m,); None if nothing changes. Raises NothingMatches."""
    chosen = _Factors(window)
    for target, factor in scenario.scale:
        chosen.multiply(target, factor)
    if scenario.perfect_overlap:
        hidden = hidden_communication(window)
        chosen.edge = hidden if chosen.edge is None else chosen.edge * hidden
    return chosen.of_edges()


class _Factors:
    """Factors by family, stream and type; edges look theirs up once at the end, so a target costs next to nothing."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self.family = np.ones(len(window.events.families) + 1)
        self.stream = np.ones(len(window.events.streams) + 1)
        self.kind = np.ones(len(window.kinds))
        self.event = np.ones(1)  # of all events and "none" once an operator, module, layer or annotation is named
        self.edge: npt.NDArray[np.float64] | None = None

    def multiply(self, target: str, factor: float) -> None:
        targets = GROUPS.get(target, (SHORT.get(target, target),))
        held = [self._held(one) for one in targets]
        if not any(len(of_one) for _, of_one in held):
            held = [self._held_by_gaps(target)]
        else:
            held += [self._held_by_gaps(one) for one in targets if _prefix(one)[0] == "name"]
        if not any(len(of_one) for _, of_one in held):
            raise NothingMatches(f"{target!r} matches nothing in this window. {_what_there_is(self.window)}")
        for table, of_one in held:
            table[of_one] *= factor

    def _held_by_gaps(self, target: str) -> tuple[npt.NDArray[np.float64], Ints]:
        """Host time outside operators by name: of annotations and functions with all that is inside them, and of threads."""
        w = self.window
        prefix, what = _prefix(target)
        if prefix != "name":
            return self.family, np.arange(0)
        pattern = glob_pattern(what)
        named = np.array(
            [of == HOST_CLASS and bool(pattern.fullmatch(name)) for of, name in w.events.families], dtype=bool
        )
        inside = w.inside(named[w.events.family]) if len(named) else np.zeros(0, dtype=bool)
        owned = np.append(inside, False)[w.gap_owner]
        threads = np.array([bool(pattern.fullmatch(name)) for name in w.thread_names], dtype=bool)
        owned |= np.append(threads, False)[w.gap_thread]
        if self.edge is None:
            self.edge = np.ones(len(w.kind))
        return self.edge, np.flatnonzero(owned)

    def _held(self, target: str) -> tuple[npt.NDArray[np.float64], list[int] | Ints]:
        prefix, what = _prefix(target)
        w = self.window
        if prefix in KINDS:
            return self._held_by_owner(prefix, what)
        if prefix == "stream":
            return self.stream, [i for i, (_, stream) in enumerate(w.events.streams) if str(stream) == what]
        if prefix == "rank":
            return self.kind, list(range(len(w.kinds))) if str(w.rank) == what else []
        if prefix == "edge":
            kind = what.removeprefix(_HTA_PREFIX).upper()
            kind = _OF_HTA.get(kind, kind)
            return self.kind, [i for i, known in enumerate(w.kinds) if known == kind and i in w.kinds_present]
        if prefix == "class":
            classes = counting_as(what.upper())
            held = [i for i, (known, _) in enumerate(w.events.families) if known in classes]
        else:
            pattern = glob_pattern(what)
            held = [i for i, (of, name) in enumerate(w.events.families) if of != HOST_CLASS and pattern.fullmatch(name)]
        return self.family, held

    def _held_by_owner(self, kind: str, what: str) -> tuple[npt.NDArray[np.float64], Ints]:
        events, owners = self.window.events, self.window.owners
        if owners is None:
            raise ScenarioError(
                f"{kind}:{what} needs the trace: a saved path does not say to which operator or module a kernel belongs"
            )
        if len(self.event) == 1:
            self.event = np.ones(len(events.event_id) + 1)
        pattern = glob_pattern(what)
        chosen = [ids for name, ids in owners.ids[kind].items() if pattern.fullmatch(name)]
        ids = np.unique(np.concatenate(chosen)) if chosen else np.empty(0, dtype=np.int64)
        return self.event, np.flatnonzero(np.isin(events.event_id, ids))

    def of_edges(self) -> npt.NDArray[np.float64] | None:
        w, parts = self.window, [] if self.edge is None else [self.edge]
        for table, place in ((self.family, w.family), (self.stream, w.stream), (self.kind, w.kind)):
            if (table != 1).any():
                parts.append(table[place])
        if (self.event != 1).any():
            parts.append(self.event[w.own_time_of])  # -1, no event's own time, is the last
        return np.multiply.reduce(parts) if parts else None


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
