"""Conversion of `ncu --csv` to rows, one per dispatch and metric with a number.

Page details has a line per metric. Page raw has a column per metric, and a line of units below the names. The columns
before the metrics have the same names on both. Numbers may have commas between thousands.

ncu 2025 also names the columns of rules (advice) on page details, but fills them only in lines of rules. A line of a
metric ends after the metric's value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pipelines.readers.counters.field_numbers import is_number, number, whole
from pipelines.readers.inputs.faults import Faults, shown

DETAILS, RAW = "ncu details", "ncu raw"
_NEEDED = ("id", "kernel name")
_OF_DETAILS = ("metric name", "metric value")
_USUAL = ("process id", "device", "stream", "grid size", "block size")
_METRIC = ("section name", "metric name", "metric unit", "metric value")
_READ = (*_NEEDED, *_USUAL, *_METRIC)  # of page details
_NO_METRICS = {*_NEEDED, *_USUAL, "process name", "host name", "kernel time", "context", "cc"}
_MOST = 50_000  # rows in memory until their dispatch ends
_RANGES = "domain:"  # columns of NVTX ranges
_NOT_MEASURED = ("", "n/a", "nan", "-nan", "(n/a)", "no data")
_DURATIONS = ("Duration", "gpu__time_duration.sum")
_NS = {"ns": 1, "nsecond": 1, "us": 1e3, "usecond": 1e3, "ms": 1e6, "msecond": 1e6, "s": 1e9, "second": 1e9}
_SHAPE = re.compile(r"\(?\s*(\d{1,10})\s*,\s*(\d{1,10})\s*,\s*(\d{1,10})\s*\)?")


def is_header(names: Sequence[str]) -> bool:
    """Return whether `names` (in lower case) are the column names of page details or of page raw."""
    return "kernel name" in names and ("metric name" in names or any("__" in name for name in names))


def missing(names: Sequence[str]) -> list[str]:
    """Return the missing columns (in lower case) without which no row can be read."""
    return [name for name in (*_NEEDED, *(_OF_DETAILS if "metric name" in names else ())) if name not in names]


class Ncu:
    """Converter of the lines of an ncu file to rows. `names`: the file's column names."""

    def __init__(self, names: Sequence[str], faults: Faults) -> None:
        self._faults = faults
        lower = [name.lower() for name in names]
        self._place = {name: index for index, name in enumerate(lower)}
        self._is_raw = "metric name" not in self._place
        self._metrics = [
            (index, name)
            for index, name in enumerate(names)
            if lower[index] not in _NO_METRICS and _RANGES not in lower[index]
        ]
        self._n_columns = len(lower)
        # The order of columns differs between versions, so a line is complete after the last field that is read.
        self._n_read = (
            self._n_columns if self._is_raw else 1 + max(self._place[name] for name in _READ if name in self._place)
        )
        self._units: Sequence[str] | None = None
        self._dispatch: tuple[Any, ...] | None = None
        self._held: list[tuple[Any, ...]] = []
        self._duration_ns: int | None = None
        if absent := [name for name in _USUAL if name not in self._place]:
            faults.add("missing_column", "info", f"the first line has no {', '.join(absent)}: NULL", len(absent))

    def is_complete(self, n_fields: int, is_whole: bool) -> bool:
        """Return whether a line with `n_fields` fields has all fields that are read.

        `is_whole`: whether the line ends with a line break. Without it, the last field may be truncated.
        """
        return n_fields == self._n_columns or self._n_read + (not is_whole) <= n_fields < self._n_columns

    def rows(self, line: int, fields: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """Read a line. If it begins another dispatch, yield the rows of the dispatch before it.

        Raise BadValue if the line has no valid ID of a dispatch.
        """
        if self._is_raw and self._units is None:
            self._units = fields if not fields[self._place["id"]].strip() else [""] * len(fields)
            if self._units is fields:
                return
            self._faults.add("no_units", "info", f"line {line:,} is not a line of units: unit is NULL")
        dispatch = self._shared(line, fields)
        if dispatch != self._dispatch or len(self._held) > _MOST:
            yield from self.finish()
            self._dispatch = dispatch
        if self._is_raw:
            for index, name in self._metrics:
                self._metric(line, None, name, (self._units or fields)[index], fields[index])
            return
        section, name, unit, value = (self._text(fields, column) for column in _METRIC)
        if name:
            self._metric(line, section or None, name, unit, value)
        else:
            self._faults.add("no_metric", "info", f"line {line:,} is advice or has no metric name: skipped")

    def finish(self) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of the last dispatch."""
        for line, *metric in self._held:
            yield (line, *(self._dispatch or ()), *metric, None, self._duration_ns, RAW if self._is_raw else DETAILS)
        self._held, self._duration_ns = [], None

    def _shared(self, line: int, fields: Sequence[str]) -> tuple[Any, ...]:
        """Return a line's process, dispatch, kernel, device, stream, threads of the grid, and threads of a block."""
        dispatch = whole("ID", self._text(fields, "id"))
        numbers = {name: self._tried(line, fields, name, whole) for name in ("process id", "device", "stream")}
        blocks, threads = (self._tried(line, fields, name, _product) for name in ("grid size", "block size"))
        grid = blocks * threads if blocks is not None and threads is not None else None
        grid = grid if grid is None or grid < 2**63 else None
        kernel = self._text(fields, "kernel name") or None
        return (numbers["process id"], dispatch, kernel, numbers["device"], numbers["stream"], grid, threads)

    def _metric(self, line: int, section: str | None, name: str, unit: str, text: str) -> None:
        text, unit, value = text.strip(), unit.strip(), None
        if text.lower() in _NOT_MEASURED:
            self._faults.add("not_measured", "info", f"line {line:,}: {name} is {shown(text)}: NULL")
        # On page details, a text that does not begin with a letter may be a number in another notation (decimal comma).
        elif not is_number(text) and (self._is_raw or text[0].isalpha()):
            self._faults.add("text_value", "info", f"line {line:,}: {name} is {shown(text)}, a text: skipped")
            return
        else:
            value = self._faults.tried(line, lambda: number(name, text))
        if name in _DURATIONS and unit in _NS and value is not None and 0 <= value * _NS[unit] < 2**63:
            self._duration_ns = round(value * _NS[unit])
        self._held.append((line, section, name, value, unit or None))

    def _text(self, fields: Sequence[str], name: str) -> str:
        return fields[self._place[name]].strip() if name in self._place else ""

    def _tried(self, line: int, fields: Sequence[str], name: str, read: Callable[[str, str], int]) -> int | None:
        text = self._text(fields, name)
        return self._faults.tried(line, lambda: read(name, text)) if text else None


def _product(name: str, text: str) -> int:
    """Return the product of a shape such as `(256, 1, 1)` or `256`. Raise BadValue for any other text."""
    if match := _SHAPE.fullmatch(text):
        x, y, z = map(int, match.groups())
        text = str(x * y * z)
    return whole(name, text)
