"""Commands and options that were called otherwise in the version before: they work and are not listed."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipelines.faces.cli.app import app
from pipelines.faces.cli.commands import OLD_COMMANDS, OLD_OPTIONS
from tests.fleet.op_job.make import UNIT, Shape, write_job


def told(*words: object) -> str:
    return CliRunner().invoke(app, [str(word) for word in words]).output


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return write_job(tmp_path, Shape(pp=2, dp=3, steps=(1,), batches=2), lambda key: (1 + 20 * key[1]) * UNIT)


@pytest.mark.parametrize("words", [("--svg", "x.svg"), ("--svg=x.svg",), ("--out", "x.svg")])
@pytest.mark.parametrize("command", ["straggler-what-if", "op-job"])
def test_the_old_names_write_the_same_picture(
    command: str, words: tuple[str, ...], job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(job.parent)
    assert "open in a browser: x.svg" in told(command, job, *words)
    assert (job.parent / "x.svg").read_text().startswith("<svg")


@pytest.mark.parametrize("command", sorted(OLD_OPTIONS))
def test_every_old_option_is_one_of_its_command(command: str) -> None:
    help_text = told(command, "--help")
    for old, new in OLD_OPTIONS[command].items():
        assert new in help_text and old not in help_text
        assert "No such option" not in told(command, "no-such-file", old, "x")
        assert "No such option" in told("status", old, "x")


def test_behind_two_dashes_stands_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "--svg: there is no such file" in told("op-job", "--", "--svg")


def test_old_commands_are_hidden() -> None:
    assert "straggler-what-if" in OLD_COMMANDS
    assert "op-job" in told("--help") and "straggler-what-if" not in told("--help")
