"""Tasks (the work of a pipeline) and plans (its schedule), as plain data without torch.

Rules and names follow the data classes of the "SWPipeline API Reference".
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, Union

from pipelines.schedule.plan.namesakes import builds_a_dict

DEFAULT_STREAM = "default"
T = TypeVar("T")


class IterContext:
    """State shared by the tasks of one iteration.

    Tasks store results on it (`ctx.x = ...`) and free them early (`del ctx.x`). Every iteration in flight has its own
    context, so two iterations never see each other's values.
    """

    batch: Any  # the batch that next(data_iter) returned
    iter_idx: int  # counts from 0

    def __init__(self, batch: Any, iter_idx: int) -> None:
        self.batch = batch
        self.iter_idx = iter_idx

    if TYPE_CHECKING:  # any attribute may be set

        def __setattr__(self, name: str, value: Any) -> None: ...

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"iteration {vars(self).get('iter_idx')}: no task has set ctx.{name}, or it was deleted")

    def __repr__(self) -> str:
        return f"IterContext(iter_idx={self.iter_idx}, attributes={sorted(vars(self))})"


@dataclass
class DeclaredIO:
    """A task's effect outside its context, declared so that a shortcut can replay it.

    `capture` is called after the task has run, and returns a snapshot, which is copied like a context value. `restore`
    gets a fresh copy of the snapshot each time the task is replayed.
    """

    capture: Callable[[], Any]
    restore: Callable[[Any], None]


@dataclass(eq=False)
class PipelineTask:
    """One unit of work: its name and its function, without time or place of execution.

    Tasks are compared and hashed by `name`, which is also the tag in profiler traces. The other fields are optional and
    never change a schedule. With them, the validator detects missing dependencies. `reads`, `writes`: the context
    attributes that the function uses, all or none of them, without `batch`. On CUDA the memory of other attributes is
    not kept for the task's stream, and tensors in `writes` count as allocated on that stream. `shared_reads`,
    `shared_writes`: the user's names for state that all iterations share ("weights", "gradients"), where reading a
    stale value would be wrong.
    """

    name: str
    fn: Callable[[IterContext], None]
    io: list[DeclaredIO] = field(default_factory=list)
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    shared_reads: tuple[str, ...] = ()
    shared_writes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for field_name in ("reads", "writes", "shared_reads", "shared_writes"):
            value = getattr(self, field_name)
            if isinstance(value, str):  # iterating over a string would treat its letters as names
                raise TypeError(
                    f"task {self.name!r}: {field_name}={value!r} is a text; write {field_name}=({value!r},), a tuple of names"
                )
        self._dropped_a_namesake = False  # see namesakes.py

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PipelineTask):
            return NotImplemented
        if self.name == other.name and self.fn != other.fn and builds_a_dict(sys._getframe(1), self):
            self._dropped_a_namesake = True  # a dict compares its existing key, `self`, with the key being added
        return self.name == other.name


TaskRef = Union[str, PipelineTask]  # noqa: UP007  (an alias that callers use at run time to check types)


@dataclass
class TaskSchedule:
    """Time and place of one task: stage, stream, thread."""

    stage: int = 0  # in period p, stage k works on iteration p - k
    stream: Any = None  # None = the device's default stream; a name; or a stream object of the device
    thread_group: str = "default"  # one thread submits the tasks of a group, one after the other
    globally_ordered: bool = False  # submitted in the same order on every rank (collectives)


@dataclass
class PipelinePlan:
    """A complete schedule: the keys of `schedule` are the tasks.

    Dependencies are (task, depends_on): on the same iteration in `intra_iter_deps`, on the previous iteration in
    `inter_iter_deps`. Tasks are referenced by object or by name. If a key of `schedule` is only a name, the task must
    appear as an object elsewhere in the plan before an engine can run it (a simulator needs no functions).

    `pipeline_depth` is always max(stage) + 1, and is inferred if it is None. A number that disagrees with the stages is
    an error, even 2. The document's signature has the default 2, and its own depth-3 example omits the argument. With
    that default, an explicit 2 could not be distinguished from an omitted argument.
    """

    schedule: dict[TaskRef, TaskSchedule]
    intra_iter_deps: list[tuple[TaskRef, TaskRef]]
    inter_iter_deps: list[tuple[TaskRef, TaskRef]] = field(default_factory=list)
    pipeline_depth: int | None = None


def name_of(ref: TaskRef) -> str:
    """Return the task's name. Raise TypeError if `ref` is neither a task nor a name."""
    if isinstance(ref, PipelineTask):
        return ref.name
    if isinstance(ref, str):
        return ref
    raise TypeError(f"a task is named by a PipelineTask or its name, not by {ref!r}")


def by_name(values: Mapping[Any, T]) -> dict[str, T]:
    """Return the values by task name. The keys of `values` are tasks or names."""
    return {getattr(key, "name", key): value for key, value in values.items()}


def by_known_name(option: str, values: Mapping[Any, T], tasks: Collection[str]) -> dict[str, T]:
    """Return an option's values by task name. Raise ValueError if a key is not one of the tasks."""
    named = by_name(values)
    for name in named:
        if name not in tasks:
            raise ValueError(f"{option}: {no_task(name, tasks)}")
    return named


def no_task(name: str, tasks: Collection[str]) -> str:
    """Return the message that no task has this name, with the most similar name or all names."""
    close = difflib.get_close_matches(str(name), tasks, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"the tasks are {', '.join(tasks)}"
    return f"no task is named {name!r}; {hint}"


def stream_key(stream: Any) -> Any:
    """Return a stream's identity within a plan: its name or the object itself.

    None and torch.cuda.default_stream(), whose handle is 0, are the default stream.
    """
    return DEFAULT_STREAM if stream is None or getattr(stream, "cuda_stream", None) == 0 else stream
