"""Build of the files that only a wheel contains, which pyproject.toml cannot describe.

- `pipelines/_sql`: sql/, next to the code that reads it.
- `pipelines/_cache`: results that the catalog computes from sql/ and from the code (pipelines/models/cache.py). Without
  them, the first command after `pip install .`, and each command in a fresh container, takes about twice as long.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

SQL = "pipelines._sql"
FILL_CACHE = """
from pipelines.models.catalog import load_catalog
from pipelines.models.sources import code_versions

load_catalog()
code_versions()
"""


class BuildWithCache(build_py):
    """A build that also fills the cache with the wheel's code. An editable install computes the cache on first use."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        shipped = Path(self.build_lib) / "pipelines" / "_cache"
        shutil.rmtree(shipped, ignore_errors=True)  # a cache of an earlier build would be reused
        with TemporaryDirectory() as folder:
            environment = {**os.environ, "XDG_CACHE_HOME": folder, "PYTHONDONTWRITEBYTECODE": "1"}
            subprocess.run([sys.executable, "-c", FILL_CACHE], cwd=self.build_lib, env=environment, check=True)
            shipped.mkdir()
            for file in Path(folder, "tracelake").iterdir():
                name, _, _ = file.stem.rpartition("-")  # without the folder in which it was computed
                shutil.copyfile(file, shipped / f"{name}.json")


setup(
    packages=[*find_packages(include=["tracelake", "pipelines*", "assets*", "dagster_project*"]), SQL],
    package_dir={SQL: "sql"},
    package_data={
        "": ["templates/*", "*.yaml", "plans/*.toml", "page/*", "vendor/*", "skill.md", "py.typed"],
        SQL: ["**/*.sql", "**/*.csv"],
    },
    cmdclass={"build_py": BuildWithCache},
)
