"""Candidate fixes of a window, each as a `what-if` scenario that retimes the window.

`sql/rules/fixes/fix_kinds.csv` describes the kinds of fixes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pipelines.base.datafiles import threshold
from pipelines.base.kernel_names import glob_of
from pipelines.critical_path.causes.edge_causes import CAUSES, NAME
from pipelines.critical_path.causes.outermost import innermost, outermost
from pipelines.critical_path.causes.savings import Rows
from pipelines.critical_path.causes.window_rows import NameFacts
from pipelines.critical_path.graph.bounds import CPU
from pipelines.critical_path.whatif.overlap import counting_as
from pipelines.critical_path.whatif.scenario import Scenario
from pipelines.critical_path.whatif.targets import by_name
from pipelines.critical_path.whatif.timeline import Flags, Floats
from pipelines.critical_path.whatif.window import Window

_HOST_PERCENT = threshold("host_work_percent")
_PERCENT, _LAUNCHES = threshold("fix_percent"), threshold("fused_launches")
_BY_CAUSE = {
    "allocation": "no_empty_cache",
    "garbage_collection": "no_gc",
    "checkpointing": "asynchronous_checkpoint",
    "compilation": "compile_once",
}
_GENERIC = ("host_operators", "host_between_operators", "launching", "synchronization")
_MOST = 3
"""Maximum number of targets per kind of fix that are retimed."""


@dataclass(frozen=True)
class Candidate:
    """A fix: its kind, its target's name (empty for the whole window), and its scenario."""

    fix: str
    name: str
    scenario: Scenario


def candidates(window: Window, rows: Rows, length: int, facts: NameFacts) -> Iterator[Candidate]:
    """Yield the fixes that may shorten a window.

    `rows` are the causes of the window's path, and `length` is the path's length, ns. `facts` is indexed by the
    window's families, which have the same indices as the trace's names.
    """
    length = max(length, 1)
    causes = _Shown(window, rows, length)
    yield from _waits(window, length, facts.is_own)
    if name := causes.largest("data_loading"):
        yield Candidate("load_ahead", name, Scenario(ahead=("cause:data_loading",)))
    yield from _copies(causes)
    # Without GPU work, the operators themselves compute.
    if window.timeline.is_work.any() and causes.share("host_operators") + causes.share("launching") >= _PERCENT:
        yield Candidate("graph_or_compile", "", _without("eager"))
    for name in causes.names("optimizer")[:_MOST]:
        yield from _fused(window, name)
    for cause, fix in _BY_CAUSE.items():
        if causes.share(cause) >= _PERCENT:
            yield Candidate(fix, "", _without(f"cause:{cause}"))
    if causes.share("communication") >= _PERCENT:
        yield Candidate("overlap_communication", "", Scenario(perfect_overlap=True))
    yield from _host_work(window, causes)
    yield from _faster(window, length, facts.factor)


def _without(*targets: str) -> Scenario:
    return Scenario(tuple((target, 0.0) for target in targets))


class _Shown:
    """The causes of a window, with their shares of its length."""

    def __init__(self, window: Window, rows: Rows, length: int) -> None:
        self.window, self.rows, self.percent = window, rows, 100 * rows.duration / length

    def share(self, cause: str) -> float:
        """Return the cause's share of the window, percent."""
        return float(self.percent[self.rows.cause == CAUSES.index(cause)].sum())

    def names(self, cause: str) -> list[str]:
        """Return the cause's names that each take at least `fix_percent` of the window, largest first."""
        rows, causes = self.rows, self.window.causes
        assert causes is not None
        chosen = (rows.cause == CAUSES.index(cause)) & (rows.named_after == NAME) & (self.percent >= _PERCENT)
        return [causes.name(NAME, int(number)) for number in rows.number[np.flatnonzero(chosen)]]

    def largest(self, cause: str) -> str:
        """Return the cause's largest name, or an empty text if the cause or the name takes too little of the window."""
        names = self.names(cause)
        return names[0] if names and self.share(cause) >= _PERCENT else ""


def _waits(window: Window, length: int, is_own: Flags) -> Iterator[Candidate]:
    """Yield fixes that remove waits, each for the outermost operator around the waiting calls.

    A call outside operators is grouped under the innermost of the user's own functions (`is_own`, by family), or under
    itself if no stack was recorded. With several fixes, also yields a fix that removes all waits, because removing one
    wait may only lengthen another.
    """
    line, events = window.timeline, window.events
    calls = np.unique(line.dst[line.is_host_wait & ~_is_named_cause(window)])
    is_operator = events.of_families(lambda kernel_class, _: kernel_class == CPU) & ~line.is_call
    around = outermost(line, is_operator, calls)
    around = np.where(around == calls, innermost(line, is_own[events.family], calls), around)
    family = events.family[around]
    waited = np.bincount(family, (line.end - line.at)[calls], minlength=len(events.families))
    # A scenario's target selects events of all categories, so families with the same name form one fix.
    first: dict[str, int] = {}
    of_name = np.array([first.setdefault(name, i) for i, (_, name) in enumerate(events.families)], dtype=np.int64)
    waited = np.bincount(of_name, waited)
    chosen = np.flatnonzero(100 * waited >= _PERCENT * length)
    for i in chosen[np.argsort(-waited[chosen], kind="stable")][:_MOST].tolist():
        name = events.families[i][1]
        yield Candidate("do_not_wait", name, _without(f"wait:{glob_of(name)}"))
    if len(chosen) > 1:
        yield Candidate("do_not_wait", "*", _without("wait:*"))


def _is_named_cause(window: Window) -> Flags:
    """Return which edges (m,) are waits that disappear with a named cause, such as a cudaFree or a checkpoint."""
    assert window.causes is not None
    edges = window.causes.edges
    freed = np.zeros(len(edges.cause), dtype=bool)
    by_name = ~np.isin(edges.cause[edges.freed_with], [CAUSES.index(cause) for cause in ("copies", *_GENERIC)])
    freed[edges.freed[by_name]] = True
    return freed


def _copies(causes: _Shown) -> Iterator[Candidate]:
    """Yield a fix for copies to the GPU.

    Copies to the host and between devices are excluded. The host reads the former, so they must wait for the
    computation.
    """
    names = [
        name
        for name in causes.names("copies")
        if not re.search(r"(?i)Dto[HD]|D2[HMD]|PtoP|device.?to.?(host|device)", name)
    ]
    if names:
        targets = tuple(f"kernel:{glob_of(name)}" for name in names[:_MOST])
        yield Candidate("copy_ahead", names[0], Scenario(ahead=targets))


def _host_work(window: Window, causes: _Shown) -> Iterator[Candidate]:
    """Yield fixes that move functions and annotations off the path if they launch hardly any GPU work.

    The limit excludes whole steps, which cannot be moved. In a window without GPU work, operators count instead.
    """
    line, duration = window.timeline, window.events.dur
    is_operator = window.events.of_families(lambda kernel_class, _: kernel_class == CPU) & ~line.is_call
    computes = line.is_work if line.is_work.any() else is_operator
    for name in causes.names("host_between_operators")[:_MOST]:
        named = window.events.of_families(lambda _, text, name=name: text == name)
        stretches = line.of_events(named)
        computed = line.launched(stretches) | stretches.holds(line.thread, line.at, line.end)
        if 100 * int(duration[computes & computed].sum()) <= _HOST_PERCENT * int(duration[computes].sum()):
            yield Candidate("move_host_work", name, _without(by_name(glob_of(name))))


def _fused(window: Window, name: str) -> Iterator[Candidate]:
    """Yield a fix that fuses an optimizer's many launches per step into a few.

    The fused computation takes as long as the largest of the optimizer's kernels (total time by name), because a fused
    kernel reads and writes about as much. Collectives and copies stay, with their launches. Steps that launch hardly
    any computation have no fix, because their time does not depend on launches.
    """
    assert window.causes is not None
    edges, line, events = window.causes.edges, window.timeline, window.events
    target = f"optimizer:{glob_of(name)}"
    share, is_work = window.causes.selected(target).share, line.is_own & line.to_work & (line.owner >= 0)
    assert share is not None
    launched = np.flatnonzero((share > 0) & is_work)
    computing = counting_as("COMPUTATION")
    computes = events.of_families(lambda kernel_class, _: kernel_class in computing)[line.owner[launched]]
    n_now, n_fused = int(computes.sum()), _LAUNCHES * len(np.unique(edges.instance[launched]))
    if n_now <= n_fused:
        return
    n_stay = len(launched) - n_now
    factor = _factor((n_fused + n_stay) / len(launched))
    work = line.owner[launched]
    longest = np.bincount(events.family[work[computes]], events.dur[work[computes]]).max()
    stays = longest + events.dur[work[~computes]].sum()
    scale = [(f"cause:{target}", factor)]
    if total := int(events.dur[work].sum()):  # a writer may give kernels no length
        scale.append((f"gpu:{glob_of(name)}", _factor(float(stays) / total / factor)))  # factors multiply
    yield Candidate("fused_optimizer", name, Scenario(tuple(scale)))


def _factor(share: float) -> float:
    """Return `share` rounded to four digits, but at least 0.0001.

    A scenario with factor 0 would also remove the waits.
    """
    return max(round(share, 4), 0.0001)


def _faster(window: Window, length: int, factors: Floats) -> Iterator[Candidate]:
    """Yield a fix for matrix products on the device's faster units, and one for pageable copies at bus speed."""
    events = window.events
    time = np.bincount(events.family, events.dur, minlength=len(events.families))
    copies = np.array([kernel_class == "MEMORY" for kernel_class, _ in events.families], dtype=bool)
    large = ~np.isnan(factors) & (100 * time >= _PERCENT * length)
    for fix, chosen in (("lower_precision", large & ~copies), ("pin_memory", large & copies)):
        families = np.flatnonzero(chosen)
        families = families[np.argsort(-time[families], kind="stable")].tolist()
        if families:
            scale = tuple((f"kernel:{glob_of(events.families[i][1])}", float(factors[i])) for i in families)
            yield Candidate(fix, events.families[families[0]][1], Scenario(scale))
