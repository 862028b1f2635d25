"""`make bench`: HTA and tracelake in turn on the same files, as whole processes, with ratios and floors.

Exits with 1 if a floor is missed. Example: `python -m bench.hta --quick --file rank0.json.gz`
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
from pathlib import Path

from bench import report
from bench.inputs import (
    CAPTURE,
    INFERENCE,
    SetupFailed,
    hta_python,
    hundred_scenarios,
    inference,
    longer,
    small,
    synthetic,
)
from bench.processes import ROOT, Runs, in_turn, measure, tracelake
from bench.report import Floor, Line, console

_LONG, _HUGE = 10, 43
"""Numbers of copies of CAPTURE that result in 0.47 GB and 2.03 GB of JSON."""
_SPEED, _LONG_SPEED, _LONG_MEMORY, _INFERENCE_SPEED = Floor(10), Floor(30), Floor(4), Floor(6)
_LONG_PEAK = Floor(763, at_least=False, unit=" MiB")
"""0.8 GB."""
_GZIP, _INGEST_MEMORY = Floor(2, at_least=False), Floor(700, at_least=False, unit=" MiB")
_SCENARIOS = Floor(1)
_JSON = Floor(1.2, at_least=False)
_HELP, _QUERY, _TABLES, _NOTHING = (
    Floor(bound, at_least=False, unit=" s", of_the_machine=True) for bound in (0.15, 0.4, 7, 0.5)
)
_MANY, _FEW = 1000, 48
_EACH = Floor(6, unit="/s", of_the_machine=True)
_GRAPH_EVENTS = 1_000_000
_GRAPH_SPEED, _GRAPH_MEMORY = Floor(10), Floor(4)


def main() -> None:
    """Parse the options, run the requested benchmarks, and print tables."""
    options = _options()
    source = options.file or (CAPTURE if CAPTURE.exists() else None)
    if source is None:
        console.print(
            f"[yellow]{CAPTURE} is not here (the ../shared folder is missing): measuring on a synthetic capture, for "
            "which there are no floors. --file FILE measures on a capture of yours.[/]"
        )
    try:
        with console.status("preparing HTA's environment and the captures under .bench/"):
            python = hta_python()
            source = (source or synthetic()).resolve()
            long = longer(source, _LONG, ".json") if options.large else None
    except SetupFailed as error:
        raise SystemExit(f"error: {error}") from None
    known = source == CAPTURE.resolve()
    console.print(
        f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; medians of whole processes"
    )
    hta_path = _compare(python, source, options.runs, _SPEED if known else None, None)
    if known:
        report.calibrate(hta_path)
    _what_if(python, source, options.runs, _SCENARIOS if known else None)
    if long is not None:
        floors = (_LONG_SPEED, _LONG_MEMORY) if known else (None, None)
        _compare(python, long, options.large, *floors)
        _long(long, options.large, known)
    for shape in INFERENCE:
        _inference(python, shape, options.runs)
    _alone(source, options.runs, known)
    _small(_MANY if options.large else _FEW)
    _ingest(source, options.runs, options.large, known)
    if options.large:
        _longest_path(options.large)
    if report.broken:
        raise SystemExit("\n".join(["floors that are not held:", *report.broken]))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.hta", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="runs on the capture itself (3)")
    parser.add_argument(
        "--large", type=int, default=1, help="runs on the long captures; 0 leaves them out (1; HTA: 5 min)"
    )
    parser.add_argument("--file", type=Path, help="the capture (.json or .json.gz) instead of v100_54mb_rank1")
    parser.add_argument("--quick", action="store_true", help="as --runs 1 --large 0")
    options = parser.parse_args()
    if options.quick:
        options.runs, options.large = 1, 0
    if options.runs < 1 or options.large < 0:
        parser.error("--runs must be at least 1 and --large at least 0")
    if options.file and not options.file.is_file():
        parser.error(f"there is no file {options.file}")
    return options


def hta_side(python: Path, task: str, file: Path) -> list[str | Path]:
    """Return the command that makes HTA load a file or compute its path."""
    # Without -P, Python first searches the script's folder for the package `hta`, and imports this module instead.
    return [python, "-P", Path(__file__).with_name("hta_side.py"), task, file]


def _compare(python: Path, file: Path, runs: int, speed: Floor | None, memory: Floor | None) -> Runs:
    """Compare loading and the critical path of HTA and tracelake. Return HTA's runs of the path.

    The order is load A B A B …, then path A B C A B C ….
    """
    with console.status(file.name) as status:

        def say(text: str) -> None:
            status.update(f"{file.name}: {text}")

        loads = in_turn(
            {
                "HTA load": lambda _: hta_side(python, "load", file),
                "ingest": lambda folder: tracelake("ingest", file, "--lake", folder / "lake"),
            },
            runs,
            say=say,
        )
        paths = in_turn(
            {
                "HTA path": lambda _: hta_side(python, "path", file),
                "default": lambda _: tracelake("critical-path", file),
                "hta": lambda _: tracelake("critical-path", file, "--profile", "hta"),
            },
            runs,
            say=say,
        )
    report.against_hta(
        f"{file.name}: {file.stat().st_size / 1e6:,.0f} MB",
        [
            Line("file → loaded (ours: Parquet lake)", loads["HTA load"], loads["ingest"]),
            Line("file → critical path, profile default", paths["HTA path"], paths["default"], speed, memory),
            Line("file → critical path, profile hta", paths["HTA path"], paths["hta"]),
        ],
    )
    return paths["HTA path"]


def _long(file: Path, runs: int, known: bool) -> None:
    """Compare the long capture's path as JSON with the text answer: CPU time, and peak memory of both."""
    with console.status(f"{file.name} --json") as status:
        words = {"text": (), "--json": ("--json",)}
        commands = {name: lambda _, more=more: tracelake("critical-path", file, *more) for name, more in words.items()}
        results = in_turn(commands, runs, discard=[*words], say=lambda text: status.update(f"{file.name}: {text}"))
    text, as_json = results.values()
    peak = _LONG_PEAK if known else None
    lines = [
        ("critical-path: peak memory", text, text.rss_mib, peak),
        ("critical-path --json: peak memory", as_json, as_json.rss_mib, peak),
        ("critical-path --json: CPU time", as_json, as_json.cpu_seconds / text.cpu_seconds, _JSON),
    ]
    report.alone(f"{file.name}: --json in times of the text answer", lines)


def _inference(python: Path, shape: str, runs: int) -> None:
    """Compare the critical path of a capture with small operators on one thread, with all rows as JSON."""
    try:
        file = inference(shape)
    except SetupFailed as error:
        console.print(f"[red]{error}[/]")
        report.broken.append(f"{shape}: not measured")
        return
    with console.status(shape):
        paths = in_turn(
            {
                "HTA path": lambda _: hta_side(python, "path", file),
                "ours": lambda _: tracelake("critical-path", file, "--json"),
            },
            runs,
            discard=["ours"],
        )
    line = Line("file → critical path, --json", paths["HTA path"], paths["ours"], _INFERENCE_SPEED)
    report.against_hta(f"{shape}: {file.stat().st_size / 1e6:,.0f} MB packed", [line])


def _alone(source: Path, runs: int, known: bool) -> None:
    """Measure the CPU seconds of tracelake's commands that HTA does not have, on a lake of one capture."""
    (ROOT / ".bench").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT / ".bench") as folder, console.status("") as status:
        lake = ("--lake", Path(folder, "lake"))
        commands = {
            "--help": tracelake("--help"),
            "ingest": tracelake("ingest", source, *lake),
            "materialize": tracelake("materialize", *lake),
            "materialize again": tracelake("materialize", *lake),
            "query": tracelake("sql", "SELECT count(*) FROM kernels", *lake),
            "critical-path": tracelake("critical-path", source),
            "critical-path --json": tracelake("critical-path", source, "--json"),
        }
        results = {}
        for name, command in commands.items():
            status.update(name)
            once = name in ("ingest", "materialize")  # a second run would have nothing to do
            results |= in_turn({name: lambda _, command=command: command}, 1 if once else runs, discard=[name])
    cpu = {name: measured.cpu_seconds for name, measured in results.items()}
    cpu["critical-path --json"] /= cpu["critical-path"]  # relative to the text answer
    floors = {"--help": _HELP, "query": _QUERY, "critical-path --json": _JSON, "materialize again": _NOTHING}
    floors |= {"materialize": _TABLES} if known else {}
    lines = [(name, results[name], cpu[name], floors.get(name)) for name in commands]
    report.alone("CPU seconds of whole commands; --json in times of the text answer", lines)


def _small(traces: int) -> None:
    """Measure small traces per second, from files to all tables. The floor applies from a thousand traces on."""
    try:
        files = small(traces)
    except SetupFailed as error:
        console.print(f"[red]{error}[/]")
        report.broken.append("small traces: not measured")
        return
    with tempfile.TemporaryDirectory(dir=ROOT / ".bench") as folder, console.status(f"{traces} small traces"):
        lake = ("--lake", Path(folder, "lake"))
        commands = {"ingest": tracelake("ingest", files, *lake), "materialize": tracelake("materialize", *lake)}
        results = {}
        for name, command in commands.items():
            results |= in_turn({name: lambda _, command=command: command}, 1, discard=[name])
    rate = traces / sum(runs.seconds for runs in results.values())
    lines = [(name, runs, traces / runs.seconds, None) for name, runs in results.items()]
    lines.append(("both", results["materialize"], rate, _EACH if traces >= _MANY else None))
    report.alone(f"{traces} small traces: traces a second by the clock", lines)


def _what_if(python: Path, file: Path, runs: int, speed: Floor | None) -> None:
    """Compare a hundred scenarios, from the file to all answers as JSON, with one path of HTA."""
    with console.status(f"{file.name}: a hundred scenarios") as status:
        results = in_turn(
            {
                "HTA path": lambda _: hta_side(python, "path", file),
                "what-if": lambda folder: tracelake("what-if", file, "--scenario", hundred_scenarios(folder), "--json"),
            },
            runs,
            discard=["what-if"],
            say=lambda text: status.update(f"{file.name}: {text}"),
        )
    line = Line("HTA: one path; ours: 100 scenarios", results["HTA path"], results["what-if"], speed)
    report.against_hta(f"{file.name}: what if", [line])


def _ingest(source: Path, runs: int, large: int, known: bool) -> None:
    """Compare ingestion of compressed captures with decompression. Long captures show that memory does not grow."""
    gzip = shutil.which("gzip")
    if gzip is None:
        console.print("[yellow]gzip is not installed: ingestion is not compared with it[/]")
        return
    files = [(source, runs, False)] if source.suffix == ".gz" else []
    try:
        for copies in (_LONG, _HUGE) if large else ():
            with console.status(f"making the capture {copies} times longer"):
                files.append((longer(source, copies, ".json.gz"), large, known))
    except SetupFailed as error:
        console.print(f"[red]{error}[/]")
    lines = []
    for file, count, floors in files:
        with console.status(file.name):
            results = in_turn(
                {
                    "gzip": lambda _, file=file: [gzip, "-dc", file],
                    "ingest": lambda folder, file=file: tracelake("ingest", file, "--lake", folder / "lake"),
                },
                count,
                discard=["gzip"],
            )
        bounds = (_GZIP, _INGEST_MEMORY) if floors else (None, None)
        lines.append(Line(file.name, results["gzip"], results["ingest"], *bounds))
    if lines:
        report.against_gzip("ingest .json.gz → Parquet", lines)
    if len(lines) > 1:
        small, huge = (line.ours.rss_mib for line in lines[-2:])
        console.print(f"peak memory of ingest at {_HUGE / _LONG:.1f} times the size: {100 * (huge / small - 1):+.1f} %")


def _longest_path(runs: int) -> None:
    """Compare plain networkx with tracelake's backend on the same table of edges. Issue 5 defines the floors."""
    results: dict[str, list[tuple[dict[str, float], float]]] = {"networkx": [], "tracelake": []}
    module = [sys.executable, "-m", "bench.longest_path"]
    (ROOT / ".bench").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT / ".bench") as folder, console.status("") as status:
        edges = Path(folder, "edges.npy")
        steps = [("edges", [*module, "make", str(_GRAPH_EVENTS), edges])]
        steps += [(which, [*module, which, edges]) for _ in range(runs) for which in results]
        for which, command in steps:
            status.update(f"longest path of a graph of {_GRAPH_EVENTS:,} events: {which}")
            run = measure(command)
            if run.status:
                console.print(f"[red]failed:[/] {which}: {run.stderr.strip()[-600:]}", highlight=False)
                return
            if which in results:
                results[which].append((json.loads(run.stdout), run.rss_mib))
    title = f"networkx.dag_longest_path on {_GRAPH_EVENTS:,} events, from their table of edges"
    report.longest_path(title, results["networkx"], results["tracelake"], _GRAPH_SPEED, _GRAPH_MEMORY)


if __name__ == "__main__":
    main()
