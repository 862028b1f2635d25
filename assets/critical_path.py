"""The critical path: the networkx step between edges and answer, and the file to open in Perfetto."""

import time
from pathlib import Path

import dagster as dg
import duckdb

from assets.common import DAYS, WHOLE_RANGE, Span, markdown_table, table_spec
from pipelines import database
from pipelines.critical_path.overlay import PREFIX, write_overlay
from pipelines.foreign_text import visible
from pipelines.ingest import LAKE_ERRNOS
from pipelines.lake import Lake
from pipelines.lake.layout import OVERLAYS, table_file
from pipelines.lake.store import quoted

# A trace without a path (its graph is empty, refused or cyclic) has nothing to show; `quality` says so.
_TRACES = "SELECT trace_id, path FROM traces WHERE trace_id IN (SELECT trace_id FROM critical_path)"


def python_spec(name: str) -> dg.AssetSpec:
    """A table that Python computes from the graph of every window, such as with `networkx.dag_longest_path`.

    It reads the private `_edges`; `critical_path_edges` shows the same edges by name, so that table is shown as its
    upstream.
    """
    library = "networkx" if name == "longest_path" else "numpy"
    return table_spec(name, {library, "python"}, deps=["critical_path_edges"])


@dg.asset(
    deps=["critical_path", "events", "traces"],
    group_name="critical_path",
    kinds={"perfetto", "json"},
    partitions_def=DAYS,
    backfill_policy=WHOLE_RANGE,
)
def overlay(context: dg.AssetExecutionContext, lake: dg.ResourceParam[Lake]) -> dg.MaterializeResult:
    """One Perfetto file per trace: its critical path as a separate track, with one arrow per edge.

    A file that is newer than its path is left as it is. A batch whose path is not computed yet is left to the run that
    ingested it, which may be computing it now.
    """
    started = time.perf_counter()
    rows, failed, written, without_path = [], [], 0, 0
    for batch in Span.of(context).batches(lake):
        changed = _changed(table_file(lake.root, "critical_path", batch))
        if changed is None:
            without_path += 1
            continue
        with database.connect() as con:
            for table in ("traces", "events", "critical_path"):
                con.execute(f"CREATE VIEW {table} AS FROM read_parquet({quoted(table_file(lake.root, table, batch))})")
            for trace_id, source in con.execute(_TRACES).fetchall():
                folder = lake.root / OVERLAYS / f"day={batch.day}" / trace_id
                files = [path for path in folder.glob(f"{PREFIX}*") if path.stat().st_mtime >= changed]
                if not files:
                    context.log.info(f"overlay {visible(source)}")
                    try:
                        files = [write_overlay(con, trace_id, None, folder)]
                    except (ValueError, OSError, duckdb.DataError) as error:
                        if getattr(error, "errno", None) in LAKE_ERRNOS:
                            raise
                        # The fault is in this trace (such as a name that leaves no room for the prefix): the others
                        # continue.
                        failed.append((trace_id, source, str(error)))
                        continue
                    written += 1
                rows.append((trace_id, Path(source).name, str(files[0])))
    return dg.MaterializeResult(
        metadata={
            "files": len(rows),
            "written": written,
            "batches_without_path": without_path,
            "failed": dg.MetadataValue.md(markdown_table(["trace", "of", "why"], failed[:50], width=400)),
            "seconds": time.perf_counter() - started,
            "path": dg.MetadataValue.path(lake.root / OVERLAYS),
            "overlays": dg.MetadataValue.md(markdown_table(["trace", "of", "open in Perfetto"], rows[:50], width=400)),
        }
    )


def _changed(path: Path) -> float | None:
    """Returns when a table's file was put in place; None if it does not exist (yet, or any more)."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return None
