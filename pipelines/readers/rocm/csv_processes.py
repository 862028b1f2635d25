"""Assignment of rows to processes, in CSV files into which `rocpd convert` merged several processes.

Calls have a process id. GPU work belongs to the process of the thread that launched it, if that thread is in one
process only. Otherwise it belongs to the process of the last call with its correlation id that starts before it. This
is a guess if several processes have such calls, because each process counts these ids separately.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import duckdb

from pipelines.readers.kineto.reading_result import Finding
from pipelines.readers.origin import BY_DEVICE
from pipelines.readers.ranks import Rank, of_all, unread_rows

_OWNERS = """
    CREATE OR REPLACE TEMP TABLE _csv_owners AS
    WITH threads AS (
        SELECT thread, min(pid) AS pid FROM _rocm_calls
        WHERE thread IS NOT NULL AND pid IS NOT NULL GROUP BY thread HAVING count(DISTINCT pid) = 1
    ),
    called AS (
        SELECT w.rowid AS number, arg_max(c.pid, c.start_ns) AS pid, count(DISTINCT c.pid) AS n_processes
        FROM _rocm_work AS w
        JOIN _rocm_calls AS c ON c.correlation = w.correlation AND c.start_ns <= w.start_ns AND c.pid IS NOT NULL
        WHERE w.correlation <> 0
        GROUP BY w.rowid
    )
    SELECT w.rowid AS number, coalesce(t.pid, c.pid) AS pid, t.pid IS NULL AND c.n_processes > 1 AS is_guessed
    FROM _rocm_work AS w
    LEFT JOIN threads AS t ON t.thread = w.launch_thread
    LEFT JOIN called AS c ON c.number = w.rowid
"""


def working(con: duckdb.DuckDBPyConnection) -> list[int]:
    """Assign each GPU activity in the staged tables to a process. Return the processes with GPU work."""
    con.execute(_OWNERS)
    rows = con.execute("SELECT DISTINCT pid FROM _csv_owners WHERE pid IS NOT NULL ORDER BY pid").fetchall()
    return [pid for (pid,) in rows]


def ranks_of(con: duckdb.DuckDBPyConnection, is_by_kind: bool) -> Mapping[int, Rank]:
    """Return the number of each process's GPU as its rank, or {} unless each process used one GPU, all different."""
    gpus = [
        number for (number,) in con.execute("SELECT id FROM _rocm_agents WHERE kind = 'GPU' ORDER BY id").fetchall()
    ]
    used = con.execute(
        "SELECT o.pid, list(DISTINCT w.agent) FROM _rocm_work AS w JOIN _csv_owners AS o ON o.number = w.rowid "
        "WHERE o.pid IS NOT NULL AND w.source = 'kernel' GROUP BY o.pid"
    ).fetchall()
    ranks: dict[int, Rank | None] = {}
    for pid, agents in used:
        number = agents[0] if len(agents) == 1 else None
        if number is not None and not is_by_kind:
            number = gpus.index(number) if number in gpus else None
        ranks[pid] = None if number is None else Rank(number, None, BY_DEVICE)
    return of_all(ranks)


def keep(con: duckdb.DuckDBPyConnection, pid: int, pids: list[int]) -> Iterator[Finding]:
    """Delete the rows of all processes but `pid`. Yield findings about rows in no trace and about guessed processes."""
    if len(pids) > 1:
        listed = ", ".join(map(str, pids[:8]))
        yield Finding("rocm_processes", "info", len(pids), f"the files hold {len(pids)} processes with GPU work, each a separate trace: {listed}")  # fmt: skip
    counts: dict[int | None, int] = {}
    for table in ("_csv_owners", "_rocm_calls"):
        for owner, n in con.execute(f"SELECT pid, count(*) FROM {table} GROUP BY pid").fetchall():
            counts[owner] = counts.get(owner, 0) + n
    n_without_process = counts.pop(None, 0)
    yield from unread_rows("rocm", sum(n for other, n in counts.items() if other not in pids), n_without_process)
    ((n,),) = con.execute("SELECT count(*) FROM _csv_owners WHERE is_guessed AND pid = ?", [pid]).fetchall()
    if n:
        message = "GPU work without a thread, of which several processes have a call with its correlation id, is that of the last call before it"
        yield Finding("rocm_process_by_call", "warning", n, message)
    con.execute("DELETE FROM _rocm_work WHERE rowid NOT IN (SELECT number FROM _csv_owners WHERE pid = ?)", [pid])
    con.execute("DELETE FROM _rocm_calls WHERE pid IS DISTINCT FROM ?", [pid])
    con.execute("DROP TABLE _csv_owners")
