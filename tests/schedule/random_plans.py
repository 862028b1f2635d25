"""Random plans for hypothesis. No torch."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

from pipelines.schedule import PipelinePlan
from tests.schedule.plans import Diary, plan_of


@dataclass
class Drawn:
    """A legal plan and its parts."""

    plan: PipelinePlan
    stages: dict[str, int]
    intra: list[tuple[str, str]]
    inter: list[tuple[str, str]]
    diary: Diary = field(default_factory=Diary)


def draw_plan(data: st.DataObject, n: int) -> Drawn:
    """Draw a legal plan of n tasks. The order of the names does not reveal the direction of dependencies."""
    names = data.draw(st.permutations([f"t{i}" for i in range(n)]))
    stages = {name: data.draw(st.integers(0, 3)) for name in names}
    pairs = [(a, b) for i, b in enumerate(names) for a in names[i + 1 :] if stages[b] <= stages[a]]
    intra = data.draw(st.lists(st.sampled_from(pairs), unique=True, max_size=10)) if pairs else []
    close = [(a, b) for a in names for b in names if stages[b] - stages[a] <= 1]
    inter = data.draw(st.lists(st.sampled_from(close), unique=True, max_size=6))
    settings = {
        "stream": {name: data.draw(st.sampled_from([None, "s1", "s2"])) for name in names},
        "thread_group": {name: data.draw(st.sampled_from(["default", "io", "third"])) for name in names},
        "globally_ordered": {name: data.draw(st.sampled_from([False, False, True])) for name in names},
    }
    diary = Diary()
    plan = plan_of(stages, intra, inter, diary=diary, **settings)
    return Drawn(plan, stages, intra, inter, diary)
