"""The data classes, SWP-1 to SWP-8, as documented."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import weakref

import pytest

from pipelines.schedule import DeclaredIO, IterContext, PipelinePlan, PipelineTask, TaskSchedule, validate_plan


def nothing(ctx: IterContext) -> None:
    pass


def fields(cls: type) -> list[str]:
    return [f.name for f in dataclasses.fields(cls)]


def test_swp_1_context_takes_any_attribute_and_gives_memory_back() -> None:
    class Big:
        pass

    ctx = IterContext({"x": 1}, 7)
    assert (ctx.batch, ctx.iter_idx) == ({"x": 1}, 7)
    ctx.x = Big()
    alive = weakref.ref(ctx.x)
    del ctx.x
    assert alive() is None
    with pytest.raises(AttributeError, match=r"iteration 7: no task has set ctx\.x"):
        _ = ctx.x


def test_swp_2_declared_io_is_capture_and_restore() -> None:
    assert fields(DeclaredIO) == ["capture", "restore"]


def test_swp_3_tasks_are_equal_by_name() -> None:
    a, b = PipelineTask("a", nothing), PipelineTask("a", print)
    assert a == b
    assert hash(a) == hash(b)
    assert a != PipelineTask("b", nothing)
    assert a.io == []
    assert fields(PipelineTask)[:3] == ["name", "fn", "io"]
    assert {a: 1}[PipelineTask("a", nothing)] == 1


@pytest.mark.parametrize("field", ["reads", "writes", "shared_reads", "shared_writes"])
def test_a_forgotten_comma_is_refused(field: str) -> None:
    """("loss") is a text, whose letters would count as the names."""
    with pytest.raises(TypeError, match=rf"task 'a': {field}='loss' is a text; write {field}=\('loss',\)"):
        PipelineTask("a", nothing, **{field: "loss"})  # type: ignore[arg-type]
    for names in (("loss",), ["loss"], {"loss"}, ()):
        PipelineTask("a", nothing, **{field: names})  # type: ignore[arg-type]


def test_swp_4_schedule_defaults() -> None:
    assert dataclasses.astuple(TaskSchedule()) == (0, None, "default", False)
    assert fields(TaskSchedule) == ["stage", "stream", "thread_group", "globally_ordered"]


def test_swp_5_plan_fields_and_defaults() -> None:
    assert fields(PipelinePlan) == ["schedule", "intra_iter_deps", "inter_iter_deps", "pipeline_depth"]
    plan = PipelinePlan(schedule={}, intra_iter_deps=[])
    assert plan.inter_iter_deps == []
    assert plan.pipeline_depth is None  # inferred; the document's default 2 could also be explicit (trap T6)


def test_swp_6_objects_and_names_mean_the_same() -> None:
    a, b = PipelineTask("a", nothing), PipelineTask("b", nothing)
    by_object = validate_plan(PipelinePlan({a: TaskSchedule(), b: TaskSchedule()}, [(b, a)], [(a, b)]))
    by_name = validate_plan(PipelinePlan({a: TaskSchedule(), b: TaskSchedule()}, [("b", "a")], [("a", "b")]))
    assert (
        (by_object.intra, by_object.inter)
        == (by_name.intra, by_name.inter)
        == (
            {"a": (), "b": ("a",)},
            {"a": ("b",), "b": ()},
        )
    )
    # A name as a key suffices if a dependency contains the task itself.
    mixed = validate_plan(PipelinePlan({"a": TaskSchedule(), b: TaskSchedule()}, [(b, a)]), needs_functions=True)
    assert mixed.tasks["a"] is a


def test_swp_8_the_documents_example_is_legal() -> None:
    copy, fwd, bwd, optim = (PipelineTask(n, nothing) for n in ("H2D", "Forward", "Backward", "Optim"))
    plan = PipelinePlan(
        schedule={
            copy: TaskSchedule(stage=0, stream="copy", thread_group="io"),
            fwd: TaskSchedule(stage=1, thread_group="compute"),
            bwd: TaskSchedule(stage=1, thread_group="compute"),
            optim: TaskSchedule(stage=1, thread_group="compute"),
        },
        intra_iter_deps=[(fwd, copy), (bwd, fwd), (optim, bwd)],
        inter_iter_deps=[(fwd, optim)],
        pipeline_depth=2,
    )
    checked = validate_plan(plan)
    assert checked.depth == 2
    assert checked.warnings == []


def test_a_plan_is_written_and_checked_without_torch() -> None:
    code = "import sys, pipelines.schedule as s; s.validate_plan(s.PipelinePlan({'a': s.TaskSchedule()}, [])); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_every_exported_name_is_there() -> None:
    pytest.importorskip("torch", reason="the engines need torch")
    import pipelines.schedule as room

    for name in room.__all__:
        assert getattr(room, name).__name__ if name != "TaskRef" else room.TaskRef
    with pytest.raises(AttributeError, match="nobody"):
        _ = room.nobody  # type: ignore[attr-defined]
