"""Annotations whose names are also targets of what-if.

The fix removes the annotation, and the fix's command returns its number.
"""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest

from pipelines.base.foreign_text import visible
from pipelines.critical_path.causes.fix_candidates import _copies
from pipelines.critical_path.whatif.scenario import ScenarioError, of_options
from pipelines.critical_path.whatif.targets import NothingMatches, by_name
from tests.critical_path.causes.commands import TRACE, Asked, asked_all, savings
from tests.critical_path.causes.fix_traces import annotation
from tests.harness import call, kernel, launched, op, x

NAMES = (
    "layer:3",
    "op:x",
    "module:Linear_1",
    "host",
    "cpu",
    "memory",
    "eager",
    "stream:7",
    "wait:a",
    "name:a",
    "rank:0",
)


ANNOTATED = ("layer:3", "host", "stream:7", "")
POINTERS = ("k(float*, int)", "k(float**, int)")
FUNCTION = "data.py(7): prepare"
COPIES = ("Memcpy D2M (Device -> Memory)", "Memcpy D2H (Device -> Host)", "Memcpy M2D (Memory -> Device)")


def copied_on_xpu(start: int, number: int) -> list[dict[str, Any]]:
    """Return a copy of 400 us after 400 us of work, a wait for it in the same operator, and then a matrix product."""
    return [
        op("aten::to", start, 840), call("urEnqueueUSMMemcpy", start + 2, 5, number, cat="xpu_runtime"),
        kernel("Memcpy M2D (Memory -> Device)", start + 430, 400, number, cat="gpu_memcpy"),
        call("zeEventHostSynchronize", start + 10, 825, number, cat="xpu_sync"),
        op("aten::mm", start + 845, 10), call("urEnqueueKernelLaunch", start + 847, 5, number + 1, cat="xpu_runtime"),
        kernel("gemm", start + 867, 440, number + 1),
    ]  # fmt: skip


def waited_twice(start: int, number: int) -> list[dict[str, Any]]:
    """Return a kernel of 490 us and a wait for it that is recorded in two categories under one name."""
    name = "zeEventHostSynchronize"
    return [
        call("urEnqueueKernelLaunch", start, 5, number, cat="xpu_runtime"),
        kernel("gemm", start + 10, 490, number),
        call(name, start + 20, 490, number + 1, cat="xpu_driver"),
        call(name, start + 21, 488, number + 2, cat="xpu_sync"),
    ]


def of_process(pid: int, start: int, gpu: tuple[int, int], number: int) -> list[dict[str, Any]]:
    """Return an operator in thread 1 of a process, with a kernel on a stream of the process."""
    launching = x("cuda_runtime", "cudaLaunchKernel", start + 2, 5, 1, pid, correlation=number)
    return [x("cpu_op", "aten::mm", start, 10, 1, pid), launching, kernel("gemm", *gpu, number, pid // 100)]


def synchronized(returns: float) -> list[dict[str, Any]]:
    """Return a kernel that ends at 520, a synchronization that returns `returns` us later, and 400 us of host work."""
    at = 520 + returns
    return [
        op("aten::mm", 0, 12), *launched(2, (20, 500), 1), call("cudaDeviceSynchronize", 20, at - 20, 2),
        annotation("log", at + 25, 400), op("aten::mm", at + 435, 10), *launched(at + 437, (at + 455, 50), 3),
    ]  # fmt: skip


RETURNS = {"synchronized": 15, "synchronized, slow to return": 60, "synchronized, by its clock early": -5}
"""The call's return in us after the work has ended: up to threshold call_own_ns, later, or before the end."""
TRACES: dict[str, list[dict[str, Any]]] = {
    **{
        name: [
            op("aten::mm", 0, 10), *launched(2, (20, 30), 1), annotation(name, 50, 5000),
            op("aten::mm", 5060, 10), *launched(5062, (5080, 30), 2),
        ]
        for name in ANNOTATED
    },
    "patterns": [
        op("aten::mm", 0, 10), *launched(2, (20, 300), 1, POINTERS[0]), *launched(10, (330, 400), 2, POINTERS[1]),
        annotation("pre\npare", 800, 5000), op("aten::mm", 5810, 10), *launched(5812, (5830, 30), 3),
        *(
            event
            for number, name in enumerate((*POINTERS, "k(float&, int)", "k(float[*], int)"), 4)
            for event in launched(5780 + 10 * number, (5470 + 100 * number, 80 + number), number, name)
        ),
    ],
    "compiled": [
        op("triton_add", 0, 10), *launched(2, (20, 300), 1, "triton_add"), *launched(30, (330, 300), 2, "triton_add"),
        op("aten::mm", 40, 10), *launched(42, (640, 30), 3),
    ],
    **{name: synchronized(returns) for name, returns in RETURNS.items()},
    "short calls": [
        op("aten::mm", 0, 10), *launched(2, (20, 30), 1), x("python_function", FUNCTION, 50, 500),
        *(x("python_function", FUNCTION, start, 9) for start in range(600, 900, 10)),  # threshold frame_ns: 10 us
        op("aten::mm", 905, 10), *launched(907, (925, 30), 2),
    ],
    "copies": [
        op("aten::to", 0, 5),
        *(kernel(name, 10 * number, 5, number, cat="gpu_memcpy") for number, name in enumerate(COPIES)),
    ],
    "xpu": [
        op("aten::mm", 0, 10), call("urEnqueueKernelLaunch", 2, 5, 1, cat="xpu_runtime"), kernel("gemm", 20, 30, 1),
        *(event for i in range(4) for event in copied_on_xpu(890 * i + 30, 10 * i + 2)),
    ],
    # the same wait, recorded as a driver call and by PTI, outside operators
    "xpu twice": [event for i in range(3) for event in waited_twice(700 * i, 10 * i + 1)],
    "processes": [
        *of_process(100, 0, (20, 30), 1), *of_process(100, 1000, (1020, 500), 2), *of_process(200, 5, (60, 30), 3),
        *of_process(200, 3000, (3020, 500), 4), *of_process(100, 5000, (5020, 30), 5),
    ],
    "steps": [annotation("ProfilerStep#7", 0, 1000), op("aten::mm", 0, 900), *launched(20, (40, 500), 1)],
}  # fmt: skip


@pytest.fixture(scope="module")
def programs() -> dict[str, Asked]:
    """Return the subjects for all of TRACES; the models run once."""
    return dict(zip(TRACES, asked_all(TRACES.values(), steps=True), strict=True))


def move_host_work(program: Asked) -> dict[str, Any]:
    fixes = program.why(without_profiler=False).as_json(TRACE)["fixes"]
    (fix,) = (fix for fix in fixes if fix["fix"] == "move_host_work")
    return fix


def test_a_name_that_is_no_other_target_is_its_own() -> None:
    assert [by_name(name) for name in ("prepare", "aten::mm", "f[0]", "a b")] == ["prepare", "aten::mm", "f[0]", "a b"]
    assert [by_name(name) for name in NAMES] == [f"name:{name}" for name in NAMES]


@pytest.mark.parametrize("name", ANNOTATED)
def test_its_fix_moves_it_and_the_command_gives_the_number(programs: dict[str, Asked], name: str) -> None:
    fix = move_host_work(programs[name])
    assert fix["name"] == name and 4900 < fix["saves_us"] < 5100
    assert programs[name].saves_us(fix["command"]) == pytest.approx(fix["saves_us"], abs=0.01)
    assert fix["change"] == f"move {name or 'what has no name'} to another process, or do it before"


def test_a_cause_without_a_name_has_no_empty_brackets(programs: dict[str, Asked]) -> None:
    answer = programs[""].why(without_profiler=False)
    assert "it waits for the host between operators. To save" in answer.sentence
    (cause,) = (cause for cause in answer.causes if cause.kind["cause"] == "host_between_operators")
    assert cause.names(1).startswith("(no name) (")


def test_a_command_as_it_is_printed_is_of_its_own_name_alone(programs: dict[str, Asked]) -> None:
    """A `*` in the name, or the `?` that replaces an unprintable character, matches no other name."""
    program = programs["patterns"]
    numbers = [*savings(program.why(without_profiler=False).as_json(TRACE))]
    for pattern in ("k(float[*], int)", "k(float[*][*], int)", "k(float[[*]], int)"):
        assert any(pattern in number.command for number in numbers), pattern
    assert any("pre?pare" in number.command for number in numbers)
    for number in numbers:
        assert program.saves_us(visible(number.command)) == pytest.approx(number.saves_us, abs=0.01), number


def test_an_operator_and_a_kernel_of_one_name_are_one_row(programs: dict[str, Asked]) -> None:
    """In compiled code, kernels also run outside the operators with the same name."""
    program = programs["compiled"]
    answer = program.why(without_profiler=False).as_json(TRACE)
    (row,) = (row for row in answer["causes"] if row["name"] == "triton_add" and row["cause"] == "gpu_computing")
    assert row["duration_us"] == pytest.approx(600)
    assert program.saves_us(row["command"]) == pytest.approx(row["saves_us"], abs=0.01)


@pytest.mark.parametrize("name", RETURNS)
def test_idle_time_after_a_synchronization_is_its_own_whenever_it_returns(
    programs: dict[str, Asked], name: str
) -> None:
    program = programs[name]
    answer = program.why(without_profiler=False).as_json(TRACE)
    (row,) = (row for row in answer["causes"] if row["name"] == "cudaDeviceSynchronize")
    assert row["cause"] == "synchronization" and row["duration_us"] > 40 and row["saves_us"] > 400
    assert program.saves_us(row["command"]) == pytest.approx(row["saves_us"], abs=0.01)


def test_a_name_that_no_synchronization_has_matches_nothing(programs: dict[str, Asked]) -> None:
    program = programs["synchronized"]
    assert program.saves_us(f"tracelake what-if {TRACE} --remove cause:synchronization:cudaDevice*") > 400
    with pytest.raises(NothingMatches):
        program.saves_us(f"tracelake what-if {TRACE} --remove cause:synchronization:cudaStream*")


def test_calls_of_a_function_that_are_too_short_for_the_graph_go_with_the_others(programs: dict[str, Asked]) -> None:
    program = programs["short calls"]
    fix = move_host_work(program)
    assert fix["saves_us"] == pytest.approx(500 + 30 * 9, abs=1)
    assert program.saves_us(fix["command"]) == pytest.approx(fix["saves_us"], abs=0.01)


def test_copies_within_the_gpu_are_not_copied_ahead() -> None:
    class Shown:
        def names(self, cause: str) -> list[str]:
            return [
                "CopyDeviceToDevice",
                "MEMORY_COPY_DEVICE_TO_DEVICE",
                "Memcpy DtoD (Device -> Device)",
                "Memcpy D2D (Device -> Device)",
                "Memcpy D2M (Device -> Memory)",
                "CopyHostToDevice",
            ]

    (candidate,) = _copies(Shown())  # pyright: ignore[reportArgumentType]
    assert candidate.name == "CopyHostToDevice" and re.fullmatch("kernel:CopyHostToDevice", candidate.scenario.ahead[0])


def test_a_synchronization_for_a_copy_to_pageable_memory_is_needed_on_intel(programs: dict[str, Asked]) -> None:
    """On Intel, a wait for a copy to pageable memory is needed. PTI names pageable memory M and pinned memory H."""
    con = programs["copies"].con
    to_host = con.execute("SELECT name, to_host FROM _event_names WHERE cat = 'gpu_memcpy'").fetchall()
    assert dict(to_host) == dict(zip(COPIES, (True, True, False), strict=True))


def test_a_copy_on_xpu_is_gone_with_the_wait_for_it_in_its_operator(programs: dict[str, Asked]) -> None:
    program = programs["xpu"]
    answer = program.why(without_profiler=False).as_json(TRACE)
    assert "copy_ahead" in {fix["fix"] for fix in answer["fixes"]}
    for saving in savings(answer):
        assert program.saves_us(saving.command) == pytest.approx(saving.saves_us, abs=0.01), saving


def test_a_wait_of_two_categories_is_one_fix(programs: dict[str, Asked]) -> None:
    fixes = programs["xpu twice"].why(without_profiler=False).as_json(TRACE)["fixes"]
    assert [fix["name"] for fix in fixes if fix["fix"] == "do_not_wait"] == ["zeEventHostSynchronize"]


def test_threads_of_one_number_are_named_after_their_processes(programs: dict[str, Asked]) -> None:
    program = programs["processes"]
    answer = program.why(without_profiler=False).as_json(TRACE)
    names = [row["name"] for row in answer["causes"] if row["name"].startswith("outside operators")]
    labels = [f"outside operators, thread 1, process {pid}" for pid in (100, 200)]
    assert names and set(names) <= set(labels)
    for saving in savings(answer):
        assert program.saves_us(saving.command) == pytest.approx(saving.saves_us, abs=0.01), saving
    assert program.window.thread_names[-2:] == labels  # they follow the thread name of the GPU
    query = f"SELECT DISTINCT label FROM memory.main.threads WHERE trace_id = '{program.trace_id}' ORDER BY ALL"
    assert program.con.execute(query).fetchall() == [("1",), ("1, process 100",), ("1, process 200",), ("2",)]


def test_commands_of_a_step_are_of_the_step_also_where_nobody_asked_with_options(
    programs: dict[str, Asked],
) -> None:
    """The commands printed for a step contain the option that selects it.

    This also applies in notebooks and MCP, which request windows without command-line options.
    """
    for window_id, window in (("full", []), ("ProfilerStep#7", ["--annotation", "ProfilerStep#7"])):
        document = programs["steps"].why(window_id, without_profiler=False).as_json()
        commands = [row[key] for row in document["causes"] for key in ("command", "cause_command")]
        commands += [row["command"] for row in document["fixes"]]
        assert commands and all(shlex.split(command)[5:] == window for command in commands), commands


def test_a_factor_that_no_double_holds_is_refused() -> None:
    with pytest.raises(ScenarioError, match="give PATTERN=FACTOR"):
        of_options([f"a={10**400}"], [], False)
