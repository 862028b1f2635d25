"""`from pipelines.schedule import predict` is the function, whatever was imported before, and needs no torch."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "first", ["import pipelines.schedule.predict, pipelines.schedule.search, pipelines.schedule.gantt", "pass"]
)
def test_functions_that_are_called_like_their_module(first: str) -> None:
    code = (
        f"{first}\n"
        "import sys\n"
        "from pipelines.schedule import gantt, predict, search, simulate, SimulatedDevice, write_gantt\n"
        "import pipelines.schedule.search, pipelines.schedule.predict, pipelines.schedule.gantt\n"
        "import pipelines.schedule as room\n"
        "assert (room.gantt, room.predict, room.search) == (gantt, predict, search)\n"
        "print(all(map(callable, (gantt, predict, search, simulate, SimulatedDevice, write_gantt))))\n"
        "print('torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]
