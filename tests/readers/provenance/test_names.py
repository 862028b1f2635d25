"""Kernels of a trace matched with the provenance of their process, compared with a walk over all graphs.

The tests also check which file belongs to which trace.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from pipelines.models.questions import load_questions
from tests.effort import SLOW, first_of
from tests.harness import kernel, op, x
from tests.readers.provenance.joined import joined
from tests.readers.provenance.make import GENUINE, folder_file, graph_lines, stack, written

NAMES = ("triton_poi_fused_add_0", "triton_red_fused_sum_1", "triton_per_fused_mean_2")
COLUMNS = (
    "n_calls, duration_ns, n_entries, n_graphs, operators, post_grad_nodes, pre_grad_nodes, source_lines, confidence"
)


def test_the_kernels_of_the_genuine_log(tmp_path: Path) -> None:
    """The trace has the kernel names of a CPU trace of the program in the log.

    A Triton kernel that the log does not contain also has a row.
    """
    names = ("cpp_fused_add_mul_relu_threshold_backward_0", "cpp_fused__softmax_1", "cpp_fused_sum_2")
    events = [x("cpu_op", f"graph_0_{name}", 10 * at, 3, pid=4248) for at, name in enumerate((*names, names[0]))]
    events += [op("aten::addmm", 90, 2), kernel("triton_poi_fused_gelu_7", 100, 4, 1), kernel("mine", 110, 4, 2)]
    log = written(tmp_path / "torch_trace" / "a.log", GENUINE.read_text().splitlines())
    con, _ = joined({tmp_path / "t.json": events}, [log])
    place = "/train/model.py:6 forward"
    assert con.execute(f"SELECT name, side, matched_by, {COLUMNS} FROM kernel_provenance ORDER BY ALL").fetchall() == [
        (names[1], "cpu", "pid", 1, 3000, 1, 1, "amax, div, exp, sub, sum", "amax, div, exp, sub, sum_1", "softmax", place, 1),
        (names[0], "cpu", "pid", 2, 6000, 1, 1, "add, le, mul, relu", "add, le, mul, relu", "add, mul, relu", place, 1),
        (names[2], "cpu", "pid", 1, 3000, 1, 1, None, None, None, place, 1),
        ("triton_poi_fused_gelu_7", "gpu", "pid", 1, 4000, 0, 0, None, None, None, None, None),
    ]  # fmt: skip
    asked = con.execute(load_questions()["compiled-kernels"].sql).fetchall()
    assert [row[2:5] for row in asked] == [(names[0], "cpu", 2), ("triton_poi_fused_gelu_7", "gpu", 1),
                                           (names[1], "cpu", 1), (names[2], "cpu", 1)]  # fmt: skip


Entry = tuple[str, int, dict[str, list[str]] | None, list[str] | None]  # kernel, handle, nodes, source lines


def _made(chance: random.Random) -> list[list[Entry]]:
    """Return graphs that share names of kernels, and sometimes also nodes and source lines."""
    graphs = []
    for _ in range(chance.randint(1, 3)):
        entries: list[Entry] = []
        is_mapped, is_traced = chance.random() < 0.7, chance.random() < 0.7
        for handle in range(1, chance.randint(2, 4)):
            nodes = {f"{chance.choice(('add', 'mul'))}_{chance.randint(1, 2)}": chance.choice(([], ["a"], ["a", "b"]))
                     for _ in range(chance.choice((1, 1, 2)))}  # fmt: skip
            places = [f"/m.py:{chance.randint(1, 2)} f"]
            entries.append((chance.choice(NAMES), handle, nodes if is_mapped else None, places if is_traced else None))
        graphs.append(entries)
    return graphs


def _log(graphs: list[list[Entry]]) -> list[str]:
    texts = []
    for number, entries in enumerate(graphs):
        mapped = {f"{name}:{handle}": nodes for name, handle, nodes, _ in entries if nodes is not None}
        # A node has the same nodes before it in all kernels of a graph.
        before = {node: names for nodes in mapped.values() for node, names in nodes.items()}
        mapped = {key: {node: before[node] for node in nodes} for key, nodes in mapped.items()}
        for _, _, nodes, _ in entries:
            for node in nodes or ():
                nodes[node] = before[node]  # type: ignore[index]
        stacks = {f"{name}:{handle}": [stack(("/m.py", int(place.split(":")[1].split()[0]), "f")) for place in places]
                  for name, handle, _, places in entries if places is not None}  # fmt: skip
        texts += graph_lines(mapped, stacks or None, number)
    return texts


def _expected(name: str, graphs: list[list[Entry]]) -> tuple[Any, ...]:
    """Return the expected columns by walking over all entries.

    The model treats graphs with the same nodes as one graph, so their entries count once.
    """
    columns_by_handle: dict[Any, list[tuple[str | None, ...]]] = {}
    for entries in graphs:
        mapped = [
            (n, h, sorted((node, tuple(pre)) for node, pre in nodes.items()), list(nodes))
            for n, h, nodes, _ in entries
            if nodes is not None
        ]
        which = repr(mapped) if mapped else repr(sorted((n, h) for n, h, _, places in entries if places is not None))
        for kernel_name, handle, nodes, places in entries:
            if kernel_name == name and not (nodes is None and places is None):
                pre = sorted({node for names in (nodes or {}).values() for node in names})
                columns = (
                    ", ".join(sorted({node.split("_")[0] for node in nodes})) if nodes else None,
                    ", ".join(sorted(nodes)) if nodes else None,
                    ", ".join(pre) or None,
                    ", ".join(sorted(set(places))) if places else None,
                )
                columns_by_handle.setdefault((which, handle), []).append(columns)
    entries = []
    for several in columns_by_handle.values():
        known = [{value for value in values if value is not None} for values in zip(*several, strict=True)]
        entries.append([next(iter(values)) if len(values) == 1 else None for values in known])
    if not entries:
        return (0, 0, None, None, None, None, None)
    operators, post, pre, lines = zip(*entries, strict=True)
    agreed = [values[0] if len(set(values)) == 1 else None for values in (operators, lines)]
    alone = [values[0] if len(entries) == 1 else None for values in (post, pre)]
    confidence = None if agreed == [None, None] else 1.0 if len(entries) == 1 else 0.9
    return (len(entries), len({which for which, _ in columns_by_handle}), agreed[0], *alone, agreed[1], confidence)


@pytest.mark.slow  # a test above covers the names of one graph
def test_names_of_several_graphs_are_told_only_where_they_agree(tmp_path: Path) -> None:
    chance = random.Random(7)
    traces, files, cases = {}, [], {}
    for number in range(64 if SLOW else 32):
        graphs = _made(chance)
        folder = tmp_path / str(number)
        files.append(written(folder / "a.log", [f"{line}" for line in _log(graphs)] + [f"\t{number}"]))
        ran = {name: chance.randint(1, 3) for name in NAMES}
        events = [x("cpu_op", "aten::add", 1, 1, pid=41)]
        events += [
            kernel(name, 10 + at, 1, at)
            for at, name in enumerate(kernel_name for kernel_name in ran for _ in range(ran[kernel_name]))
        ]
        traces[folder / "t.json"] = events
        cases[folder / "t.json"] = (graphs, ran)
    # A log is identified by its first line, which contains the time. Here all first lines would be equal.
    for number, file in enumerate(files):
        file.write_text(file.read_text().replace("14:25:29.066000", f"14:25:29.{number:06}", 1))
    con, paths = joined(traces, files)
    rows = con.execute(f"SELECT trace_id, name, {COLUMNS} FROM kernel_provenance").fetchall()
    assert len(rows) == len(cases) * len(NAMES)
    kinds = set()
    for trace_id, name, n_calls, duration_ns, *values in rows:
        graphs, ran = cases[paths[trace_id]]
        assert (n_calls, duration_ns) == (ran[name], ran[name] * 1000)
        assert tuple(values) == _expected(name, graphs), (name, graphs)
        kinds.add((min(values[0], 2), values[2] is None, values[5] is None, values[6]))
    assert len(kinds) >= 8


def test_what_a_log_and_a_debug_folder_both_have_counts_once(tmp_path: Path) -> None:
    graph = {f"{NAMES[0]}:1": {"add_1": ["a"]}}
    lines = {f"{NAMES[0]}:1": [stack(("/m.py", 3, "f"))]}
    files = [folder_file(tmp_path, graph, 41), written(tmp_path / "a.log", graph_lines(graph, lines))]
    events = [x("cpu_op", "aten::add", 1, 1, pid=41), kernel(NAMES[0], 10, 2, 1)]
    con, _ = joined({tmp_path / "t.json": events}, files)
    rows = con.execute(f"SELECT {COLUMNS} FROM kernel_provenance").fetchall()
    assert rows == [(1, 2000, 1, 1, "add", "add_1", "a", "/m.py:3 f", 1.0)]


RUN = Path("/job/run")


@pytest.mark.slow  # a test below covers another folder alone
def test_debug_folders_alone_may_lack_graphs(tmp_path: Path) -> None:
    files = [folder_file(tmp_path, {f"{NAMES[0]}:1": {"add_1": ["a"]}}, 41)]
    events = [x("cpu_op", "aten::add", 1, 1, pid=41), kernel(NAMES[0], 10, 2, 1)]
    con, _ = joined({tmp_path / "t.json": events}, files)
    rows = con.execute("SELECT operators, matched_by, confidence FROM kernel_provenance").fetchall()
    assert rows == [("add", "pid", 0.7)]


@pytest.mark.parametrize(
    ("why", "trace", "of_trace", "file", "of_file", "way"),
    first_of([
        ("the same process id on another rank", RUN, (41, 2), RUN, (41, 3), None),
        ("of the same rank", RUN, ("main", 3), RUN, (41, 3), "rank"),
        ("the same process", RUN, (41, None), RUN / "tt", (41, None), "pid"),
        ("another process", RUN, (42, None), RUN / "tt", (41, None), None),
        ("another process of the same rank", RUN, (42, 3), RUN / "tt", (41, 3), None),
        ("the same process and rank", RUN, (41, 3), RUN, (41, 3), "pid"),
        ("beside it, without a process", RUN, (41, None), RUN, (None, None), "folder"),
        ("a trace without process ids", RUN, ("main", None), RUN / "tt", (41, None), "folder"),
        ("of another rank", RUN, ("main", 2), RUN, (41, 3), None),
        ("a folder with the same beginning", RUN, (41, None), Path("/job/run2"), (41, None), None),
        ("above the trace", RUN, (41, None), Path("/job"), (41, None), None),
        ("elsewhere", RUN, (41, None), Path("/other"), (None, None), None),
    ], 2),
)  # fmt: skip
def test_whose_a_file_is(
    tmp_path: Path, why: str, trace: Path, of_trace: tuple[int | str, int | None], file: Path,
    of_file: tuple[int | None, int | None], way: str | None,
) -> None:  # fmt: skip
    inside = tmp_path / file.relative_to("/")
    if of_file[0] is None:
        name = f"{folder_file(tmp_path, {NAMES[0]: {'add': []}}).stem}.json"
        inside.mkdir(parents=True)
        path = (next(tmp_path.rglob(name))).rename(inside / name)
    else:
        path = written(inside / "a.log", graph_lines({NAMES[0]: {"add": []}}, pid=of_file[0], rank=of_file[1]))
    at = tmp_path / trace.relative_to("/") / "t.json"
    con, (trace_id, *_) = joined({at: [x("cpu_op", "a", 1, 1, pid=of_trace[0])]}, [path], {at: of_trace[1]})
    rows = con.execute("SELECT trace_id, matched_by FROM compile_provenance_matches").fetchall()
    assert rows == [(trace_id if way else None, way)], why


def test_a_process_of_the_same_job_may_be_elsewhere_and_better_matches_count_alone(tmp_path: Path) -> None:
    graph = {NAMES[0]: {"add": []}}
    loose = folder_file(tmp_path, graph, None)
    files = [loose, written(tmp_path / "logs" / "a.log", graph_lines(graph, pid=41))]
    at = tmp_path / "traces" / "t.json"
    con, _ = joined({at: [x("cpu_op", "a", 1, 1, pid=41)]}, files)
    query = "SELECT matched_by FROM compile_provenance_matches ORDER BY 1"
    assert con.execute(query).fetchall() == [(None,), (None,)]
    con.execute("UPDATE traces SET job = 'j'")
    assert con.execute(query).fetchall() == [("pid",), (None,)]
    con.execute(f"UPDATE traces SET path = '{tmp_path / 't.json'}'")
    assert con.execute(query).fetchall() == [("pid",), (None,)]
    con.execute("UPDATE compile_provenance SET pid = NULL, rank = 3; UPDATE traces SET rank = 3")
    assert con.execute(query).fetchall() == [("rank",), ("rank",)]


def test_a_match_by_folder_is_worth_less(tmp_path: Path) -> None:
    events = [x("cpu_op", "a", 1, 1), kernel(NAMES[0], 10, 2, 1)]
    con, _ = joined({tmp_path / "t.json": events}, [folder_file(tmp_path, {NAMES[0]: {"add": []}}, None)])
    assert con.execute("SELECT operators, confidence FROM kernel_provenance").fetchall() == [("add", 0.7)]
