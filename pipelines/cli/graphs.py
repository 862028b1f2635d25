"""`tracelake graphs`: what ran in replays of CUDA and HIP graphs, by operator, module and layer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from pipelines.cli.shared import DEFAULT_LAKE, JsonOption, LakeOption, fail, human_us, out, print_json, styled
from pipelines.cli.trace import ProcessOption, TraceArgument, opened
from pipelines.shorter import shortened

_TABLES = ("events", "traces", "findings")
_NAME = 32
_WHOLE = """
    SELECT count(*) AS n_kernels, count(DISTINCT replay_id) AS n_replays,
        CAST(coalesce(sum(duration_ns), 0) AS BIGINT) AS graph_ns,
        CAST(coalesce(sum(duration_ns) FILTER (WHERE op IS NOT NULL OR module IS NOT NULL), 0) AS BIGINT) AS known_ns
    FROM graph_kernels WHERE trace_id = {of}
"""
_ROWS = """
    SELECT name, class, op, module, source, min(confidence) AS confidence, count(*) AS n,
        count(DISTINCT repetition) AS n_repetitions, CAST(sum(duration_ns) AS BIGINT) AS duration_ns
    FROM graph_kernels WHERE trace_id = {of}
    GROUP BY ALL ORDER BY sum(duration_ns) DESC, name, op, module, source
"""
_REPETITIONS = """
    SELECT sequence_id, period, repetition, class, count(*) AS n, CAST(sum(duration_ns) AS BIGINT) AS duration_ns
    FROM graph_kernels WHERE trace_id = {of} AND period IS NOT NULL
    GROUP BY ALL ORDER BY sequence_id, repetition, class
"""


def graphs(
    trace: TraceArgument,
    capture: Annotated[
        str | None,
        typer.Option(
            "--capture-trace",
            help="Another trace of the same program that shows how its graphs were captured, or the same work before: a "
            "file, or an id or unique prefix of one.",
            metavar="TRACE",
        ),
    ] = None,
    top: Annotated[int, typer.Option(help="At most this many kernels; 0 for all.", min=0)] = 20,
    process: ProcessOption = None,
    lake: LakeOption = DEFAULT_LAKE,
    json: JsonOption = False,
) -> None:
    """What ran in replays of CUDA and HIP graphs, by operator, module and layer, as far as the trace shows it.

    Example: `tracelake graphs decode.json.gz --capture-trace startup.json.gz`
    """
    with _both(trace, capture, lake, process) as (con, trace_id):
        found = _answer(con, trace_id)
    if json:
        print_json(found)
        return
    if not found["n_kernels"]:
        out.print(styled("{} has no replays of CUDA or HIP graphs", trace))
        return
    out.print(
        styled(
            "{} of {} of GPU time ran in {:,} replays; the operator or module of {:.1f} % of that is known",
            human_us(found["graph_ns"] / 1000),
            human_us(found["gpu_ns"] / 1000),
            found["n_replays"],
            100 * found["known_ns"] / max(found["graph_ns"], 1),
        )
    )
    out.print(_table(found["kernels"], top, found["graph_ns"]))


def _answer(con: Any, trace_id: str) -> dict[str, Any]:
    from pipelines.critical_path.windows import WindowRequest, request_windows
    from pipelines.database import rows_of
    from pipelines.models.catalog import load_catalog
    from pipelines.models.run import run_models
    from pipelines.sqltext import quoted

    # Launches are known in traces with a window only; the trace with the capture needs them, too.
    traces = con.execute("SELECT trace_id FROM traces ORDER BY trace_id").fetchall()
    request_windows(con, [WindowRequest(one) for (one,) in traces])
    run_models(con, load_catalog(), ["graph_kernels", "kernels"])
    of = quoted(trace_id)
    ((gpu_ns,),) = con.execute(
        f"SELECT CAST(coalesce(sum(dur_ns), 0) AS BIGINT) FROM kernels WHERE trace_id = {of}"
    ).fetchall()
    return {
        "trace_id": trace_id,
        "gpu_ns": gpu_ns,
        **next(iter(rows_of(con, _WHOLE.format(of=of)))),
        "kernels": rows_of(con, _ROWS.format(of=of)),
        "repetitions": rows_of(con, _REPETITIONS.format(of=of)),
    }


@contextmanager
def _both(trace: str, capture: str | None, lake: Path, process: str | None) -> Iterator[tuple[Any, str]]:
    """Opens a trace, together with the one that shows how its graphs were captured, if that is given."""
    if capture is None:
        with opened(trace, lake, with_arguments=True, process=process) as found:
            yield found
        return
    import tempfile

    from pipelines import database
    from pipelines.modelling.graph_captures import use_capture
    from pipelines.sqltext import quoted

    with tempfile.TemporaryDirectory() as folder, database.connect() as con:
        ids = [_kept(trace, lake, Path(folder) / "0", process), _kept(capture, lake, Path(folder) / "1")]
        if ids[0] == ids[1]:
            raise fail(
                f"{capture} is the trace itself",
                "--capture-trace takes another one; a trace is always looked up in itself.",
            )
        con.execute(f"SET temp_directory = {quoted(folder)}")
        con.execute("SET memory_limit = '500MB'")
        con.execute("SET preserve_insertion_order = false")
        for table in _TABLES:
            files = quoted(Path(folder) / "*" / f"{table}.parquet")
            con.execute(f"CREATE VIEW {table} AS SELECT * FROM read_parquet({files}, union_by_name = true)")
        use_capture(con, *ids)
        yield con, ids[0]


def _kept(trace: str, lake: Path, folder: Path, process: str | None = None) -> str:
    """Writes the tables of a trace into a folder; returns its id."""
    from pipelines.sqltext import quoted

    folder.mkdir()
    with opened(trace, lake, with_arguments=True, process=process) as (con, trace_id):
        for table in _TABLES:
            con.execute(f"COPY (FROM {table}) TO {quoted(folder / f'{table}.parquet')} (FORMAT parquet)")
    return trace_id


def _table(rows: list[dict[str, Any]], top: int, graph_ns: int) -> Table:
    shown = rows[:top] if top else rows
    names = shortened((row["name"] for row in shown), _NAME)
    more = f"; {len(rows) - len(shown)} more rows: --top 0" if len(rows) > len(shown) else ""
    table = Table(title=f"kernels of graph replays{more}", title_justify="left")
    for heading in ("kernel", "class", "operator", "module", "known from"):
        table.add_column(heading, overflow="fold")
    for heading in ("times", "layers", "GPU time", "%"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, row in zip(names, shown, strict=True):
        table.add_row(
            name,
            *(row[key] or "" for key in ("class", "op", "module", "source")),
            f"{row['n']:,}",
            f"{row['n_repetitions']:,}",
            human_us(row["duration_ns"] / 1000),
            f"{100 * row['duration_ns'] / max(graph_ns, 1):.1f}",
        )
    return table
