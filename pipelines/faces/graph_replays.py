"""What ran in replays of CUDA and HIP graphs of a trace, from `graph_kernels` and `kernels`."""

from __future__ import annotations

from typing import Any

import duckdb

from pipelines.base.database import rows_of

_WHOLE = """
    SELECT (SELECT CAST(coalesce(sum(duration_ns), 0) AS BIGINT) FROM kernels WHERE trace_id = {of}) AS gpu_ns,
        count(*) AS n_kernels, count(DISTINCT replay_id) AS n_replays,
        CAST(coalesce(sum(duration_ns), 0) AS BIGINT) AS graph_ns,
        CAST(coalesce(sum(duration_ns) FILTER (WHERE op IS NOT NULL OR module IS NOT NULL), 0) AS BIGINT) AS known_ns
    FROM graph_kernels WHERE trace_id = {of}
"""
_KERNELS = """
    SELECT name, class, op, module, source, min(confidence) AS confidence, count(*) AS n,
        count(DISTINCT repetition) AS n_repetitions, CAST(sum(duration_ns) AS BIGINT) AS duration_ns
    FROM graph_kernels WHERE trace_id = {of}
    GROUP BY ALL ORDER BY sum(duration_ns) DESC, name, op, module, source
"""


def sums(con: duckdb.DuckDBPyConnection, of: str) -> dict[str, Any]:
    """Returns how much ran, how much of it in replays, and how much of that is known by operator or module. `of`: the trace, as SQL text."""
    return rows_of(con, _WHOLE.format(of=of))[0]


def kernel_rows(con: duckdb.DuckDBPyConnection, of: str) -> list[dict[str, Any]]:
    """Returns the kernels of replays by name, operator and module, most time first."""
    return rows_of(con, _KERNELS.format(of=of))
