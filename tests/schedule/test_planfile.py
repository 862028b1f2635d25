"""Plan files: the bundled ones, their hash, and illegal ones, which are refused with their line."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest

from pipelines.schedule import PlanError, PlanWarning, simulate
from pipelines.schedule.plan.plan_file import FOLDER, load_plan, plan_names
from pipelines.schedule.workloads import WORKLOADS

MLP = (FOLDER / "mlp.toml").read_text(encoding="utf-8")


def write(folder: Path, *changes: tuple[str, str], text: str = MLP) -> Path:
    """Write a plan file with replacements, each of which must match, and return its path."""
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    path = folder / "plan.toml"
    path.write_text(text, encoding="utf-8")
    return path


def line_of(path: Path, pattern: str, nth: int = 0) -> int:
    """Return the number of the nth line that matches."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [i for i, line in enumerate(lines, 1) if re.search(pattern, line)][nth]


def refused(path: Path) -> list[str]:
    with pytest.raises(PlanError) as error:
        load_plan(path)
    return error.value.problems


def test_bundled_plans_are_the_documents_shapes() -> None:
    shapes = {}
    for name in plan_names():
        plan = load_plan(name)
        assert plan.checked.warnings == []
        shapes[name] = (len(plan.tasks), plan.checked.depth, len({t.stream for t in plan.tasks}))
    documents = {"mlp": (4, 2, 2), "sparse_dist": (8, 3, 3), "fused_sparse_dist": (9, 3, 4)}
    assert {name: shapes[name] for name in documents} == documents


@pytest.mark.parametrize("name", plan_names())
@pytest.mark.parametrize("engine", ["serial", "SWPipeline", "DataFlowPipeline"])
def test_bundled_plans_run_by_name_alone(name: str, engine: str) -> None:
    plan = load_plan(name)
    timeline = simulate(plan.plan(), WORKLOADS[plan.workload].nominal_ns, iterations=10, engine=engine)
    assert len(timeline.spans) == 10 * len(plan.tasks)


def test_the_hash_is_of_what_decides(tmp_path: Path) -> None:
    known = load_plan("mlp").plan_hash
    assert re.fullmatch("[0-9a-f]{16}", known)
    same = [
        (("# One stage", "# Two stages"),),
        (('stage = 0\nstream = "copy"', 'stream = "copy"\nstage = 0'),),
        (('name = "Backward"', 'name = "Backward"\nstream = "default"\nglobally_ordered = false'),),
        (('["CopyBatch"]', '["CopyBatch", "CopyBatch"]'),),
    ]
    for changes in same:
        assert load_plan(write(tmp_path, *changes)).plan_hash == known, changes
    other = [
        (('stream = "copy"', 'stream = "io"'),),
        (('thread_group = "io"', 'thread_group = "compute"'),),
        (("stage = 0", "stage = 1"),),
        (('stream = "copy"', 'stream = "copy"\nglobally_ordered = true'),),
        (('inter_iter_deps = ["OptimizerStep"]', "inter_iter_deps = []"),),
    ]
    hashes = {load_plan(write(tmp_path, *changes)).plan_hash for changes in other}
    assert len(hashes) == len(other) and known not in hashes


def test_corollary_1_names_the_dependency_line(tmp_path: Path) -> None:
    path = write(tmp_path, ('name = "Backward"\nstage = 1', 'name = "Backward"\nstage = 0'))
    (problem,) = refused(path)
    assert problem.startswith(f"{path}:{line_of(path, 'intra_iter_deps.*Forward')}: corollary 1: task 'Backward'")
    assert "Move 'Forward' to stage 0 or lower" in problem


def test_corollary_3_names_the_other_kind_of_dependency(tmp_path: Path) -> None:
    # Forward waits for OptimizerStep of the previous iteration, which is now two stages later.
    path = write(tmp_path, ('name = "OptimizerStep"\nstage = 1', 'name = "OptimizerStep"\nstage = 3'))
    (problem,) = refused(path)
    assert problem.startswith(f"{path}:{line_of(path, 'inter_iter_deps')}: corollary 3: task 'Forward'")


def test_a_cycle_names_all_its_lines(tmp_path: Path) -> None:
    path = write(
        tmp_path, ('intra_iter_deps = ["CopyBatch"]', 'intra_iter_deps = [\n  "CopyBatch",\n  "OptimizerStep",\n]')
    )
    (problem,) = refused(path)
    lines = [
        line_of(path, '^  "OptimizerStep"'),
        line_of(path, r'intra_iter_deps = \["Backward"'),
        line_of(path, r'intra_iter_deps = \["Forward"'),
    ]
    first, more = re.search(r":(\d+): .*\(and line ([\d, ]+)\)$", problem).groups()  # pyright: ignore[reportOptionalMemberAccess]
    assert sorted(map(int, [first, *more.split(", ")])) == sorted(lines)


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ('["Backward"]', '["Bakward"]', "Bakward", "did you mean 'Backward'?"),
        ('["Backward"]', '["OptimizerStep"]', r"intra_iter_deps = \[.Opt", "depends on itself"),
        ("stage = 0", "stage = -1", "stage = -1", "a whole number from 0"),
        ("stage = 0", 'stage = "0"', "stage = .0", "must be a whole number"),
        ("stage = 0", "stage = true", "stage = true", "must be a whole number"),
        ('thread_group = "io"', 'thread_group = ""', 'thread_group = ""', "a group must be a name"),
        ('stream = "copy"', 'streem = "copy"', "streem", "did you mean `stream`?"),
        ('workload = "mlp"', 'workload = "mpl"', "workload", "use one of 'mlp'"),
        ('name = "Backward"', 'name = "Forward"', 'name = "Forward"', "defined twice, first in line"),
        ('name = "CopyBatch"', 'name = "Copy,Batch"', "Copy,Batch", "use letters, digits"),
        ('name = "CopyBatch"', "", r"\[\[task\]\]", "has no name"),
        ('["CopyBatch"]', "[1]", r"= \[1\]", "must be a list of task names"),
    ],
)  # fmt: skip
def test_what_is_wrong_and_where(tmp_path: Path, old: str, new: str, line: str, says: str) -> None:
    path = write(tmp_path, (old, new))
    wrong = [p for p in refused(path) if says in p]
    assert [p.split(": ")[0] for p in wrong] == [f"{path}:{line_of(path, line, nth=1 if 'twice' in says else 0)}"]


def test_tasks_are_those_of_the_workload(tmp_path: Path) -> None:
    path = write(tmp_path, ('name = "OptimizerStep"', 'name = "OptimiserStep"'))
    problems = refused(path)
    assert f"{path}:{line_of(path, 'OptimiserStep')}: workload 'mlp' has no task 'OptimiserStep'" in problems[0]
    assert f"{path}:{line_of(path, 'workload')}: no [[task]] is named 'OptimizerStep'" in problems[1]


def test_no_toml_no_plan(tmp_path: Path) -> None:
    (problem,) = refused(write(tmp_path, ("stage = 0", "stage = = 0")))
    assert "not TOML" in problem and "line" in problem
    (problem,) = refused(write(tmp_path, text='workload = "mlp"\n'))
    assert "there is no [[task]]" in problem
    with pytest.raises(LookupError, match=f"use one of {', '.join(plan_names())}, or the path"):
        load_plan("mlpp")
    with pytest.raises(LookupError, match="no plan file"):
        load_plan(tmp_path / "absent.toml")
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "latin.toml").write_bytes("workload = 'mlp' # größer".encode("latin-1"))
    for name in ("folder", "latin"):
        with pytest.raises(PlanError, match=rf"{name}.toml: cannot be read as UTF-8: "):
            load_plan(tmp_path / f"{name}.toml")


def test_inline_tables_are_read_too_only_the_line_is_missing(tmp_path: Path) -> None:
    text = 'workload = "mlp"\ntask = [{name = "CopyBatch"}, {name = "Forward", intra_iter_deps = ["Forward"]}]\n'
    problems = refused(write(tmp_path, text=text))
    assert any(
        p.startswith(f"{tmp_path / 'plan.toml'}: intra_iter_deps: task 'Forward' depends on itself") for p in problems
    )


def test_suspicious_plans_still_warn_when_an_engine_takes_them(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="the engines need torch")
    from pipelines.schedule import SWPipeline
    from pipelines.schedule.workloads import build

    assert torch
    path = write(tmp_path, ('intra_iter_deps = ["CopyBatch"]\n', ""))
    tasks = {task.name: task for task in build("mlp", "tiny").tasks()}
    with pytest.warns(PlanWarning, match=r"'CopyBatch' and 'Forward' are on different streams, both use ctx\.inputs"):
        SWPipeline(load_plan(path).plan(tasks), "cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SWPipeline(load_plan("mlp").plan(tasks), "cpu")
