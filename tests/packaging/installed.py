"""Environments outside the checkout with only the files that installing the wheel adds.

pip builds and installs the wheel. The packages that it requires are linked from the test environment, so nothing is
downloaded.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("tracelake", "pipelines", "assets", "dagster_project")
SOURCES = (*PACKAGES, "sql", "pyproject.toml", "setup.py", "LICENSE")
_PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")


def build_wheel(folder: Path) -> Path:
    """Build the wheel from a copy of the checkout.

    In the checkout it would include the files of an earlier build in build/.
    """
    copy = folder / "source"
    copy.mkdir()
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, copy)
    _run([*_PIP, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(copy)])
    return next(folder.glob("tracelake-*.whl"))


class Environment:
    """A virtual environment with the wheel and the packages that it requires.

    `alone`: link only these requirements, not those of the wheel.
    """

    def __init__(
        self, folder: Path, wheel: Path, extras: Iterable[str] = (), alone: Iterable[str] | None = None
    ) -> None:
        venv.create(folder, symlinks=True)
        self.bin = folder / "bin"
        self.site = next(folder.glob("lib/python*/site-packages"))
        _run([*_PIP, "--python", str(self.bin / "python"), "install", "--no-deps", "--no-index", str(wheel)])
        own = Distribution.at(next(self.site.glob("tracelake-*.dist-info")))
        for needed in _closure(own.requires or () if alone is None else alone, {"", *extras}):
            self._link(needed)

    def run(self, *command: str | Path, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment without access to the checkout."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TRACELAKE"))}
        words = [str(self.bin / command[0]), *map(str, command[1:])]
        return subprocess.run(
            words, cwd=cwd, env={**kept, "COLUMNS": "200", **env}, capture_output=True, text=True, check=False
        )

    def _link(self, package: Distribution) -> None:
        tops = {file.parts[0]: file for file in package.files or () if file.parts[0] not in ("..", "__pycache__")}
        for name, file in tops.items():
            source = Path(str(package.locate_file(file))).parents[len(file.parts) - 1] / name
            if not (self.site / name).exists():
                (self.site / name).symlink_to(source)


def _closure(requires: Iterable[str], extras: set[str]) -> Iterator[Distribution]:
    """Yield the installed distributions that the requirements need, directly and indirectly."""
    todo, seen = [(text, frozenset(extras)) for text in requires], set()
    while todo:
        text, chosen = todo.pop()
        needed = Requirement(text)
        if needed.marker and not any(needed.marker.evaluate({"extra": extra}) for extra in chosen):
            continue
        key = needed.name.lower(), frozenset({"", *needed.extras})
        if key in seen:
            continue
        seen.add(key)
        try:
            package = distribution(needed.name)
        except PackageNotFoundError:
            pytest.skip(f"{needed.name} is not installed in the environment of the tests")
        yield package
        todo += [(inner, key[1]) for inner in package.requires or ()]


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 0, done.stdout + done.stderr
