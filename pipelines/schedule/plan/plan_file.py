"""Plans as files: code defines the tasks of a workload, the file defines when and where they run.

    workload = "mlp"                      # workloads/

    [[task]]                              # one per task; the order breaks ties, see order.py
    name = "Forward"
    stage = 1                             # default 0
    stream = "default"                    # the default
    thread_group = "compute"              # default "default"
    globally_ordered = false              # the default
    intra_iter_deps = ["CopyBatch"]       # of the same iteration; default none
    inter_iter_deps = ["OptimizerStep"]   # of the iteration before; default none

A file must be legal for the clocked engine, and is then legal for the other engines, too. This module does not need
torch.
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
from pipelines.schedule.plan.checked_plan import CheckedPlan
from pipelines.schedule.plan.plan import DEFAULT_STREAM, PipelinePlan, PipelineTask, TaskSchedule
from pipelines.schedule.plan.toml_lines import TomlLines
from pipelines.schedule.plan.validate import validate_plan
from pipelines.schedule.workloads import WORKLOADS

FOLDER = Path(__file__).parents[1] / "plans"
_NAME = re.compile(r"[\w.-]+", re.ASCII)  # names go into range names (SWP/{task}/iter{N}) and comma-separated lists
_DEPS = ("intra_iter_deps", "inter_iter_deps")


@dataclass(frozen=True)
class TaskEntry:
    """A [[task]] table of a plan file."""

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
    """A legal plan from a file. `name` is the file name without its extension."""

    name: str
    workload: str
    tasks: tuple[TaskEntry, ...]

    def plan(self, tasks: Mapping[str, PipelineTask] | None = None) -> PipelinePlan:
        """Return the plan for an engine, with the functions in `tasks`, or for a simulation if `tasks` is None."""
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
        """Return the plan, validated for the clocked engine."""
        return validate_plan(self.plan())

    @property
    def plan_hash(self) -> str:
        """Return a digest (16 hexadecimal digits) of everything that determines a run's behavior.

        Comments, the order of keys and of a task's dependencies, explicit defaults and the file's name do not change it.
        """
        tasks = [{**asdict(t), **{kind: sorted(set(getattr(t, kind))) for kind in _DEPS}} for t in self.tasks]
        text = json.dumps({"workload": self.workload, "tasks": tasks}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def plan_names() -> list[str]:
    """Return the names of the plans in the package, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load_plan(plan: str | Path) -> PlanFile:
    """Return a plan by its name, or by the path of its file (which ends in .toml).

    Raise PlanError if the plan has faults, each with `file:line: fault and remedy`, and LookupError if the name or the
    file does not exist.
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
    except (OSError, UnicodeDecodeError) as error:
        raise PlanError([f"{path}: cannot be read as UTF-8: {error}"]) from None
    return _Reader(path, text).read()


class _Reader:
    """Reader of a plan file that collects all faults with their lines."""

    def __init__(self, path: Path, text: str) -> None:
        self.path, self.text = path, text
        self.lines = TomlLines(text, "task")
        self.problems: list[str] = []
        self.place: dict[str, int] = {}  # task -> index of its [[task]]

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
            file.checked  # noqa: B018  (the property validates the plan)
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
        n_problems_before = len(self.problems)
        self._unknown_keys(entry, tuple(_KINDS), i)
        for key, (kind, expected) in _KINDS.items():
            if key in entry and not _is(kind, entry[key]):
                self._fault(f"{key} = {entry[key]!r} must be {expected}", self.lines.key(i, key))
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
        if len(self.problems) > n_problems_before:
            return None
        self.place[str(name)] = i
        settings: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in entry.items()}
        return TaskEntry(**settings)

    def _check_workload(self, workload: Any, names: list[str]) -> None:
        line = self.lines.top("workload")
        if not isinstance(workload, str) or workload not in WORKLOADS:
            self._fault(f"workload = {workload!r}: use one of {', '.join(map(repr, WORKLOADS))}", line)
            return
        tasks = WORKLOADS[workload].tasks
        for name in names:
            if name not in tasks:
                close = difflib.get_close_matches(name, tasks, n=1) or tasks
                self._fault(
                    f"workload {workload!r} has no task {name!r}: use {' or '.join(map(repr, close))}",
                    self.lines.key(self.place[name], "name"),
                )
        for name in tasks:
            if name not in names:
                self._fault(f"no [[task]] is named {name!r}, which workload {workload!r} has: add one", line)

    def _unknown_keys(self, table: dict[str, Any], allowed_keys: tuple[str, ...], i: int | None) -> None:
        for key in table:
            if key not in allowed_keys:
                close = difflib.get_close_matches(key, allowed_keys, n=1)
                hint = f"did you mean `{close[0]}`?" if close else f"known keys: {', '.join(allowed_keys)}"
                self._fault(
                    f"`{key}` is not known here: {hint}", self.lines.top(key) if i is None else self.lines.key(i, key)
                )

    def _lines_of(self, problem: Problem) -> list[int]:
        """Return the lines of the faulty dependencies or, if there are none, of the task's setting."""
        lines = [self.lines.entry(self.place[t], problem.key, dep) for t, dep in problem.deps if t in self.place]
        if not any(lines) and problem.task in self.place:
            lines = [self.lines.key(self.place[problem.task], problem.key)]
        return [line for line in lines if line]

    def _fault(self, problem: str, line: int | None = None, *more: int) -> None:
        location = f"{self.path}:{line}" if line else str(self.path)
        more_lines = f" (and line {', '.join(map(str, more))})" if more else ""
        self.problems.append(f"{location}: {problem}{more_lines}")

    def _stop_at_problems(self) -> None:
        if self.problems:
            raise PlanError(self.problems)


def _is(kind: type, value: Any) -> bool:
    if kind is list:
        return isinstance(value, list) and all(isinstance(name, str) for name in value)
    return isinstance(value, kind) and not (kind is int and isinstance(value, bool))
