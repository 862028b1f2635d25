"""Replayed work counts for the operators, modules and layers of the capture, wherever GPU time is attributed.

The programs are built here, so it is known which call recorded which kernel. Sums are compared with the kernels.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.modelling.graph_captures import use_capture, use_names
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from pipelines.synthetic import CaptureSpec, write_capture
from tests.effort import LISTS, at_once
from tests.harness import call, connect, connect_all, each, only, x
from tests.modelling.graph_traces import replay, work

TABLES = ("op_kernels", "op_work", "op_work_coverage", "kernel_owners", "kernels", "graph_kernels", "span_names")
Call = tuple[str, list[list[int]], int]  # (operator, shapes of its arguments, number of kernels that it launches)
MM: Call = ("aten::mm", [[2, 3], [3, 4]], 1)
ADD: Call = ("aten::add", [[8], [8]], 1)
TWICE: Call = ("aten::sum", [[8]], 2)
KERNELS = {"aten::mm": "gemm", "aten::add": "add", "aten::sum": "reduce", "aten::mul": "mul"}


def calls(program: Sequence[Call | None], at: float, correlation: int, *, is_captured: bool) -> list[dict[str, Any]]:
    """Return operators with types, one after another, and their launches.

    `is_captured`: the calls launch nothing. An entry None in `program` is a call outside operators.
    """
    events = [call("cudaStreamBeginCapture", at, 1, correlation)] if is_captured else []
    for op in program:
        name, dims, n = op or ("", [], 1)
        at += 10
        if op:
            types = ["float"] * len(dims)
            events.append(
                x(
                    "cpu_op",
                    name,
                    at,
                    8,
                    **{"Input Dims": dims, "Input type": types, "Concrete Inputs": [""] * len(dims)},
                )
            )
        for place in range(n):
            correlation += 1
            events.append(call("cudaLaunchKernel", at + 1 + 2 * place, 1, correlation))
            if not is_captured:
                events.append(work(KERNELS.get(name, "other"), at + 5, correlation))
    return [*events, call("cudaStreamEndCapture", at + 10, 1, correlation + 1)] if is_captured else events


def kernels_of(program: Sequence[Call | None]) -> list[str]:
    return [KERNELS[op[0]] if op else "other" for op in program for _ in range(op[2] if op else 1)]


def work_rows(con: duckdb.DuckDBPyConnection) -> list[tuple]:
    rows = con.execute(
        "SELECT event_id, op, dims, n_kernels, gpu_ns, flops_matrix, not_modelled, source, confidence FROM op_work ORDER BY 1"
    ).fetchall()
    return [(*row[:2], json.loads(row[2]) if row[2] else None, *row[3:]) for row in rows]


# By hand --------------------------------------------------------------------------------------------------------------

PROGRAM = [MM, TWICE, ADD]
DISAGREEING = [MM, (*TWICE[:2], 1), (*TWICE[:2], 1), ADD]
MODULES = [
    x("python_function", "nn.Module: Net_0", 5, 38, **{"Python id": 1}),
    x("python_function", "nn.Module: Linear_3", 9, 10, **{"Python id": 2, "Python parent id": 1}),
    x("user_annotation", "load", 20.5, 7),
]
ONCE, AGAIN = replay(kernels_of(PROGRAM), 500, 1), replay(kernels_of(PROGRAM), 700, 2)
CAPTURE = calls(PROGRAM, 0, 100, is_captured=True)
BY_HAND = {
    "two replays": [*CAPTURE, *ONCE, *AGAIN],
    "no capture": [
        *calls([MM], 0, 100, is_captured=False),
        x("cpu_op", "aten::launcher", 499, 20),
        *replay(["gemm", "add", "gemm", "add"], 500, 1),
    ],
    "captures that disagree": [*CAPTURE, *calls(DISAGREEING, 200, 300, is_captured=True), *ONCE],
    "in modules": [*MODULES, *CAPTURE, *ONCE, *AGAIN],
    "one of two captures in modules": [*MODULES, *CAPTURE, *calls(PROGRAM, 200, 300, is_captured=True), *ONCE],
    "launched in modules": [*MODULES, *calls(PROGRAM, 0, 100, is_captured=False)],
    "launched, then replayed": [
        *calls([*PROGRAM, MM], 0, 100, is_captured=False),
        *replay(kernels_of([*PROGRAM, MM]), 500, 1),
    ],
    "captured in another trace": ONCE,
    "a capture in modules": [*MODULES, *CAPTURE],
    "with names": replay(["gemm", "add", "gemm"], 500, 1, nodes=[0, 1, 2]),
    "with names, of Cuspy": replay(["gemm", "add", "gemm"], 500, 1, nodes=[0, 1, 2]),
}
for _event in BY_HAND["with names, of Cuspy"][1:]:
    _event["args"]["graph node id"] %= 1 << 32
OTHER_ARGUMENTS = {"Input Dims": [[2, 9], [9, 4]], "Input type": ["half"] * 2, "Concrete Inputs": ["", "1"]}
for _key, _values in OTHER_ARGUMENTS.items():
    _again = calls(PROGRAM, 200, 300, is_captured=True)
    for _event in _again:
        if _event["name"] == "aten::mm":
            _event["args"][_key] = _values
    BY_HAND[f"other {_key}"] = [*CAPTURE, *_again, *ONCE]
ByHand = Callable[[str], duckdb.DuckDBPyConnection]


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory: pytest.TempPathFactory) -> ByHand:
    """Return a function that shows TABLES of one of these traces or synthetic captures.

    The models run once over all of them.
    """
    captures = [synthetic(origin, tmp_path_factory.mktemp(origin)) for origin in ORIGINS]
    con, trace_ids = connect_all([*BY_HAND.values(), *captures])
    ids = dict(zip([*BY_HAND, *ORIGINS], trace_ids, strict=True))
    use_capture(con, ids["captured in another trace"], ids["a capture in modules"])
    for name in ("with names", "with names, of Cuspy"):
        names = {(5 << 32) + 0: "layers.0", (5 << 32) + 2: "layers.1", (6 << 32) + 1: "elsewhere"}
        use_names(con, ids[name], names)
    tables = (*TABLES, "span_name_utilization")
    run_models(con, load_catalog(), tables)

    def of(name: str) -> duckdb.DuckDBPyConnection:
        only(con, ids[name], tables)
        return con

    return of


def test_every_replay_runs_the_operators_of_the_capture_again(by_hand: ByHand) -> None:
    """Each of two replays has its own rows for the operators mm, sum (2 kernels) and add of the capture.

    The first kernel of each operator identifies it, and flops count each time.
    """
    first = [i for i, event in enumerate(BY_HAND["two replays"]) if event["name"] == "gemm"]
    con = by_hand("two replays")
    known = ("capture", 0.7)
    assert work_rows(con) == [
        row
        for at in first
        for row in (
            (at, "aten::mm", [[2, 3], [3, 4]], 1, 3000, 2 * 2 * 3 * 4, None, *known),
            (at + 1, "aten::sum", [[8]], 2, 6000, 0, None, *known),
            (at + 3, "aten::add", [[8], [8]], 1, 3000, 0, None, *known),
        )
    ]
    totals = con.execute(
        "SELECT gpu_ns, with_op_ns, graph_ns, graph_known_ns, flops_matrix, coverage FROM op_work_coverage"
    )
    assert totals.fetchall() == [(24_000, 24_000, 0, 24_000, 96, 1.0)]


def test_a_replay_without_capture_stays_the_graph_s(by_hand: ByHand) -> None:
    """A replay without a capture has no operators.

    An operator that launches a graph is not the operator of its kernels.
    """
    con = by_hand("no capture")
    assert [(row[1], row[6], row[7]) for row in work_rows(con)] == [
        ("aten::mm", None, "launch"),
        ("aten::launcher", "graph", None),
    ]
    owners = con.execute("SELECT op, source, confidence, is_replay FROM kernel_owners ORDER BY event_id").fetchall()
    assert owners == [("aten::mm", "launch", 1.0, False), *[(None, None, None, True)] * 4]
    assert con.execute("SELECT graph_ns, graph_known_ns FROM op_work_coverage").fetchall() == [(12_000, 0)]


def test_captures_that_disagree_which_kernels_are_one_operator_s_give_none(by_hand: ByHand) -> None:
    """An operator has no row of work if captures disagree on the number of its calls.

    The kernels are one sum of two kernels, or two sums of one.
    """
    con = by_hand("captures that disagree")
    assert [(row[1], row[3]) for row in work_rows(con)] == [("aten::mm", 1), ("aten::add", 1)]
    assert [op for (op,) in con.execute("SELECT op FROM kernel_owners ORDER BY event_id").fetchall()] == [
        "aten::mm", "aten::sum", "aten::sum", "aten::add",
    ]  # fmt: skip
    assert con.execute("SELECT graph_ns, graph_known_ns FROM op_work_coverage").fetchall() == [(6000, 6000)]


def test_captures_with_other_arguments_give_no_flops(by_hand: ByHand) -> None:
    """If captures differ in shapes, types or literals of an operator, only this operator loses its flops."""
    for key in OTHER_ARGUMENTS:
        rows = {row[1]: row for row in work_rows(by_hand(f"other {key}"))}
        assert rows["aten::mm"][2:7] == (None, 1, 3000, None, "no_shapes"), key
        assert rows["aten::add"][2] == ADD[1], key


NESTED = [  # for MM, TWICE, ADD at 10, 20, 30
    ("annotation", "load", "replay", 2, 6000),
    ("module", "Linear_3", "replay", 1, 3000),
    ("module", "Net_0", "replay", 4, 12_000),
]
_NAMES = "SELECT kind, name, phase, n, sum_ns FROM span_names WHERE phase = 'replay' ORDER BY ALL"


def test_modules_and_annotations_around_the_capture_own_the_replays(by_hand: ByHand) -> None:
    """Modules and annotations around a capture own its replays.

    Two replays double the numbers. A kernel counts once per name, however often the graph was captured.
    """
    con = by_hand("in modules")
    assert con.execute(_NAMES).fetchall() == [(*row[:3], 2 * row[3], 2 * row[4]) for row in NESTED]
    owners = con.execute("SELECT module, count(*) FROM kernel_owners GROUP BY 1 ORDER BY 1").fetchall()
    assert owners == [("Linear_3", 2), ("Net_0", 6)]
    assert con.execute("SELECT DISTINCT n_spans, host_ns FROM span_names WHERE name = 'Net_0'").fetchall() == [
        (1, 38_000)
    ]


def test_names_around_only_one_of_two_captures_are_left_out(by_hand: ByHand) -> None:
    """Names around only one of two captures do not own the replays.

    The second capture ran outside the modules, with the same operators.
    """
    con = by_hand("one of two captures in modules")
    assert con.execute(_NAMES).fetchall() == []
    assert con.execute("SELECT DISTINCT module, op IS NULL FROM kernel_owners").fetchall() == [(None, False)]


def test_names_of_another_trace_have_no_spans_here(by_hand: ByHand) -> None:
    con = by_hand("captured in another trace")
    assert con.execute(_NAMES).fetchall() == NESTED
    assert con.execute("SELECT DISTINCT n_spans, host_ns FROM span_names").fetchall() == [(0, None)]
    net = (
        "SELECT phase, n_spans, wall_ns, n_ops, flops_matrix, coverage FROM span_name_utilization WHERE name = 'Net_0'"
    )
    assert con.execute(net).fetchall() == [("replay", None, None, 3, 48, 1.0)]


@pytest.mark.parametrize("trace", ["with names", "with names, of Cuspy"])
def test_names_that_the_program_gave_are_annotations(by_hand: ByHand, trace: str) -> None:
    """Names that the program gave to graph nodes are annotations.

    Cuspy writes only the lower half of a node's id, Kineto the whole id.
    """
    con = by_hand(trace)
    owners = con.execute("SELECT module, source, confidence FROM kernel_owners ORDER BY event_id").fetchall()
    assert owners == [("layers.0", "annotation", 1.0), (None, None, None), ("layers.1", "annotation", 1.0)]
    assert con.execute(_NAMES).fetchall() == [("annotation", f"layers.{n}", "replay", 1, 3000) for n in (0, 1)]


def test_the_innermost_module_of_launched_work(by_hand: ByHand) -> None:
    """Neither the annotation inside the module nor the module around both is the innermost module."""
    con = by_hand("launched in modules")
    owners = con.execute("SELECT op, module, source FROM kernel_owners ORDER BY event_id").fetchall()
    assert [row[:2] for row in owners] == [
        ("aten::mm", "Linear_3"), ("aten::sum", "Net_0"), ("aten::sum", "Net_0"), ("aten::add", "Net_0"),
    ]  # fmt: skip
    assert {row[2] for row in owners} == {"launch"}


# Any program ----------------------------------------------------------------------------------------------------------

CALLS = st.sampled_from([MM, ADD, TWICE, ("aten::mul", [[4], [4]], 3), None])


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[Call | None], list[int]]:
    """Draw a capture or a warm-up, perhaps launched work of the same kinds, and replays.

    Returns the trace, the program, and the first events of the replays.
    """
    program = draw(st.lists(CALLS, min_size=1, max_size=7))
    trace = calls(program, 0, 100, is_captured=True)
    begins = []
    for n in range(draw(st.integers(1, 3))):
        at = 1000 * (n + 1)
        if draw(st.booleans()):
            trace += calls([draw(CALLS)], at, 5000 + 100 * n, is_captured=False)
        begins.append(len(trace) + 1)
        trace += replay(kernels_of(program), at + 500, n + 1)
    return trace, program, begins


@pytest.mark.slow
@settings(max_examples=LISTS)
@given(at_once(programs(), 30))
def test_every_run_of_every_operator_is_counted_once(many: list[tuple]) -> None:
    for (trace, program, begins), con in zip(many, each([case[0] for case in many], *TABLES), strict=True):
        expected = []
        for at in begins:
            for op in program:
                n = op[2] if op else 1
                if op:
                    flops = 2 * 2 * 3 * 4 if op[0] == "aten::mm" else None
                    expected.append((at, op[0], op[1], n, 3000 * n, flops))
                at += n
        rows = [row for row in work_rows(con) if row[7] == "capture"]
        assert [(*row[:5], row[5] or None) for row in rows] == expected, program
        whole = sum(event["dur"] * 1000 for event in trace if event["cat"] == "kernel")
        check_sums(con, whole)


def check_sums(con: duckdb.DuckDBPyConnection, whole: int) -> None:
    """Assert that every kernel counts once, and that the parts of the GPU time add up in every division."""
    ((gpu_ns, *parts),) = con.execute(
        "SELECT gpu_ns, modelled_ns, op_not_modelled_ns, no_shapes_ns, bad_args_ns, graph_ns, no_launch_ns, "
        "launch_without_op_ns FROM op_work_coverage"
    ).fetchall()
    assert gpu_ns == whole == sum(parts)
    sums = "SELECT count(*), count(DISTINCT event_id), sum({}) FROM {}"
    ((n, n_ids, in_owners),) = con.execute(sums.format("duration_ns", "kernel_owners")).fetchall()
    assert (n, n_ids, in_owners) == con.execute(sums.format("duration_ns", "kernels")).fetchall()[0] and n == n_ids
    ((of_ops, in_kernels),) = con.execute(
        "SELECT (SELECT coalesce(sum(gpu_ns), 0) FROM op_work), "
        "(SELECT coalesce(sum(duration_ns), 0) FROM op_kernels WHERE op_event_id IS NOT NULL)"
    ).fetchall()
    assert of_ops == in_kernels
    known = "SELECT coalesce(sum(duration_ns), 0) FROM {} WHERE op IS NOT NULL OR module IS NOT NULL"
    replayed = con.execute(known.format("kernel_owners").replace("WHERE ", "WHERE is_replay AND (") + ")").fetchall()
    assert replayed == con.execute(known.format("graph_kernels")).fetchall()


# Synthetic captures and real traces -----------------------------------------------------------------------------------


ORIGINS = ("capture", "none", "warm_up")


def synthetic(origin: str, folder: Path) -> Path:
    spec = CaptureSpec(ranks=1, steps=1, shape="inference_graph", tokens=3, layers=4, graph_origin=origin)
    return write_capture(spec, folder).paths[0]


@pytest.mark.parametrize("origin", ORIGINS)
def test_a_synthetic_capture_adds_up(by_hand: ByHand, origin: str) -> None:
    con = by_hand(origin)
    ((whole,),) = con.execute("SELECT sum(duration_ns) FROM kernels").fetchall()
    check_sums(con, whole)
    ((in_graphs, unknown, known),) = con.execute(
        "SELECT (SELECT sum(duration_ns) FROM graph_kernels), graph_ns, graph_known_ns FROM op_work_coverage"
    ).fetchall()
    assert (unknown, known) == ((in_graphs, 0) if origin == "none" else (0, in_graphs))
    layers = con.execute("SELECT layer, count(*) FROM kernel_owners WHERE is_replay GROUP BY 1 ORDER BY 1").fetchall()
    assert layers == [(n, 3 * 8) for n in range(4)]


SLOW = [pytest.mark.slow]
REAL = ("a100_cuda_graphs_rank0_of_16", "h100_qwen", "mi300_rccl_metadata")


@pytest.fixture(
    scope="module", params=["mi300_sglang_decode_graph", *(pytest.param(name, marks=SLOW) for name in REAL)]
)
def real(request: pytest.FixtureRequest, shared: Path) -> tuple[str, duckdb.DuckDBPyConnection]:
    con, _ = connect(shared / "traces" / "single" / f"{request.param}.json.gz")
    run_models(con, load_catalog(), [*TABLES, "critical_path", "critical_path_by_operator", "_call_operators"])
    return request.param, con


def test_real_traces_add_up(real: tuple[str, duckdb.DuckDBPyConnection]) -> None:
    _, con = real
    ((whole,),) = con.execute(
        "SELECT sum(duration_ns) FROM events WHERE cat IN ('kernel', 'gpu_memcpy', 'gpu_memset') AND start_ns IS NOT NULL"
    ).fetchall()
    check_sums(con, whole)


def test_work_outside_graphs_keeps_its_operator(real: tuple[str, duckdb.DuckDBPyConnection]) -> None:
    """Work outside graphs keeps the operator of its launch.

    None of the traces with graphs has a capture, so their replays have no operator.
    """
    name, con = real
    ((n_wrong, n_replays),) = con.execute(
        "SELECT count(*) FILTER (WHERE o.op_event_id IS DISTINCT FROM c.op_event_id "
        "OR coalesce(o.source, 'launch') <> 'launch' OR (o.source IS NULL) <> (o.confidence IS NULL)), "
        "count(*) FILTER (WHERE o.not_modelled = 'graph') FROM op_kernels AS o JOIN kernels AS k USING (trace_id, event_id) "
        "LEFT JOIN _call_operators AS c ON c.trace_id = k.trace_id AND c.event_id = k.launch_event_id"
    ).fetchall()
    assert n_wrong == 0
    assert n_replays == {"mi300_sglang_decode_graph": 544, "a100_cuda_graphs_rank0_of_16": 345}.get(name, 0)
    assert con.execute("SELECT count(*) FROM span_names WHERE phase = 'replay'").fetchall() == [(0,)]


def test_the_path_s_gpu_work_adds_up(real: tuple[str, duckdb.DuckDBPyConnection]) -> None:
    """The sums of each window equal the number and the time of GPU activities on its path."""
    _, con = real
    sums = con.execute(
        "SELECT window_id, sum(n_events), sum(duration_ns) FROM critical_path_by_operator GROUP BY 1 ORDER BY 1"
    ).fetchall()
    expected = con.execute(
        "SELECT p.window_id, count(DISTINCT p.attributed_event_id), sum(p.duration_ns) FROM critical_path AS p "
        "JOIN events AS e ON e.event_id = p.attributed_event_id "
        "WHERE e.cat IN ('kernel', 'gpu_memcpy', 'gpu_memset') GROUP BY 1 ORDER BY 1"
    ).fetchall()
    assert sums == expected != []


@pytest.mark.parametrize("real", ["mi300_sglang_decode_graph"], indirect=True)
def test_layers_of_a_decode_step_on_the_path(real: tuple[str, duckdb.DuckDBPyConnection]) -> None:
    """SGLang's replay is one stream without gaps. Its 36 layers are all on the path, and known only by repetition."""
    _, con = real
    rows = con.execute(
        "SELECT layer, sum(n_events) FROM critical_path_by_operator WHERE source = 'repetition' GROUP BY 1 ORDER BY 1"
    ).fetchall()
    by_layer: dict[int, int] = defaultdict(int)
    for (layer,) in con.execute("SELECT repetition FROM graph_kernels WHERE period IS NOT NULL").fetchall():
        by_layer[layer] += 1
    assert [layer for layer, _ in rows] == list(range(36)) and all(n <= by_layer[layer] for layer, n in rows)


def test_eager_work_and_its_replay_cost_the_same(by_hand: ByHand) -> None:
    """The program is launched and then replayed. Operators, arguments and formulas are equal."""
    con = by_hand("launched, then replayed")
    rows = [row[1:7] for row in work_rows(con)]
    assert rows[:4] == rows[4:] and [row[7] for row in work_rows(con)] == ["launch"] * 4 + ["eager"] * 4
