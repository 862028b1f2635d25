"""Nothing but answers goes to stdout: DuckDB draws a progress bar there for what takes 2 seconds, be it a terminal or not."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SLOW = "SELECT count(*) AS n FROM range(16000) AS a, range(16000) AS b WHERE (a.range * b.range) % 7 = 8"


def test_connections_draw_no_bar() -> None:
    """In a program that is no file, as in a notebook, DuckDB would."""
    program = (
        "import duckdb; from pipelines import database\n"
        "con = database.connect()\n"
        "for one in (duckdb.connect(), con, database.cursor(con), database.cursor()):\n"
        """    print(one.execute("SELECT current_setting('enable_progress_bar')").fetchall())\n"""
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.splitlines() == ["[(True,)]", *["[(False,)]"] * 3]


@pytest.mark.slow
def test_a_slow_query_prints_its_answer_alone() -> None:
    """On its connection, and on those that are made beside it."""
    program = (
        "from pipelines import database\n"
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
        if path.name == "database.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                if (node.value.id, node.attr) in {("duckdb", "connect"), ("duckdb", "cursor"), ("duckdb", "sql")}:
                    loud.append(f"{path.relative_to(ROOT)}:{node.lineno}")
                if node.attr == "cursor" and node.value.id == "con":
                    loud.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not loud
