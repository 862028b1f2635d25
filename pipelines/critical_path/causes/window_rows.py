"""Events and names of windows as arrays, in the form that the causes need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt

from pipelines.critical_path.causes.edge_causes import KINDS, Events, Names
from pipelines.critical_path.graph.stack_order import Ints


def rows_by_window(con: duckdb.DuckDBPyConnection, rows: str, order: str) -> dict[int, dict[str, Any]]:
    """Return the columns of each window's rows by window number. The rows are sorted by column `order`."""
    values = con.execute(f"SELECT * FROM {rows}").fetchnumpy()
    window = np.asarray(values.pop("window_no"))
    row_order = np.lexsort((np.asarray(values[order]), window))
    if not len(window):
        return {}
    numbers, first = np.unique(window[row_order], return_index=True)
    parts: dict[int, dict[str, Any]] = {number: {} for number in numbers.tolist()}
    for name in list(values):
        for number, part in zip(parts, np.split(lean(values.pop(name))[row_order], first[1:]), strict=True):
            parts[number][name] = part
    return parts


def lean(column: Any) -> np.ndarray:
    """Return a column with -1 (or False) instead of NULL, as int32 if its integers fit."""
    filled = np.ma.filled(column, -1) if column.dtype != bool else np.ma.filled(column, False)
    if (
        filled.dtype.kind == "i"
        and filled.itemsize > 4
        and len(filled)
        and -(2**31) <= filled.min() <= filled.max() < 2**31
    ):
        return filled.astype(np.int32)
    return filled


def events_of(rows: dict[str, Any]) -> Events:
    """Return the events of a window from the columns of _cause_events, in order of event_id.

    Removes the columns from `rows`.
    """
    ids = rows.pop("event_id")
    index_of = np.full(int(ids.max(initial=0)) + 2, -1, dtype=np.int32)
    index_of[ids] = np.arange(len(ids))

    def place(column: Ints) -> Ints:
        return index_of[np.where(column <= ids[-1], column, -1)]

    is_work = rows.pop("is_work")
    return Events(
        ids,
        rows.pop("at_ns").astype(np.int64),
        rows.pop("duration_ns").astype(np.int64),
        np.where(is_work, -1, rows.pop("thread_id")),
        is_work,
        rows.pop("name_no") - 1,
        place(rows.pop("launch_event_id")),
        place(rows.pop("owner_event_id")),
        rows.pop("is_first"),
        rows.pop("stream").astype(np.int64),
        rows.pop("device"),
    )


def names_of(con: duckdb.DuckDBPyConnection) -> Names:
    """Return the names in `_event_names` with their rules."""
    rows = con.execute(
        "SELECT n.*, coalesce(r.rule_no, -1) AS rule_no, "
        "min(n.name_no) OVER (PARTITION BY n.trace_id, n.name) - 1 AS same_text FROM _event_names AS n "
        "LEFT JOIN _cause_names AS r ON r.name_no = n.name_no ORDER BY n.name_no"
    ).fetchnumpy()
    kinds = {kind: number for number, kind in enumerate(KINDS)}
    kind = np.array([kinds.get(text, -1) for text in rows["kind"].tolist()], dtype=np.int64)
    numbers = ("rule_no", "n_events", "duration_ns", "same_text")
    rule, n_events, duration, same_text = (np.ma.filled(rows[name], -1) for name in numbers)
    is_step, to_host, pageable = (rows[name].astype(bool) for name in ("is_step", "to_host", "is_pageable"))
    texts, classes = rows["name"].tolist(), rows["class"].tolist()
    return Names(kind, rule, n_events, duration, is_step, to_host, pageable, texts, classes, same_text.astype(np.int32))


@dataclass(frozen=True)
class NameFacts:
    """Facts about names (n,) that fixes depend on, indexed like Names.

    `factor` is the best possible duration of a name's GPU work divided by the actual duration, NaN if unknown. `is_own`
    is whether the name is a Python function in the user's files.
    """

    factor: npt.NDArray[np.float64]
    is_own: npt.NDArray[np.bool_]


def name_facts(con: duckdb.DuckDBPyConnection, n_names: int) -> NameFacts:
    """Return the facts about the names in `_event_names`."""
    facts = NameFacts(np.full(n_names, np.nan), np.zeros(n_names, dtype=bool))
    for name_no, factor in con.execute("FROM _faster_work").fetchall():
        facts.factor[name_no - 1] = factor
    for (name_no,) in con.execute("SELECT name_no FROM _event_names WHERE is_own_function").fetchall():
        facts.is_own[name_no - 1] = True
    return facts
