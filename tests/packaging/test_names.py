"""`import tracelake` re-exports the objects of `pipelines`, loads no module twice, and loads only what is used."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest
from typer.testing import CliRunner

import pipelines.schedule
import tracelake
from pipelines import __version__
from pipelines.faces.cli.app import app


@pytest.mark.parametrize("name", sorted(set(tracelake.__all__) - {"__version__"}))
def test_names_are_those_of_pipelines(name: str) -> None:
    there = getattr(tracelake, name)
    assert there is getattr(import_module(there.__module__), name) and there.__module__.startswith("pipelines.")


def test_schedule_is_pipelines_schedule() -> None:
    from tracelake import schedule

    assert schedule.__all__ == pipelines.schedule.__all__
    without_torch = set(schedule.__all__) - {"DataFlowPipeline", "SWPipeline", "TaskProfiler", "ProfileResult"}
    for name in without_torch - {"resolve_device"}:
        assert getattr(schedule, name) is getattr(pipelines.schedule, name)


def test_no_module_can_be_loaded_under_two_names() -> None:
    for name in ("tracelake.schedule.plan", "tracelake.record.spans", "tracelake.lake", "tracelake.ingest"):
        with pytest.raises(ModuleNotFoundError):
            import_module(name)
    for module in (tracelake, import_module("tracelake.schedule"), import_module("tracelake.record")):
        with pytest.raises(AttributeError, match="nothing_such"):
            _ = module.nothing_such


def test_importing_it_imports_nothing_else() -> None:
    program = (
        "import sys; before = {*sys.modules}; import tracelake.schedule, tracelake.record, tracelake.torch;"
        "print(*({name.partition('.')[0] for name in {*sys.modules} - before} - sys.stdlib_module_names))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert {*done.stdout.split()} == {"tracelake", "pipelines"}


def test_version() -> None:
    for words in (["--version"], ["--version", "ingest"]):
        said = CliRunner().invoke(app, words)
        assert (said.exit_code, said.stdout) == (0, f"tracelake {__version__}\n")
    module = subprocess.run(
        [sys.executable, "-m", "tracelake", "--version"], capture_output=True, text=True, check=True
    )
    assert module.stdout == f"tracelake {__version__}\n"
