"""A query on two executors, one of which is killed during the query.

`python -m tests.engines.spark.killed LAKE` prints the answers with and without the kill.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from typing import Any

import psutil

from pipelines.engines.spark.query import answer_on_spark
from pipelines.engines.spark.session import connect
from pipelines.engines.spark.tables import Tables
from pipelines.lake import Lake
from pipelines.lake.read.sandbox import LockedLake

QUERY = (
    "SELECT k.class, count(*) AS n, sum(e.duration_ns - b.duration_ns) AS ns, count(DISTINCT e.name) AS names FROM kernels AS k "
    "JOIN events AS e ON e.trace_id = k.trace_id AND e.event_id = k.event_id "
    "JOIN events AS b ON b.trace_id = k.trace_id AND b.event_id % 500 = k.event_id % 500 GROUP BY 1 ORDER BY 1"
)


def answer(tables: Tables, locked: LockedLake) -> list[tuple[Any, ...]]:
    with answer_on_spark(tables, locked, QUERY) as result:
        return result.rows()


def executors() -> list[int]:
    children = psutil.Process().children(recursive=True)
    return sorted(p.pid for p in children if "CoarseGrainedExecutorBackend" in _command(p))


def _command(process: psutil.Process) -> str:
    """Return the process's command line. It is empty if the process has ended since it was listed, or is a zombie."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def kill_at_work(session: Any, killed: list[int], answered: threading.Event) -> None:
    """Kill an executor as soon as tasks run."""
    status = session.sparkContext.statusTracker()
    while not answered.is_set() and not any(
        info.numActiveTasks for stage in status.getActiveStageIds() if (info := status.getStageInfo(stage))
    ):
        time.sleep(0.02)
    if answered.is_set():
        return
    killed.append(executors()[0])
    os.kill(killed[0], signal.SIGKILL)


def main() -> None:
    backend = connect(
        "local-cluster[2,1,1024]",
        {"spark.executor.memory": "1g", "spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "8"},
    )
    lake = Lake(sys.argv[1])
    with LockedLake(lake) as locked:
        tables, killed = Tables(backend, locked.con, lake), []
        before = answer(tables, locked)
        alive = executors()
        answered = threading.Event()
        killer = threading.Thread(target=kill_at_work, args=(backend._session, killed, answered), daemon=True)
        killer.start()
        try:
            after = answer(tables, locked)
        finally:
            answered.set()
            killer.join()
        print(json.dumps({"before": before, "after": after, "alive": alive, "killed": killed, "left": executors()}))
    backend.disconnect()


if __name__ == "__main__":
    main()
