"""What-if compared with the truth: programs that the simulator runs again with changed durations.

    python -m tests.critical_path.truth [--programs 200] [--first 0] [--rows FILE] [--write]

Prints each program's worst error during the run, then for each shape, with and without sync events, the difference
between prediction and simulation, in percent of the window (`make truth`). For each shared trace, it prints how much of
its windows the path covers. It fails if the worst prediction is off by more than 1, the median by more than 0.1, or a
path covers less or more than its window. `--write` puts the tables into docs/what-if.md.

A complete run takes long. `--rows` stores each program's predictions in a file (JSON lines) as soon as the program is
done, and reads the predictions of programs that the file already contains. So a killed run continues where it stopped,
and shards of `--first` add up. Delete the file after a change of the code.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from pipelines.critical_path.graph.windows import request_windows, usual_windows
from pipelines.critical_path.whatif.before_after import what_if
from pipelines.critical_path.whatif.scenario import Scenario
from pipelines.critical_path.whatif.targets import NothingMatches
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from pipelines.synthetic import CaptureSpec, write_capture
from tests.conftest import SHARED
from tests.critical_path.test_invariants import TRACES
from tests.critical_path.whatif.windows import loaded
from tests.harness import connect_all
from tests.pages import DOCS

WORST, MEDIAN = 1.0, 0.1
"""Largest allowed errors, in percent of the window."""
SHAPES = (
    "training", "side streams", "inference", "inference_graph", "loop", "two processes", "polling", "full queue", "waits",
    "accumulation", "devices", "pool",
)  # fmt: skip
CHANGES: tuple[dict[str, float], ...] = (
    {"*gemm*": 0.5},
    {"*gemm*": 2.0},
    {"*elementwise*": 0.1},
    {"class:COMPUTATION": 0.3},
    {"class:MEMORY": 0.0},
    {"cpu": 0.3},
    {"cpu": 0.0},
    {"cpu": 1.5},
    {"host_gap": 0.0},
    {"host": 0.25},
    {"host": 0.0},
    {"enumerate(DataLoader)*": 0.0},
    {"*normalize": 0.5},
    {"aten::*": 0.2},
    {"cudaLaunchKernel": 0.1},
    {"*gemm*": 0.5, "cpu": 0.5},
)


_HOST_NAMES = ("enumerate(DataLoader)*", "*normalize", "aten::*", "cudaLaunchKernel")


@dataclass(frozen=True)
class Error:
    """A prediction, and its difference from the simulation in percent of the window before the change."""

    shape: str
    sync_events: bool
    seed: int
    change: dict[str, float]
    percent: float


def program(shape: str, seed: int) -> CaptureSpec:
    """Return a random program of a shape. For two processes, `_document` runs it twice, with two seeds."""
    rng = Random(f"{shape}/{seed}")
    spec = CaptureSpec(
        ranks=1, steps=2, seed=seed, layers=rng.randint(2, 5), ops_per_layer=rng.randint(2, 4), compute_streams=1,
        op_ns=rng.choice((6000, 12_000, 24_000, 90_000, 200_000)), kernel_ns=rng.choice((4000, 16_000, 40_000, 120_000)),
        sync_each_step=rng.random() < 0.7, gz=False, include_python_frames=rng.random() < 0.3,
        launch_jitter=0.1,
    )  # fmt: skip
    if shape == "side streams":
        return replace(spec, compute_streams=rng.randint(2, 4))
    if shape == "polling":
        watched = replace(spec, shape="polling", layers=rng.randint(1, 3), watchdog=rng.random() < 0.6)
        return replace(watched, tokens=rng.randint(4, 10))
    if shape == "full queue":
        limit = rng.choice((110, 150))
        return replace(
            spec,
            shape="full_queue",
            tokens=100,
            op_ns=6000,
            queue_limit=limit,
            kernel_ns=rng.choice((25_000, 40_000, 90_000)),
        )
    if shape in ("waits", "accumulation", "devices", "pool"):
        return replace(spec, shape=shape)
    if shape in ("inference", "inference_graph"):
        return replace(spec, shape=shape, tokens=rng.randint(2, 6), layers=rng.randint(1, 3))
    return replace(spec, shape="loop" if shape in ("loop", "two processes") else "training")


def errors(
    shape: str, seed: int, n_changes: int, folder: Path, sync_events: tuple[bool, ...] = (True, False)
) -> Iterator[Error]:
    """Return the predictions for one program, with and without sync events."""
    return errors_of([(shape, seed, has_them) for has_them in sync_events], n_changes, folder)


def errors_of(programs: list[tuple[str, int, bool]], n_changes: int, folder: Path) -> Iterator[Error]:
    """Yield the predictions for programs; the models run once.

    Each program is a shape, a seed, and whether it has sync events.
    """
    runs = {key: Run.of(*key, n_changes, folder) for key in {(shape, seed): None for shape, seed, _ in programs}}
    traces = [
        [e for e in runs[shape, seed].before if has_them or e.get("cat") != "cuda_sync"]
        for shape, seed, has_them in programs
    ]
    for (shape, seed, has_them), window in zip(programs, loaded(traces), strict=True):
        run = runs[shape, seed]
        for change, actual in run.after:
            try:
                (answer,) = what_if(window, [_scenario(change)])
            except NothingMatches:
                continue
            off = 1000 * answer.after.length_us - actual
            yield Error(shape, has_them, seed, change, 100 * off / length_ns(run.before))


@dataclass(frozen=True)
class Run:
    """The events of a program, and its duration after each of its changes, in ns."""

    before: list[dict[str, Any]]
    after: list[tuple[dict[str, float], int]]

    @classmethod
    def of(cls, shape: str, seed: int, n_changes: int, folder: Path) -> Run:
        chosen = Random(f"{shape}/{seed}/changes").sample(CHANGES, n_changes)
        spec = program(shape, seed)
        after = [(change, length_ns(_document(spec, change, shape, folder))) for change in chosen]
        return cls(_document(spec, {}, shape, folder), after)


def _scenario(change: dict[str, float]) -> Scenario:
    """Return the scenario of a change of the simulator, which scales self times and never deletes an event."""
    own = {"self:" + name if name in _HOST_NAMES else name: max(by, 1e-9) for name, by in change.items()}
    return Scenario(tuple(own.items()))


def _document(spec: CaptureSpec, change: dict[str, float], shape: str, folder: Path) -> list[dict[str, Any]]:
    """Return the events of one run of the program, whose durations are scaled by `change`."""
    all_events: list[dict[str, Any]] = []
    for number in range(2 if shape == "two processes" else 1):
        capture = write_capture(replace(spec, seed=spec.seed + 1000 * number), folder).again(change, folder)
        raw = capture.paths[0].read_bytes()
        events = json.loads(gzip.decompress(raw) if capture.paths[0].suffix == ".gz" else raw)["traceEvents"]
        all_events += [_moved(event, number) for event in events]
    return all_events


def _moved(event: dict[str, Any], number: int) -> dict[str, Any]:
    """Return the event in another process and on another device, or unchanged for process 0."""
    if not number:
        return event
    args = dict(event.get("args") or {})
    if "device" in args:
        args["device"] += number
    for name in ("correlation", "External id", "wait_on_cuda_event_record_corr_id", "wait_on_cuda_event_id"):
        if name in args:
            args[name] += 10_000_000 * number
    moved = {**event, "args": args}
    if isinstance(event.get("pid"), int):
        moved["pid"] = event["pid"] + (500 if event["pid"] >= 1000 else number)
    if isinstance(event.get("tid"), int) and event["tid"] >= 1000:
        moved["tid"] = event["tid"] + 500
    if "id" in event:
        moved["id"] = event["id"] + 10_000_000 * number
    return moved


def length_ns(events: list[dict[str, Any]]) -> int:
    """Return the time from the first event to the last, in ns."""
    spans = [e for e in events if e.get("ph") == "X" and e["cat"] not in ("Trace", "cuda_sync", "gpu_user_annotation")]
    return round(1000 * (max(e["ts"] + e["dur"] for e in spans) - min(e["ts"] for e in spans)))


def shared_traces() -> list[Path]:
    """Return the traces of the reference collection, or an empty list if it does not exist."""
    return sorted(path for pattern in TRACES for path in (SHARED / "traces").glob(pattern))


def table(all_errors: list[Error]) -> str:
    """Return the errors by shape as a Markdown table."""
    rows = defaultdict(list)
    for error in all_errors:
        rows[error.shape, error.sync_events].append(abs(error.percent))
    rows["all", None] = [abs(error.percent) for error in all_errors]
    lines = ["| programs | sync events | predictions | median | 95 % | worst |", "|---|---|---:|---:|---:|---:|"]
    for (shape, sync_events), values in rows.items():
        values.sort()
        has_events = {True: "yes", False: "no", None: "both"}[sync_events]
        at = [values[len(values) // 2], values[int(0.95 * (len(values) - 1))], values[-1]]
        lines.append(f"| {shape} | {has_events} | {len(values)} | {' | '.join(f'{value:.3f}' for value in at)} |")
    return "\n".join(lines)


def measure(programs: range, n_changes: int = 4, rows: Path | None = None) -> list[Error]:
    """Return the predictions for programs by number, of all shapes in turn.

    They include the predictions that the file `rows` already contains.
    """
    all_errors = read_rows(rows) if rows and rows.exists() else []
    known = {error.seed for error in all_errors}
    for number in programs:
        if number in known:
            continue
        shape = SHAPES[number % len(SHAPES)]
        with tempfile.TemporaryDirectory() as folder:  # one folder per program, because its runs take up to 100 MB
            of_program = list(errors(shape, number, n_changes, Path(folder)))
        worst = max((abs(error.percent) for error in of_program), default=0.0)
        print(f"{number}: {shape}, {len(of_program)} predictions, worst {worst:.3f} %", file=sys.stderr, flush=True)
        if rows:
            with rows.open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(asdict(error)) + "\n" for error in of_program)
        all_errors += of_program
    return sorted(all_errors, key=lambda e: (SHAPES.index(e.shape), not e.sync_events))


def read_rows(path: Path) -> list[Error]:
    """Return the predictions in a file of `--rows`, without an incomplete last line of a killed run."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [Error(**json.loads(line)) for line in lines if line.endswith("\n")]


def floors_hold(all_errors: list[Error]) -> bool:
    """Return whether the worst and the median error are within their limits."""
    off = sorted(abs(error.percent) for error in all_errors)
    return bool(off) and off[-1] <= WORST and off[len(off) // 2] <= MEDIAN


def coverage(paths: list[Path]) -> tuple[str, bool]:
    """Return a row for each trace, and whether each path covers its windows within 0.1 %.

    A row has the window's length, the covered share of it and of its steps, and the host time on the path.
    """
    lines = [
        "| trace | window, ms | covered | steps | covered | host, % | of it outside operators, % |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    holds = True
    for path in paths:
        con, (trace_id,) = connect_all([path])
        request_windows(con, usual_windows(con, [trace_id]))
        run_models(con, load_catalog(), ["critical_path_windows", "critical_path_summary"])
        rows = con.execute(
            "SELECT w.window_id, w.path_end_ns - w.path_start_ns, sum(s.duration_ns), "
            "sum(s.duration_ns) FILTER (WHERE s.bound_by IN ('cpu_bound', 'host_gap')), "
            "sum(s.duration_ns) FILTER (WHERE s.bound_by = 'host_gap') "
            "FROM critical_path_windows AS w JOIN critical_path_summary AS s USING (trace_id, window_id) GROUP BY ALL"
        ).fetchall()
        covered = {window: 100 * length / span for window, span, length, *_ in rows}
        holds &= all(abs(percent - 100) <= 0.1 for percent in covered.values())
        steps = [percent for window, percent in covered.items() if window != "full"]
        for window, span, length, host, gaps in rows:
            if window == "full":
                of_steps = f"{min(steps, key=lambda percent: -abs(percent - 100)):.2f} %" if steps else ""
                shares = " | ".join(f"{100 * (part or 0) / length:.1f}" for part in (host, gaps))
                name = "/".join(path.parts[-2:]).removesuffix(".gz").removesuffix(".json")
                lines.append(
                    f"| {name} | {span / 1e6:,.1f} | {covered[window]:.2f} % | {len(steps) or ''} | {of_steps} | {shares} |"
                )
    return "\n".join(lines), holds


def write(page: Path, **tables: str) -> None:
    """Write tables between their marks into a page."""
    text = page.read_text(encoding="utf-8")
    for name, shown in tables.items():
        before, mark, rest = text.partition(f"<!-- {name} -->\n")
        text = f"{before}{mark}{shown}\n<!-- /{name} -->{rest.partition(f'<!-- /{name} -->')[2]}"
    page.write_text(text, encoding="utf-8")


def main() -> None:
    """Print the tables, and exit with 1 if a limit is exceeded."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="The number of the first program.")
    parser.add_argument("--changes", type=int, default=4)
    parser.add_argument("--rows", type=Path, help="Keep each program's predictions here, and take those that are here.")
    parser.add_argument("--write", action="store_true", help="Put the tables into docs/what-if.md.")
    asked = parser.parse_args()
    all_errors = measure(range(asked.first, asked.first + asked.programs), asked.changes, asked.rows)
    print(table(all_errors))
    for error in sorted(all_errors, key=lambda e: -abs(e.percent))[:5]:
        print(
            f"\n{error.percent:+.3f} % {error.shape}, seed {error.seed}, sync events {error.sync_events}: {error.change}"
        )
    shown, covers = coverage([path for path in shared_traces() if "begin_end" not in path.name])
    print(f"\n{shown}")
    if asked.write:
        write(DOCS / "what-if.md", truth=table(all_errors), coverage=shown)
    if not floors_hold(all_errors):
        sys.exit(f"the floors are {WORST} (worst) and {MEDIAN} (median) percent of the window")
    if not covers:
        sys.exit("a path is not as long as its window")


if __name__ == "__main__":
    main()
