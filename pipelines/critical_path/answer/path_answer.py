"""The answer about the critical path of one window."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from pipelines.critical_path.graph.operator_order import serial


@dataclass(frozen=True)
class PathAnswer:
    """A window's critical path. Times are microseconds.

    `success` is False if the window has no path. Then `reason` states why, as a sentence. Otherwise it is None.
    `summary` is the percentage of the path's length for each bound. `path` is in order from its start. `alternatives`
    are the requested alternatives (`alternative_rows`), longest first. `dependencies` describes how operators are
    ordered. `inferred` are the indices in `path` (from 0) of waits without a cuda_sync row. `caveats` are the window's
    rows of `critical_path_caveats`, most severe first.
    """

    success: bool
    nodes: int
    edges: int
    edges_by_type: dict[str, dict[str, float]]
    length_us: float
    summary: dict[str, float | None]
    window_us: float | None = None
    path: list[dict[str, Any]] = field(default_factory=list)
    alternatives: list[dict[str, Any]] = field(default_factory=list)
    dependencies: dict[str, Any] = field(default_factory=serial)
    inferred: list[int] = field(default_factory=list)
    caveats: list[dict[str, Any]] = field(default_factory=list)
    reason: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the object that `--json` prints. It shares its rows with the answer."""
        return {field.name: getattr(self, field.name) for field in fields(self)}
