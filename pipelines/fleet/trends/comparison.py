"""The GPU time of windows of two sides, compared by operator, category, module, shape, kernel or cause.

sql/fleet/comparison/_compared_parts.sql does the comparison. Its input is the windows of both sides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import duckdb

from pipelines.base import database
from pipelines.base.datafiles import threshold
from pipelines.base.errors import TracelakeError
from pipelines.lake.names import REDUCED
from pipelines.models.catalog import load_catalog
from pipelines.models.python_tables import create_table, input_table
from pipelines.models.sqltext import quoted, row

TABLES = ("traces", "kernels", "kernel_owners", "op_work", "step_lengths", "step_times", "temporal_breakdown")  # fmt: skip
"""Tables and views that a connection must have for `facts_of`, in addition to `events` and RULES."""
WITH_CAUSES = (*TABLES, "causes", "step_causes")
"""TABLES, and the tables that `facts_of` also reads for causes."""
RULES = ("category_sides", "op_kinds", "kernel_categories")
_FACTS = {"_compared_windows": "digest_steps", "_compared_work": "digest_work", "_compared_host": "digest_host"}
"""The models of a side's facts, each with the digest table of these facts. A model may read the preceding models."""
DIGEST_TABLES = ("findings", *_FACTS.values())
"""Tables of a lake that `facts_of` reads for traces with only a digest."""
NOT_IN_DIGEST = ("module", "shape")
"""The keys of BY that a digest does not store."""
BY = ("operator", "category", "module", "shape", "kernel", "cause")
"""The keys to compare by. `cause` divides all time of the windows. The other keys divide GPU time."""
CAUSE = "cause"
WORK = "work"
"""Key for operators by the category of their work, for the sentence of the verdict."""
OWNER = "owner"
"""Key for owners of causes (`cat` is the cause), for the host's part of the verdict."""
_CAUSES = "_compared_causes"
_OF_CAUSES = "trace_id VARCHAR, step BIGINT, cause VARCHAR, name VARCHAR, times HUGEINT, duration_ns HUGEINT"
_HOST = "host"
_ANSWERS = ("_comparison", "_compared_parts")
_ENOUGH = threshold("compare_operators")


class CompareError(TracelakeError, ValueError):
    """A requested trace, rank or step that does not exist. The message lists the existing traces, ranks or steps."""


@dataclass(frozen=True)
class Window:
    """A profiler step of a trace, or the whole trace (`step` is None). Times are in ns.

    host_ns: duration of the step's annotation on the host, None for the whole trace. idle_ns: idle time of the device
    that worked most, None without GPU work in the trace. earlier_ns: GPU time in the window of work that was launched
    before the window, or whose launch is not in the trace. warm_up_times: for a first step that may be warm-up, its
    duration relative to the following steps; None for other windows.
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
    """A trace of a side with its windows, which are the steps in order and then the whole trace.

    `is_digest`: whether only a digest of the trace remains, in which small operators, kernels and events are summed up.
    """

    trace_id: str
    path: str
    file: str
    rank: int | None
    device_name: str | None
    is_cut: bool
    has_operators: bool
    windows: tuple[Window, ...]
    is_digest: bool = False

    @property
    def steps(self) -> tuple[Window, ...]:
        return self.windows[:-1]

    @property
    def whole(self) -> Window:
        return self.windows[-1]


@dataclass(frozen=True)
class Pair:
    """Two windows to compare. `where`: the rank or process if a side has several, else ""."""

    where: str
    rank: int | None
    control: Window
    test: Window


def gpu_time_known(pairs: Sequence[Pair]) -> tuple[bool, bool]:
    """Return whether the GPU time of control and of test is known.

    If a trace has no GPU work, but its counterpart has some, the GPU was not recorded. Its GPU time is then unknown,
    not 0. Ranks without GPU work on both sides, such as ranks that use only the CPU, are ignored.
    """
    has_work = [(pair.control.idle_ns is not None, pair.test.idle_ns is not None) for pair in pairs]
    control, test = (any(of_pair[side] for of_pair in has_work) for side in (0, 1))
    return control and all(of_pair[0] for of_pair in has_work if of_pair[1]), test and all(
        of_pair[1] for of_pair in has_work if of_pair[0]
    )


@dataclass(frozen=True)
class Difference:
    """A name (and shape) on both sides. Times are in ns.

    change: the change of the time, which is added, deleted, increased, decreased or unchanged. device: gpu (time of GPU
    work), cpu (self time of host events) or None (causes, which cover both).
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
    """Summed times of both sides, ns."""

    control_ns: int
    test_ns: int


def totals(rows: Iterable[Difference]) -> Totals:
    """Return the summed times of rows."""
    rows = list(rows)
    return Totals(sum(row.control_ns for row in rows), sum(row.test_ns for row in rows))


@dataclass(frozen=True)
class Part:
    """The comparison of a group of pairs. Its rows are sorted by the size of their change, largest first.

    rows: by the requested key. categories: by category. work: by category (`cat`) and operator. causes: by cause.
    owners: by owner of a cause. Both are empty if the causes are unknown. host: self times of host events. With several
    ranks, a rank has no host rows if all its traces have GPU work.
    """

    pairs: Sequence[Pair]
    rows: list[Difference] = field(default_factory=list)
    categories: list[Difference] = field(default_factory=list)
    work: list[Difference] = field(default_factory=list)
    causes: list[Difference] = field(default_factory=list)
    owners: list[Difference] = field(default_factory=list)
    host: list[Difference] = field(default_factory=list)

    @property
    def has_gpu_time(self) -> bool:
        """Return whether the GPU time of both sides is known."""
        return all(gpu_time_known(self.pairs))

    @property
    def has_gpu_work(self) -> bool:
        """Return whether the traces of all windows contain GPU work."""
        return all(window.idle_ns is not None for pair in self.pairs for window in (pair.control, pair.test))


class Short(NamedTuple):
    """A summary of rows, ns: their summed times, the name that changed most, and the name that grew most."""

    control_ns: int = 0
    test_ns: int = 0
    changed_name: str | None = None
    changed_ns: int = 0
    grown_name: str | None = None
    grown_ns: int = 0


@dataclass(frozen=True)
class OnePair:
    """A compared pair of windows, with GPU time by the requested key, host self time, and length by cause."""

    pair: Pair
    gpu: Short
    host: Short
    causes: Short


@dataclass(frozen=True)
class Comparison:
    """A comparison of all pairs together, of each place (a rank, or a process of a file) and of each pair.

    If there is only one place, `places` contains `whole`.
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
    digests: Collection[str] = (),
) -> list[Trace]:
    """Copy the facts about some traces that a comparison needs from `own` to `con`, and return the traces.

    `own` has TABLES (or WITH_CAUSES), `events` and RULES. `digests`: the traces with only a digest. If there are any,
    `own` also has DIGEST_TABLES.
    """
    traces = list(trace_ids)
    models = load_catalog().models
    con.execute(f"CREATE TABLE IF NOT EXISTS {_CAUSES} ({_OF_CAUSES})")
    for name in (*_FACTS, _CAUSES) if with_causes else tuple(_FACTS):
        own.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS FROM ({models[name].sql}) LIMIT 0")
        for trace_id in traces:  # one trace per query, so that DuckDB opens only this trace's files of a lake
            source, columns = f"({models[name].sql})", "*"
            if trace_id in digests and name in _FACTS:
                source, columns = _FACTS[name], ", ".join(_columns_of_both(name, _FACTS[name]))
            query = f"SELECT {columns} FROM {source} WHERE trace_id = {quoted(trace_id)}"
            own.execute(f"INSERT INTO temp.{name} BY NAME {query}")
        facts = database.arrow_result(own, f"FROM temp.{name}").to_arrow_table()
        con.register("given", facts)
        con.execute(f"CREATE TABLE IF NOT EXISTS {name} AS FROM given LIMIT 0")
        # Both sides may be the same trace.
        con.execute(f"INSERT INTO {name} FROM given WHERE trace_id NOT IN (SELECT trace_id FROM {name})")
        con.unregister("given")
    return [replace(_trace(con, own, trace_id), is_digest=trace_id in digests) for trace_id in traces]


def _columns_of_both(model: str, table: str) -> list[str]:
    """Return the columns of a model that a table also has."""
    of_model, of_table = ([c.name for c in load_catalog().models[name].columns] for name in (model, table))
    return [name for name in of_model if name in of_table]


def digests_in(own: duckdb.DuckDBPyConnection) -> set[str]:
    """Return the traces of a lake that have only a digest, from the lake's table `findings`."""
    return {
        name
        for (name,) in own.execute(f"SELECT trace_id FROM findings WHERE check_name = {quoted(REDUCED)}").fetchall()
    }


def _trace(con: duckdb.DuckDBPyConnection, own: duckdb.DuckDBPyConnection, trace_id: str) -> Trace:
    trace_filter = f"WHERE trace_id = {quoted(trace_id)}"
    ((path, file, rank, device, status),) = own.execute(
        f"SELECT path, file, rank, device_name, status FROM traces {trace_filter}"
    ).fetchall()
    rows = con.execute(
        "SELECT trace_id, step, start_ns, end_ns, duration_ns, idle_ns, earlier_ns, host_ns, warm_up_times "
        f"FROM _compared_windows {trace_filter} ORDER BY step NULLS LAST"
    ).fetchall()
    ((operator_ns, total_ns),) = con.execute(
        "SELECT coalesce(sum(duration_ns) FILTER (WHERE has_operator), 0), coalesce(sum(duration_ns), 0) "
        f"FROM _compared_work {trace_filter}"
    ).fetchall()
    *steps, whole_trace = (Window(*row) for row in rows)
    has_operators = operator_ns > 0 and operator_ns >= _ENOUGH * total_ns
    windows = (*steps, _as_long_as_its_path(con, whole_trace))
    return Trace(trace_id, path, file, rank, device, status == "partial", has_operators, windows)


def _as_long_as_its_path(con: duckdb.DuckDBPyConnection, whole_trace: Window) -> Window:
    """Return the window of a whole trace with the length of its critical path, if its causes are known.

    The path also covers annotations, so its length may differ. The idle time changes by the difference.
    """
    window_filter = f"WHERE trace_id = {quoted(whole_trace.trace_id)} AND step IS NULL"
    ((length_ns,),) = con.execute(f"SELECT CAST(sum(duration_ns) AS BIGINT) FROM {_CAUSES} {window_filter}").fetchall()
    if length_ns is None:
        return whole_trace
    idle_ns = None if whole_trace.idle_ns is None else max(whole_trace.idle_ns + length_ns - whole_trace.duration_ns, 0)
    return replace(whole_trace, duration_ns=length_ns, idle_ns=idle_ns)


def usual_by(sides: Iterable[Sequence[Trace]]) -> str:
    """Return "operator" if enough GPU time of every trace with GPU work has an operator, else "kernel"."""
    measured = [trace for traces in sides for trace in traces if trace.whole.idle_ns is not None]
    return "operator" if all(trace.has_operators for trace in measured) else "kernel"


@input_table(
    "compared",
    layer="fleet",
    doc="One row: a window of a side of a comparison. Several comparisons are computed together.",
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
    """Compare pairs of windows whose facts are in `con`. Compare all pairs together, each place, and each pair."""
    places: dict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        places[pair.where].append(pair)
    parts = [Part(pairs), *(Part(group) for group in places.values() if len(places) > 1)]
    keys = (by, "category", WORK, CAUSE, OWNER)
    # A place has host rows only if a window has no GPU work, because GPU work is more informative.
    host_keys = [(_HOST,) if not part.has_gpu_work else () for part in parts[1:]]
    requests = [
        (parts[0], (*keys, _HOST)),
        *((part, (*keys, *host)) for part, host in zip(parts[1:], host_keys, strict=True)),
    ]
    of_gpu = "category" if by == CAUSE else by  # causes divide all time
    requests += [(Part([pair]), (of_gpu, _HOST, CAUSE)) for pair in pairs]
    _fill_compared(con, requests)
    models = load_catalog().models
    for name in _ANSWERS:
        con.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS {models[name].sql}")
    query = (
        "SELECT part, by_what, * EXCLUDE (part, by_what) FROM _comparison "
        f"WHERE part < {len(parts)} ORDER BY abs(diff_ns) DESC, control_ns DESC, cat, name, input_dims, input_types"
    )
    for number, key, *values in con.execute(query).fetchall():
        part, difference = parts[number], Difference(*values)
        if key == by:
            part.rows.append(difference)
        if key == "category":
            part.categories.append(difference)
        if key == WORK:
            part.work.append(difference)
        if key == CAUSE:
            part.causes.append(difference)
        if key == OWNER:
            part.owners.append(difference)
        if key == _HOST:
            part.host.append(difference)
    short = {
        (number, key): Short(*values)
        for number, key, *values in con.execute(
            "SELECT part, by_what, control_ns, test_ns, changed_name, changed_ns, grown_name, grown_ns FROM _compared_parts"
        ).fetchall()
    }
    compared_pairs = [
        OnePair(pair, *(short.get((number, key), Short()) for key in (of_gpu, _HOST, CAUSE)))
        for number, pair in enumerate(pairs, len(parts))
    ]
    return Comparison(by, parts[0], parts[1:] or parts[:1], compared_pairs)


def _fill_compared(con: duckdb.DuckDBPyConnection, requests: Sequence[tuple[Part, Sequence[str]]]) -> None:
    create_table(con, "compared", "OR REPLACE TEMP TABLE")
    values = {
        row([number, key, side, window.trace_id, window.step]): None  # a dict, because a window may be in two pairs
        for number, (part, keys) in enumerate(requests)
        for key in keys
        for pair in part.pairs
        for side, window in (("control", pair.control), ("test", pair.test))
    }
    con.execute(f"INSERT INTO compared VALUES {', '.join(values)}")
