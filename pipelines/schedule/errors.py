"""What can go wrong, by kind."""

from __future__ import annotations


class PlanError(ValueError):
    """A plan that cannot run. `problems` holds one sentence a fault; the message has them all."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("this plan cannot run:\n" + "\n".join(f"- {p}" for p in problems))
        self.problems = problems

    def __reduce__(self) -> tuple:
        return (PlanError, (self.problems,))


class PlanWarning(UserWarning):
    """A plan that runs but probably does not do what was meant."""


class PipelineError(RuntimeError):
    """A run that stopped. `task` and `iteration` say where; None if no task (or no iteration) is to blame."""

    def __init__(self, message: str, task: str | None = None, iteration: int | None = None) -> None:
        super().__init__(message)
        self.task = task
        self.iteration = iteration

    def __reduce__(self) -> tuple:
        return (PipelineError, (str(self), self.task, self.iteration))


class PipelineTimeout(PipelineError):
    """A wait that took longer than its limit."""

    def __reduce__(self) -> tuple:
        return (PipelineTimeout, (str(self), self.task, self.iteration))
