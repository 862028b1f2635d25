"""The edge types of the graph, which `sql/rules/path/edge_types.csv` lists and describes.

A new type needs a row in that file, and a model with `-- part of: _edge_parts` in its header that creates its edges.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

from pipelines.base.datafiles import rule_rows


@dataclass(frozen=True)
class EdgeType:
    """A row of edge_types.csv, whose header describes the columns. An empty cell is an empty string."""

    edge_code: int
    edge_type: str
    hta_type: str
    bound_by: str
    time_of: str
    has_duration: bool
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
        """Return whether edges of this type are an event's self time.

        Other edges are delays between events, or only order them.
        """
        return self.time_of == "event"


def read_type(row: dict[str, str]) -> EdgeType:
    """Return the type for a row of edge_types.csv. Raises ValueError if a flag is neither true nor false."""
    flag_names = [field.name for field in fields(EdgeType) if field.type == "bool"]  # annotations are strings here
    for name in flag_names:
        if row[name] not in ("true", "false"):
            raise ValueError(
                f"sql/rules/path/edge_types.csv: {name} of {row['edge_type']} is {row[name]!r}: write true or false"
            )
    flags = {name: row[name] == "true" for name in flag_names}
    return EdgeType(**{**row, **flags, "edge_code": int(row["edge_code"])})  # type: ignore[arg-type]


EDGE_TYPES = {row["edge_type"]: read_type(row) for row in rule_rows("edge_types")}
"""The edge types by name."""
HTA_TYPES = {name: kind.hta_type for name, kind in EDGE_TYPES.items()}
"""HTA's texts for the edge types, by the type's name."""


def edge_codes(names: Iterable[str]) -> list[int]:
    """Return the codes of edge types. Raises ValueError for a type that is not in edge_types.csv."""
    try:
        return [EDGE_TYPES[name].edge_code for name in names]
    except KeyError as unknown:
        raise ValueError(
            f"unknown edge type {unknown.args[0]!r}; choose one of {', '.join(EDGE_TYPES)} (sql/rules/path/edge_types.csv)"
        ) from None
