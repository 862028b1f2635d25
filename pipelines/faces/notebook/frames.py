"""HTA's data frames, on request: pandas with HTA's columns. Names and categories are numbers of a symbol table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pipelines.base.errors import TracelakeError, WrongValue

if TYPE_CHECKING:
    import pandas as pd

# Frames and their columns are typed Any, because pandas' types do not distinguish a frame from a column.

FRAMES = ("ibis", "pandas")
"""Types of tables that methods return: Ibis expressions, or pandas data frames."""
_COLUMNS = ("event_id", "cat", "name", "pid", "tid", "start_ns", "duration_ns", "stream", "correlation")
_ON_GPU_BY_NAME = ("Event Sync", "Context Sync")  # HTA counts these waits as GPU work, whatever their stream
_OPERATORS = ("cpu_op", "cuda_runtime", "cuda_driver")
_LAUNCHES = (
    "cudaMemsetAsync",
    "cudaMemcpyAsync",
    "cudaLaunchKernel",
    "cudaLaunchKernelExC",
    "cuLaunchKernel",
    "runFunction - job_prep_and_submit_for_execution",
)


class NoPandas(TracelakeError, ImportError):
    """Raised if data frames are requested, but pandas is not installed."""

    hint = "pip install pandas"


class SymbolTable:
    """HTA's TraceSymbolTable: a number for each name and category of some traces, in alphabetical order.

    `sym_table` is the list of names and categories, `sym_index` maps each to its number.
    """

    NULL = -128

    def __init__(self, symbols: Iterable[str] = ()) -> None:
        self.sym_table: list[str] = sorted(set(symbols))
        self.sym_index: dict[str, int] = {symbol: number for number, symbol in enumerate(self.sym_table)}

    def get_sym_table(self) -> list[str]:
        """Return all names and categories. The index of each is its number."""
        return self.sym_table

    def get_sym_id_map(self) -> dict[str, int]:
        """Return the number of each name and category."""
        return self.sym_index

    def find_matches(self, patterns: Sequence[str]) -> list[int]:
        """Return the numbers of the names and categories that contain any of the texts, ascending."""
        contained = re.compile("|".join(map(re.escape, patterns)))
        return [number for number, symbol in enumerate(self.sym_table) if contained.search(symbol)]

    def find_matched_symbols(self, patterns: Sequence[str]) -> list[str]:
        """Return the names and categories that contain any of the texts."""
        return [self.sym_table[number] for number in self.find_matches(patterns)]

    def get_operator_or_cuda_runtime_query(self) -> str:
        """Return a condition for `DataFrame.query` that selects operators and CUDA calls."""
        return f"({' or '.join(f'cat == {self.sym_index.get(cat, self.NULL)}' for cat in _OPERATORS)})"

    def get_runtime_launch_events_query(self) -> str:
        """Return a condition for `DataFrame.query` that selects launches with GPU work, by the calls that HTA knows."""
        names = " or ".join(f"name == {self.sym_index.get(name, self.NULL)}" for name in _LAUNCHES)
        return f"({names}) and (index_correlation > 0)"


def check_frames(frames: str) -> None:
    """Raise WrongValue for an unknown kind of frames, NoPandas for pandas if it is not installed."""
    if frames not in FRAMES:
        raise WrongValue(f"unknown frames {frames!r}; choose one of {', '.join(FRAMES)}")
    if frames == "pandas" and find_spec("pandas") is None:
        raise NoPandas("frames='pandas' needs pandas, which is not installed")


def symbols_of(events: Any) -> SymbolTable:
    """Return the symbol table of events, an Ibis table."""
    columns = (events.select(symbol=events[column]).distinct().to_pyarrow()["symbol"] for column in ("name", "cat"))
    return SymbolTable(symbol for column in columns for symbol in column.to_pylist() if symbol is not None)


def hta_frame(events: Any, symbols: SymbolTable) -> pd.DataFrame:
    """Return the events of one trace, an Ibis table, as HTA's frame, one row per event with time, duration and category.

    The index and column `index` are event ids. `ts`, `dur` and `end` are us on the trace's own clock (int if all are
    whole). `name` and `cat` are numbers of `symbols`, `s_name` and `s_cat` their texts. `stream` and `correlation` are
    -1 if missing. `index_correlation`: for GPU work the call that launched it, for a call the work that it launched
    last (0: neither; -1: no correlation). `iteration`: the number of the profiler step, for GPU work that of its launch
    (-1: none).
    """
    is_timed = events.start_ns.notnull() & events.duration_ns.notnull()  # a missing time would make all times floats
    is_event = is_timed & events.cat.notnull() & (events.cat != "Trace")
    frame = events.filter(is_event).select(*_COLUMNS).order_by("event_id").to_pyarrow().to_pandas()
    frame = frame.rename(columns={"event_id": "index", "name": "s_name", "cat": "s_cat"}).set_index("index", drop=False)
    frame.index.name = None
    for column in ("name", "cat"):
        frame[column] = frame[f"s_{column}"].map(symbols.sym_index).fillna(symbols.NULL).astype("int64")
    for column in ("stream", "correlation"):
        frame[column] = frame[column].fillna(-1).astype("int64")
    for column in ("pid", "tid"):
        frame[column] = [int(text) if text and text.isdecimal() else text for text in frame[column]]
    start, duration = frame.pop("start_ns"), frame.pop("duration_ns")
    frame["ts"], frame["dur"], frame["end"] = _us(start), _us(duration), _us(start + duration)
    frame["index_correlation"] = _partners(frame)
    frame["iteration"] = _iterations(frame)
    return frame


def _us(ns: Any) -> Any:
    return ns // 1000 if (ns % 1000 == 0).all() else ns / 1000


def _is_gpu(frame: Any) -> Any:
    return ((frame["stream"] >= 0) & (frame["correlation"] >= 0)) | frame["s_name"].isin(_ON_GPU_BY_NAME)


def _partners(frame: Any) -> Any:
    """Return the column `index_correlation` of HTA's frame (see `hta_frame`).

    If several events have the same correlation, the last one counts, as in HTA.
    """
    is_correlated, on_gpu = frame["correlation"] >= 0, _is_gpu(frame)
    last = {
        side: frame[is_correlated & (on_gpu == side)]
        .drop_duplicates("correlation", keep="last")
        .set_index("correlation")
        for side in (True, False)
    }
    partners = frame["correlation"].clip(upper=0)
    for side, others in ((True, last[False]), (False, last[True])):
        mine = is_correlated & (on_gpu == side)
        partners[mine] = frame.loc[mine, "correlation"].map(others["index"]).fillna(0).astype("int64")
    return partners


def _iterations(frame: Any) -> Any:
    """Return the number of the profiler step in which each event, or the launch of GPU work, starts (-1: none).

    If several steps contain the start, the last one in the file wins.
    """
    import numpy as np

    by_time = np.argsort(frame["ts"].to_numpy(), kind="stable")
    times, numbers = frame["ts"].to_numpy()[by_time], np.full(len(frame), -1)
    steps = frame[frame["s_name"].str.startswith("ProfilerStep#", na=False)]
    for name, start, end in zip(steps["s_name"], steps["ts"], steps["end"], strict=True):
        first, past = np.searchsorted(times, (start, end))
        numbers[by_time[first:past]] = _step_number(name)
    iterations = frame["index"] * 0 + numbers
    on_gpu = (frame["stream"] >= 0) & (frame["s_cat"] != "cpu_op")  # Triton's operators also have a stream
    launched = frame.loc[on_gpu, "index_correlation"]
    iterations[on_gpu] = launched.map(iterations).where(launched > 0, -1).fillna(-1).astype("int64")
    return iterations


def _step_number(name: str) -> int:
    """Return the number in a step's name, such as 7 in `ProfilerStep#7`, or -1."""
    digits = re.match(r"ProfilerStep#(\d+)", name)
    return int(digits[1]) if digits else -1
