"""Error messages if Spark cannot start. Neither PySpark nor Java is needed."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipelines.base.extras import MissingExtra
from pipelines.engines.spark import session
from pipelines.engines.spark.session import NoSpark, connect
from pipelines.faces.cli.app import app


def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ibis", reason="the extra notebook is not installed, and is named beside pyspark")
    monkeypatch.setattr("pipelines.base.extras.find_spec", lambda name: None if name == "pyspark" else find_spec(name))
    with pytest.raises(MissingExtra, match=r"--engine spark needs pyspark.*-m pip install -e '/.*\[spark\]'$"):
        connect()


def test_a_missing_java_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(session, "need", lambda *_: None)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(NoSpark, match=r"JAVA_HOME is .*: Spark needs a Java runtime, 17"):
        connect()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoSpark, match="no `java` on the PATH"):
        connect()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--compute", "kernels"], "--compute is for --engine spark"),
        (["--engine", "spark", "--allow-files"], "--allow-files is for DuckDB"),
        (["--engine", "spark", "--compute", "kernles"], "there is no such table"),
        (["--engine", "spark", "--compute", "collective_ranks"], "made by Python"),
        (["--engine", "spark", "--memory", "much"], "write it like"),
    ],
)
def test_options_that_do_not_go_together(tmp_path: Path, words: list[str], message: str) -> None:
    done = CliRunner().invoke(app, ["sql", "SELECT 1", "--lake", str(tmp_path / "lake"), *words])
    assert done.exit_code and message in " ".join(done.output.split()), done.output
