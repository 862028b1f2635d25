"""Hardware counters that Kineto's CUPTI range profiler adds to the arguments of `cuda_profiler_range` events.

Source: CuptiRangeProfiler.cpp of pytorch/kineto. An event is a kernel (CUPTI_PROFILER_ENABLE_PER_KERNEL), or a range of
the program with all its kernels. Its times are not measured, because Kineto divides the whole time by the number of
ranges.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipelines.base import database
from pipelines.models.catalog import load_catalog

if TYPE_CHECKING:
    import duckdb

CATEGORY = "cuda_profiler_range"
_METRIC = re.compile(r"\w+?__\w")  # unit__counter.rollup: dram__bytes_read.sum, kineto__tensor_core_insts
# Kineto's root range and unknown kernel, and CUPTI's numbers of ranges for which Kineto has no kernel name.
_NO_KERNEL = re.compile(r"__profile__|__missing__|\d*")


@dataclass(frozen=True)
class CounterRange:
    """A range with its counters by name. A value is None if the file has no number."""

    event_id: int
    name: str
    device: int | None
    counters: dict[str, float | None]

    @property
    def kernel(self) -> str | None:
        """The kernel's name, or None for a range of the program."""
        return None if _NO_KERNEL.fullmatch(self.name) else self.name

    @property
    def has_values(self) -> bool:
        """Whether any counter has a value."""
        return any(value is not None for value in self.counters.values())


def counter_ranges(con: duckdb.DuckDBPyConnection) -> list[CounterRange]:
    """Return the ranges in table `events` of `con`, which has one trace, in the order of the file."""
    return [
        CounterRange(row["event_id"], row["name"] or "", row["device"], _counters(row["args"]))
        for row in database.rows_of(con, load_catalog().models["_counter_ranges"].sql)
    ]


def _counters(args: str | None) -> dict[str, float | None]:
    try:
        named: Any = json.loads(args or "{}")
    except (ValueError, RecursionError):
        return {}
    return (
        {name: _number(value) for name, value in named.items() if _METRIC.match(name)}
        if isinstance(named, dict)
        else {}
    )


def _number(value: Any) -> float | None:
    return (
        float(value)
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2.0**64
        else None
    )


def lacks_counters(metadata: dict[str, Any], counts: dict[str, Any]) -> bool:
    """Return whether counters were apparently requested, but the profiler could not collect them.

    PyTorch omits operators and its trace id if `profiler_metrics` are set. `counts`: the row of `_event_counts`.
    """
    is_recent = "cupti_version" in metadata and "trace_id" not in metadata
    return (
        is_recent and bool(counts.get("n_kernels")) and not counts.get("n_operators") and not counts["n_counter_ranges"]
    )
