"""The printed tables, SWP-46 to SWP-48, SWP-69, SWP-71, traps T3 and T9."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

pytest.importorskip("torch", reason="the engines need torch")

from pipelines.schedule import PipelinePlan, PipelineTask, SWPipeline, TaskSchedule
from pipelines.schedule.devices.cpu import CpuStream
from tests.schedule.plans import fused_sparse_dist, plan_of


def test_swp_69_and_trap_t3_the_end_to_end_table_in_stage_descending_order(capsys: Any) -> None:
    pipe = SWPipeline(fused_sparse_dist(), "cpu", order="stage_descending")
    assert pipe.depth == 3
    pipe.print_schedule(5)
    assert capsys.readouterr().out == (
        "#  Task                     Thread  Stream     | P0   P1   P2   P3   P4\n"
        "-- ------------------------ ------- ---------- + ---- ---- ---- ---- ----\n"
        "0  EmbLookup                default emb_lookup | --   --   i0   i1   i2\n"
        "1  ZeroGrad                 default default    | --   --   i0   i1   i2\n"
        "2  WaitBatch                default default    | --   --   i0   i1   i2\n"
        "3  Forward                  default default    | --   --   i0   i1   i2\n"
        "4  Backward                 default default    | --   --   i0   i1   i2\n"
        "5  OptimizerStep            default default    | --   --   i0   i1   i2\n"
        "6  InputDistStart           default data_dist  | --   i0   i1   i2   i3\n"
        "7  InputDistWait            default data_dist  | --   i0   i1   i2   i3\n"
        "8  H2D                      default memcpy     | i0   i1   i2   i3   i4\n"
    )


def test_trap_t3_rows_are_in_submission_order_in_the_default_order_too() -> None:
    rows = SWPipeline(fused_sparse_dist(), "cpu").format_schedule().splitlines()[2:]
    assert [row.split()[1] for row in rows] == SWPipeline(fused_sparse_dist(), "cpu")._enqueue_order
    assert rows[1].split()[1] == "H2D"


def test_swp_46_and_trap_t9_skipped_tasks_are_marked_and_dotted() -> None:
    names = ["H2DAndShuffle", "EmbInputDistStart", "EmbInputDistWait"]
    pipe = SWPipeline(plan_of(dict.fromkeys(names, 0), list(zip(names[1:], names, strict=False))), "cpu")
    pipe.enable_shortcut("EmbInputDistStart")
    assert pipe.format_schedule(3) == (
        "#  Task                     Thread  Stream  | P0   P1   P2\n"
        "-- ------------------------ ------- ------- + ---- ---- ----\n"
        "0  H2DAndShuffle            default default | i0   i1   i2\n"
        "1  EmbInputDistStart [skip] default default | .    .    .\n"
        "2  EmbInputDistWait         default default | i0   i1   i2"
    )
    assert inspect.signature(SWPipeline.format_schedule).parameters["num_iterations"].default == 3
    assert inspect.signature(SWPipeline.print_schedule).parameters["num_iterations"].default == 3


def test_swp_46_wide_names_and_many_periods_stay_in_columns() -> None:
    long = "ATaskWithAVeryLongNameOfThirtySixChr"
    pipe = SWPipeline(plan_of({long: 0, "b": 1}, [("b", long)], thread_group={long: "a_long_group"}), "cpu")
    lines = pipe.format_schedule(1200).splitlines()
    assert {line.index(mark) for line, mark in zip(lines, "|+||", strict=True)} == {lines[0].index("|")}
    assert lines[2].split()[-1] == "i1199"
    assert lines[0].index("P1199") == lines[2].index("i1199")


def test_streams_without_a_name_are_numbered() -> None:
    a, b = CpuStream(), CpuStream()
    tasks = [PipelineTask(n, print) for n in "xyz"]
    plan = PipelinePlan(
        dict(zip(tasks, map(TaskSchedule, (0, 0, 0), (a, b, a)), strict=True)), [("y", "x"), ("z", "y")]
    )
    rows = SWPipeline(plan, "cpu").format_schedule(1).splitlines()[2:]
    assert [row.split()[3] for row in rows] == ["stream0", "stream1", "stream0"]


def test_swp_47_stage_analysis(capsys: Any) -> None:
    plan = plan_of({"CopyBatch": 0, "Forward": 1}, [("Forward", "CopyBatch")])
    SWPipeline(plan, "cpu").print_stage_analysis()
    assert capsys.readouterr().out == (
        "Task schedule (topological order):\n"
        "Pos  Task                   Idx  Stage  Type\n"
        "--------------------------------------------------\n"
        "0    CopyBatch                0      0  stream\n"
        "1    Forward                  1      1  stream\n"
        "LDS = 2 (example: (1, 0))\n"
        "Pipeline depth = 2\n"
        "✓ LDS == depth (Dilworth-optimal)\n"
    )


def test_swp_47_an_empty_stage_is_said(capsys: Any) -> None:
    with pytest.warns(UserWarning, match="no task is in stage 1"):
        pipe = SWPipeline(plan_of({"a": 0, "b": 2}, [("b", "a")], globally_ordered={"b": True}), "cpu")
    pipe.print_stage_analysis()
    out = capsys.readouterr().out
    assert "LDS = 2 (example: (2, 0))\nPipeline depth = 3\n✗ LDS < depth: no task is in stage 1;" in out
    assert out.splitlines()[4].split() == ["1", "b", "1", "2", "ordered"]


def test_swp_48_repr_has_device_depth_tasks_shortcuts_and_the_table() -> None:
    pipe = SWPipeline(plan_of({"H2DAndShuffle": 0, "MPEmbForward": 0}, [("MPEmbForward", "H2DAndShuffle")]), "cpu")
    pipe.enable_shortcut("MPEmbForward")
    assert repr(pipe) == (
        "SWPipeline(device=cpu, depth=1, tasks=['H2DAndShuffle', 'MPEmbForward'], shortcuts=['MPEmbForward'])\n"
        "\n"
        "#  Task                     Thread  Stream  | P0\n"
        "-- ------------------------ ------- ------- + ----\n"
        "0  H2DAndShuffle            default default | i0\n"
        "1  MPEmbForward [skip]      default default | ."
    )
