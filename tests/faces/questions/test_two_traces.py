"""Two unrelated traces without job and rank, with the same file name.

No answer mixes them, and each row names its trace.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from io import StringIO
from pathlib import Path
from typing import Any

import duckdb
import pytest
from rich.cells import cell_len

from pipelines.faces.cells import is_number, shown
from pipelines.faces.cli.answer_table import print_answer
from pipelines.faces.cli.console import make_console
from pipelines.faces.cli.lake.query import _kind
from pipelines.models.catalog import load_catalog
from pipelines.models.questions import Question, load_questions
from pipelines.models.run import run_models
from tests.harness import call, connect_all, kernel, op, sync, x

OF_OTHER_INPUTS = ("kernel_provenance", "kernels_measured", "flight_recorder_matches", "snapshot_trace_matches")
OF_TRACES = [
    question
    for question in load_questions().values()
    if "traces AS t" in question.sql and not any(table in question.sql for table in OF_OTHER_INPUTS)
]
LONG = "void at::native::(anonymous namespace)::" + "vectorized_elementwise_kernel<4, at::native::Functor<float>, " * 40


def program(by: int) -> list[dict[str, Any]]:
    """Return two steps of a server under a profiler.

    The steps have operators, modules, frames, memory, two streams, a replayed graph, and a collective.

    `by`: the factor by which times are scaled.
    """
    events: list[dict[str, Any]] = []
    for step in range(2):
        t, c = 400 * by * step, 10 * step + 1
        dims = {"Input Dims": [[64, 64], [64, 64]], "Input type": ["float", "float"]}
        events += [
            x("user_annotation", f"ProfilerStep#{step}", t, 390 * by),
            x("user_annotation", "step[DECODE bs=8]", t + 1, 380 * by),
            x("python_function", "nn.Module: Linear_0", t + 2, 150 * by, **{"Python id": c}),
            x("python_function", "/srv/model.py(7): forward", t + 1, 160 * by, **{"Python id": c + 5}),
            x("cpu_op", "aten::mm", t + 5, 40 * by, **dims), call("cudaLaunchKernel", t + 10, 5, c),
            kernel(LONG, t + 30 * by, 50 * by, c),
            op("aten::add", t + 60 * by, 20 * by), call("cudaLaunchKernel", t + 62 * by, 5, c + 1),
            kernel("ampere_sgemm_128x64", t + 100 * by, 20 * by, c + 1),
            x("cuda_runtime", "cudaEventRecord", t + 83 * by, 1, correlation=c + 6),
            x("cuda_runtime", "cudaStreamWaitEvent", t + 85 * by, 1, correlation=c + 7),
            sync("Stream Wait Event", t + 85 * by, 1, c + 7, stream=9,
                 wait_on_stream=7, wait_on_cuda_event_record_corr_id=c + 6, wait_on_cuda_event_id=1),
            op("nccl:all_reduce", t + 86 * by, 20 * by), call("cudaLaunchKernel", t + 88 * by, 5, c + 2),
            x("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", t + 130 * by, 60 * by, 9, 0, correlation=c + 2, stream=9,
              device=0, **{"Collective name": "allreduce", "In msg nelems": 1024, "dtype": "Float", "Group size": 8}),
            call("cudaGraphLaunch", t + 200 * by, 5, c + 3),
            *(x("kernel", "ab"[n % 2], t + (220 + 2 * n) * by, by, 7, 0, correlation=c + 3, stream=7, device=0,
                **{"graph node id": n}) for n in range(8)),
            x("cuda_runtime", "cudaDeviceSynchronize", t + 240 * by, 100 * by, correlation=c + 4),
            {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 100, "tid": 1, "ts": t + 7, "s": "t",
             "args": {"Device Type": 1, "Device Id": 0, "Addr": c, "Bytes": by << 20, "Total Allocated": by << 20}},
        ]  # fmt: skip
    return events


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[duckdb.DuckDBPyConnection, list[str]]:
    paths = []
    for by in (1, 3):
        folder = tmp_path_factory.mktemp("of")
        paths.append(folder / "trace.json")
        properties = [{"id": 0, "name": f"NVIDIA {'A' if by == 1 else 'H'}100-SXM4-80GB"}]
        paths[-1].write_text(json.dumps({"traceEvents": program(by), "deviceProperties": properties}))
    con, ids = connect_all(paths)
    con.execute("UPDATE traces SET path = '/x/trace.json', file = 'trace.json'")
    read = {name for question in OF_TRACES for name in re.findall(r"(?:FROM|JOIN) (\w+) AS", question.sql)}
    read |= {name for question in OF_TRACES for name in re.findall(r"FROM (\w+)$", question.sql, re.M)}
    there = load_catalog()
    run_models(con, there, sorted((read & set(there.models)) - {"traces"}))
    return con, ids


def rows(con: duckdb.DuckDBPyConnection, question: Question, trace: str | None = None) -> list[dict[str, Any]]:
    relation = con.sql(question.asked(trace=trace))
    return [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]


# 7 s, with nearly all models. test_questions.py asks each question of an empty lake.
@pytest.mark.slow(together="two traces")
def test_no_row_mixes_two_traces_and_each_says_whose_it_is(two: tuple[duckdb.DuckDBPyConnection, list[str]]) -> None:
    con, ids = two
    answered = 0
    for question in OF_TRACES:
        both = rows(con, question)
        apart = [row for trace_id in ids for row in rows(con, question, trace=trace_id)]
        assert Counter(map(repr, both)) == Counter(map(repr, apart)), question.name
        assert all("trace.json" in row.values() for row in both), question.name
        answered += len({row["job"] for row in both})
    assert answered >= len(OF_TRACES) - 3


@pytest.mark.slow(together="two traces")  # 3 s
@pytest.mark.parametrize(("width", "is_terminal"), [(120, False), (120, True), (80, True)])
def test_no_cell_is_longer_than_three_lines(
    two: tuple[duckdb.DuckDBPyConnection, list[str]], width: int, is_terminal: bool
) -> None:
    con, _ = two
    for question in OF_TRACES:
        relation = con.sql(question.asked())
        values = relation.fetchall()
        cells = [[name, *(shown(row[at]) for row in values)] for at, name in enumerate(relation.columns)]
        numbers = [is_number(str(kind)) for kind in relation.types]
        kinds = [_kind(name, number) for name, number in zip(relation.columns, numbers, strict=True)]
        to = make_console(width=width, file=StringIO(), force_terminal=is_terminal, no_color=True)
        is_table = print_answer(to, cells, kinds, numbers)
        lines = to.file.getvalue().splitlines()  # type: ignore[attr-defined]
        assert max(map(cell_len, map(plain, lines))) <= width, question.name
        per_row = 3 if is_table else 1 + 3 * len(cells)
        assert len(lines) <= 3 + 3 + per_row * len(values), question.name
        assert is_table or width < 120, f"{question.name} has too many columns for a table of 120"
        assert not [line for line in lines if re.search(r"\d[eE][+-]\d", line)], question.name


def plain(line: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", line)


def test_the_parts_of_the_gpus_time_are_all_of_it(shared: Path) -> None:
    """The parts of the GPU time add up to all of it.

    The trace is a decode whose work is replays of a graph. The replays are one row, and all shares have the same total.
    """
    path = shared / "traces" / "single" / "mi300_sglang_decode_graph.json.gz"
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    work = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset") and e["ph"] == "X"]
    calls = {e["args"]["correlation"]: e["name"] for e in events if e.get("cat") == "cuda_runtime"}
    replayed = sum(e["dur"] for e in work if "GraphLaunch" in calls[e["args"]["correlation"]]) / 1e3
    whole = sum(e["dur"] for e in work) / 1e3
    con, _ = connect_all([path])
    run_models(con, load_catalog(), ["op_kernels", "op_work", "graph_kernels", "family_utilization"])
    parts = rows(con, load_questions()["coverage"])
    assert sum(row["gpu_ms"] for row in parts) == pytest.approx(whole, abs=0.005)
    assert sum(row["percent"] for row in parts) == pytest.approx(100, abs=0.3)
    (graph,) = [row for row in parts if row["part"] == "graph"]
    assert (graph["gpu_ms"], graph["percent"]) == pytest.approx((replayed, 100 * replayed / whole), abs=0.06)
    assert "--capture-trace" in graph["told_by"]
    reached = rows(con, load_questions()["mfu"])
    kinds = {row["peak_kind"] for row in reached} - {None}
    of_kind = [row for row in reached if row["peak_kind"] in (None, min(kinds, default=None))]
    assert sum(row["gpu_ms"] for row in of_kind) == pytest.approx(whole, abs=0.05)
    assert {row["not_modelled"] for row in of_kind} - {None} == {row["part"] for row in parts} - {"modelled"}
    reading = load_questions()["coverage"].reading
    assert all(f"`{row['part']}`" in reading for row in parts)
