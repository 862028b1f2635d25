"""The part of a trace that a critical path covers: the whole trace, or instances of an annotation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import duckdb

from pipelines.base.errors import TracelakeError, WrongValue
from pipelines.modelling.graph_captures import create_graph_captures
from pipelines.models.python_tables import create_table, input_table
from pipelines.models.sqltext import quoted, row
from pipelines.readers.execution.tables import create_tables

USUAL_PROFILE = "default"
"""The profile of the windows that a lake stores (`usual_windows`)."""
PROFILES = (USUAL_PROFILE, "hta")
_ROWS = 500  # per INSERT statement


class WindowNotFound(TracelakeError, LookupError):
    """An annotation or instance that the trace does not contain. The message lists the existing ones."""


@dataclass(frozen=True)
class WindowRequest:
    """A requested window of a trace.

    The window contains every event between the first start and the last end of instances `first` … `last` (from 0,
    inclusive) of the annotation whose name contains `annotation`. An empty annotation means the whole trace (HTA
    2.8.1).
    """

    trace_id: str
    window_id: str = "full"
    profile: str = USUAL_PROFILE
    annotation: str = ""
    first: int = 0
    last: int = 0


def parse_instance(text: str | None, annotation: str | None = None) -> tuple[int, int]:
    """Parse an instance: `None` is (0, 0), `"3"` is (3, 3), `"3:5"` is (3, 5), inclusive on both sides.

    Raises WrongValue for other forms, and for an instance with an empty annotation. If `annotation` is None, it is not
    checked.
    """
    if text is None:
        return 0, 0
    if annotation == "":
        raise WrongValue(f"instance {text!r} needs an annotation. Pass one, such as ProfilerStep")
    first, _, last = text.partition(":")
    try:
        bounds = int(first), int(last or first)
    except ValueError:
        raise WrongValue(f"instance {text!r} is neither N nor N:M (counted from 0, both inclusive)") from None
    if bounds[0] < 0 or bounds[1] < bounds[0]:
        raise WrongValue(f"instance {text!r}: N and M count from 0 and M is not below N")
    return bounds


@input_table(
    "window_requests",
    layer="canonical",
    doc="One row: a window whose critical path is requested.",
    columns=(
        ("trace_id", "VARCHAR", "The trace."),
        ("window_id", "VARCHAR", "The window."),
        ("profile", "VARCHAR", "Profile of switches."),
        ("annotation", "VARCHAR", "Part of the name of the annotation; empty for the whole trace."),
        ("first_instance", "BIGINT", "First instance of the annotation, from 0."),
        ("last_instance", "BIGINT", "Last instance, inclusive."),
    ),
)
@input_table(
    "switch_overrides",
    layer="canonical",
    doc="One row: a switch that is set for one question.",
    columns=(
        ("profile", "VARCHAR", "Profile."),
        ("switch", "VARCHAR", "The switch, in switches."),
        ("value", "VARCHAR", "Value of the switch."),
    ),
)
@input_table(
    "profiler_requests",
    layer="canonical",
    doc="One row: a window whose length without the profiler's cost is requested.",
    columns=(
        ("trace_id", "VARCHAR", "The trace."),
        ("window_id", "VARCHAR", "The window."),
        (
            "without_profiler",
            "BOOLEAN",
            "Whether the causes without the profiler are retimed, or those with it. NULL: those that are shown first (threshold profiler_removed). In windows without a row, both are.",
        ),
        (
            "untraced_ns",
            "BIGINT",
            "Duration of each of its steps, or of the whole window if it has none, without the profiler, ns; NULL if unknown.",
        ),
    ),
)
def request_windows(
    con: duckdb.DuckDBPyConnection, requests: list[WindowRequest], overrides: dict[tuple[str, str], str] | None = None
) -> None:
    """Create the tables `window_requests` and `switch_overrides` ((profile, switch) → value) that the models read.

    Also creates `profiler_requests`, and the tables of an execution trace and of captured graphs, which are empty
    unless one was loaded.
    """
    create_table(con, "window_requests")
    values = [row([r.trace_id, r.window_id, r.profile, r.annotation, r.first, r.last]) for r in requests]
    for first in range(0, len(values), _ROWS):
        con.execute(f"INSERT INTO window_requests VALUES {', '.join(values[first : first + _ROWS])}")
    create_table(con, "profiler_requests")
    create_table(con, "switch_overrides")
    for (profile, switch), value in (overrides or {}).items():
        con.execute(f"INSERT INTO switch_overrides VALUES {row([profile, switch, value])}")
    create_tables(con)
    create_graph_captures(con)


def request_profiler_cost(
    con: duckdb.DuckDBPyConnection,
    requests: Iterable[WindowRequest],
    without_profiler: bool | None,
    untraced_ns: int | None,
) -> None:
    """Add rows to `profiler_requests` for windows requested with `request_windows`.

    For these windows, only the causes that are displayed are retimed. `without_profiler` is whether the causes without
    the profiler are displayed, None if their size decides. `untraced_ns` is the duration of a step without the
    profiler, None if unknown.
    """
    values = [row([request.trace_id, request.window_id, without_profiler, untraced_ns]) for request in requests]
    for first in range(0, len(values), _ROWS):
        con.execute(f"INSERT INTO profiler_requests VALUES {', '.join(values[first : first + _ROWS])}")


def usual_windows(con: duckdb.DuckDBPyConnection, trace_ids: Iterable[str]) -> list[WindowRequest]:
    """Return the windows that a lake stores for each trace: the whole trace (`full`), and every profiler step by name."""
    traces = list(trace_ids)
    steps = con.execute(
        # Writers of 2021 record the steps as operators.
        "SELECT trace_id, name FROM events WHERE cat IN ('user_annotation', 'cpu_op') AND duration_ns IS NOT NULL "
        f"AND name LIKE 'ProfilerStep#%' AND trace_id IN {row(['', *traces])} GROUP BY ALL ORDER BY trace_id, min(start_ns)"
    ).fetchall()
    full_windows = [WindowRequest(trace_id) for trace_id in traces]
    return [*full_windows, *(WindowRequest(trace_id, name, annotation=name) for trace_id, name in steps)]


def explain_missing(con: duckdb.DuckDBPyConnection, request: WindowRequest) -> WindowNotFound:
    """Return the error for a window that no event opens, with the trace's annotations and instance counts."""
    from pipelines.models.catalog import load_catalog
    from pipelines.models.run import run_models

    if not request.annotation:
        return WindowNotFound(
            "there is no critical path: no event of the trace has a category, a time and a duration that the models use"
        )
    run_models(con, load_catalog(), ["category_sides"])
    is_hta = request.profile == "hta"
    counted = "" if is_hta else " AND coalesce(s.side, 'cpu') = 'cpu' AND e.cat <> 'python_function'"
    number = (
        "count(*)" if is_hta else "CASE WHEN regexp_matches(e.name, '^ProfilerStep#[0-9]+$') THEN 1 ELSE count(*) END"
    )
    events = (
        f"SELECT e.name, {number} FROM events AS e LEFT JOIN category_sides AS s ON s.cat = e.cat "
        f"WHERE e.trace_id = {quoted(request.trace_id)} AND e.duration_ns IS NOT NULL AND e.name IS NOT NULL"
    )
    matches = f" AND contains(e.name, {quoted(request.annotation)})"
    first = " GROUP BY e.name ORDER BY min(e.start_ns), e.name LIMIT 20"
    if rows := con.execute(events + matches + counted + first).fetchall():
        problem = f"instance {request.first}:{request.last} of annotation {request.annotation!r} is not in the trace"
    else:
        elsewhere = con.execute(events + matches + first).fetchall()
        scope = "only names of GPU work or Python functions contain" if elsewhere else "no event's name contains"
        problem = f"{scope} {request.annotation!r}"
        rows = con.execute(events + " AND e.cat = 'user_annotation'" + first).fetchall()
    listed = "; ".join(f"{name!r} ({n})" for name, n in rows) or "none"
    return WindowNotFound(
        f"{problem}. The trace has these annotations (with their count; instances count from 0): {listed}"
    )
