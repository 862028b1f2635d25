"""The files of a digest, which remain of batches of traces after their events are dropped.

A digest is a batch with only the tables that `why`, `compare`, `fleet`, `regressions` and `jobs` read. Of causes and
fixes, it keeps only the largest rows (sql/fleet/digest). Its tables have the version `DIGEST` in the catalog and in the
footers of the files, because no model can recompute them. A row of `findings` reports this with every answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from types import MappingProxyType

import duckdb

from pipelines.lake.commit.manifest import Entry
from pipelines.lake.commit.parquet import options
from pipelines.lake.lake import Lake, Staged
from pipelines.lake.names import DIGEST, MARK, REDUCED, REJECTS, Batch
from pipelines.lake.retain.merge import ORDER_OF_DIGEST, begin_merge, committed, merged_rows
from pipelines.models.catalog import load_catalog
from pipelines.models.sqltext import quoted

CUT: Mapping[str, str] = MappingProxyType(
    {
        "causes": "_digest_causes",
        "causes_without_profiler": "_digest_causes_without_profiler",
        "step_causes": "_digest_step_causes",
        "fixes": "_digest_fixes",
        "capture_metrics": "_digest_capture_metrics",
    }
)
"""The model that selects the rows that a digest keeps, by table. A digest keeps all rows of other tables."""
OF_TRACES = (
    "causes",
    "causes_without_profiler",
    "step_causes",
    "fixes",
    "digest_steps",
    "digest_work",
    "digest_host",
    "window_gpu_time",
    "critical_path_caveats",
    "profiler_cost",
    "span_attribution",
    "step_times",
    "temporal_breakdown",
    "quality",
)
"""The computed tables of traces in a digest."""
OF_CAPTURES = (
    "captures",
    "capture_ranks",
    "capture_quality",
    "capture_roles",
    "capture_metrics",
    "capture_summary",
    "cause_totals",
    "fix_totals",
    "capture_paths",
    "capture_causes",
    "capture_fixes",
    "straggler_ranks",
    "straggler_groups",
    "gpu_time_by_cause",
    "digest_waits",
)
"""The tables of captures in a digest."""


def digest_files(
    con: duckdb.DuckDBPyConnection, lake: Lake, group: Sequence[Entry], merged: Batch, folder: Path, on: date
) -> tuple[dict[str, Staged], dict[str, str | None]]:
    """Write the digest of a group of batches into `folder`. Return its files, and the traces' source paths.

    `on`: the day that the digest records as its date. The batches must have all tables OF_TRACES. Raise MergeFailed,
    duckdb.IOException or OSError.
    """
    keys, _ = begin_merge(con, lake, group, folder)
    models = load_catalog().models
    for table in CUT.keys() & {*OF_TRACES}:
        con.execute(f"CREATE VIEW {table} AS {committed(lake, group, table)}")
    present = {table for entry in group for table in entry.kind.places}
    staged = {}
    for table in (MARK, "findings", *OF_TRACES, *({REJECTS} & present)):
        rows = merged_rows(lake, group, table, merged, of_digest=True)
        if table in CUT:
            batch = f"{quoted(merged.batch_id)} AS batch_id"
            rows = f"SELECT *, {batch} FROM (\n{models[CUT[table]].sql}\n) {ORDER_OF_DIGEST}"
        if table == "findings":
            values = f"{quoted(REDUCED)} AS check_name, 'info' AS severity, 1 AS n, {quoted(_detail(on))} AS detail"
            note = f"SELECT trace_id, {quoted(merged.batch_id)} AS batch_id, {values} FROM mark"
            rows = f"SELECT * FROM (({rows}) UNION ALL BY NAME ({note})) {ORDER_OF_DIGEST}"
        failures = [failure for entry in group for failure in entry.failures.get(table, ()) if failure.trace_id in keys]
        version = DIGEST if table in OF_TRACES else None
        target = folder / f"{table}.parquet"
        form = options(version, failures, of_digest=True)
        ((n_rows,),) = con.execute(f"COPY ({rows}) TO {quoted(target)} ({form})").fetchall()
        staged[table] = Staged(target, n_rows, tuple(failures), version)
    return staged, keys


def _detail(on: date) -> str:
    return (
        f"only its digest is kept since {on} (retention --keep digest), so commands that need its events, such as what-if, "
        "are refused"
    )


def capture_files(
    con: duckdb.DuckDBPyConnection, captures: Sequence[str], batch: Batch, folder: Path
) -> dict[str, Staged]:
    """Write the digest of captures into `folder` as files of a new batch. Return its files.

    `con`: a connection with a view of each table OF_CAPTURES (Lake.connect).
    """
    listed, models = ", ".join(map(quoted, captures)), load_catalog().models
    staged = {}
    for table in OF_CAPTURES:
        kept = f"(\n{models[CUT[table]].sql}\n)" if table in CUT else f"(SELECT * EXCLUDE (batch_id) FROM {table})"
        rows = (
            f"SELECT *, {quoted(batch.batch_id)} AS batch_id FROM {kept} WHERE capture_id IN ({listed}) "
            f"{ORDER_OF_DIGEST}"
        )
        target = folder / f"{table}.parquet"
        ((n_rows,),) = con.execute(f"COPY ({rows}) TO {quoted(target)} ({options(DIGEST, ())})").fetchall()
        staged[table] = Staged(target, n_rows, (), DIGEST)
    return staged
