"""Scaling factors that only the second run shows: a target's duration in B divided by its duration in A."""

from __future__ import annotations

from pathlib import Path

import duckdb

from pipelines.base.kernel_names import glob_pattern
from pipelines.critical_path.whatif.owners import owners_of
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from tests.critical_path.pairs.recorded import Pair
from tests.harness import connect


class NothingMeasured(LookupError):
    """A target for which one of the two runs measured nothing."""


def measured_scales(pair: Pair) -> list[str]:
    """Return the arguments of what-if that scale the targets of `pair.ratio` as measured.

    Raise NothingMeasured if a target has no time in A.
    """
    arguments = []
    for target in pair.ratio:
        (before,), (after,) = pair.before, pair.after
        # The stream numbers differ from run to run, but their order does not.
        for (name, of_a), (_, of_b) in zip(_times(before, target), _times(after, target), strict=True):
            if not of_a:
                raise NothingMeasured(f"{pair.name}: nothing in {before.name} is {target}")
            arguments += ["--scale", f"{name}={of_b / of_a:.4g}"]
    return arguments


def _times(trace: Path, target: str) -> list[tuple[str, int]]:
    """Return the time of a target in a trace, in ns.

    For `stream:*`, return the time of each stream, ordered by the first launch.
    """
    con, trace_id = connect(trace)
    kind, colon, what = target.partition(":")
    with con:
        ids = owners_of(con, load_catalog(), trace_id).ids["op"].get(what, ()) if kind == "op" else ()
        run_models(con, load_catalog(), ["kernels"])
        if target == "stream:*":
            return con.execute(
                "SELECT 'stream:' || stream, sum(duration_ns) FROM kernels GROUP BY stream ORDER BY min(correlation)"
            ).fetchall()
        if kind == "op":
            return [(target, _gpu_time(con, "list_contains($1, event_id)", [int(event_id) for event_id in ids]))]
        if kind == "kernel":
            return [(target, _gpu_time(con, "regexp_full_match(name, $1, 's')", glob_pattern(what).pattern))]
        if kind == "class":
            return [(target, _gpu_time(con, "class = $1", what))]
        if colon and kind == "stream":
            raise ValueError(f"{target}: only stream:* has the same meaning in two runs")
        return [(target, _host_time(con, target))]


def _gpu_time(con: duckdb.DuckDBPyConnection, which: str, value: object) -> int:
    query = f"SELECT coalesce(sum(duration_ns), 0)::BIGINT FROM kernels WHERE {which}"
    return con.execute(query, [value]).fetchall()[0][0]


def _host_time(con: duckdb.DuckDBPyConnection, name: str) -> int:
    query = """
        SELECT coalesce(sum(duration_ns), 0)::BIGINT FROM events
        WHERE name = $1 AND cat IN ('cpu_op', 'user_annotation', 'python_function')
    """
    return con.execute(query, [name]).fetchall()[0][0]
