"""Graph replays: each activity appears once, blocks repeat, and operators appear only if all captures agree.

The expected values of real traces are read from their JSON here, without our tables.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Callable
from copy import deepcopy
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.modelling.graph_captures import use_capture
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from pipelines.synthetic import CaptureSpec, write_capture
from tests.effort import LISTS, at_once, first_of
from tests.harness import call, connect_all, each, kernel, only, x
from tests.modelling.graph_traces import Op, blocks, captured, eager, replay
from tests.modelling.real_traces import computed

ADD: Op = ("aten::add", [[8], [8]])
MUL: Op = ("aten::mul", [[4], [4]])
MM: Op = ("aten::mm", [[2, 3], [3, 4]])
WIDE: Op = ("aten::mm", [[2, 3], [3, 9]])
ZERO: Op = ("aten::zero_", [[6]])
OPS = [MM, ADD, MUL, ADD]
NAMES = ["gemm", "add", "mul", "add"]
KNOWN = "ordinal, op, dims, source, confidence"


def known(*ops: Op | None, source: str, confidence: float) -> list[tuple]:
    """Return rows of KNOWN, with the known operator of each activity of a replay."""
    shown = [(op[0], json.dumps(op[1]).replace(" ", "")) if op else (None, None) for op in ops]
    rest = [(source, confidence) if op else (None, None) for op in ops]
    return [(place, *a, *b) for place, (a, b) in enumerate(zip(shown, rest, strict=True))]


def rows(con: duckdb.DuckDBPyConnection, columns: str = KNOWN) -> list[tuple]:
    query = f"SELECT {columns} FROM graph_kernels ORDER BY start_ns, ordinal"
    return [*map(_compact, con.execute(query).fetchall())]


def _compact(row: tuple) -> tuple:
    return tuple(v.replace(" ", "") if isinstance(v, str) and v.startswith("[") else v for v in row)


TRACES: dict[str, list[dict[str, Any]]] = {}
"""Handwritten traces, each added above its test."""

Shown = Callable[..., duckdb.DuckDBPyConnection]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """Return a function that shows graph_kernels, and further tables, of one of TRACES or SYNTHETIC.

    The models run once over all of them.
    """
    folder, names = tmp_path_factory.mktemp("captures"), [*TRACES, *SYNTHETIC]
    synthetic = [write_capture(capture_spec, folder / name).paths[0] for name, capture_spec in SYNTHETIC.items()]
    con, trace_ids = connect_all([*TRACES.values(), *synthetic])
    ids = dict(zip(names, trace_ids, strict=True))
    for name, capture in PAIRS.items():
        use_capture(con, ids[name], ids[capture])
    run_models(con, load_catalog(), ["graph_kernels", "kernels", "op_work", "quality"])

    def of(name: str, *tables: str) -> duckdb.DuckDBPyConnection:
        only(con, ids[name], ("graph_kernels", *tables))
        return con

    return of


# Real traces ----------------------------------------------------------------------------------------------------------

# number of launches, number of activities in replays
REAL = {"mi300_sglang_decode_graph": (1, 544), "a100_cuda_graphs_rank0_of_16": (70, 345), "h100_qwen": (0, 0)}
COLUMNS = (
    "event_id, replay_id, launch_event_id, ordinal, n_nodes, sequence_id, period, repetition, repetition_ordinal, "
    "name, start_ns, duration_ns, op, module, source, confidence, call_event_id"
)


@pytest.fixture(scope="module", params=first_of(REAL, 1))
def real(request: pytest.FixtureRequest, shared: Path) -> tuple[str, list[dict], list[dict[str, Any]]]:
    """Return the name and events of a real trace, and its rows of graph_kernels."""
    text = gzip.decompress((shared / "traces" / "single" / f"{request.param}.json.gz").read_bytes())
    events = json.loads(text, parse_float=Decimal)["traceEvents"]
    con = computed(shared, request.param, (request.param,), ("graph_kernels",))
    rows = con.execute(f"SELECT {COLUMNS} FROM graph_kernels ORDER BY event_id").fetchall()
    return request.param, events, [dict(zip(COLUMNS.split(", "), row, strict=True)) for row in rows]


def replays_of(events: list[dict]) -> dict[int, list[int]]:
    """Return GPU activities by the graph launch with their correlation, in order of time."""
    launches = {
        e["args"]["correlation"]: i
        for i, e in enumerate(events)
        if e.get("cat") == "cuda_runtime" and "GraphLaunch" in e["name"]
    }
    replays = defaultdict(list)
    for i, event in enumerate(events):
        is_work = event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")
        if is_work and (launch := launches.get(event["args"]["correlation"])) is not None:
            replays[launch].append(i)
    return {launch: sorted(of, key=lambda i: (events[i]["ts"], i)) for launch, of in replays.items()}


def signature(event: dict) -> tuple:
    return (event["cat"], event["name"], *(str(event["args"].get(key)) for key in ("grid", "block", "bytes")))


def test_every_piece_of_a_replay_once_in_order(real: tuple[str, list[dict], list[dict[str, Any]]]) -> None:
    name, events, rows = real
    replays = replays_of(events)
    assert (len(replays), sum(map(len, replays.values()))) == REAL[name]
    expected = {i: (launch, min(of), place, len(of)) for launch, of in replays.items() for place, i in enumerate(of)}
    places = {r["event_id"]: (r["launch_event_id"], r["replay_id"], r["ordinal"], r["n_nodes"]) for r in rows}
    assert len(rows) == len(places) and places == expected
    for row in rows:
        event = events[row["event_id"]]
        assert (row["name"], row["duration_ns"]) == (event["name"], int(event["dur"] * 1000))


def test_replays_of_the_same_work_share_a_sequence(real: tuple[str, list[dict], list[dict[str, Any]]]) -> None:
    _, events, rows = real
    first: dict[tuple, int] = {}
    expected = {}
    for of in sorted(replays_of(events).values(), key=min):
        key = tuple(signature(events[i]) for i in of)
        expected[min(of)] = first.setdefault(key, min(of))
    assert {r["replay_id"]: r["sequence_id"] for r in rows} == expected


def test_blocks_are_those_that_trying_every_period_finds(real: tuple[str, list[dict], list[dict[str, Any]]]) -> None:
    name, events, rows = real
    repetitions = {r["event_id"]: (r["period"], r["repetition"], r["repetition_ordinal"]) for r in rows}
    seen = set()
    for of in replays_of(events).values():
        block = blocks([signature(events[i]) for i in of], [events[i]["cat"] == "kernel" for i in of])
        seen.add(block)
        for place, i in enumerate(of):
            expected = (None, None, None)
            if block and block[1] <= place < block[1] + block[2]:
                expected = (block[0], *divmod(place - block[1], block[0]))
            assert repetitions[i] == expected
    blocks_seen = {
        "mi300_sglang_decode_graph": {(15, 2, 540)},  # 36 layers
        "a100_cuda_graphs_rank0_of_16": {None, (5, 3, 16)},  # backward of an MLP's three layers
        "h100_qwen": set(),
    }
    assert seen == blocks_seen[name]


def test_real_traces_without_captures_claim_no_operator(real: tuple[str, list[dict], list[dict[str, Any]]]) -> None:
    _, _, rows = real
    assert {(r["op"], r["module"], r["call_event_id"]) for r in rows} <= {(None, None, None)}
    assert {(r["source"], r["confidence"]) for r in rows} <= {("repetition", 0.5), (None, None)}


PAGE = Path(__file__).parents[2] / "docs" / "modelling.md"
LABELS = {"mi300_sglang_decode_graph": "SGLang decode, MI300", "a100_cuda_graphs_rank0_of_16": "training, A100"}


def test_the_shares_in_the_docs(real: tuple[str, list[dict], list[dict[str, Any]]]) -> None:
    name, events, rows = real
    if name not in LABELS:
        return
    work = ("kernel", "gpu_memcpy", "gpu_memset")
    whole = sum(int(e["dur"] * 1000) for e in events if e.get("cat") in work)
    graph = sum(row["duration_ns"] for row in rows)
    guessed = sum(row["duration_ns"] for row in rows if row["source"] == "repetition")
    (line,) = (line for line in PAGE.read_text().splitlines() if line.startswith(f"| {LABELS[name]} |"))
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[1].startswith(f"{100 * graph / whole:.1f} % ({len(rows)} kernels, {REAL[name][0]} replay")
    assert cells[2:4] == [f"{100 * guessed / graph:.1f} %", f"{100 - 100 * guessed / graph:.1f} %"]


# Synthetic captures ---------------------------------------------------------------------------------------------------

LAYER = ("aten::mean", "aten::addmm", "aten::mul", "aten::_cat", None, "aten::addmm", "aten::silu", "aten::add_")
ATTENTION = "aten::_flash_attention_forward"


def spec(origin: str, **more: Any) -> CaptureSpec:
    return CaptureSpec(
        ranks=1, steps=2, shape="inference_graph", tokens=3, layers=5, kernel_ns=4000, graph_origin=origin, **more
    )


ORIGINS = {"none": ("repetition", 0.5), "warm_up": ("eager", 0.8), "capture": ("capture", 0.7), "both": ("eager", 0.8)}
"""Where the program shows the recorded operators; then the source and confidence of its replays' operators."""
PAIRS = {f"{origin} elsewhere": origin for origin in ("warm_up", "capture")}
"""A trace, and another trace that has its capture."""
SYNTHETIC = {
    **{origin: spec(origin) for origin in ORIGINS},
    **{name: spec("none", seed=seed, first_step=7) for seed, name in enumerate(PAIRS, 4)},
}


@pytest.mark.parametrize("origin", ORIGINS)
def test_operators_of_synthetic_captures(shown: Shown, origin: str) -> None:
    """The operators of replays equal those that the program launched.

    The traces have 2 steps of 3 tokens. Each token is a replay of 5 layers of 8 kernels, whose operators the program
    knows.
    """
    check_operators(shown(origin, "kernels", "events"), origin, ORIGINS[origin])


def check_operators(con: duckdb.DuckDBPyConnection, origin: str, known_by: tuple[str, float]) -> None:
    rows = con.execute(
        "SELECT replay_id, ordinal, period, repetition, repetition_ordinal, op, source, confidence, duration_ns "
        "FROM graph_kernels ORDER BY replay_id, ordinal"
    ).fetchall()
    assert len(rows) == 2 * 3 * 5 * 8 and len({row[0] for row in rows}) == 6
    for _, ordinal, period, repetition, inside, op, *how, _ in rows:
        assert (period, repetition, inside) == (8, ordinal // 8, ordinal % 8)
        expected = LAYER[inside] or ATTENTION
        assert (op, *how) == (None if origin == "none" else expected, *known_by)
    in_graphs = "JOIN events AS l ON l.event_id = k.launch_event_id WHERE l.name = 'cudaGraphLaunch'"
    ((expected,),) = con.execute(f"SELECT sum(k.duration_ns) FROM kernels AS k {in_graphs}").fetchall()
    assert sum(row[-1] for row in rows) == expected > 0
    if origin != "none":
        ((wrong,),) = con.execute(  # counts calls that are outside their operator or in a graph
            "SELECT count(*) FROM graph_kernels AS g JOIN events AS c ON c.event_id = g.call_event_id "
            "LEFT JOIN events AS o ON o.cat = 'cpu_op' AND o.name = g.op AND o.start_ns <= c.start_ns AND o.end_ns >= c.end_ns "
            "WHERE o.event_id IS NULL OR c.name <> 'cudaLaunchKernel' OR g.capture_trace_id <> g.trace_id"
        ).fetchall()
        assert wrong == 0


@pytest.mark.parametrize("name", PAIRS)
def test_another_trace_has_the_capture(shown: Shown, name: str) -> None:
    """A trace's replays get their operators from another trace that has the capture.

    The second trace has other kernels, steps and seed.
    """
    ((capture_id,),) = shown(PAIRS[name], "traces").execute("SELECT trace_id FROM traces").fetchall()
    ops = rows(shown(name), "repetition_ordinal, op, capture_trace_id")
    assert len(ops) == 240
    assert {*ops} == {(n, op or ATTENTION, capture_id) for n, op in enumerate(LAYER)}


# By hand --------------------------------------------------------------------------------------------------------------


TRACES["a capture"] = [*captured(OPS, 0, 100), *replay(NAMES, 500, 1)]
TRACES["a call outside operators"] = [*captured([MM, None, MUL, ADD], 0, 100), *replay(NAMES, 500, 1)]


def test_a_capture_gives_operators_and_shapes(shown: Shown) -> None:
    """A capture gives the work of its replays operators and shapes.

    A call outside operators leaves its kernel without an operator.
    """
    assert rows(shown("a capture")) == known(*OPS, source="capture", confidence=0.7)
    outside = rows(shown("a call outside operators"))
    assert outside == known(MM, None, MUL, ADD, source="capture", confidence=0.7)


UNFIT = {
    "fewer calls than kernels": [*captured(OPS[:3], 0, 100), *replay(NAMES, 500, 1)],
    "more calls than kernels": [*captured([*OPS, ADD], 0, 100), *replay(NAMES, 500, 1)],
    "another kind of work": [*captured([MM, ZERO, MUL, ADD], 0, 100), *replay(NAMES, 500, 1)],
    "captured after the replay": [*replay(NAMES, 0, 1), *captured(OPS, 500, 100)],
    "a capture without an end": [*captured(OPS, 0, 100)[:-1], *replay(NAMES, 500, 1)],
    "two streams, no node ids": [*captured(OPS, 0, 100), *replay(NAMES, 500, 1, streams=[7, 7, 8, 7])],
    "cut short": [*eager(zip(OPS[:3], NAMES, strict=False), 0, 100), *replay(NAMES, 500, 1)],
    "another order": [*eager(zip(OPS, NAMES[::-1], strict=True), 0, 100), *replay(NAMES, 500, 1)],
    "too short to tell": [*eager(zip(OPS[:3], NAMES[:3], strict=True), 0, 100), *replay(NAMES[:3], 500, 1)],
    "one name tells nothing": [*eager([(ADD, "add")] * 6, 0, 100), *replay(["add"] * 4, 500, 1)],
    "another grid": [
        *eager(zip(OPS, ["gemm@4", *NAMES[1:]], strict=True), 0, 100),
        *replay(["gemm@8", *NAMES[1:]], 500, 1),
    ],
    "another grid further on": [
        *eager(zip(OPS, ["gemm", "add", "mul@4", "add"], strict=True), 0, 100),
        *replay(["gemm", "add", "mul@8", "add"], 500, 1),
    ],
}

TRACES |= UNFIT


@pytest.mark.parametrize("why", UNFIT)
def test_what_does_not_fit_is_not_guessed(shown: Shown, why: str) -> None:
    assert {*rows(shown(why), "op, dims, module, source, confidence")} == {(None,) * 5}


AROUND = [(MUL, "mul"), *zip(OPS, ["gemm@4", *NAMES[1:]], strict=True), (MM, "gemm")]
TRACES["the same work before"] = [*eager(AROUND, 0, 100), *replay(NAMES, 500, 1)]


def test_the_same_work_before_gives_operators_and_shapes(shown: Shown) -> None:
    """The same work, launched earlier outside graphs, gives replays operators and shapes.

    Other work ran around it. A grid that only one side records does not matter.
    """
    assert rows(shown("the same work before")) == known(*OPS, source="eager", confidence=0.8)


TWO = [*captured(OPS, 0, 100), *captured([WIDE, ADD, MUL, ADD], 300, 1200)]
TRACES["two that disagree"] = [*TWO, *replay(NAMES, 900, 1)]
TRACES["three that disagree"] = [*TWO, *captured([MM, ADD, MUL, MUL], 600, 2200), *replay(NAMES, 900, 1)]


def test_captures_that_disagree_leave_null(shown: Shown) -> None:
    """Values on which captures disagree are NULL, and values on which they agree stay.

    First the shapes differ (two batch sizes), then also an operator.
    """
    of_two, of_three = rows(shown("two that disagree")), rows(shown("three that disagree"))
    assert of_two[0] == (0, "aten::mm", None, "capture", 0.7)
    assert of_two[1:] == known(*OPS, source="capture", confidence=0.7)[1:]
    assert of_three[3] == (3, None, None, None, None)


ON_TWO_THREADS = [event | {"tid": 2 if 5 <= n < 9 else 1} for n, event in enumerate(captured(OPS, 0, 100))]
OPEN = [call("cudaStreamBeginCapture", 0, 1, 50, tid=3), call("cudaStreamEndCapture", 90, 1, 51, tid=3)]
TRACES["on two threads"] = [*ON_TWO_THREADS, *replay(NAMES, 500, 1)]
TRACES["on two threads, another open"] = [*ON_TWO_THREADS, *OPEN, *replay(NAMES, 500, 1)]


def test_work_of_another_thread_in_a_capture_belongs_to_it_but_not_where_two_are_open(shown: Shown) -> None:
    """Calls of another thread during a capture belong to the capture, unless two captures are open.

    The backward pass is captured on its own thread.
    """
    assert rows(shown("on two threads")) == known(*OPS, source="capture", confidence=0.7)
    assert {row[1] for row in rows(shown("on two threads, another open"))} == {None}


TRACES["node ids"] = [
    *captured(OPS, 0, 100),
    *replay(NAMES, 500, 1, nodes=[0, 1, 2, 3], streams=[7, 8, 7, 7], times=[510, 540, 520, 530]),
]


def test_node_ids_are_the_order_of_the_capture(shown: Shown) -> None:
    """Node ids follow the order of the capture. The second node ran last, because it is on another stream."""
    kernels = sorted(rows(shown("node ids"), f"{KNOWN}, name, graph_node, start_ns"))
    assert [row[:5] for row in kernels] == known(*OPS, source="capture", confidence=0.7)
    assert kernels[1][5:] == ("add", (5 << 32) + 1, 540_000)


def of_hip() -> dict[str, list[dict[str, Any]]]:
    calls = captured(OPS, 0, 100)
    launches = [event for event in calls if event["name"] == "cudaLaunchKernel"]
    for event, name in zip(launches, NAMES, strict=True):
        event["name"], event["args"] = "hipLaunchKernel", event["args"] | {"kernel": name}
    for event in (calls[0], calls[-1]):
        event["name"] = event["name"].replace("cuda", "hip")
    trace = [*calls, *replay(NAMES, 500, 1, call_name="hipGraphLaunch")]
    unfit = deepcopy(trace)
    unfit[trace.index(launches[2])]["args"]["kernel"] = "another"
    return {"of hip": trace, "of hip, another kernel": unfit}


TRACES |= of_hip()


def test_hip_calls_name_their_kernels(shown: Shown) -> None:
    """HIP's calls name their kernels.

    So a capture of other kernels does not match, and a matching capture has a higher confidence.
    """
    assert rows(shown("of hip")) == known(*OPS, source="capture", confidence=0.9)
    assert {row[1] for row in rows(shown("of hip, another kernel"))} == {None}


ANNOTATED = replay(NAMES, 0, 1, nodes=[0, 1, 2, 3])
for _event, _text in zip(ANNOTATED[1:], ({"name": "layers.0"}, {"str": "norm"}, {"annotation": "x"}, {}), strict=True):
    _event["args"] |= _text
TRACES["annotated"] = ANNOTATED
TRACES["annotated, captured"] = [*captured([None, *OPS[1:]], -500, 100), *ANNOTATED]


def test_annotations_of_pytorch_are_modules(shown: Shown) -> None:
    """`torch.cuda._annotate_cuda_graph_trace` of torch 2.13 writes `mark_kernels` into the trace in this form."""
    columns = "module, op, source, confidence"
    alone, both = rows(shown("annotated"), columns), rows(shown("annotated, captured"), columns)
    expected = [*((name, "annotation", 1.0) for name in ("layers.0", "norm", "x")), (None, None, None)]
    assert [(module, *how) for module, _, *how in alone] == expected
    assert both[0] == ("layers.0", None, "annotation", 1.0)
    assert both[1] == ("norm", "aten::add", "capture", 0.7)


TRACES["in modules"] = [
    x("python_function", "nn.Module: Net_0", 5, 60, **{"Python id": 1}),
    x("python_function", "nn.Module: Linear_3", 9, 10, **{"Python id": 2, "Python parent id": 1}),
    *captured(OPS, 0, 100),
    *replay(NAMES, 500, 1),
]


def test_modules_around_the_calls(shown: Shown) -> None:
    assert [row[0] for row in rows(shown("in modules"), "module")] == ["Linear_3", "Net_0", "Net_0", "Net_0"]


TRACES["zeros"] = eager([(MM, "gemm")], 0, 100)
TRACES["zeros"][-1]["args"] |= {"graph id": 0, "graph node id": 0}


def test_zeros_for_graph_and_node_are_no_graph(shown: Shown) -> None:
    """Zeros as ids of graph and node do not mean a graph.

    Kineto built with CUDA 12 writes zeros on all GPU work. The operator keeps its work.
    """
    con = shown("zeros", "kernels", "op_work", "quality")
    assert con.execute("SELECT count(*) FROM graph_kernels").fetchall() == [(0,)]
    assert con.execute("SELECT graph_node FROM kernels").fetchall() == [(None,)]
    assert con.execute("SELECT op, not_modelled FROM op_work").fetchall() == [("aten::mm", "no_shapes")]
    assert con.execute("SELECT count(*) FROM quality WHERE check_name = 'graph_replays'").fetchall() == [(0,)]


TRACES["a launch is missing"] = [event for n in (1, 2) for event in replay(NAMES, 100 * n, n, nodes=[0, 1, 2, 3])][1:]


def test_a_replay_whose_launch_is_missing_is_known_by_its_correlation(shown: Shown) -> None:
    kernels = rows(shown("a launch is missing"), "replay_id, launch_event_id, sequence_id, ordinal")
    assert kernels == [(0, None, 0, n) for n in range(4)] + [(5, 4, 0, n) for n in range(4)]


TRACES["mostly in a graph"] = [*eager([(MM, "gemm")], 0, 100), *replay(NAMES, 500, 1)]


def test_quality_says_how_much_ran_in_graphs(shown: Shown) -> None:
    con = shown("mostly in a graph", "quality")
    ((n, detail),) = con.execute("SELECT n, detail FROM quality WHERE check_name = 'graph_replays'").fetchall()
    assert n == 4 and detail.startswith("80 % of the GPU time ran in replays") and detail.endswith("see graph_kernels")


ORDERS = ["abcd", "dcba", "abcd", "acbd", "dcba", "abbabaab", "baababba"]
TRACES["seven replays"] = [event for n, names in enumerate(ORDERS) for event in replay(names, 100 * n, n + 1)]


def test_only_equal_replays_share_a_sequence(shown: Shown) -> None:
    """Only equal replays share a sequence id.

    In the last two replays, each name has equal sums of positions and of squared positions. The sums alone would join
    these two.
    """
    sequences = sorted({*rows(shown("seven replays"), "replay_id, sequence_id")})
    assert sequences == [(1, 1), (6, 6), (11, 1), (16, 16), (21, 6), (26, 26), (35, 35)]


# Periods --------------------------------------------------------------------------------------------------------------


def computed_blocks(con: duckdb.DuckDBPyConnection) -> tuple[int, int, int] | None:
    rows = con.execute(
        "SELECT period, min(ordinal), count(*) FROM graph_kernels WHERE period IS NOT NULL GROUP BY period"
    ).fetchall()
    assert len(rows) <= 1
    return rows[0] if rows else None


LETTERS = st.lists(st.sampled_from("abc"), min_size=1, max_size=16)


@pytest.mark.slow  # random; other tests in this file have known layers
@settings(max_examples=LISTS)
@given(at_once(LETTERS, 100))
def test_blocks_of_random_replays(many: list[list[str]]) -> None:
    """The blocks equal those found by trying every period. With up to 16 kernels, all distances are tried."""
    traces = [replay(names, 0, 1) for names in many]
    for names, con in zip(many, each(traces, "graph_kernels"), strict=True):
        assert computed_blocks(con) == blocks(names), names


MEMSETS = ["Memset@1", "Memset@2"] * 5
TRACES["memsets"] = [*replay(MEMSETS, 0, 1), *replay([*MEMSETS, *["gemm", "Memset@1"] * 5], 200, 2)]


def test_a_block_without_a_kernel_is_no_layer(shown: Shown) -> None:
    con = shown("memsets")
    periods = con.execute("SELECT DISTINCT replay_id, period FROM graph_kernels ORDER BY ALL NULLS FIRST").fetchall()
    assert periods == [(1, None), (12, None), (12, 2)]


@st.composite
def layered(draw: st.DrawFn) -> tuple[list[str], int, int, int]:
    """Draw a block of kernels, one of them unique, repeated between others: (names, period, begin, covered)."""
    block = ["attention", *draw(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=12))]
    n = draw(st.integers(4, 12))
    head = draw(st.lists(st.sampled_from("xy"), max_size=5))
    tail = draw(st.lists(st.sampled_from("zw"), max_size=5))
    return [*head, *block * n, *tail], len(block), len(head), len(block) * n


@pytest.mark.slow  # test_operators_of_synthetic_captures has layers, too
@settings(max_examples=LISTS)
@given(at_once(layered(), 40))
def test_layers_that_were_put_there_are_found(many: list[tuple[list[str], int, int, int]]) -> None:
    traces = [replay(names, 0, 1) for names, *_ in many]
    for (names, period, begin, covered), con in zip(many, each(traces, "graph_kernels"), strict=True):
        expected = (period, begin, covered) if 2 * covered >= len(names) else None
        assert computed_blocks(con) == expected == blocks(names)


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[dict[str, Any]], dict[int, Op | None]]:
    """Draw eager work, captures and replays in random order, and for each event of a replay its possible operator."""
    texts = {"gemm": MM, "add": ADD, "mul": MUL, "sum": None}
    names = draw(st.lists(st.sampled_from(sorted(texts)), min_size=1, max_size=9))
    events: list[dict[str, Any]] = []
    expected: dict[int, Op | None] = {}
    for n in range(draw(st.integers(1, 5))):
        what, at, correlation = draw(st.sampled_from(["eager", "capture", "replay"])), 1000 * n, 1000 * (n + 1)
        if what == "eager":
            events += eager([(texts[name], name) for name in names], at, correlation)
        elif what == "capture":
            events += captured([texts[name] for name in names], at, correlation)
        else:
            made = replay(names, at, correlation)
            expected |= {len(events) + 1 + place: texts[name] for place, name in enumerate(names)}
            events += made
    return events, expected


@pytest.mark.slow
@settings(max_examples=LISTS)
@given(at_once(programs(), 60))
def test_operators_are_right_or_null_and_no_work_is_lost(many: list[tuple[list[dict[str, Any]], dict]]) -> None:
    many = [program for program in many if program[0]]
    for (events, expected), con in zip(many, each([program[0] for program in many], "graph_kernels"), strict=True):
        rows = con.execute("SELECT event_id, op, dims, source, duration_ns FROM graph_kernels").fetchall()
        assert {row[0] for row in rows} == expected.keys() and len(rows) == len(expected)
        for event_id, op, dims, source, duration_ns in rows:
            assert duration_ns == 3000 == events[event_id]["dur"] * 1000
            assert (op is not None) == (source in ("capture", "eager"))
            if op is not None:
                right = expected[event_id]
                assert right is not None and (op, json.loads(dims)) == right


TRACES["work without a graph"] = [*replay(NAMES, 0, 1), call("cudaLaunchKernel", 100, 2, 9), kernel("gemm", 110, 3, 9)]


def test_every_kernel_name_keeps_its_own_place(shown: Shown) -> None:
    """Work outside a graph does not count."""
    assert [row[0] for row in rows(shown("work without a graph"), "name")] == NAMES
