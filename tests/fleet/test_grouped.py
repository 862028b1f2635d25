"""Grouping of only the folders that changed, which results in the same captures as grouping all traces."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.fleet.captures import grouping, input_tables, known_groups
from pipelines.fleet.captures.roles import ROLES
from pipelines.lake.commit.catalog_file import note
from pipelines.lake.retain.compaction import compact
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from pipelines.runs.materialize import per_capture, per_trace
from tests.lake.test_incremental import CAPTURES, World


def assert_same(world: World, may_be_all: bool = False) -> None:
    """Check that grouping only touched folders reports the same changed captures, with the same contents."""
    catalog = load_catalog()
    whole = per_capture._state(world.lake, catalog, CAPTURES)
    few = per_capture._state(world.lake, catalog, CAPTURES, only_touched=True)
    assert may_be_all or few.seen.folders is not None
    assert few.changed == whole.changed
    assert few.captures.items() <= whole.captures.items()


def roles(world: World) -> None:
    """Write different roles."""
    (world.lake.root / ROLES).write_text(f"rank,role,group\n0,dp,{world.n}\n")


@pytest.mark.slow  # the tests below have single changes
@pytest.mark.parametrize("seed", range(2))
def test_what_changed_is_found_in_the_folders_that_changed(tmp_path: Path, seed: int) -> None:
    world = World(tmp_path, seed)
    world.add("job1")
    world.superseded()
    world.captures()
    assert_same(world)
    steps: list[tuple[Callable[[], object], bool]] = [
        *((step, False) for step in (world.add, world.late_rank, world.superseded, world.captures, world.reject)),
        *((step, False) for step in (world.hide, world.forget, world.captures, world.late_rank)),
        (lambda: compact(world.lake, older_than=0), False),
        (lambda: roles(world), True),
    ]
    world.choice.shuffle(steps)
    may_be_all = False
    for step, is_all in steps:
        step()
        may_be_all = (may_be_all or is_all) and step != world.captures
        assert_same(world, may_be_all)
    world.captures()
    assert_same(world)
    assert per_capture._state(world.lake, load_catalog(), CAPTURES).changed == []


@pytest.mark.slow  # six runs; the test below checks the captures, this test how few traces are grouped
def test_only_what_is_new_is_grouped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, 0)
    for job in ("a", "b", "c"):
        world.add(job)
    world.captures()
    seen: list[int] = []

    def counted(traces, *others):
        listed = list(traces)
        seen.append(len(listed))
        return grouping.find_captures(listed, *others)

    monkeypatch.setattr(input_tables, "find_captures", counted)
    world.add("a", rank=1)
    world.captures()
    assert seen == [2]
    world.captures()  # the run detects earlier that there is nothing to do
    assert seen == [2]
    note(world.lake.root, known_groups.GROUPED, None)
    world.add("a", rank=2)
    world.captures()
    world.add("d")
    world.captures()
    assert seen == [2, 5, 1]


@pytest.mark.slow  # a lock lets one run at a time write the record
def test_another_run_wrote_it_meanwhile(tmp_path: Path) -> None:
    """If another run wrote the record of groups in the meantime, the next run groups all traces.

    Neither run knows the result of the other.
    """
    world = World(tmp_path, 0)
    world.add("a")
    world.captures()
    world.add("b")
    state = per_capture._state(world.lake, load_catalog(), CAPTURES, only_touched=True)
    assert state.seen.folders and state.inputs_hash
    world.captures()
    known_groups.note(world.lake.root, state.now, state.inputs_hash, state.seen, state.captures)
    assert known_groups.touched(world.lake.root, state.now, state.inputs_hash) == known_groups.ALL
    assert_same(world, may_be_all=True)


def test_a_batch_of_captures_that_is_gone_is_noticed(tmp_path: Path) -> None:
    """A removed batch of captures is noticed, even the last run's, and its captures are recomputed."""
    world = World(tmp_path, 0)
    world.add("a")
    world.captures()
    (batch,) = world.lake.batches("captures")
    world.lake.take_away(batch, CAPTURES)
    state = per_capture._state(world.lake, load_catalog(), CAPTURES, only_touched=True)
    assert state.seen == known_groups.ALL and len(state.changed) == 1


@pytest.mark.slow  # computes captures twice; a missing batch of captures is tested above
def test_a_trace_that_no_table_lacks_any_more_changes_its_capture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trace whose missing table is computed later changes its capture.

    The capture was computed without the trace. As long as the model's failure is the known one, the capture does not
    change.
    """
    world, catalog = World(tmp_path, 0), load_catalog()
    world.add("a")
    world.add("b")

    def failing(*_: object, on_model: Callable[[str], None], **__: object) -> None:
        on_model("kernels")
        raise ValueError("this trace is odd")

    def changed() -> list[str]:
        assert_same(world)
        return per_capture._state(world.lake, catalog, CAPTURES, only_touched=True).changed

    monkeypatch.setattr(per_capture, "trace_tables", lambda *_: ["kernels"])
    with monkeypatch.context() as patch:
        patch.setattr(per_trace, "run_models", failing)
        world.captures()
        assert changed() == []
    first = world.lake.batches()[0]
    per_trace.materialize(world.lake, ["kernels"], [first], force=True, and_publish=False)
    assert len(changed()) == 1
    world.captures()
    assert changed() == []


def test_what_came_in_while_a_model_failed_has_its_tables_before_its_capture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trace that arrives while a model fails has its tables before its capture is computed.

    The failure changes a capture, so the captures are compared again, now with the new trace.
    """
    world = World(tmp_path, 0)
    world.add("a")

    def failing(*_: object, on_model: Callable[[str], None], **__: object) -> None:
        on_model("kernels")
        monkeypatch.setattr(per_trace, "run_models", run_models)
        world.add("b")
        raise ValueError("this trace is odd")

    monkeypatch.setattr(per_capture, "trace_tables", lambda *_: ["kernels"])
    monkeypatch.setattr(per_trace, "run_models", failing)
    world.captures()
    assert [[*world.lake.versions_of(batch, ["kernels"])] for batch in world.lake.batches()] == [["kernels"]] * 2
    assert per_capture._state(world.lake, load_catalog(), CAPTURES, only_touched=True).changed == []
