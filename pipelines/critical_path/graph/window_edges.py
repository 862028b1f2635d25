"""The edges of all windows. One query reads many small windows, because it costs more than a small window's path."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import duckdb
import numpy as np

from pipelines.base.groups import in_groups
from pipelines.models.python_tables import fetch_columns

EDGES = 500_000
"""Maximum number of edges in memory at a time. A window with more edges is read alone."""
_NODES = ("src_node_id", "dst_node_id")
_NARROW = (*_NODES, "attributed", "marks")  # columns whose values are at most the largest node id


def window_groups(
    con: duckdb.DuckDBPyConnection, columns: Sequence[str]
) -> Iterator[list[tuple[int, list[np.ndarray]]]]:
    """Yield the result of `read_windows` for each group of `window_sizes`."""
    for numbers, _ in window_sizes(con):
        yield read_windows(con, numbers, columns)


def window_sizes(con: duckdb.DuckDBPyConnection) -> Iterator[tuple[list[int], int]]:
    """Yield groups of windows, in order of their numbers, and the number of edges of each group.

    Windows without edges and refused windows (`_refused_windows`) are excluded.
    """
    counted = con.execute(
        "SELECT window_no, count(*) FROM _edges WHERE window_no NOT IN (SELECT window_no FROM _refused_windows) "
        "GROUP BY window_no ORDER BY window_no"
    ).fetchall()
    sizes = dict(counted)
    for numbers in in_groups(counted, EDGES):
        yield numbers, sum(sizes[number] for number in numbers)


def read_windows(
    con: duckdb.DuckDBPyConnection, numbers: list[int], columns: Sequence[str]
) -> list[tuple[int, list[np.ndarray]]]:
    """Return the number of each window and the columns of its edges in `_edges`, sorted by `edge_id`.

    `edge_id` is the first column. The columns are BIGINT without NULL. The node ids of a long window are 32 bits wide
    if they fit.
    """
    columns = ["edge_id", *columns]
    first, *more = numbers
    if not more:
        return [(first, _alone(con, first, columns))]
    listed = ", ".join(map(str, numbers))
    values = con.execute(
        f"SELECT {', '.join(['window_no', *columns])} FROM _edges WHERE window_no IN ({listed})"
    ).fetchnumpy()
    window = np.asarray(values.pop("window_no"))
    order = np.lexsort((values["edge_id"], window))
    ends = np.flatnonzero(np.diff(window[order])) + 1
    parts = [np.split(np.asarray(values.pop(name))[order], ends) for name in list(values)]
    return [(number, list(arrays)) for number, arrays in zip(numbers, zip(*parts, strict=True), strict=True)]


def _alone(con: duckdb.DuckDBPyConnection, number: int, columns: list[str]) -> list[np.ndarray]:
    """Return the columns of one window, which is read in a separate query.

    Integers of a large window are narrow if they fit.
    """
    from_clause = f"FROM _edges WHERE window_no = {number}"
    count, last = con.execute(f"SELECT count(*), max(greatest({', '.join(_NODES)})) {from_clause}").fetchall()[0]
    query = f"SELECT {', '.join(columns)} {from_clause}"
    if count > EDGES:
        names = [column.split()[-1] for column in columns]
        narrow = [name for name in names if name in _NARROW and last < 2**31]
        kinds = {name: "INTEGER" if name in narrow else "BIGINT" for name in names}
        cast = ", ".join(f"CAST({name} AS {kind}) AS {name}" for name, kind in kinds.items())
        arrays = list(fetch_columns(con, f"SELECT {cast} FROM ({query})").values())
    else:
        arrays = [np.asarray(column) for column in con.execute(query).fetchnumpy().values()]
    order = np.argsort(arrays[0])
    for index, values in enumerate(arrays):
        arrays[index] = values[order]
    return arrays
