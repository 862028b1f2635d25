"""Steps as pipelines: reference cases of the formulas, reference times of a real trace, and a small step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from pipelines.models.sqltext import literal
from tests.harness import call, connect, each, kernel, rows_of, x

_TIMES = (
    *("duration_ns", "loader_ns", "stall_ns", "htod_ns", "comp_ns", "save_ns", "comp_ideal_ns", "n_communication"),
    *(
        "n_communication_known",
        "communication_ideal_ns",
        "communication_ns",
        "overlapped_ns",
        "first_ns",
        "last_ns",
        "stage_busy_ns",
    ),
    *("n_transfers", "start_ns", "end_ns", "has_launches"),
)


def of_times(columns: str, steps: list[dict[str, Any]]) -> list[list[Any]]:
    """Return columns of step_pipeline for steps with the given times. Times that are not given are NULL."""
    con, _ = connect([])
    rows = [", ".join(f"CAST({literal(times.get(name))} AS DOUBLE) AS {name}" for name in _TIMES) for times in steps]
    selects = [f"SELECT 't' AS trace_id, {step} AS step, {values}" for step, values in enumerate(rows)]
    con.execute(f"CREATE TABLE _step_times AS {' UNION ALL '.join(selects)}")
    run_models(con, load_catalog(), ["step_pipeline"], have=frozenset({"_step_times"}))
    return [[*row] for row in con.execute(f"SELECT {columns} FROM step_pipeline ORDER BY step").fetchall()]


@pytest.fixture
def reference(shared: Path) -> dict:
    return json.loads((shared / "golden" / "modelling" / "formulas.json").read_text())


def near(value: float | None) -> Any:
    return None if value is None else pytest.approx(value, rel=1e-12)


def test_exposure_ratios_are_the_reference_s(reference: dict) -> None:
    cases = reference["exposure"]
    names = {"duration_ns": "t_span", "comp_ideal_ns": "t_comp", "communication_ideal_ns": "t_c2c"}
    steps = [{name: case[theirs] for name, theirs in names.items()} for case in cases]
    for case, row in zip(cases, of_times("exposure_ratio, suspect", steps), strict=True):
        assert row == [near(case["expect"]), (case["expect"] or 0) < 0], case


def test_efficiencies_and_dragging_stages_are_the_reference_s(reference: dict) -> None:
    cases = reference["pipeline"]
    names = {"duration_ns": "t_actual", "loader_ns": "t_load", "comp_ns": "t_comp", "save_ns": "t_save"}
    steps = [{name: case[theirs] for name, theirs in names.items()} for case in cases]
    *of_cases, unknown = of_times("efficiency, dragging_stage", [*steps, {"duration_ns": 8}])
    for case, row in zip(cases, of_cases, strict=True):
        assert row == [near(case["expect"]), case["dragging"]], case
    assert unknown == [None, None]


@pytest.mark.slow
def test_loading_and_efficiency_of_measured_steps_are_the_reference_s(reference: dict, shared: Path) -> None:
    stalls = json.loads((shared / "golden" / "modelling" / "dataload.json").read_text())
    for run, cases in reference["pipeline_real"].items():
        for case, stall in zip(cases, stalls[run]["rows"], strict=True):
            ns = {key: round(case[f"t_{key}_us"] * 1000) for key in ("actual", "dataloader", "htod", "comp", "save")}
            times = {"duration_ns": ns["actual"], "loader_ns": ns["dataloader"], "htod_ns": ns["htod"]}
            times |= {"comp_ns": ns["comp"], "save_ns": ns["save"], "stall_ns": round(stall["load_gpu_idle_us"] * 1000)}
            columns = "load_ns, efficiency, dragging_stage, loader_percent, loader_stall_ns <= loader_ns"
            (row,) = of_times(columns, [times])
            expected = [near(case["t_load_us"] * 1000), near(case["efficiency"]), case["dragging"]]
            assert row == [*expected, near(100 * case["load_stall_frac"]), True]


@pytest.mark.slow  # tests/sql/summary has exposed time of real traces
def test_exposed_communication_of_a_real_trace_is_the_reference_s(reference: dict, shared: Path) -> None:
    rows = rows_of(
        shared / "traces" / "single" / "mi300_rccl_metadata.json.gz",
        "step_pipeline",
        "step, duration_ns, comp_ideal_ns, communication_ideal_ns, n_communication, n_communication_known, exposure_ratio, communication_ns, "
        "communication_overlapped_ns, exposed_communication_percent",
    )
    times = ("t_comp_ideal_us", "t_c2c_ideal_us")
    expected = [
        (
            *(int(row["step"].split("#")[1]), round(row["t_span_us"] * 1000), *(near(row[k] * 1000) for k in times)),
            *(row["n_comm"], row["n_comm_meta"], near(row["exposure_ratio"]), round(row["comm_busy_us"] * 1000)),
            *(round(row["comm_overlapped_us"] * 1000), near(100 * row["exposed_comm_frac"])),
        )
        for row in reference["exposure_real_mi300_resnet_ckpt"]
    ]
    assert rows == expected


def transfer(name: str, start: float, duration: float, correlation: int) -> dict[str, Any]:
    event = kernel("ncclDevKernel_SendRecv", start, duration, correlation, stream=9)
    event["args"]["Collective name"] = name
    return event


def test_a_step_of_a_pipeline_s_rank() -> None:
    loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    events = [
        x("user_annotation", "ProfilerStep#3", 100, 100),
        x("user_annotation", loader, 90, 30), x("cpu_op", loader, 110, 15),  # 100 to 125: clipped, counted once
        call("cudaLaunchKernel", 95, 1, 1), kernel("before", 105, 10, 1),  # in the step, but of the one before
        call("cudaMemcpyAsync", 126, 1, 2), kernel("Memcpy HtoD (Pinned -> Device)", 128, 4, 2, cat="gpu_memcpy"),
        call("cudaLaunchKernel", 130, 1, 3), transfer("recv", 130, 20, 3),
        call("cudaLaunchKernel", 132, 1, 4), kernel("forward", 140, 20, 4),
        call("cudaLaunchKernel", 134, 1, 5), transfer("send", 160, 10, 5),
        call("cudaLaunchKernel", 136, 1, 6), kernel("backward", 170, 20, 6),
        x("user_annotation", "Optimizer.step#SGD.step", 180, 10),
        call("cudaLaunchKernel", 182, 1, 7), kernel("update", 205, 5, 7),
        call("cudaMemcpyAsync", 195, 1, 8), kernel("Memcpy DtoH (Device -> Pageable)", 211, 2, 8, cat="gpu_memcpy"),
    ]  # fmt: skip
    columns = (
        "duration_ns, loader_ns, loader_stall_ns, htod_ns, load_ns, comp_ns, save_ns, efficiency, dragging_stage, "
        "communication_ns, communication_overlapped_ns, bubble_upper, warm_up_ns, cool_down_ns, comp_ideal_ns, communication_ideal_ns, suspect"
    )
    us = 1000
    assert rows_of(events, "step_pipeline", columns) == [
        (
            *(100 * us, 25 * us, 15 * us, 4 * us, 25 * us, 45 * us, 2 * us, near(0.45), "comp"),
            # 140 to 190, with a gap of 10 in which only the transfer ran
            *(30 * us, 10 * us, near(10 / 50), 40 * us, 10 * us, None, None, False),
        )
    ]


def test_without_gpu_work_nothing_was_measured() -> None:
    columns = "load_ns, comp_ns, save_ns, efficiency, dragging_stage, communication_ns, exposed_communication_percent, bubble_upper"
    assert rows_of([x("user_annotation", "ProfilerStep#3", 100, 100)], "step_pipeline", columns) == [(None,) * 8]


def test_without_launches_it_is_unknown_what_a_step_launched() -> None:
    """Without recorded launches it is unknown which work a step launched.

    TPUs record no launches. A data loader must not be the longest stage of a step that computes the rest of the time.

    In a trace with one launch, the step that launched nothing has no work.
    """
    loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    steps = [x("user_annotation", "ProfilerStep#3", 0, 100), x("user_annotation", loader, 0, 5)]
    steps += [x("user_annotation", "ProfilerStep#4", 100, 100)]
    computes = kernel("%fusion.1 = f32[8] fusion()", 5, 90, 7)
    columns = (
        "loader_ns, htod_ns, load_ns, comp_ns, save_ns, efficiency, dragging_stage, n_communication, n_communication_known, "
        "communication_ideal_ns, communication_ns, communication_overlapped_ns, exposed_communication_percent, suspect"
    )
    unlaunched, launched = (
        con.execute(f"SELECT {columns} FROM step_pipeline ORDER BY step").fetchall()
        for con in each([[*steps, computes], [*steps, computes, call("cudaLaunchKernel", 1, 1, 7)]], "step_pipeline")
    )
    unknown = (None,) * 10
    assert unlaunched == [(5_000, None, 5_000, *unknown, False), (0, None, 0, *unknown, False)]
    assert launched == [
        (5_000, 0, 5_000, 90_000, 0, near(0.9), "comp", 0, 0, 0, 0, 0, None, False),
        (0, 0, 0, 0, 0, 0, "load", 0, 0, 0, None, None, None, False),
    ]


def test_what_may_be_an_all_to_all_makes_no_bubble() -> None:
    events = [
        x("user_annotation", "ProfilerStep#3", 0, 100),
        call("cudaLaunchKernel", 10, 1, 1), kernel("ncclDevKernel_SendRecv", 20, 10, 1, stream=9),
        call("cudaLaunchKernel", 12, 1, 2), kernel("forward", 40, 10, 2),
    ]  # fmt: skip
    assert rows_of(events, "step_pipeline", "bubble_upper, communication_ns, exposed_communication_percent") == [
        (None, 10_000, 100.0)
    ]


@pytest.mark.parametrize(
    ("into", "out"),
    [
        ("Memcpy M2D (MEMORY(Unknown) -> DEVICE)", "Memcpy D2M (DEVICE -> MEMORY(Unknown))"),  # Intel XPU
        ("Memcpy H2D", "Memcpy D2H"),
        ("CopyHostToDevice", "CopyDeviceToHost"),
    ],
)
def test_copies_of_other_runtimes_have_a_direction(into: str, out: str) -> None:
    names = (into, out, "Memcpy D2D (DEVICE -> DEVICE)", "Memcpy DtoD (Device -> Device)", "Memcpy P2P")
    events = [x("user_annotation", "ProfilerStep#3", 0, 100)]
    for place, name in enumerate(names):
        at = 10 * place
        events += [call("copy", at, 1, place + 1), kernel(name, at + 5, place + 1, place + 1, cat="gpu_memcpy")]
    assert rows_of(events, "step_pipeline", "htod_ns, save_ns, load_ns") == [(1_000, 2_000, 1_000)]


def test_work_is_divided_by_its_class() -> None:
    """Work is a copy or computation by its class, not by its category.

    The cases are MTIA's work, a copy that its writer calls a kernel, and an exported graph without kernels.
    """
    step = x("user_annotation", "ProfilerStep#3", 0, 100)
    call_of_mtia = call("runFunction", 1, 2, 1, cat="mtia_runtime")
    traces = [
        [step, call_of_mtia, kernel("matmul_kernel", 5, 80, 1, cat="mtia_ccp_events")],
        [step, call("cudaLaunchKernel", 1, 2, 1), kernel("Memcpy HtoD (Host -> Device)", 5, 40, 1)],
        [step, call("cudaGraphLaunch", 1, 2, 1), kernel("CUDA graph 3 as a whole", 5, 30, 1)],
    ]
    columns = "p.htod_ns, p.comp_ns, p.dragging_stage, t.compute_ns"
    joined = "step_pipeline AS p JOIN step_times AS t USING (trace_id, step)"
    answers = [
        con.execute(f"SELECT {columns} FROM {joined}").fetchall() for con in each(traces, "step_pipeline", "step_times")
    ]
    assert answers == [[(0, 80_000, "comp", 80_000)], [(40_000, 0, "load", 0)], [(0, 0, "load", 0)]]


def test_an_unknown_computation_leaves_no_ideal_time() -> None:
    """A step with an unknown computation has no ideal time.

    Known communication alone is not the step's ideal time, especially if it is 0.
    """
    times = [(None, 0), (None, 5), (7, 0), (7, 9), (7, None), (None, None)]
    steps = [{"duration_ns": 10, "comp_ideal_ns": comp, "communication_ideal_ns": comm} for comp, comm in times]
    assert of_times("ideal_ns", steps) == [[None], [None], [7], [9], [7], [None]]
