"""Ingestion of counter files, each as a separate set, because counters come from another run than the timings."""

from __future__ import annotations

import csv
import hashlib
import tempfile
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from pipelines.models.sqltext import as_text, parquet_rows
from pipelines.readers.counters import ncu, rocprof
from pipelines.readers.counters.ncu import Ncu
from pipelines.readers.counters.rocprof import Rocprof
from pipelines.readers.inputs import Read, Reading, Rejected, SetInput
from pipelines.readers.inputs.faults import BadValue, Faults, shown
from pipelines.readers.inputs.lines import lines
from pipelines.readers.inputs.row_files import RowFiles
from pipelines.readers.kineto.source import Source, head_of

TABLE, COUNTERS, FINDINGS = "counter_files", "kernel_counters", "counter_findings"
_NAMES = ("counter_collection.csv", "counter_collection.csv.gz")
_WHAT = "a counter file"
_WHOLE, _TEXT, _REAL = pa.int64(), pa.string(), pa.float64()
COLUMNS = {
    COUNTERS: {
        **{"line": _WHOLE, "process_id": _WHOLE, "dispatch_id": _WHOLE, "kernel_name": _TEXT, "device": _WHOLE},
        **{"stream": _WHOLE, "grid_threads": _WHOLE, "block_threads": _WHOLE, "section": _TEXT, "counter": _TEXT},
        **{"value": _REAL, "unit": _TEXT, "start_ns": _WHOLE, "duration_ns": _WHOLE, "source": _TEXT},
    }
}


def counter_files(files: Iterable[Path]) -> dict[Path, list[Path]]:
    """Return the files with counters, each as its own set, recognized by their names or by a line of column names."""
    return {path: [path] for path in files if path.name.endswith(_NAMES) or _has_counters(path)}


def _has_counters(path: Path) -> bool:
    head = head_of(path)
    if {*rocprof.NEEDED} <= {*_names(head.partition(b"\n")[0])}:
        return True
    # This runs for every .gz file, even a trace with tens of thousands of lines, so the cheap check is first.
    return b"Kernel Name" in head and any(map(_is_of_ncu, head.split(b"\n")))


def _is_of_ncu(line: bytes) -> bool:
    return b"Kernel Name" in line and ncu.is_header(_names(line))


def _names(line: bytes) -> list[str]:
    return [name.lower() for name in _as_written(line)]


def _as_written(line: bytes) -> list[str]:
    try:
        return [name.strip() for name in _fields(line)]
    except csv.Error:
        return []


def _fields(line: bytes) -> list[str]:
    """Return the fields of a line. Raise csv.Error if the line is not valid CSV.

    Each line is parsed on its own, so a stray quote spoils only that line. Kernel names contain no line breaks.
    """
    text = as_text(line.rstrip(b"\r").decode("utf-8-sig", "surrogateescape"))
    return next(csv.reader([text], strict=True), [])


class _Collected:
    """One pass over a file: the rows of `kernel_counters`, and the faults of the other lines."""

    def __init__(self, source: Source) -> None:
        self.faults, self.hash, self.n_lines = Faults(), hashlib.sha256(), 0
        self._source, self._is_named = source, source.path.name.endswith(_NAMES)

    def rows(self) -> Iterator[tuple]:
        file_lines = lines(self._source, _WHAT)
        names = self._header(file_lines)
        layout = (Ncu if ncu.is_header([name.lower() for name in names]) else Rocprof)(names, self.faults)
        for line, is_whole in file_lines:
            self._count(line, is_whole)
            if line.startswith(b"=="):
                self._other_output(line)
            elif line.strip():
                yield from self._of_line(layout, line, len(names), is_whole)
        yield from layout.finish()

    def _of_line(self, layout: Rocprof | Ncu, line: bytes, n_columns: int, is_whole: bool) -> Iterator[tuple]:
        try:
            fields = _fields(line)
            if not layout.is_complete(len(fields), is_whole):
                raise BadValue(f"{len(fields)} fields where the first line names {n_columns}")
            yield from layout.rows(self.n_lines, fields)
        except (BadValue, csv.Error) as error:
            fault = "broken_line" if is_whole else "cut_line"
            self.faults.add(fault, "warning", f"line {self.n_lines:,}: {error}: {shown(_start(line))}")

    def _header(self, file_lines: Iterator[tuple[bytes, bool]]) -> list[str]:
        """Return the column names.

        Output of ncu and the program may precede them. Raise Rejected if no line names the required columns.
        """
        for line, is_whole in file_lines:
            self._count(line, is_whole)
            names = _names(line)
            if self._is_named or _is_of_ncu(line) or {*rocprof.NEEDED} <= {*names}:
                break
            self._other_output(line)
        else:
            raise Rejected(f"{_WHAT} with no line that names its columns: collect the counters or copy the file again")
        is_of_ncu = ncu.is_header(names)
        missing = ncu.missing(names) if is_of_ncu else [name for name in rocprof.NEEDED if name not in names]
        advice = "collect the counters or copy the file again"
        if missing:
            hint = "print without --print-summary" if is_of_ncu else advice
            raise Rejected(f"{_WHAT} whose line {self.n_lines:,} does not name {', '.join(missing)}: {hint}")
        if len({*names}) != len(names):
            raise Rejected(f"{_WHAT} whose line {self.n_lines:,} names a column twice: {advice}")
        return _as_written(line) if is_of_ncu else names

    def _other_output(self, line: bytes) -> None:
        message = f"line {self.n_lines:,} is another output of the profiler or the program: {shown(_start(line))}"
        self.faults.add("other_output", "info", message)

    def _count(self, line: bytes, is_whole: bool) -> None:
        self.n_lines += 1
        self.hash.update(line + b"\n" if is_whole else line)


def _start(line: bytes) -> str:
    return line[:200].decode("utf-8", "replace")


def read_counters(reading: Reading, path: Path, _: Collection[Path]) -> Read:
    """Stage the tables of one file. Raise Rejected if no row can be read."""
    source = Source(path, limits=reading.limits)
    collected = _Collected(source)
    faults = collected.faults
    with tempfile.TemporaryDirectory() as folder:
        with RowFiles(Path(folder), COLUMNS) as files:
            for row in collected.rows():
                files.add(COUNTERS, row)
        n_rows = files.count(COUNTERS)
        if not n_rows:
            first = next((f": {fault.detail}" for fault in faults.by_name.values() if fault.severity == "warning"), "")
            raise Rejected(f"{_WHAT} without a row that can be read ({collected.n_lines:,} lines){first}")
        trace_id = collected.hash.hexdigest()[:16]
        if trace_id in reading.known:
            return Read(trace_id, status="known")
        reading.add_files(COUNTERS, files.paths(COUNTERS))
        _note_repeated(reading, files.paths(COUNTERS), n_rows, faults)
    if source.damage:
        faults.add("damaged", "warning", source.damage)
    reading.add_rows(FINDINGS, faults.rows())
    n_counters = reading.count(COUNTERS)
    row = {
        **reading.file_columns(path),
        "n_lines": collected.n_lines,
        "n_counters": n_counters,
        "unpacked_bytes": source.unpacked_bytes,
    }
    reading.add_rows(TABLE, [row])
    n_bad = faults.n_warnings
    reason = f"{n_bad:,} lines or values could not be read: counter_findings" if n_bad else None
    return Read(trace_id, n_counters, "partial" if reason else "ok", reason)


def _note_repeated(reading: Reading, paths: Collection[Path], n_rows: int, faults: Faults) -> None:
    """Count, as a fault, the rows that the table lacks because an earlier row has the same dispatch and counter."""
    if n := n_rows - reading.count(COUNTERS):
        rows = parquet_rows(paths)
        ((line, dispatch, counter),) = reading.con.execute(
            f"SELECT line, dispatch_id, counter FROM {rows} ANTI JOIN one.{COUNTERS} USING (line, counter) "
            "ORDER BY line LIMIT 1"
        ).fetchall()
        message = f"line {line:,}: {shown(counter)} of dispatch {dispatch:,} is a duplicate: skipped"
        faults.add("repeated", "warning", message, n)


INPUT = SetInput(scope="counters", suffixes=(".csv", ".gz"), recognise=counter_files, read=read_counters)
