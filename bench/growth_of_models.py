"""CPU seconds per event of reading a trace and of each model, by size, for traces with many items of one kind.

`python -m bench.growth_of_models [--axes waits names …] [--events 12000 192000]`; part of `make growth`. The cost of a
trace with hardly any events is subtracted first. Exits with 1 if an axis grows by more than RATIO per event.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

RATIO = 1.3
SIZES = (12_000, 192_000)
GROWING = {
    "nested annotations": "a kernel counts in each annotation around it",
    "streams waited for": "a wait for the device has an edge from the last work of each stream, HTA's rule 2.8.7",
    "crossing annotations": "one that begins while another is open is inside it, and so inside all that this is inside",
}
"""Axes that may grow by more than RATIO, with the reason. The command prints them, but does not fail."""
_LEAST = 60  # number of events of the trace whose cost is subtracted
_TIMES = 2  # repetitions of the small sizes, of which the minimum counts
_SHOWN = 0.02  # minimum share of an axis' cost with which a model is listed


def measured(events: list[dict], folder: Path) -> tuple[int, dict[str, float]]:
    """Return the number of events, and the CPU seconds of `ingest` and of each model.

    The tables are written to Parquet files, as in a lake.
    """
    from pipelines.base.database import MODELS_GB
    from pipelines.critical_path.graph.windows import request_windows, usual_windows
    from pipelines.models.catalog import load_catalog
    from pipelines.models.run import run_models
    from tests.harness import connect

    (folder / "trace.json").write_text(json.dumps({"traceEvents": events}))
    marks = [("ingest", time.process_time())]
    con, trace_id = connect(folder / "trace.json")
    con.execute(
        f"SET memory_limit = '{MODELS_GB}GB'; SET temp_directory = '{folder}'; SET preserve_insertion_order = false"
    )
    request_windows(con, usual_windows(con, [trace_id]))
    catalog = load_catalog()

    def write(table: str, rows: str) -> None:
        con.execute(f"COPY ({rows}) TO '{folder}/{table}.parquet' (FORMAT parquet, COMPRESSION zstd)")

    run_models(
        con, catalog, catalog.materialized, write=write, on_model=lambda m: marks.append((m, time.process_time()))
    )
    ends = [at for _, at in marks[1:]] + [time.process_time()]
    return len(events), {name: end - at for (name, at), end in zip(marks, ends, strict=True)}


def in_a_process(axis: str, n: int, times: int) -> tuple[int, dict[str, float]]:
    """Return `measured` from a separate process: the minimum of each cost over `times` repetitions."""
    command = [sys.executable, "-m", __spec__.name, "--axes", axis, "--events", str(n), "--times", str(times), "--one"]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    count, costs = json.loads(output)
    return count, costs


def _least(axis: str, n: int, times: int) -> tuple[int, dict[str, float]]:
    from bench.axes import AXES

    events, least = list(AXES[axis](n)), {}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(times + 1):  # the first repetition also imports modules
            _, costs = measured(events, Path(folder))
            least = (
                {name: min(least.get(name, seconds), seconds) for name, seconds in costs.items()} if least else costs
            )
            if times == 1:
                break
    return len(events), least


def growth(base: float, small: float, large: float, times: float) -> float:
    """Return the cost per event of the large trace divided by the cost per event of the small trace.

    `small` and `large` are costs, from which `base` is subtracted. `times`: how many times more events the large trace
    has.
    """
    return (large - base) / max(small - base, 1e-3) / times


def main() -> None:
    """Run the command line, as the module's docstring describes."""
    from bench.axes import AXES

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--axes", nargs="*", default=[*AXES], choices=[*AXES])
    parser.add_argument("--events", type=int, nargs="*", default=list(SIZES))
    parser.add_argument("--times", type=int, default=_TIMES)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(_least(options.axes[0], options.events[0], options.times)))
        return
    print("| 16 times more | events | CPU s | per event | models that grow |\n|---|---|---|---|---|")
    broken = [
        axis for axis in options.axes if _row(axis, options.events, options.times) > RATIO and axis not in GROWING
    ]
    if broken:
        sys.exit(f"more than {RATIO} times as much per event: {', '.join(broken)}")


def _row(axis: str, sizes: list[int], times: int) -> float:
    base, few, many = (in_a_process(axis, *how) for how in ((_LEAST, times), (sizes[0], times), (sizes[1], 1)))
    ratio = many[0] / few[0]
    least, small_s, large_s = (sum(costs.values()) for _, costs in (base, few, many))
    total = growth(least, small_s, large_s, ratio)
    shown = ", ".join(_worst(base[1], few[1], many[1], ratio))
    print(f"| {axis} | {many[0]:,} | {sum(many[1].values()):.1f} | {total:.2f} | {shown} |", flush=True)
    return total


def _worst(base: Mapping[str, float], few: Mapping[str, float], many: Mapping[str, float], ratio: float) -> list[str]:
    """Return the models that grow, largest excess cost first: name, seconds in the large trace, growth per event."""
    excess = {n: s - base.get(n, 0) - RATIO * ratio * max(few.get(n, 0) - base.get(n, 0), 0) for n, s in many.items()}
    worst = sorted((n for n in excess if excess[n] > _SHOWN * sum(many.values())), key=lambda n: -excess[n])
    return [f"{n} {many[n]:.2f} s ({growth(base.get(n, 0), few.get(n, 0), many[n], ratio):.1f})" for n in worst]


if __name__ == "__main__":
    main()
