"""Definition of a program: the function that builds its step, its change, and the expected answers of an analysis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.pairs.context import Context

Step = Callable[[int], object]
"""One step. Its argument is the number of the step in the window, from 0."""

FIXES = (
    "do_not_wait",
    "load_ahead",
    "copy_ahead",
    "graph_or_compile",
    "fused_optimizer",
    "no_empty_cache",
    "no_gc",
    "asynchronous_checkpoint",
    "compile_once",
    "overlap_communication",
    "even_ranks",
    "move_host_work",
    "lower_precision",
    "pin_memory",
)
NEEDS = ("cuda", "compile", "ranks")
"""Possible requirements of a program: a CUDA device, torch.compile with its compilers, communicating processes."""


@dataclass(frozen=True)
class Program:
    """A program. truth.json describes the fields."""

    name: str
    make: Callable[[Context], Step]
    change: str
    causes: tuple[str, ...]
    forbidden: tuple[str, ...] = ()
    whatif: tuple[str, ...] = ()
    ratio: tuple[str, ...] = ()
    fix: str | None = None
    steps: int = 8
    warm: int = 3
    stack: bool = False
    sync_events: bool = False
    needs: tuple[str, ...] = ()
    repeatable: bool = True  # False if a repeated step differs, so that each measurement needs a fresh window
    note: str | None = None

    def expectation(self) -> dict[str, object]:
        """Return the fields of truth.json with the expected answers of an analysis."""
        return {
            "change": self.change,
            "cause": self.causes[0],
            "causes": list(self.causes),
            "forbidden": list(self.forbidden),
            "whatif": list(self.whatif),
            "ratio": list(self.ratio),
            "fix": self.fix,
            "note": self.note,
        }

    def describe(self) -> dict[str, object]:
        """Return the fields of truth.json that are known before the program runs."""
        return {
            **self.expectation(),
            "steps": self.steps,
            "stack": self.stack,
            "sync_events": self.sync_events,
        }


PROGRAMS: dict[str, Program] = {}


def program(**fields: object) -> Callable[[Callable[[Context], Step]], Callable[[Context], Step]]:
    """Register the decorated function as a program with the function's name."""

    def register(make: Callable[[Context], Step]) -> Callable[[Context], Step]:
        if make.__name__ in PROGRAMS:
            raise ValueError(f"two programs are named {make.__name__}. Rename one of them.")
        PROGRAMS[make.__name__] = Program(make.__name__, make, **fields)  # type: ignore[arg-type]
        return make

    return register


def load_programs() -> dict[str, Program]:
    """Return all programs by name, in the order in which they are recorded."""
    import bench.pairs.programs  # noqa: F401  # its modules register their programs

    return PROGRAMS
