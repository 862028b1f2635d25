"""Comparison of the rows that two connections show, in both directions, without columns that name the run.

Floats are compared to 12 digits, because the last digit of a mean over ranks depends on the order of addition.
"""

from __future__ import annotations

import duckdb

from pipelines.models.catalog import load_catalog

# Columns that differ between runs: batches, times, and the numbers of windows, which are unique only within one
# computation.
OF_THE_RUN = {"batch_id", "ingested_at", "seen_at", "window_no", "trace_profile_id"}


def stored_tables() -> list[str]:
    """Return the public tables with rows of traces, captures and files, so without the rules."""
    catalog = load_catalog()
    return [name for name in catalog.public if catalog.models[name].kind != "rules"]


def differences(here: duckdb.DuckDBPyConnection, there: duckdb.DuckDBPyConnection) -> tuple[list[str], int, int]:
    """Return a line per table that differs, the number of tables compared, and the number of their rows."""
    wrong, n_tables, n_rows = [], 0, 0
    both = [sorted(set(stored_tables()) & _tables(con)) for con in (here, there)]
    if both[0] != both[1]:
        wrong.append(f"tables of one side only: {sorted(set(both[0]) ^ set(both[1]))}")
    with duckdb.connect() as con:
        for table in sorted(set(both[0]) & set(both[1])):
            columns = ", ".join(_columns(here, table))
            for side, rows in (("a", here), ("b", there)):
                con.register(side, rows.execute(f"SELECT {columns} FROM {table}").to_arrow_table())
            sizes = [con.execute(f"SELECT count(*) FROM {side}").fetchall()[0][0] for side in "ab"]
            more = [
                con.execute(f"SELECT count(*) FROM (FROM {x} EXCEPT ALL FROM {y})").fetchall()[0][0]
                for x, y in ("ab", "ba")
            ]
            n_tables, n_rows = n_tables + 1, n_rows + sizes[0]
            if any(more):
                wrong.append(f"{table}: {more[0]} of {sizes[0]} rows here only, {more[1]} of {sizes[1]} there only")
    return wrong, n_tables, n_rows


def _tables(con: duckdb.DuckDBPyConnection) -> set[str]:
    rows = con.execute("SELECT table_name FROM information_schema.tables").fetchall()
    return {name for (name,) in rows}


def _columns(con: duckdb.DuckDBPyConnection, table: str) -> list[str]:
    columns = [
        (f'"{name}"', kind) for name, kind, *_ in con.execute(f"DESCRIBE {table}").fetchall() if name not in OF_THE_RUN
    ]
    return [f"printf('%.12g', {name}) AS {name}" if kind == "DOUBLE" else name for name, kind in columns]
