"""`from pipelines.schedule import predict` yields the function, whatever was imported before, and needs no torch."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "first",
    [
        "import pipelines.schedule.search.predict, pipelines.schedule.search.search, pipelines.schedule.pictures.gantt",
        "pass",
    ],
)
def test_functions_that_are_called_like_their_module(first: str) -> None:
    code = (
        f"{first}\n"
        "import sys\n"
        "from pipelines.schedule import gantt, predict, search, simulate, SimulatedDevice, write_gantt\n"
        "import pipelines.schedule.search.search, pipelines.schedule.search.predict, pipelines.schedule.pictures.gantt\n"
        "import pipelines.schedule as room\n"
        "assert (room.gantt, room.predict, room.search) == (gantt, predict, search)\n"
        "print(all(map(callable, (gantt, predict, search, simulate, SimulatedDevice, write_gantt))))\n"
        "print('torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]


@pytest.mark.slow  # tests/test_rooms.py checks the imports of each file
def test_the_room_stands_alone_on_torch_and_the_standard_library() -> None:
    """Everything except the runner is imported and used. It loads only torch's packages and our parts of pictures."""
    pytest.importorskip("torch", reason="the engines need torch")
    code = (
        "import sys, torch, torch.distributed, torch.autograd.profiler\n"
        "before = set(sys.modules)\n"
        "import pipelines.schedule as room\n"
        "from pipelines.schedule import *\n"
        "import pipelines.schedule.devices.cuda\n"
        "a, b = PipelineTask('a', lambda ctx: setattr(ctx, 'x', ctx.batch)), PipelineTask('b', lambda ctx: None)\n"
        "plan = PipelinePlan({a: TaskSchedule(0, 's', globally_ordered=True), b: TaskSchedule(1)}, [(b, a)])\n"
        "for device in ('cpu', 'simulated'):\n"
        "    for pipe in (SWPipeline(plan, device), DataFlowPipeline(plan, 2, device)):\n"
        "        pipe.enable_shortcut('a')\n"
        "        pipe.run(range(4)), pipe.run_serial(range(4)), repr(pipe)\n"
        "TaskProfiler(SWPipeline(plan, 'cpu')).profile(1, num_measure=1).format_report()\n"
        "times = {'a': 1, 'b': 2}\n"
        "gantt(simulate(plan, times)), predict(plan, times), search([a, b], [(b, a)], times)\n"
        "new = {name.split('.')[0] for name in set(sys.modules) - before if not name.startswith('pipelines.schedule')}\n"
        "print(sorted(new - set(sys.stdlib_module_names) - {'torch'}))\n"
        "print(sorted(n for n in sys.modules if n.startswith('pipelines.') and n.split('.')[1] != 'schedule'))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [
        "['pipelines']",
        "['pipelines.base', 'pipelines.base.foreign_text', 'pipelines.base.svg']",
    ], done.stderr
