"""The page docs/migrating-from-hta.md: its code runs without pandas and prints the shown output.

Every cell of its table runs, and its SQL returns HTA's numbers.

After a change to the code on the page, `python -m tests.faces.notebook.test_page` writes the new output.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pipelines.faces.cli.app import app
from pipelines.faces.notebook import TraceAnalysis
from tests.faces.notebook.page import PAGE, SQL, cells
from tests.faces.notebook.test_hta_numbers import ANALYSES, golden, records
from tests.pages import BLOCK, assert_shown, rewrite


def ran(folder: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.faces.notebook.page", str(folder)],
        cwd=PAGE.parents[1],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def command(*words: str) -> str:
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == 0, (words, done.output)
    return done.stdout


@pytest.mark.slow
def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page, outcome = PAGE.read_text(encoding="utf-8"), ran(tmp_path)
    blocks, table = list(zip(BLOCK.finditer(page), outcome["blocks"], strict=True)), cells(page)
    assert_shown(PAGE, blocks)
    assert len(blocks) >= 8 and len(SQL.findall(page)) == page.count("```sql")
    assert outcome["cells"] == len(table) >= 20
    monkeypatch.chdir(tmp_path)
    for query in (*(query for _, query, _ in table if query), *SQL.findall(page)):
        assert json.loads(command("sql", query, "--lake", "lake", "--format", "json")), query
    for _, _, line in table:
        if line:
            program, *words = shlex.split(line)
            assert program == "tracelake" and command(*words)


def test_every_method_is_on_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    methods = [name for name in vars(TraceAnalysis) if name.startswith("get_") or name.endswith("_analysis")]
    assert len(methods) >= 10
    assert [name for name in methods if not any(f"analyzer.{name}(" in python for python, _, _ in cells(page))] == []


@pytest.mark.slow  # test_hta_numbers.py tests the numbers
def test_sql_of_the_other_analyses_equals_hta(shared: Path, tmp_path: Path) -> None:
    expected = golden(shared, ANALYSES)
    folder = shared / "traces" / "ranks" / "sampled_128"
    TraceAnalysis({r: folder / f"rank{r}.json.gz" for r in expected["ranks"]}, lake=tmp_path / "lake").close()
    idle, annotations = SQL.findall(PAGE.read_text(encoding="utf-8"))

    def asked(query: str) -> list[dict[str, Any]]:
        return json.loads(command("sql", query, "--lake", str(tmp_path / "lake"), "--format", "json"))

    ours = {(row["rank"], row["stream"], row["idle_category"]): row["idle_ns"] / 1000 for row in asked(idle)}
    theirs = {
        (row["rank"], row["stream"], row["idle_category"]): row["idle_time"]
        for row in records(expected["idle_time_breakdown"]["breakdown"])
    }
    assert len(ours) > 20
    assert {key: us for key, us in ours.items() if us} == {key: us for key, us in theirs.items() if us}
    columns = {"sum_ns": "sum (us)", "max_ns": "max (us)", "min_ns": "min (us)", "mean_ns": "mean (us)"}
    rows_by_name = {(row["rank"], row["name"]): row for row in asked(annotations)}
    for row in records(expected["cpu_user_annotation_breakdown"]):
        ns = rows_by_name[row["rank"], row["name"]]
        assert [ns[name] / 1000 for name in columns] == pytest.approx([row[name] for name in columns.values()])


if __name__ == "__main__":
    rewrite(PAGE)
