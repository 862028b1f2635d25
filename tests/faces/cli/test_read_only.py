"""A lake that may not be written: what is published answers, and what would be written is refused with a sentence."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipelines.faces.cli.app import app
from pipelines.lake.commit.ingested_files import settled
from pipelines.lake.lake import Lake
from tests.lake.world import capture

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with a computed table, published."""
    folder = tmp_path_factory.mktemp("read_only")
    capture(folder / "in", ranks=1)
    for words in (["ingest", str(folder / "in")], ["sql", "SELECT 1 FROM temporal_breakdown"]):
        CliRunner().invoke(app, [*words, "--lake", str(folder / "lake")])
    return folder / "lake"


@pytest.fixture
def closed(lake: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """As on a read-only mount; tests may run as root, whom modes do not stop."""
    calls = {name: getattr(os, name) for name in ("mkdir", "replace", "unlink")}
    really = Path.open

    def refused(path: object) -> None:
        if str(path).startswith(str(lake)):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    for name, call in calls.items():

        def guarded(path, *rest, _call=call, **more):
            refused(path)
            return _call(path, *rest, **more)

        monkeypatch.setattr(os, name, guarded)

    def opened(self: Path, mode: str = "r", *rest, **more):
        if set(mode) & set("wax+"):
            refused(self)
        return really(self, mode, *rest, **more)

    monkeypatch.setattr(Path, "open", opened)
    yield lake


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["sql", "SELECT count(*) FROM traces"], 0),
        (["sql", "SELECT count(*) FROM temporal_breakdown"], 0),
        (["sql", "SELECT count(*) FROM kernels"], 1),  # would have to be computed
        (["status", "--max-rejected", "1"], 0),
        (["retention", "--keep-days", "5", "--dry-run"], 0),
        (["retention", "--keep-days", "5"], 1),
        (["compact", "--dry-run"], 0),
        (["compact"], 1),
        (["materialize", "kernels"], 1),
        (["ingest", "IN"], 1),
        (["report", "TRACE", "--out", "OUT"], None),
        (["regressions"], None),
    ],
)
def test_every_command_answers_or_says_why(closed: Path, tmp_path: Path, words: list[str], code: int | None) -> None:
    (trace,) = (outcome.trace_id for outcome in settled(Lake(closed)).values() if outcome.status == "ok")
    given = {"IN": str(closed.parent / "in"), "TRACE": str(trace), "OUT": str(tmp_path / "report.html")}
    done = CliRunner().invoke(app, [*(given.get(word, word) for word in words), "--lake", str(closed)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code == code or (code is None and done.exit_code in (0, 1)), done.output
    if code == 1:
        assert "Read-only file system" in done.stderr


def test_the_ui_says_where_it_cannot_keep_its_records(tmp_path: Path) -> None:
    pytest.importorskip("dagster", reason="the extra dagster is not installed")
    (tmp_path / "file").touch()
    env = {**os.environ, "DAGSTER_HOME": str(tmp_path / "file" / ".dagster")}
    command = [sys.executable, "-m", "dagster_project.serve", "0"]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: Dagster cannot keep its records in the lake: ")
