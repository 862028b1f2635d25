"""`Trace`: the traces of a folder, of files or of a lake, by rank. In HTA it is `analyzer.t`."""

from __future__ import annotations

import atexit
import glob
import shutil
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from pipelines.base.database import MODELS_GB
from pipelines.base.errors import WrongValue
from pipelines.base.foreign_text import visible
from pipelines.critical_path.graph.windows import PROFILES
from pipelines.faces.notebook import tables
from pipelines.faces.notebook.frames import SymbolTable, check_frames, hta_frame, symbols_of
from pipelines.faces.notebook.sources import (
    Files,
    RankTrace,
    TraceFilesInvalid,
    copied,
    find,
    incomplete_of,
    of_lake,
    take_in,
)
from pipelines.faces.subject import of_lake as opened
from pipelines.lake.lake import Lake
from pipelines.readers.execution import load_execution
from pipelines.runs.store import open_store

if TYPE_CHECKING:
    import ibis.expr.types as ir


class Trace:
    """Traces from files by rank (a dict), files (a list, or a single file), the files of a folder, or a lake.

    If both files and a folder are passed, names of files may be relative to the folder, as in HTA.

    `load_traces` reads files into `lake`, which keeps them, or else into a temporary lake. `close` or the end of the process
    removes the temporary lake. If `lake` is the address of a DuckLake, its traces (of `job`, or all) are copied into a temporary
    lake. `profile`: the default profile of critical paths. `frames`: "ibis", or "pandas" for data frames as in HTA.

    Raise ValueError if neither files, a folder nor a lake are passed, if `trace_files` has an unsupported type, or if
    `parser_config` is not None (all event arguments are read anyway). Raise TraceFilesInvalid, a ValueError, if a file is
    missing, ImportError for data frames without pandas.
    """

    def __init__(
        self,
        trace_files: Files | None = None,
        trace_dir: str | Path | None = None,
        parser_config: None = None,
        *,
        lake: Lake | str | Path | None = None,
        job: str | None = None,
        profile: str = "default",
        frames: str = "ibis",
    ) -> None:
        if trace_files is None and trace_dir is None and lake is None:
            raise WrongValue("give trace_files, trace_dir or lake")
        if parser_config is not None:
            raise WrongValue("parser_config is not supported: all arguments are kept, in events.args")
        if profile not in PROFILES:
            raise WrongValue(f"unknown profile {profile!r}; choose one of {', '.join(PROFILES)}")
        check_frames(frames)
        self._trace_files = _expanded(trace_files, Path(trace_dir or "").expanduser())
        self.trace_path = None if trace_dir is None else str(Path(trace_dir).expanduser())
        self.profile, self.job, self.frames = profile, job, frames
        self.include_last_profiler_step: bool | None = None
        self.is_parsed = False
        self.traces: list[RankTrace] = []
        self.scratch = Path(tempfile.mkdtemp(prefix="tracelake-"))
        # Not when the object is deleted, because tables that it returned may still read the temporary lake.
        atexit.register(self.close)
        self._store = lake if isinstance(lake, str) and open_store(lake).lake is None else None
        if self._store and not (trace_files is None and trace_dir is None):
            raise WrongValue(
                f"files are not read into {self._store}: `tracelake ingest` does that; give the files or the address"
            )
        location = self.scratch / "lake" if lake is None or self._store else lake
        self.lake = location if isinstance(location, Lake) else Lake(Path(location).expanduser())

    def load_traces(
        self,
        include_last_profiler_step: bool | None = None,
        use_multiprocessing: bool = True,
        use_memory_profiling: bool = True,
    ) -> None:
        """Read the traces. A second call only warns.

        `include_last_profiler_step`: whether critical paths include the last profiler step (None: the profile decides). The
        other analyses always include it. The other two parameters exist for compatibility with HTA and have no effect. Raise
        TraceRejected for a file that is not a trace (in a folder: warn), TraceNotFound or FileNotFoundError if there are no
        traces.
        """
        if self.is_parsed:
            warnings.warn("Traces are already parsed and loaded!", stacklevel=2)
            return
        self.include_last_profiler_step = include_last_profiler_step
        if self._store:
            copied(self._store, self.lake, self.job)
        if self._trace_files is None and self.trace_path is None:
            self.traces = of_lake(self.lake, self.job)
        else:
            self.traces = take_in(self.lake, self._trace_files, self.trace_path, self.job)
        self.incomplete = incomplete_of(self.lake, self.traces)
        for incomplete in self.incomplete:
            warnings.warn(visible(incomplete.sentence), stacklevel=3)
        self.is_parsed = True

    def switches(self) -> dict[str, bool]:
        """Return the profile switches that `include_last_profiler_step` sets."""
        included = self.include_last_profiler_step
        return {} if included is None else {"drop_last_step": not included}

    @property
    def trace_files(self) -> dict[int | None, str]:
        """Return the file of each ingested trace, by rank."""
        return {trace.rank: trace.path for trace in self.traces}

    def close(self) -> None:
        """Remove the temporary files. A lake passed by the caller is kept."""
        atexit.unregister(self.close)
        shutil.rmtree(self.scratch, ignore_errors=True)

    def in_commands(self, trace: RankTrace) -> tuple[str, tuple[str, ...]]:
        """Return the name of a trace in commands and the options that locate it: its file, or its id and the lake."""
        if self._store:
            return trace.trace_id, ("--lake", self._store)
        if self.lake.root.is_relative_to(self.scratch):
            return trace.path, ()
        return trace.trace_id, ("--lake", str(self.lake.root.absolute()))

    def find(self, rank: int | str | None) -> RankTrace:
        """Return the trace with this rank or id prefix, or the only trace if `rank` is None. Raise TraceNotFound."""
        return find(self.traces, rank)

    def get_trace(self, rank: int | str | None = None) -> Any:
        """Return table `events` of a rank in Ibis, or HTA's data frame of it (`hta_frame`) if frames are "pandas"."""
        events = tables.of_traces(self.lake, ["events"], [self.find(rank)])[0]
        return hta_frame(events, self.symbol_table) if self.frames == "pandas" else events

    @cached_property
    def symbol_table(self) -> SymbolTable:
        """Return the symbol table of these traces. Data frames contain its numbers instead of names and categories."""
        return symbols_of(tables.of_traces(self.lake, ["events"], self.traces)[0])

    def framed(self, table: ir.Table) -> Any:
        """Return a table as requested: itself, or as a data frame if frames are "pandas"."""
        return table.to_pyarrow().to_pandas() if self.frames == "pandas" else table

    @contextmanager
    def connect(
        self, trace_id: str, tables: Iterable[str] = (), execution_trace: Path | None = None
    ) -> Iterator[duckdb.DuckDBPyConnection]:
        """Yield the connection of a trace (`Subject`), with the up-to-date tables among its `tables`.

        The trace is joined to `execution_trace` unless that is None. Raise TraceRejected if the file is not an execution trace.
        """
        with opened(trace_id, self.lake, tables, MODELS_GB) as (con, _):
            if execution_trace:
                load_execution(con, execution_trace, trace_id)
            yield con


def trace_of(source: Any) -> Trace:
    """Return the Trace of an analysis or of its `t`. Raise TypeError for any other object."""
    trace = getattr(source, "t", source)
    if not isinstance(trace, Trace):
        raise TypeError(f"t_full must be analyzer.t or the analysis, not {type(source).__name__}")
    return trace


def _expanded(files: Any, folder: Path) -> Files | None:
    """Return paths with `~` expanded, joined to the folder if the file is in it.

    Raise WrongValue for an unsupported type, TraceFilesInvalid if a file is missing.
    """
    if files is None:
        return None
    if isinstance(files, Mapping):
        expanded: Any = {rank: _file(file, folder) for rank, file in files.items()}
    elif isinstance(files, str | Path):
        expanded = _file(files, folder)
    elif isinstance(files, Iterable):
        expanded = [_file(file, folder) for file in files]
    else:
        raise WrongValue(f"Unsupported type for trace_files = {files!r}, should be list or dict")
    return expanded


def _file(file: Any, folder: Path) -> Path:
    if not isinstance(file, str | Path):
        raise WrongValue(f"Unsupported type for trace_files: {file!r} is not a path")
    path = Path(file).expanduser()
    if (folder / path).exists():
        return folder / path
    if not path.exists() and not glob.has_magic(str(path)):
        raise TraceFilesInvalid(path, None, "there is no such file. Trace files validation failed.")
    return path
