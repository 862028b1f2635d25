"""The edges of all windows, read for many small windows at a time: a query costs more than a small window's path."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import duckdb
import numpy as np

from pipelines.models.groups import in_groups

EDGES = 500_000
"""Edges that are in memory at a time; a window with more is read alone."""


def window_groups(
    con: duckdb.DuckDBPyConnection, columns: Sequence[str]
) -> Iterator[list[tuple[int, list[np.ndarray]]]]:
    """Yields groups of windows that have edges and are not refused (`_refused_windows`), in order of their numbers.

    A window is its number and the columns of its edges in `_edges`, `edge_id` first, in order of `edge_id`.
    """
    counted = con.execute(
        "SELECT window_no, count(*) FROM _edges WHERE window_no NOT IN (SELECT window_no FROM _refused_windows) "
        "GROUP BY window_no ORDER BY window_no"
    ).fetchall()
    for numbers in in_groups(counted, EDGES):
        yield _read(con, numbers, ["edge_id", *columns])


def _read(con: duckdb.DuckDBPyConnection, numbers: list[int], columns: list[str]) -> list[tuple[int, list[np.ndarray]]]:
    first, *more = numbers
    asked = columns if not more else ["window_no", *columns]
    listed = ", ".join(map(str, numbers))
    found = con.execute(f"SELECT {', '.join(asked)} FROM _edges WHERE window_no IN ({listed})").fetchnumpy()
    names = [name for name in found if name != "window_no"]
    if not more:
        order = np.argsort(found["edge_id"])
        return [(first, [np.asarray(found.pop(name))[order] for name in names])]
    window = np.asarray(found.pop("window_no"))
    order = np.lexsort((found["edge_id"], window))
    ends = np.flatnonzero(np.diff(window[order])) + 1
    parts = [np.split(np.asarray(found.pop(name))[order], ends) for name in names]
    return [(number, list(arrays)) for number, arrays in zip(numbers, zip(*parts, strict=True), strict=True)]
