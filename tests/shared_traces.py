"""Which files of `../shared/traces` are traces."""

from __future__ import annotations

from pathlib import Path

_NUMBERS = ("truth", "engine_cuda")  # what a recorder measured


def is_trace(path: Path) -> bool:
    """Return whether a JSON file of the reference material is a profiler trace: not an execution trace, nor numbers."""
    others = path.name.startswith("execution_trace") or path.stem in _NUMBERS
    return not others and path.parent.name != "stragglers"
