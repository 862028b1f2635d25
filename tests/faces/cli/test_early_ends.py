"""A file that ends early: commands say on stderr that their numbers are of a part, and ingest says why it is partial."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from pipelines.faces.cli.app import app
from pipelines.synthetic import CaptureSpec, write_capture

SAID = "caveat: cut.json ends early: all numbers are of the part before that, not of the whole run"


def run(*words: object) -> Result:
    done = CliRunner().invoke(app, [*map(str, words)])
    assert done.exit_code == 0, (words, done.output)
    return done


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A trace, and its first nine tenths."""
    folder = tmp_path_factory.mktemp("early")
    whole = write_capture(CaptureSpec(ranks=1, steps=3), folder / "in").ranks[0].path
    data = gzip.decompress(whole.read_bytes())
    cut = folder / "cut.json"
    cut.write_bytes(data[: len(data) * 9 // 10])
    return whole, cut


@pytest.mark.parametrize("command", ["breakdown", "graphs", "what-if", "stragglers"])
def test_each_command_says_so_and_none_of_a_whole_file(files: tuple[Path, Path], command: str) -> None:
    whole, cut = files
    more = ["--scale", "*=0.5"] if command == "what-if" else []
    assert run(command, cut, *more).stderr.count(SAID) == 1
    assert "ends early" not in run(command, whole, *more).stderr


def test_the_report_says_so(files: tuple[Path, Path], tmp_path: Path) -> None:
    assert SAID in run("report", files[1], "--out", tmp_path / "report.html").stderr


def test_ingest_gives_the_reason_and_a_trace_of_the_lake_keeps_it(files: tuple[Path, Path], tmp_path: Path) -> None:
    ((row),) = json.loads(run("ingest", files[1], "--lake", tmp_path / "lake", "--json").stdout)
    assert row["status"] == "partial" and row["reason"].startswith("the file ends early; everything readable before")
    assert SAID in run("breakdown", row["trace_id"], "--lake", tmp_path / "lake").stderr
