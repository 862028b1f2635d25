"""`tracelake ingest`: ingestion of files into the lake."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from pipelines.faces.cli.console import new_table, out, print_json, progress, styled
from pipelines.faces.cli.lake.engine import (
    IN_PROCESS,
    AddressOption,
    EngineOption,
    StoreOption,
    engine_at,
    following,
    tell_failed,
)
from pipelines.faces.cli.options import DEFAULT_LAKE, JsonOption, LakeOption
from pipelines.faces.cli.refresh_tables import tell_left_out, warn_of_prices


def _limit(help: str, name: str) -> Any:
    return typer.Option(help=help, min=1, envvar=f"TRACELAKE_{name.upper()}", rich_help_panel="Limits")


def ingest(
    paths: Annotated[list[str] | None, typer.Argument(help="Trace files, folders or globs.", metavar="PATH...")] = None,
    lake: LakeOption = DEFAULT_LAKE,
    job: Annotated[str | None, typer.Option(help="Job that the traces belong to.")] = None,
    from_list: Annotated[
        Path | None,
        typer.Option(help="Read more paths from this file: one per line, or each terminated by NUL.", metavar="FILE"),
    ] = None,
    max_unpacked_gib: Annotated[int, _limit("Largest decompressed size of a file, GiB.", "max_unpacked_gib")] = 64,
    max_ratio: Annotated[
        int, _limit("Largest compression ratio, checked above 1 GiB of decompressed data.", "max_ratio")
    ] = 400,
    max_metadata_mib: Annotated[
        int, _limit("Largest size of the metadata before or after the events, MiB.", "max_metadata_mib")
    ] = 256,
    max_event_mib: Annotated[int, _limit("Largest size of one event, MiB.", "max_event_mib")] = 128,
    materialize: Annotated[
        bool,
        typer.Option(
            "--materialize",
            help="Then compute all tables of these traces and captures. (With --engine or a DuckLake, tables of traces are always computed; those of captures by `materialize`.)",
        ),
    ] = False,
    engine: EngineOption = None,
    address: AddressOption = None,
    store: StoreOption = None,
    json: JsonOption = False,
) -> None:
    """Put traces into the lake and print one row per trace. Content that is already there is skipped.

    Exits with 1 if any file was rejected; the others are ingested. With an engine the tables of traces are computed
    too; `tracelake materialize --engine` adds those of captures. Where tables are computed, it also exits with 1 if one of them
    lacks a trace because a model failed on it; stderr says which, why, and how to get it. Exports of Nsight Systems (*.sqlite) and what rocprofv3
    writes (*.db, *_kernel_trace.csv with the files next to it) are traces, too: one for each process with GPU work.

    Example: `tracelake ingest /fleet/job42/*.json.gz --lake /data/lake --job job42`
    """
    from pipelines.base.paths import total_size
    from pipelines.lake import Lake
    from pipelines.lake.publish.analyst_file import publish
    from pipelines.readers.ingest import IngestReport, expand, listed
    from pipelines.readers.ingest import ingest as ingest_files
    from pipelines.readers.kineto.limits import Limits
    from pipelines.runs.store import open_store

    limits = Limits(max_unpacked_gib, max_ratio, max_metadata_mib, max_event_mib)
    if not paths and not from_list:
        raise typer.BadParameter(
            "name files, folders or globs, or a list of them: --from-list FILE", param_hint="PATH..."
        )
    requested = [*(paths or ()), *(listed(from_list) if from_list else ())]
    files = expand(requested)
    run = None
    if open_store(lake).lake is None:
        store, engine = store or str(lake), engine or IN_PROCESS
    with engine_at(engine, address, store) as cluster:
        if cluster is None:
            with progress(total_size(files), "reading") as advance:
                report = ingest_files(
                    requested,  # the lake's own files are rejected only if they are named themselves
                    Lake(lake),
                    job,
                    on_bytes=advance,
                    on_file=lambda r: advance(0, Path(r.path).name),
                    limits=limits,
                )
        else:
            from pipelines.engines.run import ingest_on

            with following("ingesting") as on_unit:
                run = ingest_on(cluster, store or str(lake), files, job, limits, on_unit)
            report = IngestReport(run.rows)
    computes = materialize and run is None
    if store is None and not computes:
        publish(Lake(lake))
        warn_of_prices(Path(lake))
    if json:
        print_json([asdict(row) for row in report.rows])
    else:
        out.print(report_table(report.rows))
    traces = {row.trace_id for row in report.rows if row.trace_id}
    if computes:
        _compute(Path(lake), traces)
    is_left_out = (computes or run is not None) and tell_left_out(store or str(lake), traces=traces)
    if run:
        tell_failed(run)
    if report.rejected or is_left_out:
        raise typer.Exit(1)


def _compute(folder: Path, traces: set[str]) -> None:
    """Compute all tables of these traces and of the captures that contain them, and publish."""
    from pipelines.lake import Lake
    from pipelines.runs.materialize.per_capture import part_with
    from pipelines.runs.materialize.run_order import materialize_all

    lake = Lake(folder)
    with progress(None, "computing tables") as advance:
        materialize_all(lake, on_step=lambda t: advance(1, f"computing {t}"), part=part_with(lake, traces))
    warn_of_prices(folder)


def report_table(rows: list) -> Table:
    """Return a table with one row per file: trace, rank, events, MB/s, status and reason."""
    table = new_table("~file", "~trace", ">rank", ">events", ">MB/s", "status", "~reason", title="ingested")
    colours = {"ok": "green", "known": "dim", "repaired": "yellow", "partial": "yellow", "rejected": "red"}
    for row in rows:
        speed = f"{row.unpacked_bytes / 1e6 / row.seconds:.0f}" if row.unpacked_bytes and row.seconds else ""
        position = f"byte {row.byte_offset}: " if row.byte_offset is not None else ""
        table.add_row(
            Path(row.path).name,
            row.trace_id or "",
            "" if row.rank is None else str(row.rank),
            "" if row.n_events is None else f"{row.n_events:,}",
            speed,
            styled(f"[{colours.get(row.status, 'white')}]{{}}[/]", row.status),
            f"{position}{row.reason}" if row.reason else "",
        )
    return table
