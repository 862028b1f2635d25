"""Exceptions and warnings of plans and runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class Problem(str):
    """One fault of a plan: a sentence, and its location."""

    key: str
    """The name of the wrong setting or list of dependencies, empty if neither is at fault."""
    task: str
    deps: tuple[tuple[str, str], ...]
    """The dependencies at fault, each (task, depends_on)."""

    def __new__(cls, says: str, key: str = "", task: str = "", deps: Iterable[tuple[str, str]] = ()) -> Problem:
        self = super().__new__(cls, says)
        self.key, self.deps = key, tuple(deps)
        self.task = task or (self.deps[0][0] if self.deps else "")
        return self


class PlanError(ValueError):
    """A plan cannot run. `problems` contains one sentence per fault, with its location. The message lists all."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("this plan cannot run:\n" + "\n".join(f"- {p}" for p in problems))
        self.problems = [p if isinstance(p, Problem) else Problem(p) for p in problems]

    def __reduce__(self) -> tuple:
        return (PlanError, (self.problems,))


class PlanWarning(UserWarning):
    """A plan can run, but probably not as intended."""


class PipelineError(RuntimeError):
    """A run stopped at `task` and `iteration`, each None if the failure does not belong to a task or iteration."""

    def __init__(self, message: str, task: str | None = None, iteration: int | None = None) -> None:
        super().__init__(message)
        self.task = task
        self.iteration = iteration

    def __reduce__(self) -> tuple:
        return (type(self), (str(self), self.task, self.iteration))


class PipelineTimeout(PipelineError):
    """A wait took longer than its limit."""
