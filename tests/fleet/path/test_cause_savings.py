"""The causes of a capture that are retimed, and their scenarios. test_capture_causes.py tests their savings."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from pipelines.critical_path.whatif.scenario import Scenario
from pipelines.critical_path.whatif.targets import NothingMatches
from pipelines.fleet.path import cause_savings as module
from pipelines.fleet.path.cause_savings import OnPath, cause_savings
from pipelines.fleet.path.segment_causes import CausesOfSegments, SegmentCause, _glob, _without_edge
from pipelines.fleet.path.walk import Segment


def retimed(*on_path: OnPath, n_edges: int = 1000, unknown: str = "") -> list[tuple[Any, ...]]:
    """Return the retimed causes of a path: cause, late rank, name and options.

    `unknown`: a target that matches nothing, so its scenario has no saving.
    """

    def saved_ns(scenario: Scenario) -> int:
        if unknown in scenario.targets:
            raise NothingMatches(unknown)
        return 7

    whole: Any = SimpleNamespace(graph=SimpleNamespace(src=range(n_edges)), saved_ns=saved_ns)
    savings = cause_savings(whole, on_path)
    assert all(saving.saves == 7 for saving in savings)
    return [(saving.cause, saving.rank, saving.name, saving.options) for saving in savings]


def on(cause: str, name: str, ns: int, rank: int | None = None, ns_without_edge: int = 0) -> OnPath:
    return OnPath(cause, name, _glob(name), rank, ns, ns_without_edge)


def test_a_cause_on_all_ranks_and_each_of_its_names() -> None:
    assert retimed(on("copies", "Memcpy HtoD", 60), on("gpu_waiting", "stream 7", 40)) == [
        ("copies", None, None, "--remove cause:copies"),
        ("gpu_waiting", None, None, "--remove cause:gpu_waiting"),
        ("copies", None, "Memcpy HtoD", "--remove 'cause:copies:Memcpy HtoD'"),
        # The name has no wildcard, so it does not select stream 70.
        ("gpu_waiting", None, "stream 7", "--remove 'cause:gpu_waiting:stream 7'"),
    ]


def test_time_outside_operators_is_that_of_all_threads() -> None:
    """A scenario removes time outside operators on all threads, because it would identify a thread by its number."""
    (_, name) = retimed(on("start", "outside operators", 1))
    assert name[2:] == ("outside operators", "--remove 'cause:start:outside operators*'")


def test_a_late_rank_is_retimed_without_what_it_does_the_latest_without_all_of_its_causes() -> None:
    late = [on("gpu_computing", "mm", 30, 1), on("host_operators", "mm", 20, 2), on("gpu_computing", "add", 15, 2)]
    small = on("copies", "add", 0, 2)
    assert retimed(*late, small, on("communication", "all", 35)) == [
        ("late_rank", None, None, "--remove rank:2:cause:gpu_computing --remove rank:2:cause:host_operators"),
        ("communication", None, None, "--remove cause:communication"),
        ("communication", None, "all", "--remove cause:communication:all"),
        ("late_rank", 1, "mm", "--remove rank:1:cause:gpu_computing:mm"),
        ("late_rank", 2, "mm", "--remove rank:2:cause:host_operators:mm"),
        ("late_rank", 2, "add", "--remove rank:2:cause:gpu_computing:add"),
    ]


@pytest.mark.parametrize(("ns", "n"), [(10, 4), (9, 2)])
def test_a_percent_of_the_path_or_more(ns: int, n: int) -> None:
    assert len(retimed(on("copies", "a", 1000 - ns), on("start", "b", ns))) == n


def test_the_six_largest_causes_and_names() -> None:
    many = [on(f"cause{n}", f"name{n}", 1000 - n) for n in range(8)]
    assert [(cause, name) for cause, _, name, _ in retimed(*many)] == [
        *((f"cause{n}", None) for n in range(6)),
        *((f"cause{n}", f"name{n}") for n in range(6)),
    ]


def test_what_a_scenario_does_not_select_has_no_saving() -> None:
    assert [name for _, _, name, _ in retimed(on("start", "", 9), unknown="cause:start:")] == [None]


@pytest.mark.parametrize(("n_edges", "n"), [(100, 4), (101, 3), (201, 1)])
def test_of_large_graphs_fewer_are_retimed(monkeypatch: pytest.MonkeyPatch, n_edges: int, n: int) -> None:
    monkeypatch.setattr(module, "_EDGES", 400)
    path = [on("copies", "a", 3), on("start", "b", 2)]
    assert len(retimed(*path, n_edges=n_edges)) == n


HEAD = "before the first event of rank 7"


@pytest.mark.parametrize(("ns", "commands"), [(9, ["--remove cause:start"]), (10, [])])
def test_a_cause_is_not_retimed_if_a_percent_of_the_path_has_no_edge_to_remove(ns: int, commands: list[str]) -> None:
    path = [on("start", HEAD, ns, ns_without_edge=ns), on("start", "mm", 300), on("copies", "a", 700 - ns)]
    assert [options for cause, _, name, options in retimed(*path) if cause == "start" and name is None] == commands
    assert ("start", None, "mm", "--remove cause:start:mm") in retimed(*path)
    assert HEAD not in {name for _, _, name, _ in retimed(*path)}


def test_time_before_the_first_event_and_of_clocks_that_drift_has_no_edge() -> None:
    path = [
        Segment(7, "head", 0, 40, 1, None),
        Segment(7, "clock", 40, 50, 1, None),
        Segment(7, "gap", 50, 80, 1, None, edge=3),
    ]
    causes = [*map(_without_edge, path[:2]), SegmentCause("start", label="outside operators", late_ns=10)]
    names: Any = SimpleNamespace(_name=lambda cause: cause.label)
    assert CausesOfSegments._on_path(names, path, [replace(causes[0], late_ns=15), *causes[1:]]) == [
        on("start", HEAD, 25, ns_without_edge=25),
        on("start", HEAD, 15, 7, 15),
        on("unknown", "clocks that drift", 10, ns_without_edge=10),
        on("start", "outside operators", 20),
        on("start", "outside operators", 10, 7),
    ]


@pytest.mark.parametrize(("rank", "n"), [(1, 1), (2, 0)])
def test_only_the_latest_rank_is_asked_for_time_without_an_edge(rank: int, n: int) -> None:
    path = [on("start", HEAD, 30, rank, 30), on("copies", "a", 40, 2), on("copies", "b", 30)]
    assert [options for cause, _, name, options in retimed(*path) if cause == "late_rank" and name is None] == (
        ["--remove rank:2:cause:copies"] * n
    )
