"""Only answers go to stdout.

By default DuckDB draws a progress bar there after 2 seconds, even if stdout is not a terminal.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.base import database

ROOT = Path(__file__).parents[2]
SLOW = "SELECT count(*) AS n FROM range(16000) AS a, range(16000) AS b WHERE (a.range * b.range) % 7 = 8"


def test_connections_draw_no_bar() -> None:
    """Connections of the package draw no progress bar.

    By default, DuckDB draws one in programs that do not run from a file, such as notebooks.
    """
    program = (
        "import duckdb; from pipelines.base import database\n"
        "con = database.connect()\n"
        "for one in (duckdb.connect(), con, database.cursor(con), database.scratch()):\n"
        """    print(one.execute("SELECT current_setting('enable_progress_bar')").fetchall())\n"""
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.splitlines() == ["[(True,)]", *["[(False,)]"] * 3]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("TRACELAKE_MEMORY", "8", "TRACELAKE_MEMORY=8: give a whole number from 64 on (MiB), or unset it"),
        ("TRACELAKE_MEMORY", "63", "TRACELAKE_MEMORY=63: "),
        ("TRACELAKE_MEMORY", "2GB", "TRACELAKE_MEMORY=2GB: "),
        ("TRACELAKE_MEMORY", "-512", "TRACELAKE_MEMORY=-512: "),
        ("TRACELAKE_MEMORY", "64", None),
        ("TRACELAKE_MEMORY", "", None),
        ("TRACELAKE_THREADS", "0", "TRACELAKE_THREADS=0: give a whole number from 1 on, or unset it"),
        ("TRACELAKE_THREADS", "two", "TRACELAKE_THREADS=two: "),
        ("TRACELAKE_THREADS", "1", None),
    ],
)
def test_a_share_that_nothing_can_work_with_is_an_error(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, message: str | None
) -> None:
    monkeypatch.setenv(name, value)
    if message is None:
        with database.connect() as con:
            assert con.execute("SELECT 1").fetchall() == [(1,)]
        return
    for ask in (database.connect, lambda: (database.at_most(1), database.threads(2))):
        with pytest.raises(database.WrongShare) as raised:
            ask()
        assert str(raised.value).startswith(message)


@pytest.mark.slow  # tests/faces/cli tests how commands print errors
def test_the_command_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRACELAKE_MEMORY", "8")
    process = subprocess.run(
        [sys.executable, "-m", "tracelake", "ingest", str(tmp_path), "--lake", str(tmp_path / "lake")],
        capture_output=True, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    assert process.returncode == 1 and "TRACELAKE_MEMORY=8: give a whole number from 64 on (MiB)" in process.stderr
    assert "Traceback" not in process.stderr


@pytest.mark.slow
def test_a_slow_query_prints_its_answer_alone() -> None:
    """Neither the connection nor a cursor made from it draws a progress bar."""
    program = (
        "from pipelines.base import database\n"
        "con = database.connect()\n"
        "con.execute('SET threads = 1')\n"
        f"print(con.execute({SLOW!r}).fetchall())\n"
        "beside = database.cursor(con)\n"
        f"print(beside.execute({SLOW!r}).fetchall())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "[(0,)]\n[(0,)]\n"


def test_every_connection_is_quiet() -> None:
    loud = []
    for path in [
        path for folder in ("pipelines", "assets", "dagster_project") for path in (ROOT / folder).rglob("*.py")
    ]:
        text = path.read_text()
        # Parsing all files would take seconds.
        if path.name == "database.py" or not re.search(
            r"\bduckdb\s*\.\s*(connect|cursor|sql)\b|\bcon\s*\.\s*cursor\b", text
        ):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                if (node.value.id, node.attr) in {("duckdb", "connect"), ("duckdb", "cursor"), ("duckdb", "sql")}:
                    loud.append(f"{path.relative_to(ROOT)}:{node.lineno}")
                if node.attr == "cursor" and node.value.id == "con":
                    loud.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not loud


def test_scratch_is_one_database_and_another_one_where_it_broke(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with database.scratch() as con:
        con.execute("CREATE TEMP TABLE mine AS SELECT 1")
        with database.scratch() as beside:  # another query, perhaps in another thread
            assert beside.execute("SELECT count(*) FROM duckdb_tables()").fetchall() == [(0,)]
        (before,) = [connection for key, connection in database._scratch.items() if key == (os.getpid(),)]
    before.close()  # the state after an internal error in DuckDB
    with database.scratch() as con:
        assert con.execute("SELECT 7").fetchall() == [(7,)]
    monkeypatch.setenv(database.THREADS, "3")
    with database.scratch() as con:
        assert con.execute("SELECT current_setting('threads')").fetchall() == [(3,)]


def test_what_is_given_back_is_read_again(tmp_path: Path) -> None:
    many = 5_000_000  # 76 MiB, more than the minimum memory limit
    with database.private(tmp_path, 0.3) as con:
        con.execute(f"CREATE TABLE kept AS SELECT i, i * 7 AS n FROM range({many}) AS r(i)")
        before = con.execute("SELECT current_setting('memory_limit')").fetchall()
        database.give_back(con)
        assert con.execute("SELECT current_setting('memory_limit')").fetchall() == before
        assert con.execute("SELECT count(*), sum(n) FROM kept").fetchall() == [(many, 7 * many * (many - 1) // 2)]
        with con.cursor() as other:
            other.execute("SELECT i FROM range(50_000_000) AS r(i)").fetchmany(1)  # keeps the database in use
            database.give_back(con)
        assert con.execute("SELECT current_setting('memory_limit')").fetchall() == before
