"""An analyst who queries continuously: `python -m bench.soak.analyst LAKE`, until its standard input closes.

Prints the number of rounds of queries. Fails if a query fails, or if a trace is only partly visible.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import duckdb

from pipelines.lake.names import ANALYST

_WHOLE = """
    SELECT t.trace_id FROM traces AS t LEFT JOIN
        (SELECT trace_id, count(*) AS n, count(DISTINCT event_id) AS ids FROM events GROUP BY trace_id) AS e USING (trace_id)
    WHERE e.n IS DISTINCT FROM t.n_events OR e.ids IS DISTINCT FROM t.n_events
"""
_TWICE = "SELECT trace_id FROM traces GROUP BY trace_id HAVING count(*) > 1"
_QUESTIONS = (
    "SELECT class, count(*), sum(duration_ns) FROM kernels GROUP BY class",
    "SELECT job, avg(compute_percent) FROM temporal_breakdown JOIN traces USING (trace_id) GROUP BY job",
    "SELECT bound_by, sum(duration_ns) FROM critical_path_summary GROUP BY bound_by",
)


def ask(lake: Path, stopped: threading.Event) -> int:
    """Query until `stopped` is set, and return the number of rounds. Raises AssertionError and duckdb.Error."""
    rounds = 0
    while not stopped.is_set():
        with duckdb.connect(str(lake / ANALYST), read_only=True) as con:
            assert not (torn := con.execute(_WHOLE).fetchall()), f"not whole: {torn[:3]}"
            assert not (twice := con.execute(_TWICE).fetchall()), f"twice: {twice[:3]}"
            for question in _QUESTIONS:
                con.execute(question).fetchall()
        rounds += 1
        stopped.wait(0.2)
    return rounds


if __name__ == "__main__":
    stopped = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), stopped.set()), daemon=True).start()
    print(ask(Path(sys.argv[1]), stopped))
