"""The soak: a thousand traces over several sensor ticks, with killed runs and an analyst who queries continuously.

`python -m bench.soak.soak --traces 1000 --ticks 6 --kills 2` prints a summary. It fails if a trace is lost, duplicated
or partly visible, or if a failure is silent. It uses the real sensor, and runs the real job in processes that `kill -9`
ends.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
from rich.console import Console
from rich.table import Table

from bench.soak.drops import Drops, drop, make_drops
from pipelines.lake import Lake
from pipelines.lake.names import ANALYST
from pipelines.lake.publish.analyst_file import publish

_RETRIES = 3


@dataclass
class Soaked:
    """Result of a soak. `seconds`: of all runs, including killed runs. `peak_mib`: peak memory of the largest run.

    `query_s`: seconds of a query over each table.
    """

    drops: Drops
    runs: int = 0
    kills: int = 0
    seconds: float = 0.0
    peak_mib: float = 0.0
    rounds: int = 0
    query_s: dict[str, float] = field(default_factory=dict)


def soak(folder: Path, traces: int, ticks: int, kills: int, seed: int = 0) -> Soaked:
    """Run the soak and return its result.

    Raises AssertionError if the lake does not contain exactly the dropped traces, and RuntimeError if a run fails
    without being killed.
    """
    inbox, lake = folder / "inbox", Lake(folder / "lake")
    inbox.mkdir(parents=True)
    lake.root.mkdir()
    os.environ["TRACELAKE_INBOX"] = str(inbox)
    os.environ["TRACELAKE_LAKE"] = str(lake.root)  # the sensor writes the file lists of runs there
    publish(lake)  # so that the analyst can start with an empty file
    result = Soaked(make_drops(folder / "drops", traces, ticks, seed))
    fates = random.Random(seed)
    analyst = subprocess.Popen(
        [sys.executable, "-m", "bench.soak.analyst", str(lake.root)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    cursor = None
    typical = 0.0
    for tick, files in enumerate(result.drops.files):
        drop(files, inbox)
        requests, cursor = _sensor(cursor)
        for request in requests:
            path = folder / "request.json"
            path.write_text(json.dumps(request))
            # The first run measures the duration of a run. If a kill comes too late, a later run is killed instead.
            after = fates.uniform(0.1, 0.6) * typical if tick and result.kills < kills else None
            typical = _run(lake, path, after, result)
    said, errors = analyst.communicate("", timeout=120)
    assert analyst.returncode == 0, f"the analyst failed: {errors.strip()[-2000:]}"
    result.rounds = int(said)
    _verify(lake, inbox, result)
    return result


def _sensor(cursor: str | None) -> tuple[list[dict], str | None]:
    """Evaluate the real sensor once. Return its run requests and its new cursor."""
    import dagster as dg

    from dagster_project.definitions import defs
    from dagster_project.sensors import new_trace_files

    answer = new_trace_files(dg.build_sensor_context(cursor=cursor, definitions=defs))
    if not isinstance(answer, dg.SensorResult):
        return [], cursor
    requests = answer.run_requests or []
    return [{"run_config": r.run_config, "partition_key": r.partition_key} for r in requests], answer.cursor


def _run(lake: Lake, request: Path, kill_after_s: float | None, result: Soaked) -> float:
    """Run a request until it succeeds, like Dagster's retries. Return the seconds of the successful run."""
    command = [sys.executable, "-m", "bench.soak.worker", str(lake.root), str(request)]
    for _ in range(_RETRIES):
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            said, errors = process.communicate(timeout=kill_after_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            said, errors = process.communicate()
            result.kills += 1
            kill_after_s = None
        seconds = time.perf_counter() - began
        result.seconds += seconds
        result.runs += 1
        if process.returncode == 0:
            result.peak_mib = max(result.peak_mib, float(said or 0))
            return seconds
        if process.returncode != -signal.SIGKILL:
            raise RuntimeError(f"a run failed: {errors.strip()[-3000:]}")
    raise RuntimeError(f"no run of {_RETRIES} got through")


def _verify(lake: Lake, inbox: Path, result: Soaked) -> None:
    with duckdb.connect(str(lake.root / ANALYST), read_only=True) as con:
        shown = con.execute("SELECT path, n_events FROM traces ORDER BY path").fetchall()
        names = [str(Path(path).relative_to(inbox)) for path, _ in shown]
        copies = {name for name in names if name.startswith("again/")}
        good = result.drops.good
        # Of two files with the same content, `traces` names the file that was ingested first.
        originals = {_original(name, good) if name in copies else name for name in names}
        assert originals == set(good), (
            f"lost: {sorted(set(good) - originals)[:3]}, more: {sorted(originals - set(good))[:3]}"
        )
        assert len(names) == len(good), "a trace is there twice"
        wrong = [n for n, (_, events) in zip(names, shown, strict=True) if good[_original(n, good)] != events]
        assert not wrong, f"events lost in {wrong[:3]}"
        rejected = {str(Path(p).relative_to(inbox)) for (p,) in con.execute("SELECT path FROM rejects").fetchall()}
        assert rejected == set(result.drops.bad), f"rejects: {sorted(rejected ^ set(result.drops.bad))[:3]}"
        for table in ("temporal_breakdown", "critical_path_summary", "kernels"):
            began = time.perf_counter()
            (n,) = con.execute(f"SELECT count(DISTINCT trace_id) FROM {table}").fetchall()[0]
            result.query_s[table] = time.perf_counter() - began
            assert n == len(good), f"{table}: {n} of {len(good)} traces"
        began = time.perf_counter()
        con.execute("SELECT name, count(*), sum(duration_ns) FROM events GROUP BY name").fetchall()
        result.query_s["events"] = time.perf_counter() - began


def _original(name: str, good: dict[str, int]) -> str:
    if name in good:
        return name
    number, file = Path(name).name.split("_", 1)
    return f"job{int(number) % 5}/capture{int(number):04d}/{file}"


def report(result: Soaked) -> Table:
    """Return the result as a printable table."""
    drops = result.drops
    table = Table(title="soak", title_justify="left")
    table.add_column("what")
    table.add_column("value", justify="right")
    rows = {
        "traces, each in the lake once": f"{len(drops.good):,}",
        "of them late": f"{drops.late:,}",
        "files with known content": f"{drops.duplicates:,}",
        "broken files, each in rejects": f"{len(drops.bad):,}",
        "runs, of them killed": f"{result.runs}, {result.kills}",
        "traces a second, all assets, import of Dagster and killed runs included": f"{len(drops.good) / result.seconds:.1f}",
        "peak memory of a run": f"{result.peak_mib:,.0f} MiB",
        "rounds of an analyst's queries, without an error": f"{result.rounds:,}",
        **{f"a query over all of {name}": f"{1000 * s:.0f} ms" for name, s in result.query_s.items()},
    }
    for what, value in rows.items():
        table.add_row(what, value)
    return table


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser("python -m bench.soak.soak", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--traces", type=int, default=1000)
    parser.add_argument("--ticks", type=int, default=6)
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        Console().print(report(soak(Path(folder), options.traces, options.ticks, options.kills, options.seed)))


if __name__ == "__main__":
    main()
