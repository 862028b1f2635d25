"""Spark for the tests with the mark `spark`: one session for all of them, on this machine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from pipelines.lake import Lake
from tests.conftest import SHARED
from tests.engines.spark.everything import lake_of_everything

# Queries are small, so compiling them takes most of the time.
QUICK = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "2g",
    "spark.driver.extraJavaOptions": "-Xss16m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def need_spark() -> None:
    """Skip the test if PySpark or Java is missing."""
    if find_spec("pyspark") is None:
        pytest.skip("PySpark is not installed: pip install 'tracelake[spark]'")
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        pytest.skip("there is no Java runtime")


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    need_spark()
    from pipelines.engines.spark.session import connect

    backend = connect("local[2]", QUICK)
    yield backend
    backend.disconnect()


@pytest.fixture(scope="session")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Return a lake with data of every kind and all tables computed."""
    need_spark()
    return lake_of_everything(tmp_path_factory.mktemp("everything"), Path(SHARED) / "traces")
