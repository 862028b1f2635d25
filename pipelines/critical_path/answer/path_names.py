"""The owners of the most time on a path, computed by the same models as the tables of a lake."""

from __future__ import annotations

from typing import Any

import duckdb

from pipelines.models.catalog import Catalog

_LARGEST = """
    {path} owned AS ({by_owner})
    SELECT owner, owner_cat, bound_by, n_edges, duration_ns, count(*) OVER () AS n_owners, sum(duration_ns) OVER () AS all_ns
    FROM owned WHERE duration_ns > 0
    QUALIFY duration_ns >= 5e-5 * all_ns  -- 0.01 % where people read it
    ORDER BY duration_ns DESC, owner, owner_cat, bound_by LIMIT {top}
"""


def largest_owners(con: duckdb.DuckDBPyConnection, catalog: Catalog, top: int) -> list[dict[str, Any]]:
    """Return the `top` rows of `critical_path_by_owner` with the most time, without rows below 0.005 %.

    Each row has owner, owner_cat, bound_by, n_edges and duration_ns, and for all owners together n_owners and all_ns.
    `con` has the tables of one path: `critical_path_by_owner`, or `critical_path`, or the tables that the model
    `critical_path` reads.
    """
    if top < 1:
        return []
    # Query the model's SQL, because its table would contain the names of all edges.
    path = (
        "WITH"
        if is_made(con, "critical_path")
        else f"WITH critical_path AS (\n{catalog.models['critical_path'].sql}\n),"
    )
    by_owner = catalog.models["critical_path_by_owner"].sql
    if is_made(con, "critical_path_by_owner"):
        path, by_owner = "WITH", "SELECT * FROM critical_path_by_owner"
    query = _LARGEST.format(path=path, by_owner=f"\n{by_owner}\n", top=top)
    names = ("owner", "owner_cat", "bound_by", "n_edges", "duration_ns", "n_owners", "all_ns")
    return [dict(zip(names, row, strict=True)) for row in con.execute(query).fetchall()]


def is_made(con: duckdb.DuckDBPyConnection, name: str) -> bool:
    """Return whether `con` has a table or view of this name in schema `main`. Stored tables are in other schemas."""
    made = "SELECT schema_name, table_name FROM duckdb_tables() UNION ALL SELECT schema_name, view_name FROM duckdb_views()"
    return bool(con.execute(f"SELECT 1 FROM ({made}) WHERE table_name = '{name}' AND schema_name = 'main'").fetchall())
