"""Progress in words with percent and the time left; shell completion; lakes that cannot be used."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from pipelines.faces.cli import console
from pipelines.faces.cli.progress_steps import in_words, steps_for
from pipelines.models.catalog import load_catalog
from tests.effort import first_of
from tests.harness import op


def test_every_table_is_computed_in_words() -> None:
    catalog = load_catalog()
    for name, model in catalog.models.items():
        said = in_words(catalog, name)
        assert said.endswith(f"({name.lstrip('_')})") and not said.startswith("computing "), (name, model.layer)
    assert in_words(catalog, "kernels of 3 traces") == "linking GPU work to its launches (kernels of 3 traces)"
    assert in_words(catalog, "publishing") == "publishing"
    assert 1 < steps_for(catalog, ["kernels"]) < steps_for(catalog, ["kernels", "critical_path_summary"])
    assert steps_for(catalog, ["events"]) == 0


def shown(total: int | None, steps: int, monkeypatch: pytest.MonkeyPatch) -> str:
    text = io.StringIO()
    monkeypatch.setattr(console, "err", Console(file=text, force_terminal=True, width=120))
    with console.progress(total, "begin") as advance:
        for step in range(steps):
            advance(1, f"step {step}")
    return text.getvalue()


def test_percent_and_time_left_where_the_end_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "100%" in shown(4, 4, monkeypatch) and "left:" in shown(4, 4, monkeypatch)
    unknown = shown(None, 4, monkeypatch)
    assert "%" not in unknown and "left:" not in unknown and "step 3" in unknown
    last = shown(2, 5, monkeypatch).rpartition("step 4")[2]
    assert "%" not in last  # more steps than expected, so the percentage would be wrong


@pytest.mark.parametrize(
    ("words", "completions"),
    first_of(
        [
            ("tracelake report --o", {"--out"}),
            ("tracelake re", {"report", "regressions", "retention"}),
            ("tracelake sl", {"slice"}),
        ],
        1,
    ),
)
def test_shell_completion(words: str, completions: set[str]) -> None:
    variables = {"_TRACELAKE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    program = (
        "import sys; sys.argv = ['tracelake']; from pipelines.faces.cli.app import app; app(prog_name='tracelake')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    assert set(done.stdout.split()) == completions, done.stderr


@pytest.mark.parametrize(
    "words", [("sql", "FROM kernels"), ("ingest", "t.json"), ("report", "abc"), ("slice", "--step", "1")]
)
def test_a_lake_that_is_a_file_is_said_to_be_one(words: tuple[str, ...], tmp_path: Path) -> None:
    import json

    from typer.testing import CliRunner

    from pipelines.faces.cli.app import app

    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": [op("a", 0, 1)]}))
    (tmp_path / "lake").write_text("")
    arguments = [str(tmp_path / word) if word == "t.json" else word for word in words]
    result = CliRunner().invoke(app, [*arguments, "--lake", str(tmp_path / "lake")])
    assert (
        result.exit_code == 1 and "is a file; a lake is a folder" in result.stderr and "Traceback" not in result.stderr
    )
