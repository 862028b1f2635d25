"""The files of `../shared/traces` that are traces."""

from __future__ import annotations

from pathlib import Path

_NUMBERS = ("truth", "engine_cuda")  # measurements of a recorder


def is_trace(path: Path) -> bool:
    """Return whether a JSON file of the reference material is a profiler trace.

    Execution traces and measurements are not profiler traces.
    """
    others = path.name.startswith("execution_trace") or path.stem in _NUMBERS
    return not others and path.parent.name != "stragglers"
