"""Scenarios as data: the edges to re-weight and the factors, from a TOML file or from the options of a command.

    name = "twice the GEMMs, no launches"
    perfect_overlap = false
    remove = ["launch_overhead"]
    ahead = ["cause:data_loading"]
    [scale]
    "*gemm*" = 0.5
    "class:COMMUNICATION" = 0.7

`remove` deletes its targets, and `scale` multiplies the time of its targets. The targets of `ahead` are done
concurrently with the rest of the window. The window then takes as long as without them, or as long as they take,
whichever is longer. Several scenarios in a file are tables `[[scenario]]` with the same keys. `targets.py` documents
the targets.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipelines.base.errors import TracelakeError
from pipelines.critical_path.graph.edge_types import EDGE_TYPES

SHORT = {
    **{kind.target: f"edge:{name}" for name, kind in EDGE_TYPES.items() if kind.target},
    "earlier_work": "edge:EARLIER_WORK",
    "communication": "class:COMMUNICATION",
    "computation": "class:COMPUTATION",
    "memory": "class:MEMORY",
    "cpu": "class:CPU",
}
"""Short names, and the target that each abbreviates."""
_GAPS = ("edge:HOST_GAP", "edge:THREAD_HAND_OFF")
GROUPS = {"host_gap": _GAPS, "host": ("class:CPU", *_GAPS)}
"""Short names for several targets: host time outside operators, and all time of host threads."""


class ScenarioError(TracelakeError, ValueError):
    """A scenario is invalid. The message contains the location and the valid values."""


@dataclass(frozen=True)
class Scenario:
    """Changes of edge weights. Each weight is multiplied by the factors of all targets that select its edge.

    `scale` contains (target, factor) pairs. Removing a target scales it by 0. `ahead` contains targets that are done
    concurrently with the rest. The window takes as long as without them, or as long as they take, whichever is longer.
    `overlap.py` describes `perfect_overlap`.
    """

    scale: tuple[tuple[str, float], ...] = ()
    perfect_overlap: bool = False
    name: str = ""
    ahead: tuple[str, ...] = ()

    @property
    def targets(self) -> tuple[str, ...]:
        """Return all targets of the scenario."""
        return (*(target for target, _ in self.scale), *self.ahead)

    def with_more(self, other: Scenario) -> Scenario:
        """Return this scenario combined with another one, under this scenario's name."""
        return replace(
            self,
            scale=self.scale + other.scale,
            perfect_overlap=self.perfect_overlap or other.perfect_overlap,
            ahead=self.ahead + other.ahead,
        )

    def __bool__(self) -> bool:
        return bool(self.scale or self.ahead) or self.perfect_overlap


def of_options(
    scale: Iterable[str], remove: Iterable[str], perfect_overlap: bool, ahead: Iterable[str] = ()
) -> Scenario:
    """Return the scenario of `PATTERN=FACTOR` texts, targets to remove and targets to do ahead.

    Raises ScenarioError.
    """
    parts = [text.rpartition("=") for text in scale]
    factors = [(target, _factor(target, text)) for target, _, text in parts]
    return Scenario((*factors, *((target, 0.0) for target in remove)), perfect_overlap, ahead=tuple(ahead))


def read_scenarios(path: Path) -> list[Scenario]:
    """Return the scenarios of a TOML file: the top-level scenario, or its `[[scenario]]` tables.

    Raises ScenarioError.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ScenarioError(f"{path}: {error}") from None
    tables = content.pop("scenario", None)
    if tables is None:
        return [_of_table(content, str(path))]
    if content or not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ScenarioError(
            f"{path}: write either [[scenario]] tables and nothing else, or one scenario without such a table"
        )
    return [_of_table(table, f"{path}, scenario {i}") for i, table in enumerate(tables, start=1)]


def _of_table(table: dict[str, Any], where: str) -> Scenario:
    if unknown := set(table) - {"name", "scale", "remove", "ahead", "perfect_overlap"}:
        raise ScenarioError(
            f"{where}: unknown key {sorted(unknown)[0]!r}; choose from name, scale, remove, ahead, perfect_overlap"
        )
    scale, overlap = table.get("scale", {}), table.get("perfect_overlap", False)
    remove, ahead = table.get("remove", []), table.get("ahead", [])
    if not isinstance(scale, dict):
        raise ScenarioError(f"{where}: scale must be a table of factors, such as [scale] followed by 'gemm*' = 0.5")
    for key, targets in (("remove", remove), ("ahead", ahead)):
        if not isinstance(targets, list) or not all(isinstance(target, str) for target in targets):
            raise ScenarioError(f"{where}: {key} must be a list of strings")
    if not isinstance(overlap, bool):
        raise ScenarioError(f"{where}: perfect_overlap must be true or false")
    try:
        factors = [(target, _factor(target, factor)) for target, factor in scale.items()]
    except ScenarioError as error:
        raise ScenarioError(f"{where}: {error}") from None
    return Scenario(
        (*factors, *((target, 0.0) for target in remove)), overlap, str(table.get("name", "")), tuple(ahead)
    )


def _factor(target: str, factor: Any) -> float:
    try:
        value = math.nan if isinstance(factor, bool) else float(factor)
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    if not target or not 0 <= value < math.inf:
        raise ScenarioError(f"scale {f'{target}={factor}'!r}: give PATTERN=FACTOR with a factor of 0 or more")
    return value
