"""A server of the console on a lake with hostile names."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pipelines.lake import Lake
from tests.faces.serve.world import Server, hostile_lake, serving


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return hostile_lake(tmp_path_factory.mktemp("console"))


@pytest.fixture(scope="module")
def server(lake: Lake) -> Iterator[Server]:
    with serving(lake.root, rows=3, queries=2) as served:
        yield served
