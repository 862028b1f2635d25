"""An installed wheel: what it contains, what the core can do, and which extra a message names."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipelines import __version__
from pipelines.faces.cli.app import app
from pipelines.synthetic import CaptureSpec, write_capture
from tests.packaging.installed import PACKAGES, ROOT, Environment, build_wheel

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def core(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("core"), wheel)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a trace, `rank0.json`."""
    made = tmp_path_factory.mktemp("traces")
    capture = write_capture(CaptureSpec(ranks=1, steps=2, seed=3), made / "capture")
    shutil.copy(capture.ranks[0].path, made / "rank0.json")
    return made


def test_all_files_are_in_the_wheel_and_under_names_of_ours(wheel: Path) -> None:
    listed = set(zipfile.ZipFile(wheel).namelist())
    files = [file for name in (*PACKAGES, "sql") for file in (ROOT / name).rglob("*") if file.is_file()]
    names = [file.relative_to(ROOT).as_posix() for file in files if "__pycache__" not in file.parts]
    expected = {name.replace("sql/", "pipelines/_sql/", 1) if name.startswith("sql/") else name for name in names}
    cached = {f"pipelines/_cache/{name}.json" for name in ("catalog", "sources", "versions")}
    assert expected | cached == {name for name in listed if ".dist-info/" not in name}


def test_a_wheel_is_built_with_its_build_requirements_alone(tmp_path: Path) -> None:
    """The wheel is built with nothing but its build requirements.

    pip builds it in an isolated environment. This test hides the other packages instead.
    """
    program = (
        "import sys; sys.modules.update(dict.fromkeys(('duckdb', 'pyarrow', 'numpy', 'networkx', 'typer', 'rich')));"
        "from pipelines.models.catalog import load_catalog; from pipelines.models.sources import code_versions;"
        "load_catalog(); code_versions()"
    )
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_first_command_of_a_user_parses_nothing(core: Environment, folder: Path, tmp_path: Path) -> None:
    program = (
        "import sys; from pipelines.models.catalog import load_catalog; from pipelines.models.sources import code_versions;"
        "load_catalog(); code_versions(); print('sqlglot' in sys.modules)"
    )
    done = core.run("python", "-c", program, cwd=folder, XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert (done.stdout, done.stderr) == ("False\n", "")
    assert not (tmp_path / "cache").exists()


def test_the_core_ingests_asks_and_reports(core: Environment, folder: Path) -> None:
    absent = (
        "from importlib.util import find_spec as f; print(*map(f, ['dagster', 'ibis', 'torch', 'pandas', 'pytest']))"
    )
    assert {*core.run("python", "-c", absent, cwd=folder).stdout.split()} == {"None"}
    assert core.run("tracelake", "--version", cwd=folder).stdout == f"tracelake {__version__}\n"
    for words in (
        ("ingest", "rank0.json", "--lake", "lake"),
        ("report", "rank0.json", "--out", "report.html"),
        ("sql", "SELECT count(*) FROM step_times", "--lake", "lake"),
    ):
        done = core.run("tracelake", *words, cwd=folder)
        assert (done.returncode, done.stderr.count("Error")) == (0, 0), (words, done.stdout, done.stderr)
    assert (ROOT / "pipelines" / "faces" / "report" / "templates" / "page.css").read_text().strip() in (
        folder / "report.html"
    ).read_text()
    asked = core.run("tracelake", "critical-path", "rank0.json", "--json", cwd=folder)
    here = CliRunner().invoke(app, ["critical-path", str(folder / "rank0.json"), "--json"])
    theirs, ours = json.loads(asked.stdout), json.loads(here.stdout)
    assert theirs["summary"] == ours["summary"] and ours["success"]


def test_what_needs_an_extra_names_it(core: Environment, folder: Path) -> None:
    for command, extra in (
        (("tracelake", "demo"), "dagster"),
        (("tracelake", "ui"), "dagster"),
        (("tracelake", "serve"), "serve"),
        (("tracelake", "mcp"), "mcp"),
        (("python", "-c", "import tracelake; tracelake.open_tables('lake', 'kernels')"), "notebook"),
        (("python", "-c", "import tracelake as t; t.TraceAnalysis('rank0.json').table('kernels')"), "notebook"),
        (("python", "-m", "pipelines.schedule.run", "--plan", "mlp", "--out", "runs"), "torch"),
    ):
        done = core.run(*command, cwd=folder)
        said = done.stderr.strip().splitlines()
        assert done.returncode and f"pip install 'tracelake[{extra}]'" in said[-1], (command, said)
        assert command[0] == "python" or len(said) == 1
    assert not (folder / "demo").exists() and not (folder / "runs").exists()
    simulated = ("--plan", "mlp", "--device", "simulated", "--engine", "sw", "--out", "runs", "--iterations", "5")
    assert core.run("python", "-m", "pipelines.schedule.run", *simulated, cwd=folder).returncode == 0


def test_definitions_load_with_the_dagster_extra(wheel: Path, tmp_path: Path) -> None:
    dagster = Environment(tmp_path / "env", wheel, ["dagster"])
    look = (
        "from pathlib import Path; from dagster_project.demo import asset_names; from dagster_project.serve import prepare;"
        "prepare(Path('home')); print(*asset_names())"
    )
    done = dagster.run("python", "-c", look, cwd=tmp_path, DAGSTER_HOME=str(tmp_path / "home"))
    assert {"events", "critical_path_summary"} <= {*done.stdout.split()}, done.stderr
    settings = tmp_path / "home" / "dagster.yaml"
    assert settings.read_text() == (ROOT / "dagster_project" / "dagster.yaml").read_text()
    validate = ("-m", "dagster", "definitions", "validate", "-m", "dagster_project.definitions")
    assert dagster.run("python", *validate, cwd=tmp_path, DAGSTER_HOME=str(settings.parent)).returncode == 0


def test_schedule_and_record_need_torch_and_pyarrow_alone(wheel: Path, tmp_path: Path) -> None:
    alone = Environment(tmp_path / "env", wheel, alone=["torch", "pyarrow"])
    program = (
        "import sys, tracelake.schedule, tracelake.record; from tracelake.schedule import *; SWPipeline;"
        "tracelake.record.record_spans, tracelake.record.CounterSampler, tracelake.record.StackSampler;"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    done = alone.run("python", "-c", program, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert {"torch", "pyarrow"} <= {*done.stdout.split()} and not {"duckdb", "typer"} & {*done.stdout.split()}
