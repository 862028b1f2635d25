"""The sensor with invalid files in its inbox and killed runs. Every file must end up once, in `traces` or `rejects`."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from unittest.mock import patch

import dagster as dg
import duckdb

from assets.traces import INBOX
from bench.attack.tally import Tally
from dagster_project import sensors
from dagster_project.sensors import trace_file_sensor
from pipelines.base.paths import path_text
from pipelines.lake import Lake
from pipelines.lake.table_files import table_files
from tests.lake.world import write_trace

ROOT = Path(__file__).resolve().parents[2]
ROUNDS_TO_END = 15


class Live:
    """A sensor, its inbox and its lake. The clock is set ahead at each tick, so the next tick need not wait."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.inbox, self.lake = folder / "in", Lake(folder / "lake")
        self.inbox.mkdir()
        self.choice = random.Random(seed)
        self.instance = dg.DagsterInstance.ephemeral()
        self.sensor = trace_file_sensor(str(self.lake.root))
        self.cursor: str | None = None
        self.ahead = 0.0
        self.dropped: dict[Path, bool] = {}  # path → whether the file is a trace
        self.reason = ""

    def drop(self) -> None:
        """Add another file to the inbox. Every third file is invalid, or kills the run that ingests it."""
        n = len(self.dropped)
        path = self.inbox / f"job{n % 3}" / f"rank{n}.json"
        path.parent.mkdir(exist_ok=True)
        is_good = n % 3 != 2
        if is_good:
            write_trace(path, n)
        else:
            path = self._poison(path, n)
        os.utime(path, (1e9 + n, 1e9 + n))
        self.dropped[path] = is_good

    def _poison(self, path: Path, n: int) -> Path:
        kind = self.choice.randrange(6)
        if kind == 0:
            path = path.with_name(f"kills{n}.json")
            write_trace(path, n)
        elif kind == 1:
            path = Path(os.fsdecode(os.fsencode(path.parent) + b"/caf\xe9%d.json" % n))
            path.write_bytes(self.choice.randbytes(200))
        elif kind == 2:
            path.write_text(f"[{n}" + "[" * 100_000)
        elif kind == 3:
            path = path.with_suffix(".json.gz")
            path.write_bytes(b"\x1f\x8b\x08\x00" + self.choice.randbytes(50))
        elif kind == 4:
            path.write_text(f"plain words, {n}")
        else:
            path.write_bytes(b"\x80\x02K%cs\x85" % (n % 256) + self.choice.randbytes(20))
        return path

    def tick(self) -> list[dg.RunRequest]:
        """Evaluate the sensor, and return its run requests."""
        context = dg.build_sensor_context(instance=self.instance, cursor=self.cursor)
        ahead = patch.object(sensors.time, "time", lambda: time.time_ns() / 1e9 + self.ahead)
        with ahead, patch.dict(os.environ, {INBOX: str(self.inbox)}):
            answer = self.sensor(context)
        self.ahead += 40
        if isinstance(answer, dg.SkipReason):
            self.reason = str(answer.skip_message)
            return []
        assert isinstance(answer, dg.SensorResult)
        self.cursor, self.reason = answer.cursor or self.cursor, str(answer.skip_reason or "")
        return list(answer.run_requests or [])

    def work(self, request: dg.RunRequest, kill: bool) -> None:
        """Execute a run, or kill it partway."""
        asked = json.dumps({"run_config": request.run_config, "partition_key": request.partition_key})
        command = [sys.executable, "-m", "tests.dagster.dying", "run", self.lake.root, asked]
        pipe = subprocess.PIPE
        run = subprocess.Popen(command, cwd=ROOT, stdout=pipe, stderr=subprocess.STDOUT, start_new_session=True)
        if kill:
            time.sleep(self.choice.uniform(0.5, 6.0))
            run.kill()
        run.communicate()

    def column(self, table: str) -> list[str]:
        """Return the paths in a table."""
        files = [str(path) for path in table_files(self.lake.root, table)]
        return [row[0] for row in duckdb.read_parquet(files).select("path").fetchall()] if files else []

    def reasons(self) -> dict[str, str]:
        """Return the reasons of rejected files, by path."""
        files = [str(path) for path in table_files(self.lake.root, "rejects")]
        return dict(duckdb.read_parquet(files).select("path", "reason").fetchall()) if files else {}


def attack(n: int, seed: int) -> Tally:
    """Add files and kill runs for n seconds. Then ingest the remaining files, and account for all files."""
    tally = Tally("files past the live sensor")
    with tempfile.TemporaryDirectory() as folder:
        live = Live(Path(folder), seed)
        until, rounds = time.monotonic() + n, 0
        while time.monotonic() < until or rounds < ROUNDS_TO_END:
            over = time.monotonic() >= until
            rounds += over
            for _ in range(0 if over else live.choice.randint(1, 9)):
                live.drop()
            try:
                requests = live.tick()
            except Exception as error:  # any exception of a tick is a failure
                tally.tracebacks += 1
                tally.notes.append(f"a tick raised {type(error).__name__}: {error}")
                break
            if over and not requests and "no new files" in live.reason:
                break
            for request in requests:
                live.work(request, kill=not over and live.choice.random() < 0.4)
        _account(live, tally)
        live.instance.dispose()
    return tally


def _account(live: Live, tally: Tally) -> None:
    taken, refused = Counter(live.column("traces")), Counter(live.column("rejects"))
    tally.tried = len(live.dropped)
    for path, is_good in live.dropped.items():
        name = path_text(path)
        times = taken[name] + refused[name]
        if times == 0:
            tally.lost += 1
            tally.notes.append(f"{name} is neither in traces nor in rejects")
        elif times > 1:
            tally.silent += 1
            tally.notes.append(f"{name} is there {times} times")
        elif is_good and not taken[name]:
            tally.lost += 1
            tally.notes.append(f"{name} is a trace and was rejected: {live.reasons().get(name)}")
        else:
            tally.survived += 1
