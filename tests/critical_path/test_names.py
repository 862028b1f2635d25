"""The printed answer: the table of where the time goes, after the caveats that change how it is read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipelines.critical_path.answer.answer import critical_path
from pipelines.critical_path.answer.path_names import largest_owners
from pipelines.critical_path.graph.windows import WindowRequest
from pipelines.faces.cli.app import app
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from pipelines.synthetic import CaptureSpec, write_capture
from tests.harness import connect


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_capture(CaptureSpec(ranks=1, steps=3, seed=7), tmp_path_factory.mktemp("capture")).ranks[0].path


def said(*words: object) -> str:
    done = CliRunner().invoke(app, ["critical-path", *map(str, words)])
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.slow  # 5 s each; test_covers.py tests owners
@pytest.mark.parametrize("profile", ["default", "hta"])
def test_they_are_the_rows_of_the_table(trace: Path, profile: str) -> None:
    con, trace_id = connect(trace)
    answer = critical_path(con, load_catalog(), WindowRequest(trace_id, "full", profile), with_path=False)
    owners = largest_owners(con, load_catalog(), 4)
    run_models(con, load_catalog(), ["critical_path_by_owner", "critical_path"])
    assert largest_owners(con, load_catalog(), 4) == owners  # now read from the computed table
    rows = con.execute(
        "SELECT owner, owner_cat, bound_by, n_edges, duration_ns FROM critical_path_by_owner WHERE duration_ns > 0"
    ).fetchall()
    rows.sort(key=lambda row: (-row[4], row[0], row[1] or "", row[2]))
    assert [tuple(row.values())[:5] for row in owners] == rows[:4]
    assert {(row["n_owners"], row["all_ns"]) for row in owners} == {(len(rows), sum(row[4] for row in rows))}
    assert answer.success and len(rows) > 4


@pytest.mark.slow  # test_they_are_the_rows_of_the_table
def test_the_text_has_them_and_a_saved_path_too(trace: Path, tmp_path: Path) -> None:
    text = said(trace, "--top", 3, "--save", tmp_path / "path.zip")
    table = text[text.index("where the time goes") :]
    assert len(re.findall(r"│ +(?:kernel|operator|call|copy|annotation|gap) +│", table)) == 3 and "more owner" in table
    again = said(tmp_path / "path.zip", "--top", 3)
    squeezed = [re.sub(r"[━─ ]+", " ", part) for part in (table, again[again.index("where the time goes") :])]
    assert squeezed[0] == squeezed[1]  # the width differs, because it depends on the title
    assert "where the time goes" not in said(trace, "--top", 0)


@pytest.mark.slow  # 2 s
def test_what_changes_the_reading_comes_first(shared: Path) -> None:
    text = said(shared / "traces" / "single" / "mi250_minitoy.json.gz")
    first, _, rest = text.partition("critical path of")
    assert "warning:" in first and "warning:" not in rest
    assert "info:" not in first and "info:" in rest
