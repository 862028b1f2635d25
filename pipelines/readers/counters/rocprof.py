"""Conversion of rocprofv3's counter collections to rows, one per dispatch and counter, in the order of the file.

Columns are identified by name (generateCSV.cpp of rocprofiler-sdk). The file has no units. AMD's lists of counters
contain them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from pipelines.readers.counters.field_numbers import number, whole
from pipelines.readers.inputs.faults import BadValue, Faults

SOURCE = "rocprofv3"
NEEDED = ("dispatch_id", "kernel_name", "counter_name", "counter_value")
_USUAL = (
    *("process_id", "agent_id", "queue_id", "grid_size", "workgroup_size"),
    *("start_timestamp", "end_timestamp"),
)
_NUMBER_AT_END = re.compile(r"(\d+)$")


class Rocprof:
    """Converter of the lines of a rocprofv3 file to rows.

    `names`: the file's column names, in lower case, including NEEDED.
    """

    def __init__(self, names: Sequence[str], faults: Faults) -> None:
        self._faults = faults
        self._n_columns = len(names)
        self._place = {name: names.index(name) for name in (*NEEDED, *_USUAL) if name in names}
        if missing := [name for name in _USUAL if name not in self._place]:
            faults.add("missing_column", "info", f"the first line has no {', '.join(missing)}: NULL", len(missing))

    def is_complete(self, n_fields: int, is_whole: bool) -> bool:
        """Return whether a line with `n_fields` fields is complete."""
        return n_fields == self._n_columns

    def rows(self, line: int, fields: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """Yield the row of a line, in the table's column order.

        Raise BadValue if the line has no valid dispatch id, or no counter name.
        """
        texts = {name: fields[index].strip() for name, index in self._place.items()}
        dispatch = whole("Dispatch_Id", texts["dispatch_id"])
        if not texts["counter_name"]:
            raise BadValue("Counter_Name is empty")
        start, end = self._whole(line, texts, "start_timestamp"), self._whole(line, texts, "end_timestamp")
        if start is not None and end is not None and end < start:
            self._faults.add("ends_before_start", "warning", f"line {line:,}: ends at {end}, before its start {start}")
            end = None
        yield (
            line,
            self._whole(line, texts, "process_id"),
            dispatch,
            texts["kernel_name"] or None,
            self._whole(line, texts, "agent_id"),
            self._whole(line, texts, "queue_id"),
            self._whole(line, texts, "grid_size"),
            self._whole(line, texts, "workgroup_size"),
            None,
            texts["counter_name"],
            self._value(line, texts),
            None,
            start,
            end - start if start is not None and end is not None else None,
            SOURCE,
        )

    def finish(self) -> Iterator[tuple[Any, ...]]:
        """Yield nothing, because no row is pending at the end."""
        return iter(())

    def _whole(self, line: int, texts: dict[str, str], name: str) -> int | None:
        text = texts.get(name, "")
        if name == "agent_id" and (match := _NUMBER_AT_END.search(text)):  # 1, Agent 1 or GPU 0
            text = match[1]
        return self._faults.tried(line, lambda: whole(name, text)) if text else None

    def _value(self, line: int, texts: dict[str, str]) -> float | None:
        return self._faults.tried(line, lambda: number("Counter_Value", texts["counter_value"]))
