"""Paths by data dependencies: worked examples, and random programs compared with the rule computed over their tree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.critical_path.answer.answer import critical_path
from pipelines.critical_path.answer.path_answer import PathAnswer
from pipelines.critical_path.graph.operator_order import NothingJoined
from pipelines.critical_path.graph.windows import WindowRequest, request_windows
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from pipelines.readers.execution import load_execution
from tests.effort import at_once
from tests.harness import ANSWERED, answer_in, connect, connect_all, x
from tests.readers.execution.make import Op, write

ITEM = "aten::item(Tensor self) -> Scalar"
Edges = list[tuple[int, int, int]]


@dataclass
class Part:
    """An operator of a program.

    `before` is the host time in the enclosing operator before it, `reads` are the tensors that it reads, `inside` its
    inner operators, and `tail` the time at its end.
    """

    number: int
    before: int = 0
    tail: int = 0
    reads: list[int] = field(default_factory=list)
    inside: list[Part] = field(default_factory=list)
    kind: str = "operator"  # operator, unjoined, item, call

    def walk(self) -> Iterator[Part]:
        yield self
        for part in self.inside:
            yield from part.walk()

    @property
    def hides(self) -> bool:
        return any(part.kind in ("unjoined", "item") for part in self.walk())


def leaf(number: int, dur: int, *reads: int, before: int = 0, kind: str = "operator") -> Part:
    return Part(number, before, dur, list(reads), kind=kind)


def events_of(parts: list[Part]) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    now = 0

    def run(part: Part) -> None:
        nonlocal now
        now += part.before
        start = now
        place = len(events)
        events.append({})
        for inner in part.inside:
            run(inner)
        now += part.tail
        is_call = part.kind == "call"
        number = {"correlation": part.number} if is_call else {"Record function id": part.number}
        name = "cudaLaunchKernel" if is_call else f"op{part.number}"
        events[place] = x("cuda_runtime" if is_call else "cpu_op", name, start, now - start, **number)

    for part in parts:
        run(part)
    return events


def nodes_of(parts: list[Part]) -> list[Op]:
    """Return the execution trace, in which operator n makes tensor n.

    An operator that was not recorded is replaced with its inner operators.
    """
    operators: list[Op] = []
    for part in parts:
        inside = nodes_of(part.inside)
        if part.kind in ("unjoined", "call"):
            operators += inside
        else:
            schema = ITEM if part.kind == "item" else ""
            operators.append(
                Op(f"op{part.number}", list(part.reads), [part.number], inside, schema=schema, rf_id=part.number)
            )
    return operators


_RAN = [leaf(3, 5), leaf(1, 10, 2), leaf(2, 20)]
EXAMPLES = {
    "two chains": [leaf(1, 10), leaf(2, 20), leaf(3, 10, 1), leaf(4, 30, 2)],
    "each to the next": [leaf(1, 10), leaf(2, 20, 1), leaf(3, 10, 2), leaf(4, 30, 3)],
    "time around": [Part(1, tail=30, inside=[leaf(2, 20, before=10), leaf(3, 30, before=10)])],
    "in what others hold": [
        *(Part(1, tail=10, inside=[leaf(2, 20, before=10)]), Part(3, tail=10, inside=[leaf(4, 20, 2, before=20)])),
    ],
    "unjoined": [leaf(1, 10), leaf(2, 5, kind="unjoined"), leaf(3, 20)],
    "holds unjoined": [leaf(4, 10), Part(1, tail=10, inside=[leaf(2, 5, kind="unjoined")]), leaf(3, 20)],
    "a value": [leaf(1, 10), leaf(2, 5, kind="item"), leaf(3, 20), leaf(4, 7)],
    "calls": [Part(n, tail=10, inside=[leaf(n + 1, 10, before=10, kind="call")]) for n in (1, 3)],
    "back in time": _RAN,
}
RECORDED = {"back in time": [_RAN[0], _RAN[2], _RAN[1]]}


@cache
def solved() -> dict[str, tuple[PathAnswer, PathAnswer, Edges, Edges]]:
    """Return the paths and the edges (source, destination, ns) of all examples.

    Both are computed with serial and with data dependencies.
    """
    con, traces = connect_all(map(events_of, EXAMPLES.values()))
    windows = [WindowRequest(trace_id) for trace_id in traces]
    by_name: dict[str, list[Any]] = {name: [] for name in EXAMPLES}
    with con, TemporaryDirectory() as folder:
        for number, (name, parts) in enumerate(EXAMPLES.items()):
            file = write(Path(folder, f"et{number}.json"), nodes_of(RECORDED.get(name, parts)))
            load_execution(con, file, traces[number])
        for value in ("serial", "data"):
            request_windows(con, windows, {("default", "dependencies"): value})
            run_models(con, load_catalog(), ANSWERED)
            for window, of in zip(windows, by_name.values(), strict=True):
                of.append(answer_in(con, window))
                query = "SELECT src_node_id, dst_node_id, path_weight_ns FROM _edges ORDER BY ALL"
                of.append(con.execute(query).fetchall())
            for table in ANSWERED[:-1]:  # drop the views of the previous answer
                con.execute(f"DROP VIEW temp.{table}")
    return {name: (of[0], of[2], of[1], of[3]) for name, of in by_name.items()}


def lengths(example: str) -> tuple[float, float]:
    serial, data, _, _ = solved()[example]
    return serial.length_us, data.length_us


@pytest.mark.slow  # the test of random programs below also covers this
def test_of_two_independent_chains_the_longer_one_is_the_path() -> None:
    serial, data, _, _ = solved()["two chains"]
    assert (serial.length_us, data.length_us) == (70, 50)
    assert [step["name"] for step in data.path if step["duration_us"]] == ["op2", "op4"]


@pytest.mark.slow  # the test of random programs also covers this
def test_where_data_flows_from_each_to_the_next_the_graph_is_the_serial_one() -> None:
    serial, data, serial_edges, data_edges = solved()["each to the next"]
    assert (serial.length_us, data.length_us) == (70, 70)
    assert serial_edges == data_edges


@pytest.mark.slow
def test_the_time_around_operators_stays_with_the_operator_after_it() -> None:
    """op2 (20) and op3 (30) each start after 10 in the surrounding operator, which runs 30 more at its end.

    The critical path goes through op3: 10 + 30 + 30.
    """
    serial, data, _, edges = solved()["time around"]
    assert (serial.length_us, data.length_us) == (100, 70)
    own = [(2, 3, 20_000), (4, 5, 30_000)]  # a node is twice the event, plus 1 for its end; events count from 0
    assert edges == sorted([*own, (0, 2, 10_000), (0, 4, 10_000), (3, 1, 30_000), (5, 1, 30_000)])


@pytest.mark.slow  # 8 s
def test_data_flows_between_what_operators_hold() -> None:
    """op4 needs op2, and the operators around them have no tensors.

    The path is 10 + 20 to the end of op2, 20 before op4, its 20, and 10.
    """
    assert lengths("in what others hold") == (90, 80)


def test_operators_that_were_not_joined_stay_serial() -> None:
    assert lengths("unjoined") == (35, 35)
    assert lengths("holds unjoined") == (45, 45)


def test_what_gives_the_host_a_value_stays_serial() -> None:
    assert lengths("a value") == (42, 35)


def test_calls_follow_each_other() -> None:
    """The second launch begins 10 before its operator ends and takes 10.

    It waits for the first, which begins 10 after its operator and takes 10.
    """
    assert lengths("calls") == (60, 40)


def test_data_does_not_flow_back_in_time() -> None:
    """The producer is later in the profiler trace, so its data flow is ignored.

    This happens, for example, if the two traces come from different runs.
    """
    _, data, _, _ = solved()["back in time"]
    assert data.success and data.length_us == 20


def test_without_an_execution_trace_it_is_refused() -> None:
    con, trace_id = connect(events_of([leaf(1, 10), leaf(2, 20)]))
    with con, pytest.raises(NothingJoined, match="none was read"):
        critical_path(con, load_catalog(), WindowRequest(trace_id), overrides={("default", "dependencies"): "data"})


@st.composite
def programs(draw: st.DrawFn) -> list[Part]:
    """Draw up to ten operators, at most three deep, that read from operators that ended before."""
    count = 0
    ended: list[int] = []

    def some(depth: int) -> list[Part]:
        nonlocal count
        parts: list[Part] = []
        for _ in range(draw(st.integers(0 if depth else 1, 4))):
            if count == 10:
                break
            count += 1
            kind = draw(st.sampled_from(["operator"] * 6 + ["unjoined", "item"]))
            reads = draw(st.lists(st.sampled_from(ended), unique=True, max_size=2)) if ended else []
            part = Part(count, draw(st.integers(0, 5)), draw(st.integers(1, 20)), reads, kind=kind)
            part.inside = some(depth + 1) if depth < 2 else []
            ended.append(part.number)
            parts.append(part)
        return parts

    return some(0)


def longest(parts: list[Part]) -> int:
    """Return the length of the program by the rule of docs/data-dependencies.md.

    The length follows from the earliest end of each operator.
    """
    ends: dict[int, int] = {}
    joined = {part.number for top in parts for part in top.walk() if part.kind != "unjoined"}

    def run(level: list[Part], begin: int, at_top: bool) -> int:
        bound = latest = begin
        for part in level:
            flows = [ends[n] for n in part.reads if part.number in joined and n in joined]
            start = max([latest if part.hides else bound, *flows]) + (0 if at_top else part.before)
            ends[part.number] = run(part.inside, start, False) + part.tail
            latest = max(latest, ends[part.number])
            if part.hides:
                bound = ends[part.number]
        return latest

    return run(parts, 0, True)


def joined(top: Part) -> bool:
    return any(part.kind != "unjoined" for part in top.walk())


@pytest.mark.slow
@settings(max_examples=3, deadline=None)
@given(at_once(programs().filter(lambda parts: any(map(joined, parts))), 40))
def test_any_program_is_as_long_as_its_longest_flow(batch: list[list[Part]]) -> None:
    con, traces = connect_all(map(events_of, batch))
    lengths, edges = [], []
    with con, TemporaryDirectory() as folder:
        for number, (parts, trace_id) in enumerate(zip(batch, traces, strict=True)):
            load_execution(con, write(Path(folder, f"et{number}.json"), nodes_of(parts)), trace_id)
        for value in ("serial", "data"):
            request_windows(con, [WindowRequest(trace_id) for trace_id in traces], {("default", "dependencies"): value})
            run_models(con, load_catalog(), ["critical_path_windows", "critical_path", "_edges"])
            query = "SELECT trace_id, sum(path_weight_ns) FROM critical_path GROUP BY ALL"
            lengths.append(dict(con.execute(query).fetchall()))
            query = "SELECT window_no, src_node_id, dst_node_id FROM _edges"
            edges.append(con.execute(query).fetchall())
    serial, data = lengths
    for parts, trace_id in zip(batch, traces, strict=True):
        assert data.get(trace_id, 0) == 1000 * longest(parts) <= serial.get(trace_id, 0)
    assert len({*edges[1]}) == len(edges[1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rank", "profile"),
    [(0, "default"), (1, "hta"), (4, "default"), (7, "hta")],
)
def test_dlrm_is_shorter_by_data_and_has_no_cycle(shared: Path, rank: int, profile: str) -> None:
    folder = shared / "traces" / "ranks" / "dlrm_8"
    con, trace_id = connect(folder / f"worker{rank}.json.gz")
    with con:
        summary = load_execution(con, folder / f"execution_trace_{rank}.json.gz", trace_id)
        request = WindowRequest(trace_id, profile=profile)
        serial = critical_path(con, load_catalog(), request, with_path=False)
        data = critical_path(
            con, load_catalog(), request, overrides={(profile, "dependencies"): "data"}, with_path=False
        )
        graph = nx.DiGraph()
        edges = con.execute("SELECT src_node_id, dst_node_id, path_weight_ns FROM _edges").fetchall()
        graph.add_weighted_edges_from(edges)
    assert (summary.share, data.nodes, len(edges)) == (1.0, graph.number_of_nodes(), graph.number_of_edges())
    assert nx.is_directed_acyclic_graph(graph)
    assert nx.dag_longest_path_length(graph) == round(data.length_us * 1000)
    assert 0 < data.length_us < serial.length_us
