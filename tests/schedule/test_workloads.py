"""The workloads train, and train identically with every scheduler."""

from __future__ import annotations

import importlib
import threading
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the workloads need torch")

from pipelines.schedule import DataFlowPipeline, IterContext, SWPipeline, TaskProfiler  # noqa: E402
from pipelines.schedule.plan.plan import name_of  # noqa: E402
from pipelines.schedule.plan.plan_file import load_plan, plan_names  # noqa: E402
from pipelines.schedule.workloads import SIZES, WORKLOADS, build  # noqa: E402
from tests.effort import first_of  # noqa: E402

ENGINES = ("sw", "stage_descending", *(f"dataflow {depth}" for depth in range(1, 7)))
IMPLIED = {"ZeroGrad": "OptimizerStep", "Forward": "OptimizerStep", "WaitBatch": "InputDistWait"}
"""Dependencies of the bundled plans that the document leaves to the stages."""


TELLING = ("fused_sparse_dist", "graphed_mlp", "augmented")
NAMES = sorted(plan_names(), key=lambda name: TELLING.index(name) if name in TELLING else len(TELLING))
"""All plans, beginning with one for each kind of workload."""


def trained(
    name: str,
    engine: str,
    seed: int = 0,
    iterations: int = 12,
    size: str = "tiny",
    device: str = "cpu",
    as_documented: bool = False,
) -> tuple[list[float], dict]:
    """Return the losses and weights after a run."""
    file = load_plan(name)
    work = build(file.workload, size, "cpu", seed)
    plan = file.plan({task.name: task for task in work.tasks()})
    if as_documented:
        plan.inter_iter_deps = [(a, b) for a, b in plan.inter_iter_deps if IMPLIED.get(name_of(a)) != name_of(b)]
    if engine.startswith("dataflow"):
        DataFlowPipeline(plan, int(engine.split()[1]), device).run(work.batches(iterations))
    elif engine == "serial":
        SWPipeline(plan, device).run_serial(work.batches(iterations))
    else:
        SWPipeline(plan, device, order="ready_first" if engine == "sw" else engine).run(work.batches(iterations))
    return [loss.item() for loss in work.losses], {key: value.clone() for key, value in work.weights().items()}


@pytest.mark.parametrize(
    ("name", "as_documented"),
    first_of([*((name, False) for name in NAMES), *((name, True) for name in TELLING)], 2),
    ids=[*NAMES, *(f"{name} as documented" for name in TELLING)],
)
def test_every_engine_trains_the_same_to_the_last_bit(name: str, as_documented: bool) -> None:
    losses, weights = trained(name, "serial")
    assert len(losses) == 12 and len(set(losses)) == 12
    for engine in ENGINES:
        for device in ("cpu", "simulated"):
            other, others = trained(name, engine, device=device, as_documented=as_documented)
            assert other == losses, (engine, device)
            assert [key for key in weights if not torch.equal(weights[key], others[key])] == [], (engine, device)
    assert trained(name, "serial", seed=1)[0] != losses


@pytest.mark.parametrize("name", NAMES)
def test_the_exposed_time_of_each_task_is_measured(name: str) -> None:
    """Other tasks run without effects that the replayed task does not repeat, such as gradients of its parameters."""
    file = load_plan(name)
    work = build(file.workload, "tiny")
    pipe = SWPipeline(file.plan({task.name: task for task in work.tasks()}), "cpu")
    result = TaskProfiler(pipe).profile(next(work.batches(1)), num_warmup=1, num_measure=1, num_rounds=1)
    assert set(result.exposed_s) == {task.name for task in file.tasks}


def test_without_the_order_of_the_streams_the_documents_plan_trains_wrongly() -> None:
    """Otherwise, the test above could not fail.

    The first copy waits until all iterations have begun, which excludes chance.
    """
    file = load_plan("fused_sparse_dist")
    work = build(file.workload, "tiny", "cpu", 0)
    tasks = {task.name: task for task in work.tasks()}
    begun, copy = threading.Event(), tasks["H2D"].fn
    tasks["H2D"] = replace(tasks["H2D"], fn=lambda ctx: begun.wait(20) and copy(ctx))
    plan = file.plan(tasks)
    copies = tasks["H2D"]
    plan.schedule[copies] = replace(plan.schedule[copies], thread_group="io")  # else the caller's would wait
    plan.inter_iter_deps = [(a, b) for a, b in plan.inter_iter_deps if IMPLIED.get(name_of(a)) != name_of(b)]
    pipe = DataFlowPipeline(plan, 12, "simulated", order="dependencies")
    data = pipe.fill_pipeline(work.batches(12))
    begun.set()
    while len(work.losses) < 12:
        pipe.progress(data)
    pipe.drain()
    losses, _ = trained("fused_sparse_dist", "serial")
    assert sum(a.item() != b for a, b in zip(work.losses, losses, strict=True)) > 6


@pytest.mark.parametrize("name", first_of(NAMES, 3))
def test_training_learns_and_changes_every_weight(name: str) -> None:
    file = load_plan(name)
    before = {key: value.clone() for key, value in build(file.workload, "tiny").weights().items()}
    losses, after = trained(name, "sw", iterations=200)
    assert sum(losses[-4:]) < 0.8 * sum(losses[:4])
    assert [key for key in before if torch.equal(before[key], after[key])] == []


def test_the_fused_update_is_the_optimizers() -> None:
    """Both recommenders are one model: Backward's updates of the tables equal those of SGD with sparse gradients."""
    losses, weights = trained("sparse_dist", "serial")
    fused_losses, fused = trained("fused_sparse_dist", "serial")
    assert fused_losses == pytest.approx(losses, rel=1e-4)
    torch.testing.assert_close(fused["table"], weights["table"], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["sparse_dist", "fused_sparse_dist"])
def test_input_distribution_brings_every_id_to_its_row(name: str) -> None:
    work: Any = build(name, "tiny")
    size = work.size
    ctx = IterContext(next(work.batches(1)), 0)
    tasks = {task.name: task for task in work.tasks()}
    for task in ("H2D", "InputDistStart", "InputDistWait"):
        tasks[task].fn(ctx)
    # Expected: id k of bag b (table-major) → its row in the table's shard.
    bags = [b for b, n in enumerate(ctx.batch.lengths.tolist()) for _ in range(n)]
    per_shard = size.rows // size.shards
    wanted = [
        ((i // per_shard * size.tables + b // size.batch) * per_shard + i % per_shard, b)
        for i, b in zip(ctx.batch.ids.tolist(), bags, strict=True)
    ]
    assert sorted(zip(ctx.rows.tolist(), ctx.bags.tolist(), strict=True)) == sorted(wanted)
    shards = (ctx.rows // (size.tables * per_shard)).tolist()
    assert shards == sorted(shards) and len(set(shards)) == size.shards


def test_sizes_and_tasks_are_as_announced() -> None:
    for name, info in WORKLOADS.items():
        work = build(name, "tiny")
        assert [task.name for task in work.tasks()] == info.tasks
        assert {file for file in plan_names() if load_plan(file).workload == name}
    with pytest.raises(ValueError, match="use one of tiny, small, large"):
        build("mlp", "huge")
    for info in WORKLOADS.values():
        module = importlib.import_module(f"pipelines.schedule.workloads.{info.module}")
        assert set(getattr(module, info.workload).sizes) == set(SIZES)
    from pipelines.schedule.workloads import recommender

    assert all(size.rows % size.shards == 0 for size in recommender.SIZES.values())
