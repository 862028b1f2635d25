"""The types of edges of the graph, as `sql/rules/edge_types.csv` describes them: nothing else lists them.

A new type is a row there and a model with `-- part of: _edge_parts` in its header, which makes its edges.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pipelines.datafiles import rule_rows


@dataclass(frozen=True)
class EdgeType:
    """One row of edge_types.csv, which says what each column means; what is empty there is an empty text here."""

    edge_code: int
    edge_type: str
    hta_type: str
    bound_by: str
    time_of: str
    takes_time: bool
    names_work: bool
    is_gap: bool
    is_wait: bool
    target: str
    segment: str
    track_label: str
    arrow_on_path: bool
    arrow_at_zero: bool
    meaning: str

    @property
    def is_own_time(self) -> bool:
        """Its edges are an event's own time; those of the others are delays between events, or order only."""
        return self.time_of == "event"


def _edge_type(row: dict[str, str]) -> EdgeType:
    flags = {name: text == "true" for name, text in row.items() if text in ("true", "false")}
    return EdgeType(**{**row, **flags, "edge_code": int(row["edge_code"])})  # type: ignore[arg-type]


EDGE_TYPES = {row["edge_type"]: _edge_type(row) for row in rule_rows("edge_types")}
"""The types by name."""
HTA_TYPES = {name: kind.hta_type for name, kind in EDGE_TYPES.items()}
"""Their texts in HTA by name."""


def edge_codes(names: Iterable[str]) -> list[int]:
    """The numbers of types. Raises ValueError for one that edge_types.csv does not have."""
    try:
        return [EDGE_TYPES[name].edge_code for name in names]
    except KeyError as unknown:
        raise ValueError(
            f"unknown edge type {unknown.args[0]!r}; known are {', '.join(EDGE_TYPES)} (sql/rules/edge_types.csv)"
        ) from None
