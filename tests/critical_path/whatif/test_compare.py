"""Scenarios on captures whose answer can be added up by hand, and on random captures compared with plain networkx."""

from __future__ import annotations

import json
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache, partial
from pathlib import Path

import duckdb
import networkx as nx
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pipelines.critical_path.answer.answer import critical_path
from pipelines.critical_path.answer.path_answer import PathAnswer
from pipelines.critical_path.graph.windows import WindowRequest
from pipelines.critical_path.whatif.before_after import Comparison, what_if
from pipelines.critical_path.whatif.scenario import Scenario, ScenarioError
from pipelines.critical_path.whatif.sensitivity import rank_families
from pipelines.critical_path.whatif.targets import NothingMatches
from pipelines.critical_path.whatif.window import NoGraph, NoTrace, Window, _named_stretches
from pipelines.models.catalog import load_catalog
from tests.conftest import SHARED
from tests.critical_path.test_covers import frame
from tests.effort import SLOW, examples, first_of
from tests.harness import connect, kernel, op, x
from tests.synthetic.random_capture import random_capture
from tests.synthetic.textbook import textbook

from .windows import MADE, made, opened, scaled, window_in, window_of

GEMM = "ampere_sgemm_*"
AROUND = 1 + 2 + 1  # us: before the first call, the return of the sync, and after it


WAITS = SHARED / "traces" / "single" / "mi250_minitoy.json.gz"
MADE |= {
    **{
        name: json.loads(textbook(name).text)
        for name in ("chain", "two_streams", "cpu_bound", "memory_bound", "comm_bound")
    },
    "short communication": [
        event | {"dur": 60} if event.get("cat") == "kernel" and event["name"].startswith("nccl") else event
        for event in textbook("comm_bound").events()
    ],
    "brackets": [op("aten::a[0]", 0, 10), op("aten::a0", 20, 10), kernel("k", 5, 10, 1)],
    "no edges": [x("user_annotation", "a", 0, 5)],
    **({"waits": WAITS} if WAITS.is_file() else {}),
}


@cache
def textbook_window(name: str) -> Window:
    return replace(window_of(name), named_stretches=None)


def answer(name: str, scenario: Scenario) -> Comparison:
    return next(what_if(textbook_window(name), [scenario]))


@pytest.mark.parametrize(
    ("name", "scenario", "length_us"),
    [
        # 1 before the first call, the first launch (6), five kernels of 50, four gaps of 1, the return (2), and 1 after
        # the sync.
        ("chain", Scenario(), AROUND + 6 + 5 * 50 + 4),
        ("chain", scaled(computation=0.5), AROUND + 6 + 5 * 25 + 4),
        ("chain", Scenario(((GEMM, 0.5),)), AROUND + 6 + 5 * 25 + 4),
        ("chain", Scenario((("stream:7", 2.0),)), AROUND + 6 + 5 * 100 + 4),
        ("chain", scaled(launch_overhead=0), AROUND + 250 + 4),
        (
            "chain",
            Scenario((("edge:critical_path_kernel_kernel_delay", 0.5), ("kernel_gaps", 0.5))),
            AROUND + 6 + 250 + 1,
        ),
        ("chain", Scenario((("rank:0", 0.5),)), 132),
        ("chain", scaled(host_gap=0.5), AROUND - 1 + 6 + 250 + 4),
        ("chain", Scenario((("class:host", 0.5),)), AROUND - 1 + 6 + 250 + 4),
        ("chain", Scenario((("self:ProfilerStep#?", 0.0),)), AROUND - 2 + 6 + 250 + 4),
        # Without kernels: 1 before, five calls of 5 with a gap each, the sync's 3 without a wait, and 1 after.
        ("chain", scaled(computation=0), 2 + 5 * 6 + 3),
        # Either a call, a gap, a launch, 300 on stream 20, a gap and 50, or a launch, 100, a gap and 50 on stream 7.
        ("two_streams", scaled(computation=0.5), AROUND + 5 + 1 + 6 + 150 + 1 + 25),
        ("two_streams", Scenario((("stream:20", 0.0),)), AROUND + 6 + 100 + 1 + 50),
        # 1 before the first operator, 21 after each.
        ("cpu_bound", scaled(cpu=0.5), 127 + 240),
        ("cpu_bound", scaled(host=0.5), 63.5 + 240),
        ("cpu_bound", scaled(computation=3), 127 + 480),
        ("memory_bound", Scenario((("Memcpy HtoD (Pinned -> Device)", 0.1),)), AROUND + 6 + 20 + 1 + 25),
        ("comm_bound", scaled(communication=0.5), AROUND + 6 + 70 + 200 + 2),
        # 70 us of computation hide 70 us of the 400.
        ("comm_bound", Scenario(perfect_overlap=True), AROUND + 6 + 70 + 330 + 2),
    ],
)
def test_known_answers(name: str, scenario: Scenario, length_us: float) -> None:
    assert answer(name, scenario).after.length_us == length_us


@pytest.mark.parametrize(
    ("change", "left_us"),
    [
        (scaled(computation=10), 0),
        (scaled(computation=0.1), 400 - 7),
        (scaled(computation=0), 400),
        (scaled(communication=2), 800 - 70),
        (scaled(communication=0.1), 0),
        (Scenario(ahead=("computation",)), 400),
    ],
)
def test_communication_hides_behind_computation_as_it_is_after_the_other_changes(
    change: Scenario, left_us: float
) -> None:
    scaled_alone = Scenario((*change.scale, ("communication", left_us / 400)), ahead=change.ahead)
    if "communication" in change.targets:
        scaled_alone = scaled(communication=left_us / 400)
    hidden = answer("comm_bound", change.with_more(Scenario(perfect_overlap=True)))
    assert hidden.after.length_us == answer("comm_bound", scaled_alone).after.length_us


def test_communication_hides_behind_more_computation() -> None:
    hidden = answer("short communication", Scenario(perfect_overlap=True))
    assert hidden.after.summary["gpu_communication_bound"] == 0


def test_what_entered_and_left() -> None:
    comparison = answer("two_streams", Scenario((("stream:20", 0.0),)))
    assert [(e["name"][:6], e["time_us"]) for e in comparison.entered] == [("ampere", 100.0)]
    kernels = [e["time_us"] for e in comparison.left if e["name"].startswith("ampere")]
    assert kernels == [300.0]
    assert comparison.before.summary["cpu_bound"] == pytest.approx(100 * 7 / 367)
    assert list(comparison.after.summary)[:2] == ["gpu_compute_bound", "gpu_kernel_launch_overhead"]


def test_nothing_changes_nothing() -> None:
    comparison = answer("chain", scaled(computation=1.0))
    assert comparison.as_json()["before"] == comparison.as_json()["after"]
    assert comparison.entered == comparison.left == []


@pytest.mark.parametrize("target", ["nope*", "class:NOPE", "stream:8", "rank:3", "edge:SYNC", "communication"])
def test_what_matches_nothing_names_what_there_is(target: str) -> None:
    with pytest.raises(NothingMatches, match=r"class:COMPUTATION\|CPU; stream:7; rank:0; edge:OPERATOR_KERNEL.*ampere"):
        answer("chain", Scenario(((target, 0.5),)))


def test_names_are_looked_up_while_the_trace_is_open() -> None:
    con, trace_ids = made()
    with con.cursor() as own:
        stretches = partial(_named_stretches, own, load_catalog(), trace_ids["chain"])
        window = replace(window_in(own, trace_ids["chain"]), named_stretches=stretches)
        next(what_if(window, [Scenario((("cudaLaunchKernel", 0.0),))]))
    with pytest.raises(NoTrace, match="connection is closed"):
        next(what_if(window, [Scenario((("cudaLaunchKernel", 0.0),))]))


def test_factors_that_leave_64_bits_are_refused() -> None:
    with pytest.raises(ScenarioError, match="64 bits"):
        answer("chain", scaled(computation=1e18))


def test_brackets_in_names_are_ordinary() -> None:
    without = next(what_if(window_of("brackets"), [Scenario((("aten::a[0]", 0.0),))]))
    assert without.after.length_us == 10 + 10  # the operator and the gap


def test_a_window_without_edges_is_an_error() -> None:
    with pytest.raises(NoGraph, match="no edges"):
        window_of("no edges")


@cache
def captured(seed: int, profile: str = "default") -> tuple[duckdb.DuckDBPyConnection, PathAnswer, Window | None]:
    """Return a random capture, its path, and its window, or None for the window if the path does not exist.

    A capture without a path contradicts itself.
    """
    events = random_capture(seed)["traceEvents"]
    con, trace_id = connect(events)
    path = critical_path(con, load_catalog(), WindowRequest(trace_id, profile=profile), with_edges=True)
    if not path.success:
        return con, path, None
    with opened(events, profile) as (_, window):
        return con, path, replace(window, named_stretches=None)


@pytest.mark.slow  # 2 s; tests above check answers computed by hand
@pytest.mark.parametrize("profile", first_of(["default", "hta"], 1))
def test_before_is_the_critical_path(profile: str) -> None:
    """The unchanged window has the length and summary of the critical-path command and of the tables."""
    for seed in range(3):
        _, expected, window = captured(seed, profile)
        if window is None:
            continue
        before = next(what_if(window, [Scenario()])).before
        assert before.length_us == expected.length_us
        assert list(before.summary) == list(expected.summary)
        assert before.summary == pytest.approx(expected.summary)
        ids = {step["event_id"] for step in expected.path}
        assert ids <= set(window.events.event_id[before.touched].tolist())


FACTORS = [0.1, 0.5, 2.0]
# Deleting GPU work also removes the delays before it and the waits for it; other tests check this.
CHANGES = st.one_of(
    st.tuples(
        st.sampled_from(["self:aten::*", "launch_overhead", "kernel_gaps", "cpu"]), st.sampled_from([0.0, *FACTORS])
    ),
    st.tuples(st.sampled_from(["ampere*", "computation", "communication"]), st.sampled_from(FACTORS)),
)


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 5 if SLOW else 2), st.lists(CHANGES, min_size=1, max_size=3))
@pytest.mark.slow  # test_before_is_the_critical_path compares with the path that test_longest.py compares with networkx
def test_plain_networkx_finds_the_same_length(seed: int, scale: list[tuple[str, float]]) -> None:
    con, _, window = captured(seed)
    assume(window is not None)
    expected = recomputed(con, scale)
    try:
        comparison = next(what_if(window, [Scenario(tuple(scale))]))
    except NothingMatches:
        return
    assert comparison.after.length_us == expected / 1000


def recomputed(con: duckdb.DuckDBPyConnection, scale: list[tuple[str, float]]) -> int:
    """Return the longest path by networkx over the table of edges, re-weighted edge by edge."""
    graph = nx.DiGraph()
    rows = con.execute(
        "SELECT e.src_node_id, e.dst_node_id, e.path_weight_ns, e.edge_type, v.name, v.cat FROM critical_path_edges AS e "
        "LEFT JOIN events AS v ON v.event_id = e.attributed_event_id AND e.edge_type = 'OPERATOR_KERNEL' "
        "ORDER BY e.edge_id"
    ).fetchall()
    for src, dst, weight, kind, name, cat in rows:
        factor = 1.0
        gpu = cat in ("kernel", "gpu_memcpy", "gpu_memset")
        is_kernel = cat == "kernel"
        nccl = is_kernel and name.startswith("nccl")
        held = {
            "launch_overhead": kind == "KERNEL_LAUNCH_DELAY",
            "kernel_gaps": kind == "KERNEL_KERNEL_DELAY",
            "computation": is_kernel and not nccl,
            "communication": nccl,
            "cpu": name is not None and not gpu,
        }
        for target, by in scale:
            if held.get(target, name is not None and fnmatchcase(name, target.removeprefix("self:"))):
                factor *= by
        graph.add_edge(src, dst, weight=round(weight * factor))
    return nx.dag_longest_path_length(graph)


@pytest.mark.slow
def test_sensitivity_is_what_scenarios_say() -> None:
    with opened(textbook("comm_bound").events()) as (_, window):
        ranked = rank_families(window)
        assert [f.kernel_class for f in ranked] == ["COMMUNICATION", "COMPUTATION"]
        for family in ranked:
            for cut, change in family.change_us.items():
                scenario = Scenario(((f"class:{family.kernel_class}", 1 - cut / 100),))
                comparison = next(what_if(window, [scenario]))
                assert comparison.after.length_us - comparison.before.length_us == pytest.approx(change)
        assert (ranked[0].on_path_us, ranked[0].events) == (400, 1)
    with opened(textbook("two_streams").events()) as (_, window):
        (gemm,) = rank_families(window)
        # Without kernels, this remains: 5 for each of two launches, 2 to record, 3 to wait, 5 gaps, 3 for the sync, 2.
        assert gemm.change_us == {10: -35.0, 50: -175.0, 100: 30.0 - 367}
        everything = rank_families(window, with_cpu=True)
        assert {f.kernel_class for f in everything} == {"CPU", "COMPUTATION", "GAP", "HOST"}
        assert sum(f.on_path_us for f in everything) == 367
        assert {f.name: f.change_us[100] for f in everything if f.kernel_class == "HOST"} == {"ProfilerStep#0": -3.0}


@pytest.mark.slow  # 3 s
@pytest.mark.parametrize(("removed", "length"), [("train.py(1): fit", 30.0), ("train.py(5): load", 90.0)])
def test_host_time_goes_with_all_that_is_inside_what_is_named(removed: str, length: float) -> None:
    outer, inner = frame("train.py(1): fit", 10, 100), frame("train.py(5): load", 40, 40)
    with opened([op("a", 0, 10), outer, inner, op("b", 110, 20)]) as (_, window):
        comparison = next(what_if(window, [Scenario(((removed, 0.0),))]))
    assert (comparison.before.length_us, comparison.after.length_us) == (130.0, length)


@pytest.mark.skipif(not WAITS.is_file(), reason=f"reference material is not there: {WAITS}")
def test_a_call_that_only_waits_is_no_saving() -> None:
    families = rank_families(window_of("waits"), with_cpu=True)
    (wait,) = (family for family in families if family.only_waits)
    assert wait.name == "hipDeviceSynchronize" and wait.on_path_us > 0
    assert set(wait.change_us.values()) == {0.0}
    assert families.index(wait) > max(at for at, family in enumerate(families) if family.change_us[100] < 0)


@pytest.mark.slow
def test_a_hundred_scenarios_sort_a_real_graph_once(shared: Path) -> None:
    with opened(shared / "traces" / "critical_path" / "alexnet.json.gz") as (_, window):
        chains = window.graph.chains
        answers = list(what_if(window, [Scenario((("cpu", i / 100),)) for i in range(100)]))
        lengths = [comparison.after.length_us for comparison in answers]
        assert window.graph.chains is chains and "_onward" in vars(chains)  # the sorted order is kept
        assert lengths == sorted(lengths) and lengths[-1] < answers[0].before.length_us == 43_425_365.0


def test_a_type_is_named_as_hta_writes_it() -> None:
    """HTA's name of an edge type is accepted, even if it differs from the type's name."""
    texts = ("edge:OPERATOR_KERNEL", "edge:critical_path_operator", "edge:operator")
    lengths = {answer("chain", Scenario(((text, 0.5),))).after.length_us for text in texts}
    assert len(lengths) == 1
