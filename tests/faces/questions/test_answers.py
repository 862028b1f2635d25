"""Answers of questions, over tables of a few rows whose answers follow by hand. Columns that a row omits are NULL."""

from __future__ import annotations

from functools import partial
from itertools import groupby
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from pipelines.lake.publish.contents import column_types
from pipelines.models.catalog import load_catalog
from pipelines.models.questions import question_named, rows_of_question

Rows = list[dict[str, Any]]
TRACES: Rows = [
    {"trace_id": "a", "job": "j", "file": "a.json", "rank": 0},
    {"trace_id": "b", "file": "b.json", "rank": 1},
]
CAPTURES: Rows = [{"capture_id": "c", "job": "j"}, {"capture_id": "d"}]


def asked(name: str, columns: str, limits: dict[str, Any] | None = None, **tables: Rows) -> list[tuple[Any, ...]]:
    """Return these columns of the answer to a question over these rows."""
    types = column_types(load_catalog())
    with duckdb.connect() as con:
        for table, rows in {"traces": TRACES, "captures": CAPTURES, **tables}.items():
            con.execute(f"CREATE TABLE {table} ({', '.join(f'{column} {kind}' for column, kind in types[table])})")
            for _, of_these_columns in groupby(rows, key=tuple):
                batch = pa.Table.from_pylist([*of_these_columns])
                con.execute(f"INSERT INTO {table} BY NAME FROM batch")
                del batch  # DuckDB reads it by its name
        answer = rows_of_question(con, name, **(limits or {}))
    return [tuple(row[column] for column in columns.split()) for row in answer]


def of(columns: str, *rows: tuple[Any, ...]) -> Rows:
    return [dict(zip(columns.split(), row, strict=True)) for row in rows]


def test_a_list_has_whole_ids() -> None:
    """A text is a prefix of an id or a file name, but an item of a list is a whole id."""
    queued = of("trace_id at_ns change", ("a", 0, 1), ("b", 0, 1))
    for limits, ids in (({}, "ab"), ({"trace": "b"}, "b"), ({"trace": ["a", "b"]}, "ab"), ({"trace": ["b.json"]}, "")):
        answer = asked("queue-over-time", "trace_id", limits, queue_length=queued)
        assert sorted(answer) == [(trace_id,) for trace_id in ids]
    question = question_named("queue-over-time")
    assert "(SELECT * FROM traces WHERE trace_id = 'a')" in question.asked(trace=["a"])
    assert "starts_with(trace_id, 'a') OR file = 'a'" in question.asked(trace="a")


def test_queue_over_time() -> None:
    """Trace a has 4 launches in 400 ns.

    Work that starts when it is launched never waits, and the last launch is still waiting.
    """
    changes = of(
        "trace_id stream at_ns change",
        ("a", 7, 100, 1), ("a", 8, 101, 1), ("a", 7, 101, 1), ("a", 7, 499, -1), ("a", 7, 499, 1), ("b", 7, 5, 1),
    )  # fmt: skip
    answer = asked("queue-over-time", "job stretch most_waiting last_waiting span_ns", queue_length=changes)
    assert answer == [("b.json", 0, 1, 1, 1), ("j", 0, 1, 1, 400), ("j", 1, 3, 3, 400), ("j", 399, 3, 3, 400)]


def test_a_stretch_of_the_queue_has_its_most_and_its_last() -> None:
    changes = of("trace_id at_ns change", ("a", 0, 1), ("a", 1, 1), ("a", 2, -1), ("a", 799, -1))
    answer = asked("queue-over-time", "stretch most_waiting last_waiting", queue_length=changes)
    assert answer == [(0, 2, 2), (1, 1, 1), (399, 0, 0)]
    changes = of("trace_id at_ns change", ("a", 0, 1), ("a", 1, 1), ("a", 2, -1), ("a", 3999, -1))
    assert asked("queue-over-time", "stretch most_waiting last_waiting", queue_length=changes) == [
        (0, 2, 1),
        (399, 0, 0),
    ]


def test_queue_lengths_are_of_the_time() -> None:
    """Trace a has 1,000 launches 1 ms apart, whose work starts 5 us later.

    Trace b has no duration. Another stream of trace a has 4 launches, two of them at the same time.
    """
    changes = of(
        "trace_id stream at_ns change queue_length",
        *(("a", 7, 1_000_000 * n + late, 1 - 2 * (late > 0), int(late == 0)) for n in range(1000) for late in (0, 5000)),
        ("a", 8, 0, 1, 1), ("a", 8, 10, 1, 2), ("a", 8, 10, 1, 3), ("a", 8, 10, -1, 2), ("a", 8, 25, -1, 1),
        ("a", 8, 30, -1, 0), ("a", 8, 31, 1, 1), ("a", 8, 40, -1, 0), ("b", 7, 5, 1, 1), ("b", 7, 5, -1, 0),
    )  # fmt: skip
    rows = [{**row, "event_id": n} for n, row in enumerate(changes)]
    answer = asked("queue-lengths", "job stream longest median percent_empty", queue_length=rows)
    assert answer == [("j", 8, 3, 1, 2.5), ("b.json", 7, 1, None, None), ("j", 7, 1, 0, 99.5)]
    both = [*rows, *({**row, "trace_id": "b"} for row in rows if row["stream"] == 8)]
    joined = asked("queue-lengths", "rank stream median percent_empty", {"rank": 1}, queue_length=both)
    assert joined == [(1, 8, 1, 2.5), (1, 7, None, None)]


def test_launch_calls() -> None:
    calls = of(
        "trace_id name duration_ns launch_delay_ns",
        *(("a", "launch", 1, 10), ("a", "launch", 5, None), ("a", "launch", 2, 30), ("a", "copy", 9, 4)),
        ("b", "launch", 7, 1),
    )
    answer = asked("launch-calls", "job name n duration_ns median_ns median_delay_ns", launches=calls)
    assert answer == [("j", "launch", 3, 8, 2, 20), ("j", "copy", 1, 9, 9, 4), ("b.json", "launch", 1, 7, 7, 1)]


def test_rank_kernels() -> None:
    work = of(
        "trace_id name class duration_ns",
        *(("a", "k", "X", 10), ("a", "k", "X", 20), ("a", "k", "Y", 10), ("b", "k", "X", 50)),
    )
    answer = asked("rank-kernels", "rank class n duration_ns median_ns max_ns percent", kernels=work)
    assert answer == [(1, "X", 1, 50, 50, 50, 100), (0, "X", 2, 30, 15, 20, 75), (0, "Y", 1, 10, 10, 10, 25)]


def test_gpu_parts() -> None:
    columns = "trace_id device span_ns busy_ns compute_ns exposed_communication_ns exposed_memory_ns idle_ns"
    divided = of(
        columns,
        ("b", 3, 200_000_000, 80_000_000, 50_000_000, 20_000_000, 4_000_000, 120_000_000),
        ("a", 0, 0, 0, 0, 0, 0, 0),
    )
    answer = asked("gpu-parts", "job rank device part ms percent trace_id", temporal_breakdown=divided)
    parts = [("compute", 50, 25), ("exposed communication", 20, 10), ("exposed memory", 4, 2), ("idle", 120, 60)]
    assert answer == [("b.json", 1, 3, *part, "b") for part in (*parts, ("other work", 6, 3))]


GRAPH = of(
    "trace_id sequence_id period replay_id repetition class name op duration_ns",
    ("a", 1, 2, 1, 0, "X", "k", "mm", 10), ("a", 1, 2, 1, 0, "Y", "l", None, 2),
    ("a", 1, 2, 1, 1, "X", "k", "mm", 30), ("a", 1, 2, 1, 1, "Y", "l", None, 4),
    ("a", 1, 2, 9, 0, "X", "k", "mm", 20), ("a", 1, 2, 9, 0, "Y", "l", None, 0),
    ("a", 1, 2, 9, 1, "X", "k", "mm", 99),  # the rest of the block is not in the trace
    ("a", 1, None, 9, None, "X", "tail", None, 5), ("b", 1, 1, 1, 0, "X", "k", None, 7),
)  # fmt: skip


def test_graph_blocks() -> None:
    answer = asked("graph-blocks", "rank period n_repetitions median_ns longest_ns longest", graph_kernels=GRAPH)
    assert answer == [(0, 2, 2, 20, 34, 1), (1, 1, 1, 7, 7, 0)]


def test_graph_repetitions() -> None:
    answer = asked("graph-repetitions", "rank period repetition class n duration_ns", graph_kernels=GRAPH)
    own = [(0, 2, 0, "X", 2, 30), (0, 2, 0, "Y", 2, 2), (0, 2, 1, "X", 2, 129), (0, 2, 1, "Y", 1, 4)]
    assert answer == [(1, 1, 0, "X", 1, 7), *own]


def test_graph_kernels() -> None:
    answer = asked("graph-kernels", "rank name class op n n_repetitions duration_ns", graph_kernels=GRAPH)
    own = [(0, "k", "X", "mm", 4, 2, 159), (1, "k", "X", None, 1, 1, 7), (0, "l", "Y", None, 3, 2, 6)]
    assert answer == [*own, (0, "tail", "X", None, 1, 0, 5)]
    sure = [{**GRAPH[0], "confidence": confidence} for confidence in (0.9, 0.7, 0.8)]
    assert asked("graph-kernels", "confidence n", graph_kernels=sure) == [(0.7, 3)]


def test_graph_time() -> None:
    work = of("trace_id duration_ns", ("a", 100), ("a", 400), ("b", 7))
    answer = asked("graph-time", "rank gpu_ns n_kernels n_replays graph_ns known_ns", kernels=work, graph_kernels=GRAPH)
    assert answer == [(0, 500, 8, 2, 170, 159), (1, 7, 1, 1, 7, 0)]
    named = [{**GRAPH[1], "module": "m"}]
    answer = asked("graph-time", "gpu_ns graph_ns known_ns", {"rank": 0}, kernels=[], graph_kernels=named)
    assert answer == [(None, 2, 2)]
    assert asked("graph-time", "n_replays graph_ns", kernels=work, graph_kernels=[]) == [(0, 0)] * 2


def test_coverage_says_what_replays_ran() -> None:
    """Work of a replay counts as replayed even if its launch is not in the trace. A kernel outside a graph does not."""
    work = of(
        "trace_id event_id op_event_id not_modelled source duration_ns",
        ("a", 1, 9, None, "capture", 10_000), ("a", 2, 8, None, "launch", 20_000),
        ("a", 3, None, "no_launch", None, 40_000), ("a", 4, None, "no_launch", None, 80_000),
        ("a", 5, 7, "graph", None, 160_000), ("a", 6, 7, None, "launch", 320_000),
    )  # fmt: skip
    owners = of("trace_id event_id not_modelled", ("a", 9, None), ("a", 8, None), ("a", 7, "graph"))
    replayed = of("trace_id event_id", ("a", 1), ("a", 3), ("a", 5))
    answer = asked("coverage", "part gpu_ms replayed_ms", op_kernels=work, op_work=owners, graph_kernels=replayed)
    assert answer == [("graph", 0.48, 0.16), ("no_launch", 0.12, 0.04), ("modelled", 0.03, 0.01)]


def test_steps_in_order() -> None:
    """Step 2 runs on two devices, of which device 0 is the busiest.

    Step 1 has no GPU work. Of equally busy devices the first counts.
    """
    times = of(
        "trace_id step device duration_ns host_ns busy_ns compute_ns communication_ns",
        *(("a", 2, 0, 100, 90, 60, 9, 1), ("a", 2, 1, 100, 90, 50, 10, 3)),
        *(("a", 1, None, 50, 50, None, None, None), ("b", 2, 1, 8, 2, 4, 0, 4), ("b", 2, 0, 8, 2, 4, 3, 2)),
    )
    answer = asked(
        "steps-in-order", "job step duration_ns host_ns busy_ns compute_ns communication_ns", step_times=times
    )
    assert answer == [("b.json", 2, 8, 2, 4, 3, 2), ("j", 1, 50, 50, None, None, None), ("j", 2, 100, 90, 60, 9, 1)]


def test_step_ranks() -> None:
    steps = of(
        "capture_id step rank step_ns",
        *(("c", 1, 0, 5), ("c", 1, 1, 9), ("c", 1, 2, 7), ("c", 2, 0, 4), ("c", 2, 1, None), ("c", None, 0, 1)),
        *(("d", 1, 3, 8), ("d", 1, 4, 8), ("c", None, 1, 1)),
    )
    answer = asked("step-ranks", "capture_id step slowest_rank longest_ns shortest_ns n_ranks", rank_steps=steps)
    assert answer == [("c", 1, 1, 9, 5, 3), ("d", 1, 3, 8, 8, 2)]


LAYERS = of(
    "trace_id span_id parent_id kind name tid start_ns duration_ns end_ns",
    ("a", 1, None, "step", "s1", "1", 0, 50, 50), ("a", 2, None, "step", "s2", "1", 60, 100, 160),
    ("a", 3, 2, "module", "m", "1", 70, 20, 90), ("a", 4, None, "module", "other", "2", 70, 500, 570),
    ("a", 5, None, "annotation", "later", "1", 160, 5, 165),
    ("b", 1, None, "module", "m", "1", 5, 8, 13), ("b", 2, 1, "module", "n", "1", 6, 4, 10),
    ("b", 3, None, "module", "last", "1", 30, 3, 33), ("b", 4, None, "module", "o", "2", 0, 9, 9),
    ("b", 5, 4, "module", "p", "2", 0, 9, 9),
)  # fmt: skip


def test_longest_step() -> None:
    """Without steps, the longest of the outermost spans is shown.

    Trace b has no steps, and its thread 1 is in spans longest, because nested spans do not count twice.
    """
    use = of(
        "trace_id span_id phase peak_kind n_kernels busy_ns coverage roofline_utilization",
        ("a", 2, "window", "datasheet", 3, 40, 0.5, 0.25), ("a", 2, "window", "measured", 3, 40, 0.5, 0.9),
        ("a", 2, "fwd", "datasheet", 1, 1, 0.1, 0.1), ("a", 3, "fwd", None, 2, 15, 0.0, None), ("a", 3, "bwd", None, 9, 9, 0.0, None),
    )  # fmt: skip
    answer = asked(
        *(
            "longest-step",
            "rank kind name start_ns duration_ns n busy_ns modeled_percent roofline_percent span parent step_ns",
        ),
        **{"spans": LAYERS, "span_utilization": use},
    )
    nothing = (None,) * 4
    assert answer == [
        (1, "module", "m", 0, 8, *nothing, 1, None, 28),
        (1, "module", "n", 1, 4, *nothing, 2, 1, 28),
        (1, "module", "last", 25, 3, *nothing, 3, None, 28),
        (0, "step", "s2", 0, 100, 3, 40, 50.0, 25.0, 2, None, 100),
        (0, "module", "m", 10, 20, 2, 15, 0.0, None, 3, 2, 100),
    ]


def test_the_longest_step_s_gpu_work_needs_no_peak_of_a_data_sheet() -> None:
    """A device with only measured peaks has a busy time, but no share of a datasheet's roofline."""
    use = of(
        "trace_id span_id phase peak_kind n_kernels busy_ns coverage roofline_utilization",
        ("a", 2, "window", "measured", 3, 40, 0.5, 0.9),
    )
    answer = asked(
        *("longest-step", "name n busy_ns modeled_percent roofline_percent", {"trace": "a"}),
        **{"spans": LAYERS, "span_utilization": use},
    )
    assert answer == [("s2", 3, 40, 50.0, None), ("m", None, None, None, None)]


def test_module_ranks() -> None:
    spent = of(
        "trace_id kind name phase busy_ns",
        ("a", "module", "m", "fwd", 3), ("a", "module", "m", "bwd", 4), ("a", "module", "m", "window", 50),
        ("a", "step", "m", "fwd", 60), ("a", "module", "n", "fwd", 0), ("b", "module", "m", "fwd", 9),
    )  # fmt: skip
    assert asked("module-ranks", "job rank name busy_ns", span_names=spent) == [("b.json", 1, "m", 9), ("j", 0, "m", 7)]


def test_sampled_modules() -> None:
    """Forward took 8 ms in two sampled steps, and the work of 3 ms is known.

    A call has a row per peak, but counts once.

    Module m was measured in three of the five sampled steps of y that are not a census, and did not run in one of them.
    In step 6 no module accepted hooks. It is unknown which modules recording x measured.
    """
    recordings = of(
        "recording_id kind run_id start_ns",
        ("x", "spans", "old", 1),
        ("y", "spans", "new", 5),
        ("z", "counters", "old", 9),
    )
    calls = of(
        "recording_id run_id rank step span_id name phase duration_ns not_measured peak_kind mfu_wall bandwidth_utilization roofline_utilization suspect",
        ("y", "new", 1, 2, 1, "m", "forward", 2_000_000, None, "datasheet", 0.5, 0.25, 0.5, False),
        ("y", "new", 1, 2, 1, "m", "forward", 2_000_000, None, "measured", 0.9, 0.9, 0.9, False),
        ("y", "new", 1, 2, 2, "m", "forward", 1_000_000, None, "datasheet", 0.2, None, None, True),
        ("y", "new", 1, 4, 1, "m", "forward", 5_000_000, None, None, None, None, None, False),
        ("y", "new", 1, 4, 2, "m", "forward", 9_000_000, "too_short", "datasheet", None, None, None, True),
        ("y", "new", 1, 4, 3, "m", "backward", 3_000_000, None, "measured", 0.1, 0.1, 0.1, False),
        ("y", "new", 1, 4, 4, "m", "recompute", 9_000_000, None, "datasheet", 0.1, 0.1, 0.1, False),
        ("y", "new", 1, 4, 0, "step", "step", 9_000_000, None, "datasheet", 0.1, 0.1, 0.1, False),
        ("x", "old", None, 0, 1, "m", "forward", 7_000_000, None, None, None, None, None, False),
    )  # fmt: skip
    measured = of(
        "recording_id step name is_census",
        ("y", 1, "m", True), ("y", 1, "o", True), ("y", 2, "m", False), ("y", 3, "o", False), ("y", 4, "m", False),
        ("y", 4, "o", False), ("y", 5, "m", False),
    )  # fmt: skip
    steps = of(
        "recording_id step span_id phase is_census",
        ("y", 1, 0, "step", True), *(("y", step, 0, "step", False) for step in range(2, 7)), ("y", 6, 1, "own", False),
        ("x", 0, 0, "step", False),
    )  # fmt: skip
    stored = {"span_samples": steps, "span_sample_modules": measured}
    tables = {"recordings": recordings, "span_sample_utilization": calls, **stored}
    columns = "run_id recording_id rank phase n ms mfu_percent bandwidth_percent roofline_percent peak_kind suspect"
    assert asked("sampled-modules", columns, **tables) == [
        ("new", "y", 1, "forward", 3, 4.0, 40.0, 25.0, 50.0, "datasheet", True),
        ("new", "y", 1, "backward", 1, 3.0, 10.0, 10.0, 10.0, "measured", False),
        ("old", "x", None, "forward", 1, 7.0, None, None, None, None, False),
    ]
    columns = "recording_id phase n_steps n_measured_steps n_sampled_steps"
    assert asked("sampled-modules", columns, **tables) == [
        ("y", "forward", 2, 3, 5),
        ("y", "backward", 1, 3, 5),
        ("x", "forward", 1, None, 1),
    ]


CAUSES = of(
    "capture_id rank device cause gpu_ns hidden_ns",
    ("c", 0, 0, "straggler_wait", 50, 20), ("c", 0, 0, "exposed_communication", 7, 0), ("c", 0, 0, "compute", 10, 0),
    ("c", 1, 0, "compute", 12, 0), ("c", 1, 1, "compute", 30, 0), ("c", 1, 0, "launch_overhead", 6, 0), ("c", 1, 0, "idle_host", 9, 0),
    ("c", 2, 0, "compute", 20, 0), ("c", 3, 0, "compute", 16, 0), ("c", None, None, "not_in_trace", 99, 0),
    ("c", 1, 0, "straggler_wait", 90, 90), ("c", 3, 0, "launch_overhead", 4, 0),
    ("c", 4, None, "not_in_trace", 99, 0),
)  # fmt: skip


def test_exposed_communication() -> None:
    answer = asked("exposed-communication", "job rank device wait_ns transfer_ns", gpu_time_by_cause=CAUSES)
    nothing = [("j", rank, device, 0, 0) for rank, device in ((1, 0), (1, 1), (2, 0), (3, 0))]
    assert answer == [("j", 0, 0, 30, 7), *nothing]


@pytest.mark.parametrize(
    ("n_ranks", "world_size", "parts"),
    [
        (1, 8, (None, None, 12)), (1, None, (None, None, 12)),  # it is unknown whether the other ranks were late
        (1, 1, (0, 7, 5)), (2, 8, (0, 7, 5)), (2, None, (0, 7, 5)),
    ],
)  # fmt: skip
def test_waiting_for_ranks_that_are_not_in_the_lake_is_unknown(
    n_ranks: int, world_size: int | None, parts: tuple[int | None, ...]
) -> None:
    causes = of(
        "capture_id rank device cause gpu_ns hidden_ns",
        *(("c", 0, 0, "exposed_communication", 7, 0), ("c", 0, 0, "unsplit_communication", 5, 0)),
        ("c", 0, 0, "compute", 10, 0),
    )
    captures = of("capture_id job n_ranks world_size", ("c", "j", n_ranks, world_size))
    columns = "wait_ns transfer_ns unsplit_ns"
    assert asked("exposed-communication", columns, captures=captures, gpu_time_by_cause=causes) == [parts]


@pytest.mark.parametrize("cause", ["exposed_communication", "unsplit_communication"])
@pytest.mark.parametrize("world_size", [None, 8])
def test_a_rank_alone_without_exposed_communication_waits_for_no_other(world_size: int | None, cause: str) -> None:
    """A single rank without exposed communication has no waiting, on any of its devices.

    The communication of its second device is divided like that of the first.
    """
    captures = of("capture_id job n_ranks world_size", ("c", "j", 1, world_size))
    for ns, parts in ((0, (0, 0, 0)), (1, (None, None, 1))):
        causes = of(
            "capture_id rank device cause gpu_ns hidden_ns",
            ("c", 0, 0, cause, ns, 0), ("c", 0, 0, "compute", 10, 0), ("c", 0, 1, "compute", 10, 0),
        )  # fmt: skip
        answer = asked(
            "exposed-communication", "wait_ns transfer_ns unsplit_ns", captures=captures, gpu_time_by_cause=causes
        )
        assert answer == [parts, (*parts[:2], 0)]


FIXES = of(
    "trace_id window_id fix name change saves_ns saves_percent options caveat",
    ("a", "full", "do_not_wait", "aten::item", "do not wait", 1_800_000_000, 45.0, "--remove wait:aten::item", "it is late"),
    ("a", "full", "do_not_wait", "*", "wait nowhere", 900_000_000, 22.5, "--remove 'wait:*'", "it is late"),
    ("a", "ProfilerStep#1", "no_gc", "", "no collection", 7_000_000_000, 99.0, "--remove cause:garbage_collection", None),
    ("b", "full", "do_not_wait", "aten::nonzero", "do not wait there", 5_400_000_000, 90.04, "--remove wait:aten::nonzero", None),
    ("b", "full", "no_gc", "", "no collection", 3_600_000, 0.06, "--remove cause:garbage_collection", None),
)  # fmt: skip


def test_fixes() -> None:
    answer = asked("fixes", "job rank fix name saves_ms saves_percent caveat", fixes=FIXES)
    assert answer == [
        ("b.json", 1, "do_not_wait", "aten::nonzero", 5400, 90.0, None),
        ("j", 0, "do_not_wait", "aten::item", 1800, 45.0, "it is late"),
        ("j", 0, "do_not_wait", "*", 900, 22.5, "it is late"),
        ("b.json", 1, "no_gc", "", 3.6, 0.1, None),
    ]


def test_fleet_fixes_are_sums_over_captures_with_the_largest_trace() -> None:
    """A fix is summed over captures, with the trace in which it saves most.

    The paths take 10 s in total. For a capture without a job, its file is shown as the job.
    """
    whole = of("capture_id cause duration_ns", ("c", "x", 3 * 10**9), ("c", "y", 10**9), ("d", "x", 6 * 10**9))
    totals = of(
        "capture_id fix n_traces saves_ns trace_id change most_saves_ns most_saves_percent",
        ("c", "do_not_wait", 1, 1_800_000_000, "a", "do not wait", 1_800_000_000, 45.0),
        ("d", "do_not_wait", 1, 5_400_000_000, "b", "do not wait there", 5_400_000_000, 90.04),
        ("d", "no_gc", 1, 3_600_000, "b", "no collection", 3_600_000, 0.06),
    )
    columns = "fix n_traces gpu_hours percent top_job top_file top_change top_percent"
    assert asked("fleet-fixes", columns, fix_totals=totals, cause_totals=whole) == [
        ("do_not_wait", 2, 0.002, 72.0, "b.json", "b.json", "do not wait there", 90.0),
        ("no_gc", 1, 0.000001, 0.0, "b.json", "b.json", "no collection", 0.1),
    ]
    of_a = asked("fleet-fixes", columns, {"job": "j"}, fix_totals=totals, cause_totals=whole)
    assert of_a == [("do_not_wait", 1, 0.0005, 45.0, "j", "a.json", "do not wait", 45.0)]
    assert question_named("fleet-fixes").limits == ["job", "capture"]  # its table has a row for all traces of a capture


def test_path_names() -> None:
    """Percentages are of the whole path. This includes time that belongs to no event, such as gaps on the host."""
    names = of(
        "trace_id window_id name cat n_events duration_ns",
        *(("a", "full", "gemm", "kernel", 2, 10_000_000), ("b", "full", "gemm", "kernel", 1, 30_000_000)),
        *(("a", "full", "launch", "cuda_runtime", 2, 20_000_000), ("a", "5", "launch", "cuda_runtime", 2, 20_000_000)),
    )
    bounds = of(
        "trace_id window_id bound_by duration_ns",
        *(("a", "full", "host_gap", 170_000_000), ("a", "full", "gpu", 30_000_000), ("a", "5", "host_gap", 90_000_000)),
        ("b", "full", "gpu", 30_000_000),
    )
    answer = asked(
        "path-names", "job name n path_ms percent", critical_path_by_name=names, critical_path_summary=bounds
    )
    assert answer == [("b.json", "gemm", 1, 30, 100), ("j", "launch", 2, 20, 10), ("j", "gemm", 2, 10, 5)]


def test_capture_fixes() -> None:
    rows = of(
        "capture_id fix name saves_ns saves_percent same_stretch_as",
        ("c", "even_ranks", "rank 3", 2_000_000, 30.04, None),
        ("d", "do_not_wait", "*", 3_000_000, 10.0, "launch a graph"),
    )
    answer = asked(
        "capture-fixes", "capture_id job fix name saves_ms saves_percent same_stretch_as", capture_fixes=rows
    )
    assert answer == [
        ("d", None, "do_not_wait", "*", 3, 10, "launch a graph"),
        ("c", "j", "even_ranks", "rank 3", 2, 30, None),
    ]


def test_straggler_causes() -> None:
    ranks = of("capture_id rank is_straggler", ("c", 0, False), ("c", 1, True), ("c", 2, False), ("c", 3, False))
    answer = asked(
        *("straggler-causes", "job capture_id rank cause gpu_ns usual_ns"),
        **{"gpu_time_by_cause": CAUSES, "straggler_ranks": ranks},
    )
    own = [("compute", 42, 16), ("idle_host", 9, None), ("launch_overhead", 6, 0)]
    assert answer == [("j", "c", 1, *row) for row in own]


def test_hang_dumps() -> None:
    dumps = of(
        "set_id rank folder verdict doubts",
        *(("s", n, "/f", "hang", "[]") for n in range(3)),
        ("r", 0, "/e", None, None),
    )
    calls = of(
        "set_id rank record_id trace_id event_id confidence",
        ("s", 0, 1, "a", 5, 0.9),
        ("s", 1, 1, "b", 6, 0.7),
        ("s", 0, 1, "b", 9, 0.8),  # the same call in a second trace
        ("s", 1, 2, "b", None, None),
        ("r", 1, 1, "b", None, None),
    )
    tables = {"flight_recorder_dumps": dumps, "flight_recorder_matches": calls}
    columns = "job folder n_dumps n_calls n_found least_confidence verdict doubts set_id"
    first = ("b.json", "/e", 1, 1, 0, None, None, None, "r")
    assert asked("hang-dumps", columns, **tables) == [first, ("b.json", "/f", 3, 3, 2, 0.7, "hang", "[]", "s")]
    alone = asked("hang-dumps", columns, {"trace": ["a"]}, **tables)
    assert alone == [("j", "/f", 3, 1, 1, 0.9, "hang", "[]", "s")]


def test_snapshot_traces() -> None:
    taken = {
        "memory_snapshots": of("snapshot_id file rank", ("x", "x.pickle", 4), ("y", "y.pickle", None)),
        "snapshot_peaks": of(
            "snapshot_id device peak_allocated_bytes allocated_bytes is_consistent",
            *(("x", 0, 9, 2, True), ("x", 1, None, 30, None), ("y", 0, 7, 0, False)),
        ),
        "snapshot_trace_matches": of("snapshot_id trace_id", ("x", "a"), ("y", "b")),
    }
    answer = asked(
        "snapshot-traces", "trace_id snapshot snapshot_rank device peak_bytes has_history is_consistent", **taken
    )
    whole = [("a", "x.pickle", 4, 1, 30, False, None), ("a", "x.pickle", 4, 0, 9, True, True)]
    assert answer == [*whole, ("b", "y.pickle", None, 0, 7, True, False)]


def test_memory_over_time() -> None:
    """Trace a records totals in some events, trace b in none. Events without a device number count as a device."""
    events = of(
        "trace_id device_type device seq at_ns net_bytes allocated_bytes reserved_bytes",
        ("a", 1, 0, 1, 100, 10, 110, 500), ("a", 1, 0, 2, 100, 5, 105, None), ("a", 1, 0, 3, 100, 99, None, 300),
        ("a", 1, 0, 4, 499, 1, 101, 300), ("a", 0, -1, 1, 0, 4, 4, None),
        ("b", None, None, 1, 0, -3, None, None), ("b", None, None, 2, 0, -7, None, None),
    )  # fmt: skip
    columns = "job device_type device stretch most_bytes last_bytes most_reserved_bytes last_reserved_bytes"
    answer = asked("memory-over-time", f"{columns} is_relative span_ns", memory_timeline=events)
    assert answer == [
        ("b.json", None, None, 0, -3, -7, None, None, True, 0),
        ("j", 0, -1, 0, 4, 4, None, None, False, 0),
        ("j", 1, 0, 0, 110, 105, 500, 300, False, 399),
        ("j", 1, 0, 399, 101, 101, 300, 300, False, 399),
    ]


def test_snapshot_memory_knows_when_most_was_reserved() -> None:
    """The maximum on device 0 is after event 1, on device 1 at the start of the history.

    Device 2 has none. `tracelake memory` shows the other columns.
    """
    moves = of(
        "snapshot_id device seq at_ns reserved_bytes reserved_delta_bytes",
        *(
            ("x", 0, 0, 10, 5, 5),
            ("x", 0, 1, 11, 9, 4),
            ("x", 0, 2, 12, 9, 0),
            ("x", 1, 0, 10, 6, -2),
            ("x", 1, 1, 11, 8, 2),
        ),
    )
    segments = of(
        "snapshot_id device used_bytes rounding_bytes pending_bytes free_bytes largest_free_bytes is_free",
        *(("x", 0, 1, 2, 3, 40, 40, True), ("x", 0, 10, 20, 30, 7, 5, False), ("x", 1, 1, 1, 1, 1, 1, False)),
    )
    taken = {
        "memory_snapshots": of("snapshot_id file", ("x", "x.pickle")),
        "snapshot_peaks": of("snapshot_id device n_ooms", ("x", 0, 3), ("x", 1, 0), ("x", 2, 0)),
        **{"snapshot_timeline": moves, "snapshot_fragmentation": segments},
    }
    answer = asked("snapshot-memory", "device n_ooms peak_reserved_seq peak_reserved_ns", **taken)
    assert answer == [(0, 3, 1, 11), (1, 0, -1, None), (2, 0, None, None)]
    columns = "n_segments used_bytes rounding_bytes pending_bytes releasable_bytes stuck_bytes largest_free_bytes"
    assert asked("snapshot-memory", columns, **taken) == [
        (2, 11, 22, 33, 40, 7, 40),
        (1, 1, 1, 1, 0, 1, 1),
        (None,) * 7,
    ]


def test_out_of_memory() -> None:
    events = of(
        "snapshot_id device seq action at_ns size_bytes device_free_bytes stack_id",
        ("x", 0, 0, "oom", 1, 50, 3, 8), ("x", 0, 1, "alloc", 2, 6, None, 8), ("x", 0, 2, "oom", 3, 60, 2, None),
    )  # fmt: skip
    levels = of(
        "snapshot_id device seq allocated_bytes reserved_bytes",
        *(("x", 0, 0, 10, 20), ("x", 0, 1, 16, 26), ("x", 0, 2, 11, 21), ("x", 1, 0, 99, 99), ("y", 0, 0, 99, 99)),
    )
    tables = {
        "memory_snapshots": of("snapshot_id file", ("x", "x.pickle")),
        **{"snapshot_events": events, "snapshot_timeline": levels},
        "snapshot_stacks": of("snapshot_id stack_id user_frame", ("x", 8, "f.py:1"), ("y", 8, "g.py:1")),
    }
    columns = "file device at_ns size_bytes device_free_bytes allocated_bytes reserved_bytes frame"
    assert asked("out-of-memory", columns, **tables) == [
        ("x.pickle", 0, 3, 60, 2, 11, 21, None),
        ("x.pickle", 0, 1, 50, 3, 10, 20, "f.py:1"),
    ]


@pytest.mark.parametrize("newest", ["old", "new"])
def test_schedule_runs(newest: str) -> None:
    """Of two runs that differ only in their start, the answer has the latest.

    A run of another size is a separate row.
    """
    columns = "run_id plan plan_hash engine device device_name size period_ns"
    runs = of(columns, *((run, "p", "h", "sw", "gpu", "G", size, ns) for run, size, ns in (("old", "s", 9), ("new", "s", 8), ("big", "l", 7))))  # fmt: skip
    began = [{"run_id": run, "started_at": f"2026-01-0{1 + (run == newest)}"} for run in ("old", "new", "big")]
    faster = of("run_id speedup verdict", ("new", 2.0, "2.00 times as fast as serial"))
    answer = asked(
        *("schedule-runs", "run_id period_ns speedup"),
        **{"schedule_periods": runs, "schedule_runs": began, "schedule_speedups": faster},
    )
    assert answer == [{"old": ("old", 9, None), "new": ("new", 8, 2.0)}[newest], ("big", 7, None)]


@pytest.mark.parametrize("column", ["device", "host", "jitter_task"])
def test_schedule_runs_of_other_devices_hosts_and_delayed_tasks_are_rows_of_their_own(column: str) -> None:
    period = {"plan": "p", "plan_hash": "h", "engine": "sw", "device": "gpu", "device_name": "G", "jitter_ns": 5}
    runs = [{"run_id": run, **period, **({"device": run} if column == "device" else {})} for run in ("x", "y")]
    began = [{"run_id": run, "started_at": f"2026-01-0{day}"} for day, run in enumerate(("x", "y"), 1)]
    answer = partial(asked, "schedule-runs", f"run_id {column}", schedule_speedups=[])
    if column != "device":
        assert answer(schedule_periods=runs, schedule_runs=began) == [("y", None)]
        began = [{**row, column: row["run_id"]} for row in began]
    assert sorted(answer(schedule_periods=runs, schedule_runs=began)) == [("x", "x"), ("y", "y")]


def test_step_trend() -> None:
    """A step with two devices is one step. A device without busy time does not count as idle."""
    times = of(
        "trace_id step device duration_ns busy_ns",
        *(("a", 1, 0, 100, 80), ("a", 1, 1, 100, 40), ("a", 2, 0, 200, None), ("b", 1, 0, 100, None)),
    )
    assert asked("step-trend", "job n_steps busy_percent", step_times=times) == [("b.json", 1, None), ("j", 2, 60)]


def test_memory_owners() -> None:
    """Owners at the peak are those of blocks that are alive then.

    A block that existed before the trace is alive at the peak. A block whose release is missing may not be alive, and
    does not count.
    """
    blocks = of(
        "trace_id device_type device owner state alloc_seq free_seq size_bytes",
        ("a", 1, 0, "early", "before_trace", None, 9, 4_000_000), ("a", 1, 0, "lost", "release_missing", 1, None, 3_000_000),
        ("a", 1, 0, "kept", "live", 5, None, 2_000_000), ("a", 1, 0, "late", "live", 6, None, 1_000_000),
        ("a", 1, 0, "over", "paired", 1, 5, 1_000_000),
    )  # fmt: skip
    peaks = of("trace_id device_type device peak_seq", ("a", 1, 0, 5))
    answer = asked("memory-owners", "owner n_blocks size_mb", memory_blocks=blocks, memory_peaks=peaks)
    assert answer == [("early", 1, 4), ("kept", 1, 2)]
    # A device that the trace does not name counts as a device.
    unnamed = [{**row, "device": None} for row in blocks]
    peaks = of("trace_id device_type device peak_seq", ("a", 1, None, 5))
    assert asked("memory-owners", "owner n_blocks size_mb", memory_blocks=unnamed, memory_peaks=peaks) == answer


def test_memory_owners_of_each_trace() -> None:
    """Memory in use is not summed over several recordings of the same job and rank."""
    captured = [{"trace_id": trace_id, "job": "j", "rank": 0} for trace_id in "ab"]
    blocks = of(
        "trace_id device_type device owner state alloc_seq size_bytes",
        *((trace_id, 1, 0, "aten::mm", "live", 5, 7_000_000) for trace_id in "ab"),
    )
    peaks = of("trace_id device_type device peak_seq", *((trace_id, 1, 0, 5) for trace_id in "ab"))
    answer = asked(
        "memory-owners", "trace_id n_blocks size_mb", traces=captured, memory_blocks=blocks, memory_peaks=peaks
    )
    assert answer == [("a", 1, 7), ("b", 1, 7)]


def test_bandwidth_of_each_kind_of_links() -> None:
    """Bandwidths have a row per kind of GPU, each with its own limit.

    Traces of a job on two kinds of GPU are not averaged.
    """
    captured = [{"trace_id": trace_id, "job": "j", "rank": 0} for trace_id in "abc"]
    sizes = of(
        "trace_id kind bytes group_size n duration_ns busbw_lower_gigabytes_per_s limit_gigabytes_per_s",
        ("a", "allreduce", 64, 4, 1, 4_000_000, 100, 300), ("b", "allreduce", 64, 4, 1, 1_000_000, 250, 450),
        ("c", "allreduce", 64, 4, 1, 1_000_000, 200, 450),
    )  # fmt: skip
    for rows in (sizes, sizes[::-1]):
        columns = "n total_ms bus_gigabytes_per_s limit_gigabytes_per_s"
        answer = asked("bandwidth", columns, traces=captured, collective_bandwidth_by_size=rows)
        assert answer == [(1, 4, 100, 300), (2, 2, 225, 450)]


def test_shapes_below_peak_of_each_device() -> None:
    """A suspect row of one trace is not hidden by the rows of others."""
    captured = [{"trace_id": trace_id, "job": "j", "rank": 0} for trace_id in "abc"]
    shapes = of(
        "trace_id op device_key peak_kind n_ops gpu_ns roofline_ns bound_by suspect",
        ("a", "aten::mm", "a100", "datasheet", 1, 3_000_000, 1_000_000, "memory", False),
        ("b", "aten::mm", "a100", "datasheet", 1, 3_000_000, 1_000_000, "memory", True),
        ("c", "aten::mm", "h100", "datasheet", 1, 2_000_000, 1_000_000, "arithmetic", False),
    )  # fmt: skip
    for rows in (shapes, shapes[::-1]):
        columns = "device_key n gpu_ms lost_ms bound_by suspect"
        answer = asked("shapes-below-peak", columns, traces=captured, op_shape_utilization=rows)
        assert answer == [("a100", 2, 6, 4, "memory", True), ("h100", 1, 2, 1, "arithmetic", False)]


def test_stream_waits_say_which_gpu() -> None:
    """Waits are counted per GPU and stream.

    Stream 7 exists on two GPUs. Stream 7 of GPU 1 waits twice for stream 7 of GPU 0, which waits once for stream 7 of
    GPU 1.
    """
    work = of("trace_id event_id name device stream", ("a", 1, "k", 0, 7), ("a", 2, "k", 1, 7), ("a", 3, "k", 0, 8))
    waits = of(
        "trace_id wait_kind source_kernel_id waiting_kernel_id",
        *(("a", "event", 1, 2), ("a", "event", 1, 2), ("a", "event", 2, 1), ("a", "event", 1, 3)),
    )
    columns = "on_device on_stream waiting_device waiting_stream n"
    answer = asked("stream-waits", columns, kernels=work, event_waits=waits)
    assert answer == [(0, 7, 1, 7, 2), (0, 7, 0, 8, 1), (1, 7, 0, 7, 1)]


def test_gaps_and_slack_say_which_gpu() -> None:
    gaps = of(
        "trace_id device start_ns duration_ns cause",
        ("a", 1, 0, 9000, "launching"), ("a", 0, 0, 9000, "launching"),
    )  # fmt: skip
    assert asked("gaps", "device gap_us cause", idle_gaps=gaps) == [(0, 9, "launching"), (1, 9, "launching")]
    work = of(
        "trace_id event_id name device stream duration_ns",
        *(("a", 1, "k", 0, 7, 9000), ("a", 2, "k", 1, 7, 9000)),
    )
    slack = of("trace_id window_id event_id slack_ns", ("a", "full", 1, 5000), ("a", "full", 2, 5000))
    assert asked("slack", "device stream slack_us", kernels=work, event_slack=slack) == [(0, 7, 5), (1, 7, 5)]


@pytest.mark.parametrize("question", ["measured-kernels", "counted-kernels"])
def test_measured_kernels_say_which_gpu(question: str) -> None:
    """Each row names its GPU. A process runs the same kernels on two GPUs, for the same time on each."""
    measured = of(
        "trace_id device name n_kernels duration_ns n_measured",
        *(("a", device, "k", 1, 9000, n_measured) for device, n_measured in ((1, 1), (0, 1), (2, 0))),
    )
    for rows in (measured, measured[::-1]):
        assert asked(question, "device name", kernels_measured=rows) == [(0, "k"), (1, "k")]


def test_the_example_of_a_finding_is_the_same_in_any_order() -> None:
    captured = [{"trace_id": trace_id, "job": "j"} for trace_id in "abc"]
    findings = of(
        "trace_id check_name severity n detail",
        *(("a", "late", "info", 1, "by 7 ns"), ("b", "late", "info", 1, "by 5 ns"), ("c", "late", "info", 1, None)),
    )
    for rows in (findings, findings[::-1]):
        assert asked("quality", "n_traces example", traces=captured, quality=rows) == [(3, "by 5 ns")]


def test_replays_of_several_captures_are_several() -> None:
    """Replays with the same number in different traces are different replays. Replay numbers count within a trace."""
    captured = [{"trace_id": trace_id, "job": "j", "rank": 0} for trace_id in "ab"]
    replayed = [{**row, "trace_id": trace_id} for row in GRAPH for trace_id in "ab" if row["trace_id"] == "a"]
    (alone, *_), (twice, *_) = (
        asked("graph-layers", "repetition class n_replays n_kernels", traces=traces, graph_kernels=replayed)
        for traces in (captured[:1], captured)
    )
    assert alone == (1, "X", 2, 2) and twice == (1, "X", 4, 4)


def test_no_short_kernels_take_no_time() -> None:
    kernels = of("trace_id duration_ns", ("a", 20_000), ("a", 10_000), ("b", 9_999), ("b", 1))
    answer = asked("short-kernels", "job n n_short percent_short short_ms", kernels=kernels)
    assert answer == [("b.json", 2, 2, 100, 0.01), ("j", 2, 0, 0, 0)]


def test_waiting_for_the_busiest_expert_is_unknown_where_waiting_is() -> None:
    """Waiting for the busiest expert is unknown if all waiting is unknown, as in a refused lane.

    If waiting is known, and no rank waits for the busiest rank, the time is 0.
    """
    balance = of(
        "capture_id group_name next_wait_ns is_waited_for",
        ("c", "known", 7_000_000, True), ("c", "known", 3_000_000, False), ("c", "none", 3_000_000, None),
        ("c", "refused", None, None),
    )  # fmt: skip
    answer = asked("expert-balance", "group_name wait_after_ms for_busiest_ms", expert_balance=balance)
    assert answer == [("known", 10, 7), ("none", 3, 0), ("refused", None, None)]


def test_expert_groups_of_the_same_name_are_kept_apart() -> None:
    """Expert groups with the same name have separate rows.

    One group has ranks 0 and 1, the other ranks 2 and 3. In each group the same rank is always the busiest.
    """
    balance = of(
        "capture_id lane group_name imbalance busiest_rank",
        *(("c", lane, "ep", 1.0 + lane, 3 * lane) for lane in (0, 1) for _ in range(5)),
    )
    answer = asked(
        "expert-balance", "group_name lane n_collectives mean_imbalance n_busiest_ranks", expert_balance=balance
    )
    assert answer == [("ep", 0, 5, 1, 1), ("ep", 1, 5, 2, 1)]


def test_an_allocation_counts_once_where_steps_overlap() -> None:
    """An allocation during two overlapping steps counts once.

    A second profiler counts its steps from 0 again, so step 0 lasts from its first mark to its last.
    """
    kept = of(
        "snapshot_id allocation_id device stack_id state size_bytes alloc_ns",
        ("s", 1, 0, 9, "live", 1_000_000, 150), ("s", 2, 0, 9, "live", 1_000_000, 350), ("s", 3, 0, 9, "released", 1, 350),
    )  # fmt: skip
    steps = of(
        "snapshot_id device step start_ns end_ns", ("s", 0, 0, 0, 300), ("s", 0, 1, 100, 200), ("s", 0, 2, 300, 400)
    )
    stacks = of("snapshot_id stack_id user_frame", ("s", 9, "a.py:1 f"))
    answer = asked(
        "snapshot-leaks", "frame n_steps n_allocations size_mb", snapshot_allocations=kept, snapshot_steps=steps,
        snapshot_stacks=stacks, memory_snapshots=of("snapshot_id file", ("s", "s.pickle")),
    )  # fmt: skip
    assert answer == [("a.py:1 f", 1, 2, 2)]


def test_serving_steps_of_a_trace_without_gpu_work_make_no_gpu_less_busy() -> None:
    """Steps of a trace without GPU work count for times, but not for shares of busy time.

    A rank has two traces, of which one records no GPU work.
    """
    steps = of(
        "trace_id phase n_requests step_ns latency_ns gpu_busy_ns earlier_ns",
        ("a", "decode", 8, 1_000_000, 2_000_000, 1_000_000, 100_000), ("c", "decode", 8, 3_000_000, 3_000_000, None, None),
    )  # fmt: skip
    traces = of("trace_id job rank", ("a", "j", 0), ("c", "j", 0))
    columns = "n_steps p99_ms gpu_busy_percent earlier_percent caveat"
    answer = asked("serving-steps", columns, serving_steps=steps, traces=traces)
    assert answer == [(2, 3, 50, 10, "rates include work from before the trace")]
