"""Captures of 8 to 1,000 ranks: CPU seconds and memory of every step, and the answers next to the truth.

`python -m bench.scale_ranks FOLDER [--ranks 8 64 256 1000]`. Each step runs in a separate process. The captures have
nested process groups, clock offsets of up to 2 ms, and a straggler on one rank of one node.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RANKS = (8, 64, 256, 1000)


@dataclass(frozen=True)
class Cost:
    """Cost of a process: CPU seconds including its children, and peak memory in bytes."""

    cpu_s: float
    peak: int


def _write(folder: Path, ranks: int) -> None:
    from tests.fleet.many_ranks import many_ranks

    capture = many_ranks(folder / "in", ranks)
    truth = {"straggler": capture.straggler, "offsets": [rank.truth.clock_offset_ns for rank in capture.ranks]}
    (folder / "truth.json").write_text(json.dumps(truth))


def _ingest(folder: Path, _: int) -> None:
    from pipelines.lake import Lake
    from pipelines.readers.ingest import ingest

    ingest([folder / "in"], Lake(folder / "lake"))


def _materialize(folder: Path, _: int) -> None:
    from pipelines.lake import Lake
    from pipelines.runs.materialize.per_trace import materialize

    materialize(Lake(folder / "lake"))


def _captures(folder: Path, _: int) -> None:
    from pipelines.lake import Lake
    from pipelines.models.catalog import load_catalog
    from pipelines.runs.materialize.per_capture import materialize_captures

    materialize_captures(Lake(folder / "lake"), load_catalog().of_captures)


def _asked(*words: str) -> Callable[[Path, int], None]:
    def ask(folder: Path, _: int) -> None:
        from pipelines.faces.cli.app import app

        capture_id = _capture_id(folder)
        here = [word.replace("FOLDER", str(folder)) for word in words]
        app([here[0], capture_id, *here[1:], "--lake", str(folder / "lake")])

    return ask


STEPS: dict[str, Callable[[Path, int], None]] = {
    "write": _write,
    "ingest": _ingest,
    "models of traces": _materialize,
    "captures (matching, clocks, path)": _captures,
    "capture-path": _asked("capture-path", "--json"),
    "stragglers": _asked("stragglers", "--out", "FOLDER/heat.svg"),
    "timeline": _asked("timeline", "--out", "FOLDER/timeline.json.gz"),
    "report": _asked("report", "--out", "FOLDER/report.html"),
}


def _capture_id(folder: Path) -> str:
    import duckdb

    with duckdb.connect(str(folder / "lake" / "analyst.duckdb"), read_only=True) as con:
        return con.execute("SELECT capture_id FROM captures WHERE NOT is_gone").fetchall()[0][0]


def cost_of(command: list[str], log: Path) -> Cost:
    """Run a command with its output in `log`, and return its cost. Raises CalledProcessError if it fails."""
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, log.read_text()[-2000:])
    unit = 1 if sys.platform == "darwin" else 1024
    return Cost(used.ru_utime + used.ru_stime, used.ru_maxrss * unit)


def measured(folder: Path, ranks: int) -> dict[str, Cost]:
    """Return the cost of each step of a capture. The folder is recreated."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    costs = {}
    for step in STEPS:
        command = [sys.executable, "-m", __spec__.name, str(folder), "--ranks", str(ranks), "--step", step]
        costs[step] = cost_of(command, folder / "log.txt")
        print(f"{ranks:5} {step:36} {costs[step].cpu_s:8.1f} s {costs[step].peak / 1e6:8,.0f} MB", file=sys.stderr)
    return costs


def answers(folder: Path) -> dict[str, Any]:
    """Return the lake's answers, together with the planted truth."""
    import duckdb

    truth = json.loads((folder / "truth.json").read_text())
    with duckdb.connect(str(folder / "lake" / "analyst.duckdb"), read_only=True) as con:
        named = con.execute("SELECT rank, root_percent FROM straggler_ranks WHERE is_straggler").fetchall()
        path = con.execute(
            "SELECT rank, 100.0 * sum(duration_ns) / sum(sum(duration_ns)) OVER () AS share FROM capture_critical_path "
            "WHERE target = 'last_gpu_end' GROUP BY rank ORDER BY share DESC LIMIT 1"
        ).fetchall()
        nodes = con.execute("SELECT max(n_nodes), max(n_edges) FROM capture_paths").fetchall()[0]
        clocks = con.execute("SELECT rank, offset_ns FROM clock_offsets").fetchall()
    planted = [offset - truth["offsets"][0] for offset in truth["offsets"]]
    wrong = [None if offset is None else abs(offset - planted[rank]) for rank, offset in clocks]
    known = [error for error in wrong if error is not None]
    return {
        "planted": truth["straggler"],
        "named": [f"{rank} ({percent:.0f} % of all waiting)" for rank, percent in named],
        "path": [f"{rank} ({share:.0f} % of the path)" for rank, share in path],
        "clock": f"{max(known, default=0) / 1000:.2f} us" + (f", {None in wrong} unknown" if None in wrong else ""),
        "graph": f"{nodes[0]:,} nodes, {nodes[1]:,} edges" if nodes[0] else "none",
    }


def main() -> None:
    """Measure and print the tables, or with --step run one step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="captures and lakes are made here")
    parser.add_argument("--ranks", type=int, nargs="*", default=list(RANKS))
    parser.add_argument("--step", choices=[*STEPS])
    options = parser.parse_args()
    if options.step:
        STEPS[options.step](options.folder, options.ranks[0])
        return
    costs = {ranks: measured(options.folder / f"ranks{ranks}", ranks) for ranks in options.ranks}
    heading = " | ".join(f"{ranks:,}" for ranks in options.ranks)
    for title, shown in (
        ("CPU s", lambda cost: f"{cost.cpu_s:.1f}"),
        ("peak MB", lambda cost: f"{cost.peak / 1e6:,.0f}"),
    ):
        print(f"\n| {title}, by ranks | {heading} |\n|---|{'---|' * len(options.ranks)}")
        for step in STEPS:
            print(f"| {step} | {' | '.join(shown(costs[ranks][step]) for ranks in options.ranks)} |")
    print(
        "\n| ranks | planted | named | most of the path | largest error of a clock | joined graph |\n|---|---|---|---|---|---|"
    )
    for ranks in options.ranks:
        a = answers(options.folder / f"ranks{ranks}")
        cells = [a["planted"], ", ".join(a["named"]) or "none", ", ".join(a["path"]), a["clock"], a["graph"]]
        print(f"| {ranks:,} | {' | '.join(map(str, cells))} |")


if __name__ == "__main__":
    main()
