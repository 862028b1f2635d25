"""`tracelake demo` and `tracelake ui`: one run of the whole pipeline, and the Dagster UI."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from pipelines.base.extras import need
from pipelines.base.units import counted
from pipelines.faces.cli.console import err, fail, out, progress
from pipelines.faces.cli.options import DEFAULT_LAKE, LakeOption, path_option

PROJECT = Path(__file__).resolve().parents[4]
DEMO_PLAN = "fused_sparse_dist"


def demo(
    traces: Annotated[
        list[str] | None, typer.Argument(help="Real traces; without any, a synthetic capture is generated.")
    ] = None,
    folder: Annotated[Path, path_option("Where to put the demo's lake and capture.", "DIR")] = Path("demo"),
) -> None:
    """Ingest traces (or a small synthetic capture), materialize every asset, and show what a perf engineer wants to see.

    Example: `tracelake demo /fleet/job42/`
    """
    from pipelines.faces.cli.lake.ingest import report_table
    from pipelines.faces.cli.trace.gantt import run_simulated
    from pipelines.lake import Lake
    from pipelines.lake.publish.analyst_file import publish
    from pipelines.readers.ingest import ingest

    need("dagster", "tracelake demo")
    lake = Lake(folder / "lake")
    paths = traces or [str(path) for path in synthetic(folder)]
    with progress(None, "ingesting") as advance:
        report = ingest(paths, lake, on_file=lambda row: advance(1, f"ingesting {Path(row.path).name}"))
    out.print(report_table(report.rows))
    if not lake.exists:
        raise fail("no trace was ingested", "Look at the reasons above.")
    _materialize(lake)
    with progress(None, "running a schedule on the simulated device"):
        run_simulated(lake, DEMO_PLAN)
        publish(lake)
    _show(lake, folder / "overlay")
    if report.rejected:
        files = counted(len(report.rejected), "file")
        out.print(f"{files} not ingested (no profiler trace, or unreadable): see the reasons above, or table rejects.")
    out.print()
    if not traces:
        out.line("why:    [bold]tracelake why {}[/]", shlex.quote(str(folder / "capture" / "rank0.json.gz")))
    name = shlex.quote(str(lake.root))
    out.line('ask:    [bold]tracelake sql "SELECT * FROM quality" --lake {}[/]', name)
    out.line("browse: [bold]tracelake ui --lake {}[/]", name)
    out.line("[dim](tracelake is {})[/]", Path(sys.executable).parent / "tracelake")


def synthetic(folder: Path) -> list[Path]:
    """Write the demo's traces unless they exist, and return their paths.

    The traced programs are a training job with four ranks, one of them late, a server that prefills requests and then
    decodes, and a decoder that replays a CUDA graph.
    """
    from pipelines.synthetic import CaptureSpec, write_capture
    from pipelines.synthetic.programs.inference import REQUESTS

    training, server, decoder = (
        folder / name for name in ("capture", "serving/server.json.gz", "graphs/decoder.json.gz")
    )
    if not training.exists():
        unfinished = folder / f".capture-{os.getpid()}"
        capture = write_capture(CaptureSpec(ranks=4, steps=3, straggler=2, seed=7), unfinished)
        unfinished.rename(training)
        n, late = len(capture.ranks), capture.straggler
        out.print(f"wrote a synthetic capture of {n} ranks to {training}; rank {late} is the straggler")
    if not server.exists():
        spec = CaptureSpec(ranks=1, steps=2, shape="serving", tokens=8, kernel_ns=6000, seed=3, sync_each_step=False)
        write_capture(spec, server.parent).paths[0].rename(server)
        out.print(f"wrote a synthetic trace of a server to {server}: prefill and decode of {REQUESTS} requests")
    if not decoder.exists():
        spec = CaptureSpec(
            1, steps=2, shape="inference_graph", tokens=8, kernel_ns=6000, seed=3, graph_origin="capture"
        )
        write_capture(spec, decoder.parent).paths[0].rename(decoder)
        out.print(f"wrote a synthetic trace of decoding by CUDA graphs to {decoder}")
    return [training, server, decoder]


def _materialize(lake: Any) -> None:
    """Materialize every asset through Dagster, in a child process that prints each asset's name."""
    command = [sys.executable, "-m", "dagster_project.demo", str(lake.root)]
    run = subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True)
    with progress(None, "starting Dagster") as advance, run:
        for line in run.stdout or ():
            advance(1, f"materialized {line.strip()}")
    if run.returncode:
        raise fail("an asset failed", f"See why: tracelake materialize --lake {shlex.quote(str(lake.root))}")


def _show(lake: Any, overlay_folder: Path) -> None:
    from pipelines.faces.cli.lake.ask import ask
    from pipelines.faces.cli.refresh_tables import open_analyst
    from pipelines.faces.cli.trace.gantt import compared_table

    for question in ("gpu-idle", "path-bound-by", "quality"):
        ask(question, lake.root)
    overlays = sorted((lake.root / "overlays").rglob("overlaid_critical_path_*"))
    if overlays:
        out.line("open in https://ui.perfetto.dev: [bold]{}[/] ({} files)", overlays[0], len(overlays))
    with open_analyst(lake.root, []) as con:
        out.print(compared_table(con))


ANY = ("0.0.0.0", "::")
_FOLDERS = ("TRACELAKE_INBOX", "TRACELAKE_DAGSTER_FILES")


def ui(
    lake: LakeOption = DEFAULT_LAKE,
    port: Annotated[int, typer.Option(help="Port on this machine.", min=1, max=65535)] = 3000,
    host: Annotated[
        str,
        typer.Option(
            help="Address to listen on. The UI has no users: anyone who can reach this address can start and delete runs."
        ),
    ] = "127.0.0.1",
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Another host name for the UI: of your proxy, or of this machine.")
    ] = None,
) -> None:
    """Open the Dagster UI for a lake: lineage, runs, checks, the inbox sensor.

    By default it listens only on this machine. It rejects other host names and requests from other sites' pages. Of a DuckLake
    Dagster's own files are in DAGSTER_HOME, by default ./.dagster.

    Example: `tracelake ui --lake /data/lake`
    """
    need("dagster", "tracelake ui")
    from pipelines.lake.status import DAGSTER
    from pipelines.runs.store import open_store

    store = open_store(lake)
    home = store.lake.root / DAGSTER if store.lake else Path(os.environ.get("DAGSTER_HOME") or DAGSTER).absolute()
    folders = {name: os.path.abspath(os.environ[name]) for name in _FOLDERS if os.environ.get(name)}
    env = {
        **os.environ,
        **folders,  # the UI has another working directory
        "TRACELAKE_LAKE": store.address,
        "DAGSTER_HOME": str(home),
        "TRACELAKE_UI_STARTER": str(os.getpid()),  # so that the UI detects that this process was killed
        "TRACELAKE_UI_HOSTS": ",".join([*(allow_host or ()), *([] if host in ANY else [host])]),
    }
    shown_host = "127.0.0.1" if host in ANY else f"[{host}]" if ":" in host else host
    err.print(f"Dagster UI: http://{shown_host}:{port}  (Ctrl-C stops it)")
    if host not in ("127.0.0.1", "localhost", "::1"):
        err.print(
            "caveat: the UI has no users; anyone who can reach this address can start and delete runs", style="yellow"
        )
    if host in ANY and not allow_host:
        err.print(
            "hint: other machines can reach it only by a name that you pass with --allow-host NAME", style="yellow"
        )
    server = subprocess.Popen([sys.executable, "-m", "dagster_project.serve", str(port), host], cwd=PROJECT, env=env)

    def pass_on(number: int, _: Any) -> None:
        server.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, pass_on)
    raise typer.Exit(server.wait())
