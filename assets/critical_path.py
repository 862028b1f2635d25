"""Assets of the critical path: the tables that Python computes from its edges, and an overlay file for Perfetto."""

import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import dagster as dg
import duckdb
import networkx  # noqa: F401 - once it is imported, longest/window_paths.py calls its dag_longest_path

from assets.metadata import AGAIN, DAYS, OWNERS, WHOLE_RANGE, Span, markdown_table, table_spec
from assets.results import note
from pipelines.base.foreign_text import visible
from pipelines.faces.drawings.overlay import PREFIX, few_at_a_time, traces_with_path, write_overlay
from pipelines.lake import Lake
from pipelines.lake.names import OVERLAYS, Batch, table_file
from pipelines.readers.inputs.rejects import LAKE_ERRNOS

_NEWEST = """
    SELECT unnest(traces) FROM (
        SELECT coalesce(job, '') AS of_job, coalesce(capture_id, trace_id) AS capture, list(trace_id) AS traces,
            max(ingested_at) AS came, max(trace_end_ns) AS ended
        FROM traces GROUP BY of_job, capture
        QUALIFY row_number() OVER (PARTITION BY of_job ORDER BY came DESC, ended DESC, capture) = 1
    )
"""


def python_spec(name: str) -> dg.AssetSpec:
    """Return the spec of a table that Python computes from each window's graph, for example with `networkx.dag_longest_path`."""
    return table_spec(name, {"networkx" if name == "longest_path" else "numpy", "python"})


class OverlayConfig(dg.Config):
    """The traces whose overlays the lake keeps: those of each job's newest capture, or `all`."""

    of: Literal["newest", "all"] = "newest"


@dg.asset(
    deps=["critical_path", "events", "traces", "capture_ranks"],
    group_name="fleet",
    kinds={"perfetto", "json"},
    owners=OWNERS,
    metadata=note("overlay", "`tracelake overlay` writes the overlay of a trace"),
    partitions_def=DAYS,
    backfill_policy=WHOLE_RANGE,
    retry_policy=AGAIN,
)
def overlay(
    context: dg.AssetExecutionContext, config: OverlayConfig, lake: dg.ResourceParam[Lake]
) -> dg.MaterializeResult:
    """One Perfetto file per trace of each job's newest capture: its critical path as a separate track, one arrow per edge.

    Overlays of earlier captures are removed, even if a run with `of: all` wrote them, because `tracelake overlay` can
    write one for any trace. A file that is newer than its path is left unchanged. A batch whose path is not computed
    yet is left to the run that is computing it.
    """
    started = time.perf_counter()
    chosen = _newest(lake) if config.of == "newest" else None
    overlays_by_batch = [_overlays(context, lake, batch, chosen) for batch in Span.of(context).batches(lake)]
    rows = [row for overlays in overlays_by_batch if overlays for row in overlays.rows]
    failed = [row for overlays in overlays_by_batch if overlays for row in overlays.failed]
    return dg.MaterializeResult(
        metadata={
            "files": len(rows),
            "written": sum(overlays.written for overlays in overlays_by_batch if overlays),
            "removed": 0 if chosen is None else _remove_others(lake, chosen),
            "batches_without_path": overlays_by_batch.count(None),
            "failed": dg.MetadataValue.md(markdown_table(["trace", "of", "why"], failed[:50], width=400)),
            "seconds": time.perf_counter() - started,
            "path": dg.MetadataValue.path(lake.root / OVERLAYS),
            "overlays": dg.MetadataValue.md(markdown_table(["trace", "of", "open in Perfetto"], rows[:50], width=400)),
        }
    )


@dataclass
class _Made:
    """Overlays of a batch: `rows` (trace, its file, overlay), `failed` (trace, its file, reason), and the number of new overlays."""

    rows: list[tuple[str, str, str]] = field(default_factory=list)
    failed: list[tuple[str, str, str]] = field(default_factory=list)
    written: int = 0


def _overlays(
    context: dg.AssetExecutionContext, lake: Lake, batch: Batch, chosen: frozenset[str] | None
) -> _Made | None:
    """Write the missing overlays of a batch. Return None if its critical path is not computed."""
    changed = _changed(table_file(lake.root, "critical_path", batch))
    if changed is None:
        return None
    result, file_by_trace = _Made(), {}
    tables = {table: table_file(lake.root, table, batch) for table in ("traces", "events", "critical_path")}
    for trace in traces_with_path(tables):
        if chosen is not None and trace[0] not in chosen:
            continue
        files = [path for path in _folder(lake, batch, trace[0]).glob(f"{PREFIX}*") if path.stat().st_mtime >= changed]
        file_by_trace[trace] = files[0] if files else None
    for con, traces in few_at_a_time(tables, [trace for trace, file in file_by_trace.items() if file is None]):
        context.log.info(f"overlays of {len(traces)} traces, from {visible(traces[0][1])}")
        for trace in traces:
            trace_id, source, _ = trace
            try:
                file_by_trace[trace] = write_overlay(con, trace_id, None, _folder(lake, batch, trace_id))
            except (ValueError, OSError, duckdb.DataError) as error:
                if getattr(error, "errno", None) in LAKE_ERRNOS:
                    raise
                # The error concerns this trace only (for example a name too long for the prefix), so the other traces continue.
                result.failed.append((trace_id, source, str(error)))
                continue
            result.written += 1
    result.rows = [
        (trace_id, Path(source).name, str(file)) for (trace_id, source, _), file in file_by_trace.items() if file
    ]
    return result


def _newest(lake: Lake) -> frozenset[str]:
    """Return the traces of each job's newest capture. Traces without a job count as one job."""
    if not lake.exists:
        return frozenset()
    with lake.connect(["traces"]) as con:
        return frozenset(trace_id for (trace_id,) in con.execute(_NEWEST).fetchall())


def _remove_others(lake: Lake, chosen: frozenset[str]) -> int:
    """Remove the overlays of traces that are neither chosen nor in a newest capture now. Return the number of traces."""
    folders = list((lake.root / OVERLAYS).glob("day=*/*"))
    # Query after listing, because a run that began later may have written overlays of captures newer than the chosen ones.
    traces_to_keep = chosen | _newest(lake)
    surplus = [folder for folder in folders if folder.name not in traces_to_keep]
    for folder in surplus:
        shutil.rmtree(folder, ignore_errors=True)  # another run may be removing the folder
    return len(surplus)


def _folder(lake: Lake, batch: Batch, trace_id: str) -> Path:
    """Return the folder that contains a trace's overlay."""
    return lake.root / OVERLAYS / f"day={batch.day}" / trace_id


def _changed(path: Path) -> float | None:
    """Return the modification time of a table's file (seconds since 1970), or None if it does not exist (yet, or any more)."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return None
