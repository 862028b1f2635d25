"""Shared fixtures: where the reference material is, and a connection in which models run on rows written in the test."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import hypothesis
import pytest

from tests.effort import SLOW

# Times are of the machine, not of the code: it may be shared.
hypothesis.settings.register_profile("tracelake", deadline=None)
hypothesis.settings.load_profile("tracelake")
# Tests run side by side: threads of torch's operators would wait for each other, and spin meanwhile.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Tests start a hundred processes. Without bytecode files each of them would compile what it imports of the project.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
SHARED = Path(os.environ.get("TRACELAKE_SHARED", Path(__file__).resolve().parents[2] / "shared"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Slow tests run with SLOW=1, or where `-m` asks for them."""
    if not (SLOW or config.option.markexpr):
        for item in items:
            if item.get_closest_marker("slow"):
                item.add_marker(pytest.mark.skip(reason="slow: SLOW=1 runs it"))


def pytest_collection_finish() -> None:
    """Imported modules stay until the end: looking for garbage in them takes up to a twentieth of the CPU time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real traces and reference outputs beside the checkout."""
    if not (SHARED / "traces").is_dir():
        pytest.skip(f"reference material is not there: {SHARED}")
    return SHARED
