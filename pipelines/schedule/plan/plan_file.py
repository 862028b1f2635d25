"""Plans as files: code says which tasks a workload has, the file says when and where they run.

    workload = "mlp"                      # workloads/

    [[task]]                              # one per task; their order breaks ties, see order.py
    name = "Forward"
    stage = 1                             # default 0
    stream = "default"                    # the default
    thread_group = "compute"              # default "default"
    globally_ordered = false              # the default
    intra_iter_deps = ["CopyBatch"]       # of the same iteration; default none
    inter_iter_deps = ["OptimizerStep"]   # of the iteration before; default none

A file must be legal for the clocked engine; then it is legal for the others too. Needs no torch.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pipelines.schedule.errors import PlanError, Problem
from pipelines.schedule.plan.plan import DEFAULT_STREAM, PipelinePlan, PipelineTask, TaskSchedule
from pipelines.schedule.plan.toml_lines import TomlLines
from pipelines.schedule.plan.validate import CheckedPlan, validate_plan
from pipelines.schedule.workloads import WORKLOADS

FOLDER = Path(__file__).parents[1] / "plans"
_NAME = re.compile(r"[\w.-]+", re.ASCII)  # names go into range names (SWP/{task}/iter{N}) and comma-separated lists
_DEPS = ("intra_iter_deps", "inter_iter_deps")


@dataclass(frozen=True)
class TaskEntry:
    """One [[task]] of a file."""

    name: str
    stage: int = 0
    stream: str = DEFAULT_STREAM
    thread_group: str = "default"
    globally_ordered: bool = False
    intra_iter_deps: tuple[str, ...] = ()
    inter_iter_deps: tuple[str, ...] = ()


_KINDS: dict[str, tuple[type, str]] = {
    "name": (str, "text"),
    "stage": (int, "a whole number"),
    "stream": (str, "text"),
    "thread_group": (str, "text"),
    "globally_ordered": (bool, "true or false"),
    "intra_iter_deps": (list, "a list of task names"),
    "inter_iter_deps": (list, "a list of task names"),
}


@dataclass(frozen=True)
class PlanFile:
    """A legal plan. `name` is the file name without its extension."""

    name: str
    workload: str
    tasks: tuple[TaskEntry, ...]

    def plan(self, tasks: Mapping[str, PipelineTask] | None = None) -> PipelinePlan:
        """Returns the plan for an engine, with functions by task name; without them, for a simulation."""
        schedule = {
            (tasks[t.name] if tasks else t.name): TaskSchedule(t.stage, t.stream, t.thread_group, t.globally_ordered)
            for t in self.tasks
        }
        return PipelinePlan(
            schedule=schedule,
            intra_iter_deps=[(t.name, dep) for t in self.tasks for dep in t.intra_iter_deps],
            inter_iter_deps=[(t.name, dep) for t in self.tasks for dep in t.inter_iter_deps],
        )

    @cached_property
    def checked(self) -> CheckedPlan:
        """Returns the plan as the clocked engine checks it."""
        return validate_plan(self.plan())

    @property
    def plan_hash(self) -> str:
        """Returns 16 hexadecimal digits over everything that decides what a run does.

        Not included: comments, the order of keys and of a task's dependencies, whether a default is written out, the
        file's name.
        """
        tasks = [{**asdict(t), **{kind: sorted(set(getattr(t, kind))) for kind in _DEPS}} for t in self.tasks]
        text = json.dumps({"workload": self.workload, "tasks": tasks}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def plan_names() -> list[str]:
    """Returns the plans that come with the package."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load_plan(plan: str | Path) -> PlanFile:
    """Returns a plan by its name, or by the path of its file (which ends in .toml).

    Raises PlanError with `file:line: what is wrong and what to change` for each fault, LookupError for an unknown name.
    """
    if str(plan).endswith(".toml"):
        path = Path(plan)
    elif str(plan) in plan_names():
        path = FOLDER / f"{plan}.toml"
    else:
        raise LookupError(
            f"unknown plan {str(plan)!r}: use one of {', '.join(plan_names())}, or the path of a .toml file"
        )
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise LookupError(f"there is no plan file {path}") from None
    return _Reader(path, text).read()


class _Reader:
    """Reads one file and collects every fault with its place."""

    def __init__(self, path: Path, text: str) -> None:
        self.path, self.text = path, text
        self.lines = TomlLines(text, "task")
        self.problems: list[str] = []
        self.place: dict[str, int] = {}  # task -> which [[task]]

    def read(self) -> PlanFile:
        try:
            content = tomllib.loads(self.text)
        except tomllib.TOMLDecodeError as error:
            raise PlanError([f"{self.path}: not TOML: {error}"]) from None
        self._unknown_keys(content, ("workload", "task"), None)
        tasks = self._entries(content.get("task", []))
        workload = content.get("workload", "")
        self._stop_at_problems()
        self._check_workload(workload, [t.name for t in tasks])
        file = PlanFile(self.path.stem, workload, tuple(tasks))
        try:
            file.checked  # noqa: B018  (asking is checking)
        except PlanError as error:
            for problem in error.problems:
                self._fault(problem, *self._lines_of(problem))
        self._stop_at_problems()
        return file

    def _entries(self, entries: Any) -> list[TaskEntry]:
        if not isinstance(entries, list) or not all(isinstance(e, dict) for e in entries):
            self._fault("`task` must be a list of tables: write one [[task]] for each task")
            return []
        if not entries:
            self._fault("there is no [[task]]: write one for each task of the workload")
        return [e for i, entry in enumerate(entries) if (e := self._entry(i, entry)) is not None]

    def _entry(self, i: int, entry: dict[str, Any]) -> TaskEntry | None:
        before = len(self.problems)
        self._unknown_keys(entry, tuple(_KINDS), i)
        for key, (kind, wanted) in _KINDS.items():
            if key in entry and not _is(kind, entry[key]):
                self._fault(f"{key} = {entry[key]!r} must be {wanted}", self.lines.key(i, key))
        name = entry.get("name")
        if name is None:
            self._fault("this task has no name: add name = …", self.lines.table(i))
        elif isinstance(name, str) and not _NAME.fullmatch(name):
            self._fault(f"name = {name!r}: use letters, digits, `_`, `.` and `-`", self.lines.key(i, "name"))
        elif isinstance(name, str) and name in self.place:
            first = self.lines.table(self.place[name])
            self._fault(
                f"task {name!r} is defined twice, first in line {first}: give one of them another name, or remove it",
                self.lines.key(i, "name"),
            )
        if len(self.problems) > before:
            return None
        self.place[str(name)] = i
        given: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in entry.items()}
        return TaskEntry(**given)

    def _check_workload(self, workload: Any, names: list[str]) -> None:
        line = self.lines.top("workload")
        if not isinstance(workload, str) or workload not in WORKLOADS:
            self._fault(f"workload = {workload!r}: use one of {', '.join(map(repr, WORKLOADS))}", line)
            return
        known = WORKLOADS[workload].tasks
        for name in names:
            if name not in known:
                close = difflib.get_close_matches(name, known, n=1) or known
                self._fault(
                    f"workload {workload!r} has no task {name!r}: use {' or '.join(map(repr, close))}",
                    self.lines.key(self.place[name], "name"),
                )
        for name in known:
            if name not in names:
                self._fault(f"no [[task]] is named {name!r}, which workload {workload!r} has: add one", line)

    def _unknown_keys(self, table: dict[str, Any], known: tuple[str, ...], i: int | None) -> None:
        for key in table:
            if key not in known:
                close = difflib.get_close_matches(key, known, n=1)
                hint = f"did you mean `{close[0]}`?" if close else f"known keys: {', '.join(known)}"
                self._fault(
                    f"`{key}` is not known here: {hint}", self.lines.top(key) if i is None else self.lines.key(i, key)
                )

    def _lines_of(self, problem: Problem) -> list[int]:
        """Returns the lines of the faulty dependencies, or else of the task's setting."""
        found = [self.lines.entry(self.place[t], problem.key, dep) for t, dep in problem.deps if t in self.place]
        if not any(found) and problem.task in self.place:
            found = [self.lines.key(self.place[problem.task], problem.key)]
        return [line for line in found if line]

    def _fault(self, problem: str, line: int | None = None, *more: int) -> None:
        where = f"{self.path}:{line}" if line else str(self.path)
        also = f" (and line {', '.join(map(str, more))})" if more else ""
        self.problems.append(f"{where}: {problem}{also}")

    def _stop_at_problems(self) -> None:
        if self.problems:
            raise PlanError(self.problems)


def _is(kind: type, value: Any) -> bool:
    if kind is list:
        return isinstance(value, list) and all(isinstance(name, str) for name in value)
    return isinstance(value, kind) and not (kind is int and isinstance(value, bool))
