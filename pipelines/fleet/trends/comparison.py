"""Compares windows of two sides by what their GPU time went into: sql/fleet/comparison/_compared_parts.sql with its two sides filled in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import duckdb

from pipelines.base import database
from pipelines.base.datafiles import threshold
from pipelines.base.errors import TracelakeError
from pipelines.models.catalog import load_catalog
from pipelines.models.python_tables import create_table, given_table
from pipelines.models.sqltext import quoted, row

TABLES = ("traces", "kernels", "kernel_owners", "op_work", "step_lengths", "step_times", "temporal_breakdown")  # fmt: skip
"""Tables and views that a connection must have for `facts_of`, besides `events`; RULES, too."""
WITH_CAUSES = (*TABLES, "causes", "step_causes")
"""The same for `facts_of` with causes."""
RULES = ("category_sides", "op_kinds", "kernel_categories")
_FACTS = ("_compared_windows", "_compared_work", "_compared_host")  # each may read those before it

BY = ("operator", "category", "module", "shape", "kernel", "cause")
"""What can be told apart on both sides: GPU time, or by cause all time of the windows."""
CAUSE = "cause"
WORK = "work"
"""Operators by the category of their work: what a verdict names."""
OWNER = "owner"
"""Causes (`cat`) by what they are named after: what a verdict names of the host."""
_CAUSES = "_compared_causes"
_OF_CAUSES = "trace_id VARCHAR, step BIGINT, cause VARCHAR, name VARCHAR, times HUGEINT, duration_ns HUGEINT"
_HOST = "host"
_ANSWERS = ("_comparison", "_compared_parts")
_ENOUGH = threshold("compare_operators")


class CompareError(TracelakeError, ValueError):
    """What was asked for is not there; the message says what is."""


@dataclass(frozen=True)
class Window:
    """A profiler step of a trace, or the whole trace (`step` None); times in ns.

    host_ns: how long its annotation is on the host; None for the whole trace. idle_ns: nothing ran on the device that worked
    most; None without GPU work in the trace. earlier_ns: GPU time in it of work that was launched before it, or by a call that
    the trace does not have. warm_up_times: how many times as long as those after it a first
    step is that may be warm-up; None of others.
    """

    trace_id: str
    step: int | None
    start_ns: int
    end_ns: int
    duration_ns: int
    idle_ns: int | None
    earlier_ns: int
    host_ns: int | None = None
    warm_up_times: float | None = None


@dataclass(frozen=True)
class Trace:
    """A trace of a side with its windows: the steps in order, then the whole trace."""

    trace_id: str
    path: str
    file: str
    rank: int | None
    device_name: str | None
    is_cut: bool
    has_operators: bool
    windows: tuple[Window, ...]

    @property
    def steps(self) -> tuple[Window, ...]:
        return self.windows[:-1]

    @property
    def whole(self) -> Window:
        return self.windows[-1]


@dataclass(frozen=True)
class Pair:
    """Two windows that are compared with each other. `where`: the rank or process of a side that has several; else ""."""

    where: str
    rank: int | None
    control: Window
    test: Window


@dataclass(frozen=True)
class Difference:
    """A name (and shape) on both sides; times in ns. `change` is of time: added, deleted, increased, decreased, unchanged.

    device: gpu (time of GPU work), cpu (own time of events of the host) or None (causes, which are of both).
    """

    device: str | None
    cat: str | None
    name: str
    input_dims: str | None
    input_types: str | None
    control_n: int
    test_n: int
    diff_n: int
    control_ns: int
    test_ns: int
    diff_ns: int
    change: str


class Totals(NamedTuple):
    """The summed times of both sides, ns."""

    control_ns: int
    test_ns: int


def totals(rows: Iterable[Difference]) -> Totals:
    """The summed times of rows."""
    rows = list(rows)
    return Totals(sum(one.control_ns for one in rows), sum(one.test_ns for one in rows))


@dataclass(frozen=True)
class Part:
    """Some of the pairs, compared: rows by what was asked for, by category, by category and operator (`cat` is the category), by
    cause and by what owns it (none where those are not known), and of the host; largest change first.

    Of one of several ranks, the host's are left out where all its traces have GPU work.
    """

    pairs: Sequence[Pair]
    rows: list[Difference] = field(default_factory=list)
    categories: list[Difference] = field(default_factory=list)
    work: list[Difference] = field(default_factory=list)
    causes: list[Difference] = field(default_factory=list)
    owners: list[Difference] = field(default_factory=list)
    host: list[Difference] = field(default_factory=list)

    @property
    def has_gpu_work(self) -> bool:
        """Whether there is GPU work in the traces of all of its windows."""
        return all(one.idle_ns is not None for pair in self.pairs for one in (pair.control, pair.test))


class Short(NamedTuple):
    """Rows in short: their summed times, and which of them changed and grew most, and by how much; times in ns."""

    control_ns: int = 0
    test_ns: int = 0
    changed_name: str | None = None
    changed_ns: int = 0
    grown_name: str | None = None
    grown_ns: int = 0


@dataclass(frozen=True)
class OnePair:
    """A pair of windows, compared: its GPU time by what was asked for, the host's own time, and its length by causes."""

    pair: Pair
    gpu: Short
    host: Short
    causes: Short


@dataclass(frozen=True)
class Comparison:
    """Everything together, each place (a rank, or a process of a file) and each pair of windows.

    Where there is only one place, that is the same Part as the whole.
    """

    by: str
    whole: Part
    places: list[Part]
    pairs: list[OnePair]


def facts_of(
    con: duckdb.DuckDBPyConnection,
    own: duckdb.DuckDBPyConnection,
    trace_ids: Iterable[str],
    *,
    with_causes: bool = False,
) -> list[Trace]:
    """Copy what a comparison reads of some traces from `own`, which has TABLES (or WITH_CAUSES), `events` and RULES, to `con`."""
    traces = list(trace_ids)
    models = load_catalog().models
    con.execute(f"CREATE TABLE IF NOT EXISTS {_CAUSES} ({_OF_CAUSES})")
    for name in (*_FACTS, _CAUSES) if with_causes else _FACTS:
        own.execute(f"DROP TABLE IF EXISTS temp.{name}")
        for trace_id in traces:  # a trace at a time: of a lake, only its files are opened
            made = f"SELECT * FROM ({models[name].sql}) WHERE trace_id = {quoted(trace_id)}"
            begun = own.execute("SELECT 1 FROM duckdb_tables() WHERE temporary AND table_name = ?", [name]).fetchone()
            own.execute(f"INSERT INTO temp.{name} {made}" if begun else f"CREATE TEMP TABLE {name} AS {made}")
        found = database.arrow_result(own, f"FROM temp.{name}").to_arrow_table()
        con.register("given", found)
        con.execute(f"CREATE TABLE IF NOT EXISTS {name} AS FROM given LIMIT 0")
        # Both sides may be the same trace.
        con.execute(f"INSERT INTO {name} FROM given WHERE trace_id NOT IN (SELECT trace_id FROM {name})")
        con.unregister("given")
    return [_trace(con, own, trace_id) for trace_id in traces]


def _trace(con: duckdb.DuckDBPyConnection, own: duckdb.DuckDBPyConnection, trace_id: str) -> Trace:
    of = f"WHERE trace_id = {quoted(trace_id)}"
    ((path, file, rank, device, status),) = own.execute(
        f"SELECT path, file, rank, device_name, status FROM traces {of}"
    ).fetchall()
    found = con.execute(
        "SELECT trace_id, step, start_ns, end_ns, duration_ns, idle_ns, earlier_ns, host_ns, warm_up_times "
        f"FROM _compared_windows {of} ORDER BY step NULLS LAST"
    ).fetchall()
    ((known, every),) = con.execute(
        "SELECT coalesce(sum(duration_ns) FILTER (WHERE has_operator), 0), coalesce(sum(duration_ns), 0) "
        f"FROM _compared_work {of}"
    ).fetchall()
    *steps, whole = (Window(*one) for one in found)
    has_operators = known > 0 and known >= _ENOUGH * every
    windows = (*steps, _as_long_as_its_path(con, whole))
    return Trace(trace_id, path, file, rank, device, status == "partial", has_operators, windows)


def _as_long_as_its_path(con: duckdb.DuckDBPyConnection, whole: Window) -> Window:
    """Returns the window of a whole trace, which begins and ends with annotations, too, where its causes say how long it is."""
    of = f"WHERE trace_id = {quoted(whole.trace_id)} AND step IS NULL"
    ((length,),) = con.execute(f"SELECT CAST(sum(duration_ns) AS BIGINT) FROM {_CAUSES} {of}").fetchall()
    if length is None:
        return whole
    idle = None if whole.idle_ns is None else max(whole.idle_ns + length - whole.duration_ns, 0)
    return replace(whole, duration_ns=length, idle_ns=idle)


def usual_by(sides: Iterable[Sequence[Trace]]) -> str:
    """Operators, where most GPU time of every trace that has any has one; else kernels."""
    measured = [trace for traces in sides for trace in traces if trace.whole.idle_ns is not None]
    return "operator" if all(trace.has_operators for trace in measured) else "kernel"


@given_table(
    "compared",
    layer="fleet",
    doc="One row: a window of a side of a comparison. Several comparisons are made at once.",
    columns=(
        ("part", "BIGINT", "The comparison."),
        (
            "by_what",
            "VARCHAR",
            "operator, category, module, shape, kernel, cause, owner: causes by name, work: operators with their category, or host: own times of the host's events.",
        ),
        ("side", "VARCHAR", "control or test."),
        ("trace_id", "VARCHAR", "The trace."),
        ("step", "BIGINT", "The step that is compared; NULL for all of the trace."),
    ),
)
def compare_pairs(con: duckdb.DuckDBPyConnection, pairs: Sequence[Pair], by: str) -> Comparison:
    """Compare pairs of windows whose facts are in `con`: together, by place, and one by one."""
    places: dict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        places[pair.where].append(pair)
    parts = [Part(pairs), *(Part(group) for group in places.values() if len(places) > 1)]
    told = (by, "category", WORK, CAUSE, OWNER)
    # Of places, the host is told where a window has no GPU work that would tell more.
    hosts = [(_HOST,) if not part.has_gpu_work else () for part in parts[1:]]
    asked = [(parts[0], (*told, _HOST)), *((part, (*told, *host)) for part, host in zip(parts[1:], hosts, strict=True))]
    of_gpu = "category" if by == CAUSE else by  # causes divide all time
    asked += [(Part([pair]), (of_gpu, _HOST, CAUSE)) for pair in pairs]
    _fill_compared(con, asked)
    models = load_catalog().models
    for name in _ANSWERS:
        con.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {models[name].sql}")
    query = (
        "SELECT part, by_what, * EXCLUDE (part, by_what) FROM _comparison "
        f"WHERE part < {len(parts)} ORDER BY abs(diff_ns) DESC, control_ns DESC, cat, name, input_dims, input_types"
    )
    for number, what, *values in con.execute(query).fetchall():
        part, found = parts[number], Difference(*values)
        if what == by:
            part.rows.append(found)
        if what == "category":
            part.categories.append(found)
        if what == WORK:
            part.work.append(found)
        if what == CAUSE:
            part.causes.append(found)
        if what == OWNER:
            part.owners.append(found)
        if what == _HOST:
            part.host.append(found)
    short = {
        (number, what): Short(*values)
        for number, what, *values in con.execute(
            "SELECT part, by_what, control_ns, test_ns, changed_name, changed_ns, grown_name, grown_ns FROM _compared_parts"
        ).fetchall()
    }
    one_by_one = [
        OnePair(pair, *(short.get((number, what), Short()) for what in (of_gpu, _HOST, CAUSE)))
        for number, pair in enumerate(pairs, len(parts))
    ]
    return Comparison(by, parts[0], parts[1:] or parts[:1], one_by_one)


def _fill_compared(con: duckdb.DuckDBPyConnection, asked: Sequence[tuple[Part, Sequence[str]]]) -> None:
    create_table(con, "compared", "OR REPLACE TEMP TABLE")
    values = {
        row([number, what, side, window.trace_id, window.step]): None  # once, if a window is in two pairs
        for number, (part, by) in enumerate(asked)
        for what in by
        for pair in part.pairs
        for side, window in (("control", pair.control), ("test", pair.test))
    }
    con.execute(f"INSERT INTO compared VALUES {', '.join(values)}")
