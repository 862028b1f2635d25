"""Declared durations: the simulator and the simulated device draw the same values, and each task draws its own."""

from __future__ import annotations

from itertools import islice

import pytest

from pipelines.schedule.plan.plan import PipelineTask
from pipelines.schedule.simulation.durations import Jitter, drawn, draws

JITTER = Jitter(1_000_000, 100_000)


def test_a_task_has_the_same_durations_in_every_plan() -> None:
    both = drawn(["a", "b"], {"a": JITTER, "b": JITTER}, 20, seed=3)
    assert both["a"] != both["b"]
    assert drawn(["b"], {"b": JITTER}, 10, seed=3)["b"] == both["b"][:10]
    assert drawn(["b"], {"b": JITTER}, 10, seed=4)["b"] != both["b"][:10]
    assert list(islice(draws("b", JITTER, 3), 20)) == both["b"]


def test_tasks_and_names_declare_fixed_durations_too() -> None:
    task = PipelineTask("a", lambda ctx: None)
    assert drawn(["a", "b"], {task: 7, "b": 8.4}, 2, seed=0) == {"a": [7, 7], "b": [8, 8]}
    with pytest.raises(ValueError, match="no duration declared for b"):
        drawn(["a", "b"], {task: 7}, 2, seed=0)
