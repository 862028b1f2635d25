"""Bounds of every prediction on every shared trace, without knowledge of the real outcome.

The large traces are checked in tests/critical_path/causes/test_causes.py.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pipelines.critical_path.whatif.before_after import Comparison, Weights, what_if
from pipelines.critical_path.whatif.scenario import Scenario
from pipelines.critical_path.whatif.targets import NothingMatches
from pipelines.critical_path.whatif.window import Window
from tests.critical_path.causes.commands import Asked, asked_all, scenario_of
from tests.critical_path.test_invariants import _shared_traces
from tests.effort import LARGE

TARGETS = ("cpu", "host", "host_gap", "computation", "communication", "memory", "launch_overhead", "kernel_gaps", "*")
FASTER = [Scenario(((target, factor),)) for target in TARGETS for factor in (0.0, 0.5)]


def answers(window: Window, scenarios: list[Scenario]) -> list[Comparison]:
    """Return the answers to the scenarios that name something in the window."""
    comparisons = []
    for scenario in scenarios:
        try:
            comparisons += what_if(window, [scenario])
        except NothingMatches:
            continue
    return comparisons


def busiest(window: Window, weight: np.ndarray) -> int:
    """Return the longest busy time of a stream, or of a thread in its operators and calls, in ns."""
    own = window.own_time_of
    gaps = window.gap_owner < len(window.events.event_id)
    thread = np.append(window.events.thread, -1)[own]
    on_cpu = (thread >= 0) & ~gaps & (np.append(window.events.thread, -1)[window.src_event] == thread)
    of_threads = np.bincount(thread[on_cpu], weight[on_cpu]) if on_cpu.any() else np.zeros(1)
    stream = np.append(window.events.stream, -1)[own]
    node = window.graph.node_ids
    whole = (stream >= 0) & (node[window.graph.src] % 2 == 0) & (node[window.graph.dst] == node[window.graph.src] + 1)
    # For overlapping work on a stream, count the time until the next work began. The work's own edge counts only if no
    # such work follows.
    starts = window.graph.src[(stream >= 0) & (node[window.graph.dst] % 2 == 0) & (node[window.graph.src] % 2 == 0)]
    whole &= ~np.isin(window.graph.src, starts)
    of_streams = np.bincount(stream[whole], weight[whole]) if whole.any() else np.zeros(1)
    return int(max(of_threads.max(initial=0), of_streams.max(initial=0)))


def check_faster(answer: Comparison) -> None:
    """Check the bounds of a scenario in which nothing takes longer."""
    window = answer.before.window
    weight = Weights.of(window, answer.scenario).path
    assert 1000 * answer.after.length_us >= busiest(window, weight) - 1
    assert answer.after.length_us <= answer.before.length_us


def check_fixes(subject: Asked) -> int:
    """Check the bounds for each fix of the whole trace. Return their number."""
    rows = subject.con.execute(
        "SELECT options, without_profiler FROM fixes WHERE trace_id = ? AND window_id = 'full'", [subject.trace_id]
    ).fetchall()
    for options, without_profiler in rows:
        window = subject.without_profiler if without_profiler else subject.window
        (answer,) = answers(window, [scenario_of(options)])
        check_faster(answer)
    return len(rows)


def check(window: Window) -> None:
    (same,) = what_if(window, [Scenario()])
    assert same.as_json()["before"] == same.as_json()["after"]
    length = same.before.length_us
    lengths = {}
    for answer in answers(window, FASTER):
        check_faster(answer)
        lengths[answer.scenario.scale[0]] = answer.after.length_us
    for first, second in (("cpu", "computation"), ("host_gap", "kernel_gaps"), ("host", "launch_overhead")):
        halves = Scenario(((first, 0.5), (second, 0.5)))
        both = Scenario(((first, 0.0), (second, 0.0)))
        lengths_of_both = [answer.after.length_us for answer in answers(window, [halves, both])]
        assert lengths_of_both == sorted(lengths_of_both, reverse=True)
        if lengths_of_both:
            assert lengths_of_both[-1] <= min(lengths[first, 0.0], lengths[second, 0.0])
    (slower,) = answers(window, [Scenario((("*", 2.0),))]) or [same]
    assert length <= slower.after.length_us <= 2 * length


@pytest.mark.slow  # test_truth.py compares predictions with programs that run again
def test_small_shared_traces(shared: Path) -> None:
    paths = [path for path in _shared_traces() if path.stat().st_size <= LARGE and "begin_end" not in path.name]
    n_fixes = 0
    for subject in asked_all(paths):
        check(subject.window)
        n_fixes += check_fixes(subject)
    assert n_fixes, "no trace has a fix"
